//! The log writer: the only place that writes. Drains the queue, writes, syncs once, then answers.
//!
//! The same code runs on a thread or in a task; `run` drives it. A failed write or sync is final.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use super::Shared;
use super::codec::{FRAME_BYTES, Record, encode_frame};
use super::lock;
use super::purged::PurgedFile;
use super::queue::{Done, Job, Sealed};
use super::segment::{self, Mark, Segment};
use super::vote::VoteFile;
use crate::env::{DirLock, LogFile, WriterMode};
use crate::sabotage::{self, Sabotage};
use crate::types::{EntryId, Position};

/// Bytes of entries that one sync covers at most, about.
pub(crate) const GROUP_BYTES: u64 = 8 << 20;

/// The durable mark is written with every so many groups. Each one is a second page for the sync to write; a
/// mark that is some groups old only means that damage to just those would pass for a torn tail.
const MARK_EVERY_GROUPS: u32 = 16;

/// The segment that is written to.
struct Active {
    segment: Arc<Segment>,
    file: Arc<dyn LogFile>,
    mark_sequence: u64,
    mark: Mark,
    /// Groups written since the mark was.
    unmarked_groups: u32,
}

/// Entries that wait for the next write, all of one generation.
#[derive(Default)]
struct Pending {
    records: Vec<Record>,
    bytes: u64,
    generation: u64,
    dones: Vec<Done>,
}

pub(crate) struct Writer {
    shared: Arc<Shared>,
    vote: VoteFile,
    purged: PurgedFile,
    active: Option<Active>,
    pending: Pending,
    /// A file for the next segment, being made.
    prepared: Option<JoinHandle<io::Result<Arc<dyn LogFile>>>>,
    /// Last entry and end of what is in the active file.
    written: (Option<EntryId>, Position),
    written_generation: u64,
    /// As `written`, but durable.
    durable: (Option<EntryId>, Position),
    /// Written since the last sync (asynchronous flush).
    dirty: bool,
    /// Who told the writer to end.
    closing: Option<Done>,
    /// Kept until the writer ends: nobody else may open the directory before the last write.
    _lock: Box<dyn DirLock>,
}

/// Where a log stands when its writer begins.
pub(crate) struct Start {
    pub vote: VoteFile,
    pub purged: PurgedFile,
    /// The active segment with its newest mark.
    pub active: Option<(Arc<Segment>, u64, Mark)>,
    pub last: Option<EntryId>,
    pub end: Position,
    pub lock: Box<dyn DirLock>,
}

impl Writer {
    pub fn new(shared: Arc<Shared>, start: Start) -> io::Result<Writer> {
        let active = match start.active {
            Some((segment, mark_sequence, mark)) => Some(Active {
                file: segment.file()?.clone(),
                segment,
                mark_sequence,
                mark,
                unmarked_groups: 0,
            }),
            None => None,
        };
        let mut writer = Writer {
            shared,
            vote: start.vote,
            purged: start.purged,
            active,
            pending: Pending::default(),
            prepared: None,
            written: (start.last, start.end),
            written_generation: 0,
            durable: (start.last, start.end),
            dirty: false,
            closing: None,
            _lock: start.lock,
        };
        writer.prepare_next();
        Ok(writer)
    }

    /// Does the jobs in order. `Ok(false)`: the writer was told to end. After an error nothing may be
    /// written any more; everybody has been told.
    pub fn process(&mut self, jobs: Vec<Job>) -> io::Result<bool> {
        let mut jobs = jobs.into_iter();
        while let Some(job) = jobs.next() {
            let goes_on = !matches!(job, Job::Close { .. });
            if let Err(error) = self.one(job) {
                self.poison(&error, jobs.collect());
                return Err(error);
            }
            if !goes_on {
                return Ok(false);
            }
        }
        if let Err(error) = self.flush() {
            self.poison(&error, Vec::new());
            return Err(error);
        }
        Ok(true)
    }

