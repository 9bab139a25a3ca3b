//! The log on this node's disk: segment files, the log writer, the vote file, recovery, positioned reads.
//!
//! Owns every byte below the data directory's `log/`, `vote`, `node.id`, `unfilled` and `LOCK`. Knows nothing of peers
//! or of openraft.

mod cache;
pub(crate) mod codec;
mod entries;
mod fill;
mod identity;
pub mod inspect;
mod open;
mod purged;
mod queue;
mod reader;
mod recovery;
mod run;
mod scan;
mod segment;
mod slots;
mod state;
mod table;
mod vote;
mod writer;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod log_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod thread_tests;

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

pub use identity::Identity;
pub use purged::Purged;
pub use reader::{LogReader, ScannedEntry};
pub use segment::Mark;
pub(crate) use state::NewEntry;
pub use vote::Vote;

use crate::env::{Env, Files, WriterMode};
use crate::types::{EntryId, NodeId, Position};
use codec::Record;
use queue::{Done, Job, Queue};
use state::State;

const LOCK: &str = "LOCK";
const LOG: &str = "log";
const NODE_ID: &str = "node.id";
const PURGED: &str = "purged";
const UNFILLED: &str = "unfilled";
const VOTE: &str = "vote";
/// Most bytes of entries in a segment: offsets within one are 32 bits.
const MAX_SEGMENT: u64 = 2 << 30;
/// Bytes of entries that may wait for the log writer before callers have to.
const MAX_WAITING: u64 = 64 << 20;

/// Why a data directory cannot be opened. Every text names the file and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "{path} is in use by another process; two nodes must not share a data directory (storePathRootDir)"
    )]
    Locked { path: PathBuf },
    #[error(
        "{path} belongs to {found}, but this node is {expected}; check dLegerGroup, dLegerSelfId and storePathRootDir"
    )]
    Foreign {
        path: PathBuf,
        found: String,
        expected: String,
    },
    #[error(
        "{path}: format version {found} is newer than this program knows ({known}); start the newer version"
    )]
    Version {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    #[error(
        "{path}: entry {entry} at byte {offset} is damaged, before the position that was durable ({durable}); \
         the log was not cut. The other nodes still hold the entry: restore this file from a copy, or empty \
         the data directory while all other nodes are up, and let the node be filled again"
    )]
    Damaged {
        path: PathBuf,
        offset: u64,
        entry: String,
        durable: Position,
    },
    #[error(
        "{path}: the newest segment of the log, which begins at position {first}, is missing, and with it what \
         this node confirmed. Put the file back, or empty the data directory while all other nodes are up, \
         and let the node be filled again"
    )]
    Missing { path: PathBuf, first: Position },
    #[error("{path}: {what}. A node that does not know how it voted must not vote")]
    Vote { path: PathBuf, what: String },
}

/// Why bytes at a position could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("position {0} is not in this log")]
    OutOfRange(Position),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    /// Retrying does not help: the bytes on this disk are not what was written.
    #[error(
        "{path}: entry {entry} at byte {offset} is damaged and not served; the other nodes hold it"
    )]
    Damaged {
        path: PathBuf,
        offset: u64,
        entry: String,
    },
}

/// When an appended entry counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushMode {
    /// After fdatasync (`flushDiskType=SYNC_FLUSH`, the default).
    Sync,
    /// After the write; a timer syncs (`ASYNC_FLUSH`). Can lose acknowledged entries when nodes lose power.
    Async { interval: Duration },
}

impl FlushMode {
    fn waits(self) -> bool {
        self == FlushMode::Sync
    }
}

/// What a log needs to know to be opened.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The node's own directory.
    pub dir: PathBuf,
    pub group: String,
    pub node: NodeId,
    /// Bytes of a new segment's entries (at most 2 GiB).
    pub segment_bytes: u64,
    /// Bytes of recent entries kept in memory.
    pub cache_bytes: usize,
    /// Free bytes of the disk that a segment made in advance must leave.
    pub reserve: u64,
    pub flush: FlushMode,
}

/// What the log's callers, readers and writer share.
pub(crate) struct Shared {
    options: Options,
    log_dir: PathBuf,
    group: u32,
    files: Arc<dyn Files>,
    writer: WriterMode,
    state: Mutex<State>,
    queue: Queue,
    /// The directory was made empty, and what the node promised from an earlier one may be missing.
    unfilled: AtomicBool,
    /// There was no space to make the next segment in advance.
    lacks_next: AtomicBool,
    fatal: watch::Sender<Option<String>>,
}

