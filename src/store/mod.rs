//! What committed entries mean: topics, groups, queues, consumer offsets, locks, the dedup window.
//!
//! One writer, the state machine ([`Machine`]), applies entries in log order; any number of readers use
//! [`Store`]. Message bytes stay in the log; here are only their places. It knows the raft crate's
//! state-machine trait and the protocol's message layout, nothing of requests or connections.

mod apply;
mod apply_command;
mod block_cache;
mod changes;
mod checkpoint;
mod codec;
pub mod command;
mod dedup;
pub mod describe;
pub mod entry;
mod files;
mod hash;
mod index_file;
mod keeper;
mod log_bytes;
mod lookup;
mod machine;
mod queue;
mod read;
mod restore;
mod shared;
mod state;
mod tables;
mod unit;

use std::fmt;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use quorumlog_raft::env::{Env, WriterMode};
use quorumlog_raft::{AppliedMark, LogReader, Position};

use apply::Grown;
use keeper::{Keeper, Places};
use log_bytes::LogBytes;
use shared::Shared;
use tables::{Tables, Warm};

pub use command::{Command, CommandOutcome, GroupConfig, NodeInfo, TopicConfig};
pub use entry::{EntryBuilder, UnitOutcome};

/// Where and how the state is kept.
#[derive(Clone)]
pub struct StoreOptions {
    /// The node's directory (`storePathRootDir`). `checkpoint/` and `tables/` (sled) are made in it; index
    /// files lie beside the log's segments.
    pub dir: PathBuf,
    /// Where files are; [`WriterMode::Task`] keeps everything in one thread, and without sled.
    pub env: Env,
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

/// Why the state could not be opened or read. Says whether a retry can help.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{path}: {source}")]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The log no longer or not yet holds what was asked for; a retry with other bounds may.
    #[error("{0}")]
    Log(#[from] quorumlog_raft::log::ReadError),
    /// The bytes in the log are not what was written: an operator must look.
    #[error("the record at position {position} is damaged: {what}")]
    Damaged { position: Position, what: String },
    /// Nothing usable covers the part of the log that was given up: the node must be filled by the others.
    #[error(
        "no usable checkpoint, and the log begins only at position {first}: empty the data directory \
         while all other nodes are up, and let the node be filled again"
    )]
    Beginning { first: Position },
    /// A restart makes the file again from the log.
    #[error("the index file {path} is damaged: {what}; restart the node to have it made again")]
    Index { path: PathBuf, what: &'static str },
}

/// May a read wait for the disk?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Only what is in memory; otherwise [`ReadOutcome::WouldBlock`].
    No,
    /// On a thread that may block.
    Yes,
}

/// How much one read may return. At least one message is always returned when there is one.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    pub messages_max: usize,
    pub bytes_max: usize,
}

/// Result of reading a queue. Offsets are queue offsets; `max` is the next one to be assigned.
#[derive(Clone, Debug)]
pub enum ReadOutcome {
    /// Whole records, filled in (queue offset, position, store host), and where to go on.
    Found {
        records: Bytes,
        count: usize,
        next: i64,
        min: i64,
        max: i64,
    },
    /// Entries were examined, none matched the filter.
    NoneMatched { next: i64, min: i64, max: i64 },
    /// The offset is the queue's end.
    AtEnd { min: i64, max: i64 },
    /// The queue holds nothing and never did (or is not known).
    Empty,
    /// Before the first or behind the last.
    OutOfRange { min: i64, max: i64 },
    /// The bytes are not in memory; read again with [`Wait::Yes`] on a thread that may block.
    WouldBlock,
}

/// Told about every queue that grew, after the entry that made it grow was applied. Called from the apply
/// path: must not block.
pub trait Arrivals: Send + Sync + 'static {
    fn arrived(&self, topic: &str, queue: i32, end: i64);
}

/// The state as readers see it: always an applied prefix of the log. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

/// The state machine. Owns all changes.
pub struct Machine {
    shared: Arc<Shared>,
    keeper: Keeper,
    restored: Option<AppliedMark>,
    /// Of the entry being applied; kept for its memory.
    grown: Vec<Grown>,
}

impl Store {
    /// Restores the newest usable checkpoint and the index files of sealed segments (rebuilding those that
    /// are missing or damaged from `log`), and makes the state machine that goes on from there.
    pub fn open(options: StoreOptions, log: LogReader) -> Result<(Store, Machine), StoreError> {
        Store::open_over(options, Arc::new(log))
    }

    fn open_over(
        options: StoreOptions,
        log: Arc<dyn LogBytes>,
    ) -> Result<(Store, Machine), StoreError> {
        let StoreOptions { dir, env } = options;
        let places = Places {
            checkpoints: dir.join("checkpoint"),
            index: log.dir(),
        };
        let mut state = restore::restore(&*env.files, &*log, &places)?;
        let (tables, warm) = match env.writer {
            WriterMode::Thread => Tables::open(&dir),
            WriterMode::Task => (None, Warm::default()),
        };
        if tables.is_some() && state.mark.is_some() {
            state.changes = changes::Changes::all();
        }
        let shared = Arc::new(Shared::new(state, log, env.files.clone(), warm));
        let keeper = Keeper::start(shared.clone(), places, tables, env.writer)
            .map_err(|source| StoreError::Io { path: dir, source })?;
        let machine = Machine::new(shared.clone(), keeper);
        Ok((Store { shared }, machine))
    }

    /// Sets who is told about new messages; once, before the group starts.
    pub fn watch_arrivals(&self, listener: Arc<dyn Arrivals>) {
        let first = self.shared.arrivals.set(listener).is_ok();
        assert!(first, "a second listener for arrivals");
    }