    fn one(&mut self, job: Job) -> io::Result<()> {
        match job {
            Job::Append {
                records,
                generation,
                done,
            } => {
                self.pending.bytes += records.iter().map(Record::framed).sum::<u64>();
                self.pending.records.extend(records);
                self.pending.generation = generation;
                self.pending.dones.extend(done);
                if self.pending.bytes >= GROUP_BYTES {
                    self.flush()?;
                }
                Ok(())
            }
            Job::Roll { segment, sealed } => self.roll(segment, sealed),
            Job::Vote { vote, done } => {
                let saved = self.flush().and_then(|()| self.vote.save(&vote));
                if saved.is_ok() {
                    lock(&self.shared.state).vote = Some(vote);
                }
                answer(done, saved)
            }
            Job::Truncate {
                keep,
                dropped,
                end,
                last,
                generation,
                done,
            } => {
                let result = self
                    .flush()
                    .and_then(|()| self.truncate(keep, &dropped, end, last, generation));
                answer(done, result)
            }
            Job::Purge {
                purged,
                dropped,
                all,
                generation,
                done,
            } => {
                let path = self.shared.options.dir.join(super::PURGED);
                let files = self.shared.files.clone();
                let result = self
                    .flush()
                    .and_then(|()| self.purged.save(files.as_ref(), &path, purged))
                    .and_then(|()| {
                        if all {
                            self.vote.save_newest(None)?;
                            self.active = None;
                            self.moved_to(Some(purged.id), purged.end, generation);
                        }
                        self.unlink(dropped.iter())
                    });
                answer(done, result)
            }
            Job::Prepare => {
                if self.shared.lacks_next.load(Ordering::Acquire) {
                    self.prepared = None;
                    self.prepare_next();
                }
                Ok(())
            }
            Job::Barrier { done } => {
                let result = self.flush();
                answer(done, result)
            }
            Job::Close { done } => {
                self.closing = Some(done);
                self.flush().and_then(|()| self.sync_and_mark())
            }
        }
    }

    /// Releases the directory, then tells whoever asked the writer to end.
    pub fn end(mut self, result: io::Result<()>) {
        let closing = self.closing.take();
        drop(self);
        if let Some(done) = closing {
            done(result);
        }
    }

    /// Writes and, unless flushing is asynchronous, syncs what waits; then answers.
    fn flush(&mut self) -> io::Result<()> {
        self.write()?;
        if self.dirty && self.shared.options.flush.waits() && !self.leaves_unsynced() {
            self.sync()?;
        }
        for done in self.pending.dones.drain(..) {
            done(Ok(()));
        }
        Ok(())
    }

    /// Never: what is answered is durable (I-17).
    fn leaves_unsynced(&self) -> bool {
        let follows = || {
            let vote = lock(&self.shared.state).vote;
            vote.is_some_and(|vote| vote.voted_for != self.shared.options.node)
        };
        sabotage::on(Sabotage::AckBeforeSync)
            || (sabotage::on(Sabotage::FollowerUnsynced) && follows())
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(last) = self.pending.records.last() else {
            return Ok(());
        };
        let active = self.active.as_mut().expect("a roll precedes any entry");
        let first = self.pending.records[0].position;
        assert_eq!(
            self.written.1, first,
            "the next entry is at {first}, the file ends at {}",
            self.written.1
        );
        let written = (Some(last.id), last.end());
        active.unmarked_groups += 1;
        if active.unmarked_groups >= MARK_EVERY_GROUPS {
            // What is durable now can be told without a sync of its own: the next one covers the mark.
            let committed = lock(&self.shared.state).committed;
            let known = match sabotage::on(Sabotage::MarkAhead) {
                true => written, // I-20: what a power cut takes would pass for damage.
                false => self.durable,
            };
            active.write_mark(known, committed)?;
        }
        let group = self.shared.group;
        let frames: Vec<[u8; FRAME_BYTES]> = self
            .pending
            .records
            .iter()
            .map(|record| encode_frame(record, group))
            .collect();
        let mut buffers: Vec<&[u8]> = Vec::with_capacity(2 * frames.len());
        for (frame, record) in frames.iter().zip(&self.pending.records) {
            buffers.push(frame);
            if !record.payload.is_empty() {
                buffers.push(&record.payload);
            }
        }
        active
            .file
            .write_all_at(&buffers, active.segment.offset(first))?;
        self.written = written;
        self.written_generation = self.pending.generation;
        self.dirty = true;
        self.pending.records.clear();
        self.pending.bytes = 0;
        self.progress(false);
        Ok(())
    }

    /// Makes everything written durable.
    fn sync(&mut self) -> io::Result<()> {
        if let Some(active) = &self.active {
            let synced = active.file.sync_data();
            match sabotage::on(Sabotage::SyncRetried) && synced.is_err() {
                true => active.file.sync_data()?, // I-19: the pages may be gone.
                false => synced?,
            }
        }
        self.dirty = false;
        self.durable = self.written;
        self.progress(true);
        Ok(())
    }

