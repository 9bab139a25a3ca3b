//! RocketMQ's configuration keys, read once at the edge and turned into checked values.
//!
//! The rest of the program sees [`Config`] only. Every key of a file is either used, or named in a warning
//! at start with the reason; a wrong value is an error that names key, file, line and the fix.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One node's configuration, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `brokerClusterName`, default `DefaultCluster`.
    pub cluster: String,
    /// `brokerName`; in a group all nodes carry the same. Default: `dLegerGroup`, else `broker-a`.
    pub broker_name: String,
    /// `brokerIP1`: the IPv4 address that clients reach this node at. Default: the host's first one.
    pub broker_ip: Ipv4Addr,
    /// `listenPort`, default 10911.
    pub listen_port: u16,
    /// `writeFrontPort`, default `listenPort + 1` (the port that RocketMQ's `haListenPort` takes).
    pub front_port: u16,
    /// `namesrvListenPort`, default 9876; 0 turns the built-in name server off.
    pub namesrv_port: u16,
    /// `storePathRootDir`.
    pub dir: PathBuf,
    /// `enableDLegerCommitLog`, `dLegerGroup`, `dLegerPeers`, `dLegerSelfId`; a single-voter group when off.
    pub group: GroupKeys,
    /// `flushDiskType`: SYNC_FLUSH (default) or ASYNC_FLUSH.
    pub sync_flush: bool,
    /// `flushIntervalCommitLog`: how often ASYNC_FLUSH syncs.
    pub flush_interval: Duration,
    /// `mappedFileSizeCommitLog`: bytes of a log segment; default 64 MiB.
    pub segment_bytes: u64,
    /// `raftHeartbeatInterval`, `raftElectionTimeoutMin`, `raftElectionTimeoutMax` (ms): 50, 150, 300.
    pub heartbeat: Duration,
    pub election_min: Duration,
    pub election_max: Duration,
    /// `diskReserveBytes`: free bytes below which writes are refused with code 14. Default 512 MiB.
    pub disk_reserve: u64,
    /// `writeFronts`, default true.
    pub write_fronts: bool,
    /// `writeHoldTimeout` (ms), default 1000: how long a node without a leader holds a write.
    pub write_hold: Duration,
    /// `brokerDeduplication`, default true.
    pub deduplicate: bool,
    /// `slaveReadEnable`, default false.
    pub slave_read: bool,
    /// `autoCreateTopicEnable`, default true.
    pub auto_create_topic: bool,
    /// `autoCreateSubscriptionGroup`, default true.
    pub auto_create_group: bool,
    /// `defaultTopicQueueNums`, default 8: queues of TBW102.
    pub default_topic_queues: u32,
    /// `maxMessageSize`, default and at most 4 MiB.
    pub message_bytes_max: usize,
    /// `messageDelayLevel`, default RocketMQ's 18 levels.
    pub delay_levels: Vec<Duration>,
    /// Lines for the operator about keys that were not understood or have no effect.
    pub warnings: Vec<String>,
}

/// The group this node belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupKeys {
    pub name: String,
    /// This node's id: its place in `dLegerPeers`, from 1.
    pub node: u64,
    /// `n0`, `n1`, ... as written, by node id.
    pub names: BTreeMap<u64, String>,
    /// Peer addresses `host:port` by node id. One entry for a single broker.
    pub peers: BTreeMap<u64, String>,
}

/// What is wrong with a configuration: names key, file, line, and the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {problem}. {fix}", line.map(|l| format!(":{l}")).unwrap_or_default())]
pub struct ConfigError {
    pub file: String,
    pub line: Option<usize>,
    pub problem: String,
    pub fix: String,
}

#[allow(clippy::todo, unused_variables)]
impl Config {
    /// Reads a properties file (`key=value`, `#` comments, Java's escapes as RocketMQ reads them).
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        todo!()
    }

    /// As [`Config::load`] from a text; `file` is what errors call it.
    pub fn parse(text: &str, file: &str) -> Result<Config, ConfigError> {
        todo!()
    }
}
