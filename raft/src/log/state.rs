//! What the log knows in memory, and the plans that change it: append, truncate, purge.
//!
//! Pure bookkeeping under one lock. A plan is visible to readers at once; the jobs it returns make it so on
//! disk, in the order of the plans.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::cache::Cache;
use super::codec::{Kind, MAX_PAYLOAD, Record, framed};
use super::lock;
use super::purged::Purged;
use super::queue::{Done, Job};
use super::segment::{Header, Segment};
use super::table::Table;
use super::vote::Vote;
use crate::types::{EntryId, Position};

/// Tables of sealed segments kept in memory.
const TABLES: usize = 16;

/// An entry on its way into the log.
#[derive(Clone, Debug)]
pub(crate) struct NewEntry {
    pub kind: Kind,
    pub id: EntryId,
    pub payload: Bytes,
}

pub(crate) struct State {
    pub dir: PathBuf,
    pub group: u32,
    pub segment_bytes: u64,
    pub cache_bytes: u64,
    /// Oldest first; the last one is active.
    pub segments: Vec<Arc<Segment>>,
    /// Entries of the last segment.
    pub active: Option<Table>,
    pub cache: Cache,
    /// Position after the last entry.
    pub end: Position,
    /// The last entry, or what was purged when there is none.
    pub last: Option<EntryId>,
    pub purged: Option<Purged>,
    /// Everything before is in the files (maybe not durable).
    pub written: Position,
    /// The last durable entry and its end.
    pub durable: Option<EntryId>,
    pub durable_end: Position,
    pub vote: Option<Vote>,
    pub committed: Option<EntryId>,
    /// Counts truncations and purges of everything.
    pub generation: u64,
    /// Why nothing can be written any more.
    pub failed: Option<String>,
    /// Recently used tables of sealed segments, by first position; the newest last.
    pub tables: VecDeque<Arc<Table>>,
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl State {
    /// First index that may be read.
    pub fn first_index(&self) -> u64 {
        let after_purged = self.purged.map_or(0, |purged| purged.id.index + 1);
        self.segments.first().map_or(after_purged, |first| {
            first.header.first_index.max(after_purged)
        })
    }

    /// Index that the next entry gets; any will do in an empty log that was never purged.
    pub fn next_index(&self) -> Option<u64> {
        self.last.map(|last| last.index + 1)
    }

    /// Place in `segments` of the one that holds `index`.
    pub fn segment_of_index(&self, index: u64) -> Option<usize> {
        let after = self
            .segments
            .partition_point(|segment| segment.header.first_index <= index);
        after.checked_sub(1)
    }

    /// Place in `segments` of the one that holds `position`.
    pub fn segment_of(&self, position: Position) -> Option<usize> {
        let after = self
            .segments
            .partition_point(|segment| segment.header.first <= position);
        after.checked_sub(1)
    }

    /// Position after the last entry of the segment at `at`.
    pub fn segment_end(&self, at: usize) -> Position {
        self.segments
            .get(at + 1)
            .map_or(self.end, |next| next.header.first)
    }

    /// A recently used table.
    pub fn cached_table(&mut self, first: Position) -> Option<Arc<Table>> {
        let at = self.tables.iter().position(|table| table.first == first)?;
        let table = self.tables.remove(at)?;
        self.tables.push_back(table.clone());
        Some(table)
    }

    pub fn keep_table(&mut self, table: Arc<Table>) {
        self.tables.retain(|kept| kept.first != table.first);
        if self.tables.len() == TABLES {
            self.tables.pop_front();
        }
        self.tables.push_back(table);
    }

    /// Takes entries in; returns the jobs that write them. All or nothing.
    pub fn append(&mut self, entries: Vec<NewEntry>, done: Done) -> Result<Vec<Job>, io::Error> {
        if let Err(error) = self.check_append(&entries) {
            // The caller returns the error; the callback would report it twice.
            drop(done);
            return Err(error);
        }
        let mut jobs = Vec::new();
        let mut records = Vec::with_capacity(entries.len());
        for entry in entries {
            let framed = framed(entry.payload.len());
            let full = match (&self.active, self.segments.last()) {
                (Some(table), Some(segment)) => {
                    let grown = table.used() + framed > segment.header.capacity;
                    grown || (table.is_empty() && table.next_index() != entry.id.index)
                }
                _ => true,
            };
            if full {
                if !records.is_empty() {
                    jobs.push(self.append_job(std::mem::take(&mut records), None));
                }
                jobs.push(self.roll(&entry, framed));
            }
            let record = Record {
                kind: entry.kind,
                id: entry.id,
                prev_term: self.last.map_or(0, |last| last.term),
                position: self.end,
                payload: entry.payload,
            };
            if let Some(table) = &mut self.active {
                table.push(&record);
            }
            self.end = record.end();
            self.last = Some(record.id);
            self.cache.push(record.clone());
            records.push(record);
        }
        jobs.push(self.append_job(records, Some(done)));
        self.cache.evict(self.cache_bytes, self.written);
        Ok(jobs)
    }

    fn check_append(&self, entries: &[NewEntry]) -> Result<(), io::Error> {
        let mut before = self.last;
        for entry in entries {
            if entry.payload.len() > MAX_PAYLOAD as usize {
                let len = entry.payload.len();
                return Err(invalid(format!(
                    "entry {} has {len} bytes, more than {MAX_PAYLOAD}",
                    entry.id
                )));
            }
            if let Some(before) = before
                && (entry.id.index != before.index + 1 || entry.id.term < before.term)
            {
                return Err(invalid(format!(
                    "entry {} cannot follow {before}",
                    entry.id
                )));
            }
            before = Some(entry.id);
        }
        Ok(())
    }

    fn append_job(&self, records: Vec<Record>, done: Option<Done>) -> Job {
        Job::Append {
            records,
            generation: self.generation,
            done,
        }
    }

    fn roll(&mut self, entry: &NewEntry, framed: u64) -> Job {
        let header = Header {
            group: self.group,
            first: self.end,
            first_index: entry.id.index,
            prev: self.last,
            capacity: self.segment_bytes.max(framed),
        };
        let segment = Arc::new(Segment::planned(&self.dir, header));
        let mut sealed = None;
        if let (Some(table), Some(full)) = (self.active.take(), self.segments.last()) {
            let full = full.clone();
            if table.is_empty() {
                // Only possible where a log begins: nothing to keep.
                self.segments.pop();
            } else {
                let table = Arc::new(table);
                *lock(&full.pinned) = Some(table.clone());
                sealed = Some((full, table));
            }
        }
        self.active = Some(Table::empty(&header));
        self.segments.push(segment.clone());
        Job::Roll { segment, sealed }
    }

    /// Forgets every entry after `keep`; `None` forgets all. `table` is that of the segment that holds
    /// `keep`, when it is not the active one.
    pub fn truncate_after(
        &mut self,
        keep: Option<u64>,
        table: Option<Table>,
        done: Done,
    ) -> Result<Job, (io::Error, Done)> {
        let purged = self.purged.map(|purged| purged.id);
        if keep < purged.map(|id| id.index) {
            let text = format!("cannot truncate after {keep:?}: purged up to {purged:?}");
            return Err((invalid(text), done));
        }
        if keep >= self.last.map(|last| last.index) {
            return Ok(Job::Barrier { done });
        }
        self.generation += 1;
        let kept = keep.and_then(|keep| self.segment_of_index(keep));
        let dropped = self.segments.split_off(kept.map_or(0, |at| at + 1));
        match (keep, self.segments.last()) {
            (Some(keep), Some(_)) => {
                let mut table = table
                    .or_else(|| self.active.take())
                    .expect("the last segment has a table");
                table.truncate_after(keep);
                self.end = table.end;
                self.last = table.last();
                self.active = Some(table);
            }
            _ => {
                let first = dropped.first().map(|segment| segment.header);
                self.end = first.map_or(self.end, |header| header.first);
                self.last = first.and_then(|header| header.prev).or(purged);
                self.active = None;
            }
        }
        self.cache.truncate_from(keep.map_or(0, |keep| keep + 1));
        self.tables.retain(|table| table.end <= self.end);
        self.written = self.written.min(self.end);
        if self.durable_end > self.end {
            self.durable_end = self.end;
            self.durable = self.last;
        }
        Ok(Job::Truncate {
            keep: self.segments.last().cloned(),
            dropped,
            end: self.end,
            last: self.last,
            generation: self.generation,
            done,
        })
    }

    /// Gives up every entry up to `upto`. When that is more than the log holds, the log goes on after it,
    /// at position `end` (or where it is now).
    pub fn purge(&mut self, upto: EntryId, end: Option<Position>, done: Done) -> Job {
        if self
            .purged
            .is_some_and(|purged| purged.id.index >= upto.index)
        {
            return Job::Barrier { done };
        }
        let all = self.last.is_none_or(|last| last.index < upto.index);
        let dropped = if all {
            self.generation += 1;
            self.cache.clear();
            self.tables.clear();
            self.active = None;
            self.end = end.unwrap_or(self.end);
            self.last = Some(upto);
            self.written = self.end;
            self.durable = Some(upto);
            self.durable_end = self.end;
            std::mem::take(&mut self.segments)
        } else {
            let keep = self
                .segments
                .windows(2)
                .take_while(|pair| pair[1].header.first_index <= upto.index + 1)
                .count();
            self.segments.drain(..keep).collect()
        };
        let purged = Purged {
            id: upto,
            end: self.end,
        };
        self.purged = Some(purged);
        Job::Purge {
            purged,
            dropped,
            all,
            generation: self.generation,
            done,
        }
    }

    /// The writer has written up to `end` and, if `durable`, synced it.
    pub fn progress(
        &mut self,
        generation: u64,
        last: Option<EntryId>,
        end: Position,
        durable: bool,
    ) {
        if generation != self.generation {
            return;
        }
        self.written = self.written.max(end);
        if durable && end >= self.durable_end {
            self.durable_end = end;
            self.durable = last;
        }
        self.cache.evict(self.cache_bytes, self.written);
    }
}