    fn progress(&self, durable: bool) {
        let (last, end) = self.written;
        lock(&self.shared.state).progress(self.written_generation, last, end, durable);
    }

    fn moved_to(&mut self, last: Option<EntryId>, end: Position, generation: u64) {
        self.written = (last, end);
        self.durable = (last, end);
        self.written_generation = generation;
        self.dirty = false;
        self.progress(true);
    }

    fn roll(&mut self, segment: Arc<Segment>, sealed: Option<Sealed>) -> io::Result<()> {
        // A sealed segment is durable as a whole, however entries are flushed.
        self.write()?;
        if self.dirty {
            self.sync()?;
        }
        let files = self.shared.files.clone();
        if let Some((full, table)) = sealed {
            table.write(files.as_ref(), &full.table_path())?;
            *lock(&full.pinned) = None;
            lock(&self.shared.state).keep_table(table);
        }
        let capacity = segment.header.capacity;
        let file = match self.prepared.take() {
            Some(prepared) if capacity == self.shared.options.segment_bytes => {
                match wait(prepared) {
                    Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                        self.make(capacity)?
                    }
                    made => made?,
                }
            }
            prepared => {
                // The file being made has the wrong size; wait for it, as both have the same name.
                if let Some(prepared) = prepared {
                    match wait(prepared) {
                        Err(error) if error.kind() != io::ErrorKind::StorageFull => {
                            return Err(error);
                        }
                        _ => {}
                    }
                }
                self.make(capacity)?
            }
        };
        let committed = lock(&self.shared.state).committed;
        segment::install(
            files.as_ref(),
            &self.shared.log_dir,
            &segment,
            file.clone(),
            committed,
        )?;
        // Nothing is written to the segment before it would be missed.
        self.vote.save_newest(Some(segment.header.first))?;
        self.active = Some(Active {
            file,
            unmarked_groups: 0,
            mark_sequence: 1,
            mark: Mark {
                position: segment.header.first,
                index: segment.header.prev.map(|prev| prev.index),
                committed,
            },
            segment,
        });
        self.prepare_next();
        Ok(())
    }

    fn truncate(
        &mut self,
        keep: Option<Arc<Segment>>,
        dropped: &[Arc<Segment>],
        end: Position,
        last: Option<EntryId>,
        generation: u64,
    ) -> io::Result<()> {
        if self.dirty {
            self.sync()?;
        }
        let Some(keep) = keep else {
            self.active = None;
            self.vote.save_newest(None)?;
            self.unlink(dropped.iter().rev())?;
            self.moved_to(last, end, generation);
            return Ok(());
        };
        let file = keep.file()?.clone();
        let block = segment::read_block(file.as_ref())?;
        let (mark_sequence, mark) = segment::read_mark(&block).unwrap_or_default();
        let mut active = Active {
            segment: keep,
            file,
            unmarked_groups: 0,
            mark_sequence,
            mark,
        };
        // Both marks first: a mark after the new end would make the cut look like damage.
        let committed = lock(&self.shared.state).committed;
        if active.mark.position > end {
            for _ in 0..2 {
                active.force_mark((last, end), committed)?;
            }
            active.file.sync_data()?;
        }
        self.vote.save_newest(Some(active.segment.header.first))?;
        self.unlink(dropped.iter().rev())?;
        cut(active.file.as_ref(), &active.segment, end)?;
        self.active = Some(active);
        self.moved_to(last, end, generation);
        Ok(())
    }

    /// Removes segments in the given order, then makes that durable.
    fn unlink<'a>(&self, segments: impl Iterator<Item = &'a Arc<Segment>>) -> io::Result<()> {
        let files = self.shared.files.as_ref();
        let mut any = false;
        for segment in segments {
            any = true;
            files.remove(&segment.path)?;
            let table = segment.table_path();
            if files.exists(&table)? {
                files.remove(&table)?;
            }
        }
        if any {
            files.sync_dir(&self.shared.log_dir)?;
        }
        Ok(())
    }

    /// Is there anything that a quiet moment should be used for?
    pub fn restless(&self) -> bool {
        self.active
            .as_ref()
            .is_some_and(|active| active.mark.position < self.written.1)
    }

    /// Is anything written but not synced?
    pub fn dirty(&self) -> bool {
        self.dirty
    }

    /// The timer of asynchronous flushing: syncs what is written.
    pub fn timer(&mut self) -> io::Result<()> {
        self.guarded(Writer::sync)
    }

    /// Nothing has come for a while: records how far the log is durable.
    pub fn idle(&mut self) -> io::Result<()> {
        self.guarded(Writer::sync_and_mark)
    }

    fn guarded(&mut self, act: impl FnOnce(&mut Writer) -> io::Result<()>) -> io::Result<()> {
        act(self).inspect_err(|error| self.poison(error, Vec::new()))
    }

    fn sync_and_mark(&mut self) -> io::Result<()> {
        if self.dirty {
            self.sync()?;
        }
        let committed = lock(&self.shared.state).committed;
        if let Some(active) = &mut self.active
            && active.write_mark(self.durable, committed)?
        {
            active.file.sync_data()?;
        }
        Ok(())
    }

    /// Makes a segment's file that is needed now: what was accepted may use the reserve.
    fn make(&self, capacity: u64) -> io::Result<Arc<dyn LogFile>> {
        segment::prepare(
            self.shared.files.as_ref(),
            &self.shared.log_dir,
            capacity,
            0,
        )
    }

    /// Begins to make the next segment's file. Without the space for it nothing is lost yet: the active segment
    /// has room, and the node takes nothing new until there is space.
    fn prepare_next(&mut self) {
        let shared = self.shared.clone();
        let prepare = move || {
            let options = &shared.options;
            let made = segment::prepare(
                shared.files.as_ref(),
                &shared.log_dir,
                options.segment_bytes,
                options.reserve,
            );
            let full = matches!(&made, Err(error) if error.kind() == io::ErrorKind::StorageFull);
            shared.lacks_next.store(full, Ordering::Release);
            made
        };
        if self.shared.writer == WriterMode::Thread {
            self.prepared = std::thread::Builder::new()
                .name("log-prepare".to_string())
                .spawn(prepare)
                .ok();
        }
    }

    /// Nothing is written from here on; everybody who waits or comes later is told.
    fn poison(&mut self, error: &io::Error, rest: Vec<Job>) {
        let text = error.to_string();
        let kind = error.kind();
        tracing::error!(error = %text, "the log cannot be written any more");
        lock(&self.shared.state).failed = Some(text.clone());
        let again = || io::Error::new(kind, text.clone());
        for done in self.pending.dones.drain(..) {
            done(Err(again()));
        }
        for job in rest.into_iter().chain(self.shared.queue.close()) {
            job.fail(again);
        }
        self.shared.fatal.send_replace(Some(text.clone()));
    }
}