    /// Never: changes what this node alone knows.
    #[cfg(feature = "sabotage")]
    pub(crate) fn keep_here(&self, command: Command) {
        self.shared.write().command(command);
    }

    pub fn topic(&self, name: &str) -> Option<TopicConfig> {
        let state = self.shared.read();
        Some(state.topics.by_name(name)?.config.clone())
    }

    /// All topics, sorted by name.
    pub fn topics(&self) -> Vec<TopicConfig> {
        let state = self.shared.read();
        let topics = state.topics.sorted().into_iter();
        topics.map(|topic| topic.config.clone()).collect()
    }

    pub fn group(&self, name: &str) -> Option<GroupConfig> {
        self.shared.read().small.groups.get(name).cloned()
    }

    /// All subscription groups, sorted by name.
    pub fn groups(&self) -> Vec<GroupConfig> {
        self.shared.read().small.groups.values().cloned().collect()
    }

    /// What each node of the group said of itself, sorted by id.
    pub fn nodes(&self) -> Vec<NodeInfo> {
        self.shared.read().small.nodes.values().cloned().collect()
    }

    pub fn consumer_offset(&self, group: &str, topic: &str, queue: i32) -> Option<i64> {
        let state = self.shared.read();
        let topics = state.small.offsets.get(group)?;
        topics.get(topic)?.get(&queue).copied()
    }

    /// Who holds the lock of (group, topic, queue), and when it was last renewed (leader's wall clock, ms).
    pub fn lock_holder(&self, group: &str, topic: &str, queue: i32) -> Option<(String, i64)> {
        let queue = command::QueueId {
            topic: topic.to_string(),
            queue,
        };
        let state = self.shared.read();
        let lock = state.small.locks.get(group)?.get(&queue)?;
        Some((lock.client.clone(), lock.renewed_ms))
    }

    /// Index of the last entry that this state includes; 0 when there is none. What was read before from here
    /// includes nothing newer, though the log may not have told yet that the entry is applied.
    pub fn applied_index(&self) -> u64 {
        let state = self.shared.read();
        state.mark.as_ref().map_or(0, |mark| mark.id.index)
    }

    /// First and next queue offset; `None` for a queue that never held a message.
    pub fn queue_bounds(&self, topic: &str, queue: i32) -> Option<(i64, i64)> {
        let state = self.shared.read();
        let queue = state.queue(topic, queue)?;
        Some((queue.min, queue.next()))
    }

    /// Next queue offset to be delivered of a delay level (1-based): everything before was delivered.
    pub fn delay_progress(&self, level: u32) -> i64 {
        let state = self.shared.read();
        state.small.delay_progress.get(&level).copied().unwrap_or(0)
    }

    /// Reads messages of a queue from `from` on, skipping those whose tags code `matches` refuses.
    /// `store_host` is written into the records.
    ///
    /// One read looks at 4,096 messages at most: with a filter that matches few, go on from `next`.
    #[expect(clippy::too_many_arguments)]
    pub fn read(
        &self,
        topic: &str,
        queue: i32,
        from: i64,
        limits: ReadLimits,
        matches: &dyn Fn(i64) -> bool,
        store_host: SocketAddrV4,
        wait: Wait,
    ) -> Result<ReadOutcome, StoreError> {
        self.shared.read_queue(&read::Request {
            topic,
            queue,
            from,
            limits,
            matches,
            store_host,
            wait,
        })
    }

    /// The message at a position, filled in. `None` when no applied message starts there. May block.
    pub fn message_at(
        &self,
        position: Position,
        store_host: SocketAddrV4,
    ) -> Result<Option<Bytes>, StoreError> {
        self.shared.message_at(position, store_host)
    }

    /// Smallest queue offset whose store time is >= `timestamp_ms` (the end if none); with `upper`, the
    /// largest whose store time is <= it (RocketMQ 5.5.0 answers end - 1 beyond the end), or the first one
    /// if there is none. 0 for a queue that never held a message. May block.
    pub fn offset_by_time(
        &self,
        topic: &str,
        queue: i32,
        timestamp_ms: i64,
        upper: bool,
    ) -> Result<i64, StoreError> {
        self.shared
            .offset_by_time(topic, queue, timestamp_ms, upper)
    }

    /// Store time of the message at a queue offset; `None` if it is not there. May block.
    pub fn store_time(
        &self,
        topic: &str,
        queue: i32,
        offset: i64,
    ) -> Result<Option<i64>, StoreError> {
        self.shared.store_time(topic, queue, offset)
    }

    /// Bytes of log between the message at `offset` and the newest applied one: how far back it is. Of a
    /// message whose place is only in an index file up to one segment too many; never waits for the disk.
    pub fn bytes_behind(&self, topic: &str, queue: i32, offset: i64) -> Option<u64> {
        let state = self.shared.read();
        let position = state.queue(topic, queue)?.position_at_or_before(offset)?;
        Some(state.applied_end().saturating_sub(position))
    }

    /// Topic and group names as this node last knew them before it stopped, for naming until the log has
    /// been replayed. From sled; empty when there is nothing or it cannot be opened.
    pub fn warm_topics(&self) -> Vec<TopicConfig> {
        self.shared.warm.topics.clone()
    }

    /// As [`Store::warm_topics`], for the nodes' addresses.
    pub fn warm_nodes(&self) -> Vec<NodeInfo> {
        self.shared.warm.nodes.clone()
    }
}

#[cfg(test)]
mod tests;