/// The log of this node. Cheap to clone. Dropping the last one ends the log writer after what is queued.
#[derive(Clone)]
pub(crate) struct Log {
    shared: Arc<Shared>,
    _owner: Arc<Owner>,
}

/// Ends the writer when nobody can queue anything any more.
struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        let done: Done = Box::new(|_| {});
        // Refused when the writer has ended already.
        let _ = self.0.queue.push(Job::Close { done });
    }
}

/// Locks a mutex. A panic elsewhere leaves our data consistent enough to end the process with.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

impl Log {
    /// Opens the directory, or sets it up on the first start; recovers, then starts the log writer. Waits
    /// for the disk. In [`WriterMode::Task`] it must be called within a runtime.
    pub fn open(options: Options, env: &Env) -> Result<Log, OpenError> {
        open::open(options, env)
    }

    fn of(shared: Arc<Shared>) -> Log {
        Log {
            _owner: Arc::new(Owner(shared.clone())),
            shared,
        }
    }

    /// Positioned reads of this log.
    pub fn reader(&self) -> LogReader {
        LogReader::of(self.shared.clone())
    }

    /// The last entry in the log, maybe not durable; what was purged when there is none.
    pub fn appended(&self) -> Option<EntryId> {
        lock(&self.shared.state).last
    }

    /// The last entry that is durable here.
    pub fn durable(&self) -> Option<EntryId> {
        lock(&self.shared.state).durable
    }

    /// Up to where the log's beginning was given up.
    pub fn purged(&self) -> Option<EntryId> {
        lock(&self.shared.state).purged.map(|purged| purged.id)
    }

    /// Whether the directory was made empty and has not been filled since: what the node promised from an
    /// earlier one, votes and entries, may be missing.
    pub fn unfilled(&self) -> bool {
        self.shared.unfilled.load(Ordering::Acquire)
    }

    /// Records that nothing is missing any more. Durable when this returns.
    pub async fn set_filled(&self) -> io::Result<()> {
        if !self.unfilled() {
            return Ok(());
        }
        let shared = self.shared.clone();
        self.blocking(move || {
            let path = shared.options.dir.join(UNFILLED);
            fill::remove(shared.files.as_ref(), &path)?;
            shared.unfilled.store(false, Ordering::Release);
            Ok(())
        })
        .await
    }

    /// Bytes of entries that fit into the active segment, if there was no space to make the next one in advance.
    /// `None`: it is there, or being made.
    pub fn last_room(&self) -> Option<u64> {
        if !self.shared.lacks_next.load(Ordering::Acquire) {
            return None;
        }
        let state = lock(&self.shared.state);
        let (Some(table), Some(segment)) = (&state.active, state.segments.last()) else {
            return Some(0);
        };
        Some(segment.header.capacity.saturating_sub(table.used()))
    }

    /// Tries again to make the next segment in advance.
    pub fn make_next(&self) {
        // Refused when the log is closed, and then nothing is needed.
        let _ = self.push(Job::Prepare);
    }

    /// Position after the last appended entry.
    pub fn end_position(&self) -> Position {
        lock(&self.shared.state).end
    }

    /// First position of the segment that holds `position` (or will, when it is the end).
    pub fn segment_of(&self, position: Position) -> Option<Position> {
        let state = lock(&self.shared.state);
        let at = state.segment_of(position)?;
        state.segments.get(at).map(|segment| segment.header.first)
    }

    /// The last saved vote; `None` when this node never voted.
    pub fn vote(&self) -> Option<Vote> {
        lock(&self.shared.state).vote
    }

    /// The last entry known to be committed, as far as that was recorded.
    pub fn committed(&self) -> Option<EntryId> {
        lock(&self.shared.state).committed
    }

    /// Remembers what is committed. Recorded along with later writes, without waiting.
    pub fn set_committed(&self, committed: Option<EntryId>) {
        lock(&self.shared.state).committed = committed;
    }

    /// The last entry of each term among the entries `from..=to`, oldest first. Reads the tables of only
    /// those segments in which the term changes.
    pub fn last_of_terms(&self, from: u64, to: u64) -> io::Result<Vec<EntryId>> {
        entries::last_of_terms(&self.shared, from, to)
    }

