//! One queue's index: where each of its messages stands in the log.
//!
//! Items of sealed segments lie in runs (in memory until the segment's index file is there, then in the
//! file); those of the active segment in a vector.

use std::ops::Range;
use std::sync::Arc;

use quorumlog_raft::Position;

use super::index_file::IndexFile;

/// Place of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Of the record's first byte; its CRC lies in the four bytes before.
    pub position: Position,
    pub length: u32,
    /// RocketMQ's tags code: a sign-extended 32-bit hash, hence kept in 32 bits.
    pub tags: i32,
}

impl Item {
    pub(super) fn tags_code(&self) -> i64 {
        i64::from(self.tags)
    }
}

/// A queue's items of one sealed segment.
#[derive(Clone)]
pub(super) struct Run {
    /// First position of the segment.
    pub segment: Position,
    /// Queue offset of the first item.
    pub first: i64,
    pub count: usize,
    /// Position of the first item.
    pub first_position: Position,
    pub place: RunPlace,
}

#[derive(Clone)]
pub(super) enum RunPlace {
    /// The index file is not written yet.
    Memory(Arc<Vec<Item>>),
    /// The run of this number in the file's directory.
    File(Arc<IndexFile>, usize),
}

impl Run {
    fn end(&self) -> i64 {
        self.first + self.count as i64
    }
}

/// Neighbouring items, all in one segment, found under the state's lock and used after it was released.
pub(super) enum Chunk {
    Memory(Arc<Vec<Item>>, Range<usize>),
    /// Of this run in the index file's directory; the items have to be read.
    File(Arc<IndexFile>, usize, Range<usize>),
}

/// A chunk, and the segment that its messages are in.
pub(super) struct Located {
    pub segment: Position,
    pub chunk: Chunk,
}

#[derive(Default)]
pub(super) struct Queue {
    /// First queue offset still there.
    pub min: i64,
    /// Oldest first, without holes: from `min` up to the first active one.
    pub runs: Vec<Run>,
    /// Items of the active segment.
    pub active: Vec<Item>,
    /// Queue offset of the first active item.
    pub active_first: i64,
    /// Last entry that made the queue grow, and its place in that entry's list of arrivals.
    pub grown_by: (u64, usize),
}

impl Queue {
    /// A queue whose messages from `min` to `next` are in sealed segments.
    pub(super) fn sealed(min: i64, next: i64, runs: Vec<Run>) -> Queue {
        Queue {
            min,
            runs,
            active_first: next,
            ..Queue::default()
        }
    }

    /// The next queue offset to be assigned.
    pub(super) fn next(&self) -> i64 {
        self.active_first + self.active.len() as i64
    }

    /// Up to `count` items from `from` on (which must be in the queue), as many as lie together.
    pub(super) fn locate(&self, from: i64, count: usize, active_segment: Position) -> Located {
        assert!(
            self.min <= from && from < self.next(),
            "queue offset {from} is not in {}..{}",
            self.min,
            self.next()
        );
        if from >= self.active_first {
            let start = (from - self.active_first) as usize;
            let end = self.active.len().min(start + count);
            let items = self.active[start..end].to_vec();
            let range = 0..items.len();
            return Located {
                segment: active_segment,
                chunk: Chunk::Memory(Arc::new(items), range),
            };
        }
        let run = &self.runs[self.runs.partition_point(|run| run.end() <= from)];
        let start = (from - run.first) as usize;
        let range = start..run.count.min(start + count);
        Located {
            segment: run.segment,
            chunk: match &run.place {
                RunPlace::Memory(items) => Chunk::Memory(items.clone(), range),
                RunPlace::File(file, number) => Chunk::File(file.clone(), *number, range),
            },
        }
    }

    /// The queue offsets among which the message at `position` of the segment that starts at `segment`
    /// would be, if this queue has messages there.
    pub(super) fn offsets_in_segment(
        &self,
        segment: Position,
        active_segment: Position,
    ) -> Option<Range<i64>> {
        if segment == active_segment {
            return Some(self.active_first..self.next());
        }
        let run = self
            .runs
            .binary_search_by_key(&segment, |run| run.segment)
            .ok()?;
        let run = &self.runs[run];
        Some(run.first.max(self.min)..run.end())
    }

    /// Position of the item at `offset`, or that of the first one of its run where the item itself would
    /// have to be read from a file.
    pub(super) fn position_at_or_before(&self, offset: i64) -> Option<Position> {
        if offset < self.min || offset >= self.next() {
            return None;
        }
        if offset >= self.active_first {
            return Some(self.active[(offset - self.active_first) as usize].position);
        }
        let run = &self.runs[self.runs.partition_point(|run| run.end() <= offset)];
        Some(match &run.place {
            RunPlace::Memory(items) => items[(offset - run.first) as usize].position,
            RunPlace::File(..) => run.first_position,
        })
    }

    /// Closes the active items into a run of the segment that starts at `segment`; returns them.
    pub(super) fn seal(&mut self, segment: Position) -> Option<(i64, Arc<Vec<Item>>)> {
        let first_position = self.active.first()?.position;
        let next = self.next();
        let items = Arc::new(std::mem::take(&mut self.active));
        self.runs.push(Run {
            segment,
            first: self.active_first,
            count: items.len(),
            first_position,
            place: RunPlace::Memory(items.clone()),
        });
        let first = std::mem::replace(&mut self.active_first, next);
        Some((first, items))
    }
}
