//! Changes of the small state, as they stand in entries.

use serde::{Deserialize, Serialize};

/// A topic. `perm` bits: 4 read, 2 write, 1 inherit (RocketMQ).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicConfig {
    pub name: String,
    pub read_queues: u32,
    pub write_queues: u32,
    pub perm: u32,
    pub sys_flag: i32,
    pub order: bool,
    /// RocketMQ's `+key=value` attribute text, kept as given.
    pub attributes: String,
}

impl TopicConfig {
    /// A topic without anything special: as many queues to read as to write.
    pub fn plain(name: &str, queues: u32, perm: u32) -> TopicConfig {
        TopicConfig {
            name: name.to_string(),
            read_queues: queues,
            write_queues: queues,
            perm,
            sys_flag: 0,
            order: false,
            attributes: String::new(),
        }
    }
}

/// A subscription group, with RocketMQ's defaults (remoting-protocol 6.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupConfig {
    pub name: String,
    pub consume_enable: bool,
    pub broadcast_enable: bool,
    pub retry_queues: u32,
    pub retry_max_times: i32,
    pub notify_changes: bool,
}

impl GroupConfig {
    pub fn new(name: &str) -> GroupConfig {
        GroupConfig {
            name: name.to_string(),
            consume_enable: true,
            broadcast_enable: true,
            retry_queues: 1,
            retry_max_times: 16,
            notify_changes: true,
        }
    }
}

/// What a node tells the others of itself, so that routes can name it whether it lives or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    pub node: u64,
    /// `host:port` for clients.
    pub address: String,
    /// `host:port` of its write front.
    pub front_address: String,
    pub namesrv_address: String,
    pub slave_read: bool,
}

/// One queue of a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueueId {
    pub topic: String,
    pub queue: i32,
}

/// A change of the small state. New kinds are added at the end; the codec has a version byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Creates or replaces.
    PutTopic(TopicConfig),
    /// Creates if absent; an existing topic is left as it is.
    EnsureTopic(TopicConfig),
    /// Removes the topic, its queues and its consumer offsets. Absent is fine.
    DeleteTopic {
        name: String,
    },
    PutGroup(GroupConfig),
    EnsureGroup(GroupConfig),
    /// Stores a consumer's progress; smaller ones overwrite bigger ones (RocketMQ).
    CommitOffset {
        group: String,
        topic: String,
        queue: i32,
        offset: i64,
    },
    /// Grants each queue that is free, expired (60 s without renewal, by `now_ms`) or already held by
    /// `client`. `now_ms` is the leader's clock as of its process's start, going on evenly; time never
    /// runs backwards in the state.
    Lock {
        group: String,
        client: String,
        queues: Vec<QueueId>,
        now_ms: i64,
    },
    Unlock {
        group: String,
        client: String,
        queues: Vec<QueueId>,
    },
    AnnounceNode(NodeInfo),
}

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandOutcome {
    Done,
    /// The queues now held by the client that asked.
    Locked(Vec<QueueId>),
    /// A consumer offset for a topic or group that does not exist.
    NoSuchTopic,
    NoSuchGroup,
}

/// A lock without renewal is free after this long (RocketMQ: `REBALANCE_LOCK_MAX_LIVE_TIME`).
pub const LOCK_EXPIRY_MS: i64 = 60_000;