    /// The entries `range` as far as the log holds them, oldest first; stops after `limit` bytes, but never
    /// before the first entry. Does not block the runtime.
    pub async fn read_entries(&self, range: Range<u64>, limit: u64) -> io::Result<Vec<Record>> {
        if let Some(records) = entries::read_cached(&self.shared, &range, limit) {
            return Ok(records);
        }
        let shared = self.shared.clone();
        self.blocking(move || entries::read(&shared, range, limit))
            .await
    }

    /// Runs what waits for the disk away from the runtime's workers (in the simulation: here).
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        match self.shared.writer {
            WriterMode::Task => work(),
            WriterMode::Thread => tokio::task::spawn_blocking(work)
                .await
                .unwrap_or_else(|error| Err(io::Error::other(error))),
        }
    }

    /// Becomes `Some(why)` when the log cannot be written any more. Nothing is durable after that; the
    /// process must end.
    pub fn fatal(&self) -> watch::Receiver<Option<String>> {
        self.shared.fatal.subscribe()
    }

    /// Waits until the log writer has caught up enough to take more.
    pub async fn room(&self) {
        self.shared.queue.room(MAX_WAITING).await;
    }

    /// Adds entries; they can be read when this returns. `done` is called when they are durable (or, with
    /// asynchronous flushing, written), or with the error that ended the log. Refuses, without calling
    /// `done`, entries that do not follow the last one.
    pub fn append(&self, entries: Vec<NewEntry>, done: Done) -> io::Result<()> {
        let mut state = lock(&self.shared.state);
        self.check(&state)?;
        if entries.is_empty() {
            return self.push(Job::Barrier { done });
        }
        for job in state.append(entries, done)? {
            self.push(job)?;
        }
        Ok(())
    }

    /// Waits until everything queued before is durable.
    pub async fn barrier(&self) -> io::Result<()> {
        self.wait(|done| self.push(Job::Barrier { done })).await
    }

    /// Saves a vote, after everything queued before; durable when this returns.
    pub async fn save_vote(&self, vote: Vote) -> io::Result<()> {
        self.wait(|done| self.push(Job::Vote { vote, done })).await
    }

    /// Removes every entry after `keep` (`None`: all). Durable when this returns.
    pub async fn truncate_after(&self, keep: Option<u64>) -> io::Result<()> {
        self.wait(|done| {
            let table = entries::table_to_reopen(&self.shared, keep)?;
            let mut state = lock(&self.shared.state);
            self.check(&state)?;
            match state.truncate_after(keep, table, done) {
                Ok(job) => self.push(job),
                Err((error, _)) => Err(error),
            }
        })
        .await
    }

    /// Gives up every entry up to `upto`; whole segments are removed. `end`: where the log goes on when
    /// it holds nothing after `upto`. Durable when this returns.
    pub async fn purge(&self, upto: EntryId, end: Option<Position>) -> io::Result<()> {
        self.wait(|done| {
            let mut state = lock(&self.shared.state);
            self.check(&state)?;
            let job = state.purge(upto, end, done);
            self.push(job)
        })
        .await
    }

    /// Writes and syncs what is queued, records it as durable, and stops the writer. The directory can be
    /// opened again when this returns.
    pub async fn close(&self) -> io::Result<()> {
        self.wait(|done| self.push(Job::Close { done })).await
    }

    async fn wait(&self, queue: impl FnOnce(Done) -> io::Result<()>) -> io::Result<()> {
        let (sender, receiver) = oneshot::channel();
        queue(Box::new(move |result| {
            // Nobody waits any more: then nobody needs to know.
            let _ = sender.send(result);
        }))?;
        receiver.await.unwrap_or_else(|_| Err(self.ended()))
    }

    fn check(&self, state: &State) -> io::Result<()> {
        match &state.failed {
            Some(why) => Err(io::Error::other(format!("the log has failed: {why}"))),
            None => Ok(()),
        }
    }

    fn push(&self, job: Job) -> io::Result<()> {
        self.shared.queue.push(job).map_err(|_| self.ended())
    }

    fn ended(&self) -> io::Error {
        io::Error::new(io::ErrorKind::BrokenPipe, "the log is closed or has failed")
    }
}
