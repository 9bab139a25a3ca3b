//! What committed entries mean: topics, groups, queues, consumer offsets, locks, the dedup window.
//!
//! One writer, the state machine ([`Machine`]), applies entries in log order; any number of readers use
//! [`Store`]. Message bytes stay in the log; here are only their places. It knows the raft crate's
//! state-machine trait and the protocol's message layout, nothing of requests or connections.

pub mod command;
pub mod entry;

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use quorumlog_raft::{Committed, LogReader, Position, StateMachine};

pub use command::{Command, CommandOutcome, GroupConfig, NodeInfo, TopicConfig};
pub use entry::{EntryBuilder, UnitOutcome};

/// Where and how the state is kept.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The node's directory (`storePathRootDir`). `checkpoint/` and `tables/` (sled) are made in it; index
    /// files lie beside the log's segments.
    pub dir: PathBuf,
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
    // TO BE FILLED by the owner of this module.
}

/// The state machine. Owns all changes.
pub struct Machine {
    // TO BE FILLED by the owner of this module.
}

#[allow(clippy::todo, unused_variables)]
impl Store {
    /// Restores the newest usable checkpoint and the index files of sealed segments (rebuilding those that
    /// are missing or damaged from `log`), and makes the state machine that goes on from there.
    pub fn open(options: StoreOptions, log: LogReader) -> Result<(Store, Machine), StoreError> {
        todo!()
    }

    /// Sets who is told about new messages; once, before the group starts.
    pub fn watch_arrivals(&self, listener: Arc<dyn Arrivals>) {
        todo!()
    }

    pub fn topic(&self, name: &str) -> Option<TopicConfig> {
        todo!()
    }

    /// All topics, sorted by name.
    pub fn topics(&self) -> Vec<TopicConfig> {
        todo!()
    }

    pub fn group(&self, name: &str) -> Option<GroupConfig> {
        todo!()
    }

    /// All subscription groups, sorted by name.
    pub fn groups(&self) -> Vec<GroupConfig> {
        todo!()
    }

    /// What each node of the group said of itself, sorted by id.
    pub fn nodes(&self) -> Vec<NodeInfo> {
        todo!()
    }

    pub fn consumer_offset(&self, group: &str, topic: &str, queue: i32) -> Option<i64> {
        todo!()
    }

    /// Who holds the lock of (group, topic, queue), and when it was last renewed (leader's wall clock, ms).
    pub fn lock_holder(&self, group: &str, topic: &str, queue: i32) -> Option<(String, i64)> {
        todo!()
    }

    /// First and next queue offset; `None` for a queue that never held a message.
    pub fn queue_bounds(&self, topic: &str, queue: i32) -> Option<(i64, i64)> {
        todo!()
    }

    /// Next queue offset to be delivered of a delay level (1-based): everything before was delivered.
    pub fn delay_progress(&self, level: u32) -> i64 {
        todo!()
    }

    /// Reads messages of a queue from `from` on, skipping those whose tags code `matches` refuses.
    /// `store_host` is written into the records.
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
        todo!()
    }

    /// The message at a position, filled in. `None` when no applied message starts there. May block.
    pub fn message_at(
        &self,
        position: Position,
        store_host: SocketAddrV4,
    ) -> Result<Option<Bytes>, StoreError> {
        todo!()
    }

    /// Smallest queue offset whose store time is >= `timestamp_ms` (the end if none); with `upper`, the
    /// largest whose store time is <= it (RocketMQ 5.5.0 answers end - 1 beyond the end). May block.
    pub fn offset_by_time(
        &self,
        topic: &str,
        queue: i32,
        timestamp_ms: i64,
        upper: bool,
    ) -> Result<i64, StoreError> {
        todo!()
    }

    /// Store time of the message at a queue offset; `None` if it is not there. May block.
    pub fn store_time(
        &self,
        topic: &str,
        queue: i32,
        offset: i64,
    ) -> Result<Option<i64>, StoreError> {
        todo!()
    }

    /// Bytes of log between the message at `offset` and the newest applied one: how far back it is.
    pub fn bytes_behind(&self, topic: &str, queue: i32, offset: i64) -> Option<u64> {
        todo!()
    }

    /// Topic and group names as this node last knew them before it stopped, for naming until the log has
    /// been replayed. From sled; empty when there is nothing or it cannot be opened.
    pub fn warm_topics(&self) -> Vec<TopicConfig> {
        todo!()
    }

    /// As [`Store::warm_topics`], for the nodes' addresses.
    pub fn warm_nodes(&self) -> Vec<NodeInfo> {
        todo!()
    }
}

#[allow(clippy::todo, unused_variables)]
impl StateMachine for Machine {
    fn restored(&self) -> Option<quorumlog_raft::AppliedMark> {
        todo!()
    }

    fn apply(&mut self, entry: &Committed) -> Bytes {
        todo!()
    }

    fn advance(&mut self, entry: &Committed) {
        todo!()
    }
}