impl Active {
    /// Records how far the log is durable; says whether there was anything new.
    fn write_mark(
        &mut self,
        durable: (Option<EntryId>, Position),
        committed: Option<EntryId>,
    ) -> io::Result<bool> {
        if durable.1 <= self.mark.position {
            return Ok(false);
        }
        self.force_mark(durable, committed)?;
        Ok(true)
    }

    fn force_mark(
        &mut self,
        (last, position): (Option<EntryId>, Position),
        committed: Option<EntryId>,
    ) -> io::Result<()> {
        let mark = Mark {
            position,
            index: last.map(|last| last.index),
            committed,
        };
        self.mark_sequence += 1;
        segment::write_mark(self.file.as_ref(), self.mark_sequence, &mark)?;
        self.mark = mark;
        self.unmarked_groups = 0;
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Nothing may touch the directory once its lock is released.
        if let Some(prepared) = self.prepared.take() {
            let _ = wait(prepared);
        }
    }
}

fn wait(prepared: JoinHandle<io::Result<Arc<dyn LogFile>>>) -> io::Result<Arc<dyn LogFile>> {
    prepared
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("preparing a segment panicked")))
}

/// Cuts a segment's file to `end` and allocates it again, so that old bytes can never be read as entries.
pub(crate) fn cut(file: &dyn LogFile, segment: &Segment, end: Position) -> io::Result<()> {
    file.set_len(segment.offset(end))?;
    file.allocate(segment.allocated())?;
    file.sync_data()
}

/// Answers the caller and passes an error on to the writer.
fn answer(done: Done, result: io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) => {
            done(Ok(()));
            Ok(())
        }
        Err(error) => {
            done(Err(io::Error::new(error.kind(), error.to_string())));
            Err(error)
        }
    }
}
