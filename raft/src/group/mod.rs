//! One node of a group: starting it, the gate, proposals, status, and calls to other nodes.
//!
//! The only door of this crate for the broker. Leaves files to `log`, connections to `peer`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::env::Env;
use crate::log::LogReader;
use crate::types::*;

/// When an appended entry counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushMode {
    /// After fdatasync (`flushDiskType=SYNC_FLUSH`, the default).
    Sync,
    /// After the write; a timer syncs (`ASYNC_FLUSH`). Can lose acknowledged entries when nodes lose power.
    Async { interval: Duration },
}

/// Raft's timers. A lease lasts `election_max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    pub heartbeat: Duration,
    pub election_min: Duration,
    pub election_max: Duration,
}

impl Default for Timers {
    /// 50/150/300 ms: kill to first write measured at 430-580 ms, stable under a saturated disk.
    fn default() -> Self {
        Timers {
            heartbeat: Duration::from_millis(50),
            election_min: Duration::from_millis(150),
            election_max: Duration::from_millis(300),
        }
    }
}

/// What one node needs to know to take part in its group.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// Name of the group (`dLegerGroup`); a data directory and a peer of another group are refused.
    pub group: String,
    pub node: NodeId,
    /// All voters, this node included: id to `host:port` of the peer listener.
    pub peers: BTreeMap<NodeId, String>,
    /// Address to listen on for peers.
    pub listen: String,
    /// The node's own directory. `log/`, `vote`, `node.id` and `LOCK` are made in it.
    pub dir: PathBuf,
    /// Bytes of a segment's entries before a new one is begun. An entry never spans two segments.
    pub segment_bytes: u64,
    pub flush: FlushMode,
    pub timers: Timers,
    /// Free bytes of the file system below which proposals are refused.
    pub disk_reserve: u64,
    /// Bytes of recent entries kept in memory for replication.
    pub cache_bytes: usize,
}

/// Why a node could not start. The text names the file or address, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0}")]
    Log(#[from] crate::log::OpenError),
    #[error(
        "cannot listen for peers on {address}: {source}. Is another process using the port (dLegerPeers)?"
    )]
    Listen {
        address: String,
        source: std::io::Error,
    },
    #[error("the configuration of the group is wrong: {0}")]
    Config(String),
    #[error("raft core: {0}")]
    Core(String),
}

/// Why a proposed write has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Not in any log, never will be: safe to send again.
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
    /// It may be committed, now or later: only a retry that is recognised as such is safe.
    #[error("outcome unknown: {0}")]
    Unknown(String),
}

/// A write that was handed to Raft and waits for its result.
pub struct Proposal {
    pub(crate) result: futures_util::future::BoxFuture<'static, Result<Bytes, ProposeError>>,
}

impl Proposal {
    /// Waits until the entry is committed and applied here, or its fate is known to be unknown. May wait
    /// for ever while the majority is gone: bound it, and treat the bound as `Unknown`.
    pub async fn result(self) -> Result<Bytes, ProposeError> {
        self.result.await
    }
}

/// Why a call to another node has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The request did not leave this node: whatever it asked for was not done.
    #[error("not sent: {0}")]
    NotSent(String),
    /// The request may have been carried out.
    #[error("no answer: {0}")]
    NoAnswer(String),
}

/// One running node. Cheap to clone.
#[derive(Clone)]
pub struct Group {
    // TO BE FILLED by the owner of this module.
}

#[allow(clippy::todo, unused_variables)]
impl Group {
    /// Opens the data directory (taking its lock, recovering the log), starts listening for peers, and
    /// starts Raft. On the first start of all, proposes the configured peers as the group's membership.
    ///
    /// When the Raft core dies later (an I/O error, a panic), the process is ended with one clear line:
    /// a node that cannot write must not look alive.
    pub async fn start(
        config: GroupConfig,
        env: Env,
        machine: impl StateMachine,
        service: Arc<dyn PeerService>,
    ) -> Result<Group, StartError> {
        todo!()
    }

    pub fn node(&self) -> NodeId {
        todo!()
    }

    /// What this node knows about the group, now and on every change.
    pub fn view(&self) -> watch::Receiver<View> {
        todo!()
    }

    /// The gate: may a write be proposed here now? A refusal is definite. Cheap, no waiting.
    pub fn gate(&self) -> Result<(), Refusal> {
        todo!()
    }

    /// May this node, as leader, answer a read of the newest state now (fresh lease, and everything
    /// acknowledged before it took over is applied)? Cheap, no waiting.
    pub fn lease_read(&self) -> Result<(), Refusal> {
        todo!()
    }

    /// Hands one entry to Raft. Passes the gate first. Returns as soon as Raft has queued it; proposals of
    /// one caller are appended in the order of the calls.
    pub async fn propose(&self, payload: Bytes) -> Result<Proposal, ProposeError> {
        todo!()
    }

    /// Calls another node's [`PeerService`] and waits for its answer until `deadline` passes.
    pub async fn call(
        &self,
        to: NodeId,
        request: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, CallError> {
        todo!()
    }

    /// Positioned reads of the log. Only positions at or below what was applied may be asked for.
    pub fn reader(&self) -> LogReader {
        todo!()
    }

    pub async fn status(&self) -> Status {
        todo!()
    }

    /// Hands leadership over if this node leads, then stops: no reply leaves after it returns.
    pub async fn shutdown(&self) {
        todo!()
    }
}
