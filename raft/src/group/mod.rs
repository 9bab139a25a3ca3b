//! One node of a group: starting it, the gate, proposals, status, and calls to other nodes.
//!
//! The only door of this crate for the broker. Leaves files to `log`, connections to `peer`.

mod bootstrap;
mod consent;
mod death;
mod forgotten;
mod gate;
mod inbound;
mod newcomer;
mod proposal;
mod room;
mod start;
mod status;
mod view;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::metrics::RaftMetrics;
use openraft::type_config::alias::WatchReceiverOf;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

pub use self::death::OnFatal;
use self::gate::GateInput;
use self::proposal::Budget;
pub use self::proposal::MAX_PAYLOAD_BYTES;
use self::room::Room;
use self::start::MakeMachine;
use self::view::Part;
use crate::env::Env;
pub use crate::log::FlushMode;
use crate::log::{Log, LogReader};
use crate::peer::{Links, RequestError};
use crate::sabotage::{self, Sabotage};
use crate::storage::entry::{Payload, TypeConfig};
use crate::storage::{AppliedAt, Machine, Reply};
use crate::types::*;

/// This node's Raft.
pub(crate) type RaftNode = openraft::Raft<TypeConfig, Machine>;

/// Bound of handing leadership over and finishing what is under way, when a node stops.
const HANDOVER: Duration = Duration::from_millis(500);
/// Bound of everything else that stopping waits for: a disk that hangs must not keep a process alive.
const STOP_BOUND: Duration = Duration::from_secs(5);

/// Raft's timers. A lease lasts `election_max`: for so long a leader proposes, and its followers refuse their votes
/// to others. Reads of the newest state are answered for half of it; see [`Group::lease_read`].
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
    /// Free bytes of the file system below which proposals are refused; below half of it, entries of the leader
    /// too.
    pub disk_reserve: u64,
    /// Bytes of recent entries kept in memory for replication.
    pub cache_bytes: usize,
    /// An operator's word that an empty directory is missing nothing: neither this node nor any node that does
    /// not answer has confirmed anything that is not on the others. Without it, a node whose directory was
    /// made empty does nothing by itself until all others have answered.
    pub accept_empty: bool,
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
    #[error("{0}")]
    State(String),
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
    inner: Arc<Inner>,
}

struct Inner {
    config: GroupConfig,
    env: Env,
    raft: RaftNode,
    log: Log,
    links: Links,
    service: Arc<dyn PeerService>,
    metrics: WatchReceiverOf<TypeConfig, RaftMetrics<TypeConfig>>,
    applied: watch::Receiver<AppliedAt>,
    view: watch::Receiver<View>,
    room: Arc<Room>,
    budget: Budget,
    stopping: Arc<AtomicBool>,
    /// Ended when the node stops, or when its last handle is dropped. They hold no handle.
    tasks: Mutex<JoinSet<()>>,
}

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
        let on_fatal = death::end_process();
        Group::start_with(config, env, machine, service, on_fatal).await
    }

    /// As [`Group::start`], with something else to do when the node cannot go on.
    pub async fn start_with(
        config: GroupConfig,
        env: Env,
        machine: impl StateMachine,
        service: Arc<dyn PeerService>,
        on_fatal: OnFatal,
    ) -> Result<Group, StartError> {
        let make: MakeMachine = Box::new(|_| Ok(Box::new(machine)));
        start::start(config, env, make, service, on_fatal).await
    }

    /// As [`Group::start`], for a machine that needs the log to restore itself: `make` is called with the
    /// recovered log, on a thread that may block, before anything runs. Its error ends the start.
    pub async fn start_over<M: StateMachine>(
        config: GroupConfig,
        env: Env,
        make: impl FnOnce(LogReader) -> Result<M, String> + Send + 'static,
        service: Arc<dyn PeerService>,
    ) -> Result<Group, StartError> {
        let on_fatal = death::end_process();
        Group::start_over_with(config, env, make, service, on_fatal).await
    }

    /// As [`Group::start_over`], with something else to do when the node cannot go on.
    pub async fn start_over_with<M: StateMachine>(
        config: GroupConfig,
        env: Env,
        make: impl FnOnce(LogReader) -> Result<M, String> + Send + 'static,
        service: Arc<dyn PeerService>,
        on_fatal: OnFatal,
    ) -> Result<Group, StartError> {
        let make: MakeMachine = Box::new(|log| Ok(Box::new(make(log)?)));
        start::start(config, env, make, service, on_fatal).await
    }

    pub fn node(&self) -> NodeId {
        self.inner.config.node
    }

    /// The outside world that this node was started in.
    pub fn env(&self) -> &Env {
        &self.inner.env
    }

    /// What this node knows about the group, now and on every change.
    pub fn view(&self) -> watch::Receiver<View> {
        self.inner.view.clone()
    }

    /// The gate: may a write be proposed here now? A refusal is definite. Cheap, no waiting.
    pub fn gate(&self) -> Result<(), Refusal> {
        self.inner.gate()
    }

    /// May this node, as leader, answer a read of the newest state now (lease not half over, and everything
    /// acknowledged before it took over is applied)? Cheap, no waiting.
    ///
    /// Right as long as no node's monotonic clock runs more than twice as fast as the leader's; only half of the
    /// lease counts for that.
    ///
    /// The lease may end between this call and the reply (a paused process): whoever must never show an
    /// older state than another node already has asks again just before the reply leaves.
    pub fn lease_read(&self) -> Result<(), Refusal> {
        let mut input = self.inner.gate_input();
        if sabotage::on(Sabotage::ReadWithoutLease) {
            input.alone = true; // I-8: another node may lead, and know more.
        }
        gate::read(&input)
    }

    /// Hands one entry to Raft. Passes the gate first. Returns as soon as Raft has queued it; proposals of
    /// one caller are appended in the order of the calls.
    ///
    /// Waits while 64 MiB of proposals are under way. Dropping the future before it returns means that
    /// nothing was proposed. At most [`MAX_PAYLOAD_BYTES`].
    pub async fn propose(&self, payload: Bytes) -> Result<Proposal, ProposeError> {
        let inner = &self.inner;
        inner.gate()?;
        if payload.len() > MAX_PAYLOAD_BYTES {
            return Err(ProposeError::Refused(Refusal::TooLarge {
                bytes: payload.len() as u64,
                limit: MAX_PAYLOAD_BYTES as u64,
            }));
        }
        let share = inner.budget.share(payload.len(), || inner.gate()).await?;
        let (reply, result) = Reply::new(share);
        inner
            .raft
            .client_write_ff(Payload(payload), Some(reply))
            .await
            .map_err(|fatal| ProposeError::Unknown(fatal.to_string()))?;
        let lease = inner.config.timers.election_max;
        Ok(Proposal {
            result: Box::pin(proposal::outcome(result, lease)),
        })
    }

    /// Calls another node's [`PeerService`] and waits for its answer until `deadline` passes.
    pub async fn call(
        &self,
        to: NodeId,
        request: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, CallError> {
        let inner = &self.inner;
        if to == inner.config.node {
            let answer = inner.service.call(to, request);
            return timeout(deadline, answer)
                .await
                .map_err(|_| CallError::NoAnswer(format!("no answer within {deadline:?}")));
        }
        let link = inner
            .links
            .get(&to)
            .ok_or_else(|| CallError::NotSent(format!("node {to} is not in dLegerPeers")))?;
        link.call(request, deadline)
            .await
            .map_err(|error| match error {
                RequestError::NotSent(text) => CallError::NotSent(text),
                // The other node has not looked at it.
                RequestError::Refused(text) => CallError::NotSent(text),
                RequestError::NoAnswer(text) => CallError::NoAnswer(text),
            })
    }

    /// Index of the last entry that is applied here; 0 when there is none. Cheap.
    pub fn applied_index(&self) -> u64 {
        let applied = self.inner.applied.borrow().id;
        applied.map_or(0, |id| id.index)
    }

    /// Waits until the entry at `index` is applied here; false when `limit` passes first, or the node stops.
    pub async fn wait_applied(&self, index: u64, limit: Duration) -> bool {
        let mut applied = self.inner.applied.clone();
        let reached = applied.wait_for(|at| at.id.is_some_and(|id| id.index >= index));
        matches!(tokio::time::timeout(limit, reached).await, Ok(Ok(_)))
    }

    /// Positioned reads of the log. Only positions at or below what was applied may be asked for.
    pub fn reader(&self) -> LogReader {
        self.inner.log.reader()
    }

    pub async fn status(&self) -> Status {
        let inner = &self.inner;
        let metrics = inner.metrics.borrow_watched().clone();
        let part = Part::of(&metrics);
        let applied = *inner.applied.borrow();
        let index = |id: Option<EntryId>| id.map(|id| id.index);
        Status {
            node: inner.config.node,
            group: inner.config.group.clone(),
            role: part.role,
            term: part.term,
            // The vote of term 0 is no vote: the first membership is written under it.
            voted_for: (metrics.vote.leader_id.term > 0)
                .then_some(metrics.vote.leader_id.voted_for),
            leader: part.leader,
            ready: inner.view.borrow().ready,
            appended: index(inner.log.appended()),
            durable: index(inner.log.durable()),
            committed: metrics.local_committed.as_ref().map(|id| id.index()),
            applied: index(applied.id),
            first_position: inner.log.reader().first_position(),
            end_position: inner.log.end_position(),
            applied_position: applied.position,
            since_quorum: status::since_quorum(&metrics, &part),
            lease: inner.config.timers.election_max,
            replicas: status::replicas(&metrics, &inner.config.peers),
        }
    }

    /// Hands leadership over if this node leads, then stops: no reply leaves after it returns.
    pub async fn shutdown(&self) {
        let inner = &self.inner;
        if inner.stopping.swap(true, Ordering::AcqRel) {
            return;
        }
        let _ = timeout(HANDOVER, inner.hand_over()).await;
        let _ = timeout(STOP_BOUND, inner.raft.shutdown()).await;
        let mut view = inner.view.clone();
        let stopped = view.wait_for(|view| view.role == Role::Stopped);
        let _ = timeout(HANDOVER, stopped).await.map(|view| view.is_ok());
        inner
            .tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .abort_all();
        inner.links.values().for_each(|link| link.stop());
        match timeout(STOP_BOUND, inner.log.close()).await {
            Ok(Ok(())) => tracing::info!(node = inner.config.node, "stopped"),
            Ok(Err(error)) => tracing::warn!(node = inner.config.node, %error, "closing the log"),
            Err(_) => tracing::warn!(
                node = inner.config.node,
                "the log is not closed: the disk is too slow"
            ),
        }
    }
}

impl Inner {
    fn gate_input(&self) -> GateInput {
        let (part, since_quorum) = {
            let metrics = self.metrics.borrow_watched();
            let acked = metrics.last_quorum_acked.as_ref();
            (Part::of(&metrics), acked.map(|acked| status::age(**acked)))
        };
        let ready = {
            let view = self.view.borrow();
            view.ready && view.term == part.term && view.role == part.role
        };
        GateInput {
            handed_over: self.room.handed_over(part.term),
            role: part.role,
            leader: part.leader,
            ready,
            since_quorum,
            lease: self.config.timers.election_max,
            alone: part.voters.len() == 1,
            stopping: self.stopping.load(Ordering::Acquire),
        }
    }

    fn gate(&self) -> Result<(), Refusal> {
        let mut input = self.gate_input();
        if sabotage::on(Sabotage::WriteWithoutLease) {
            input.alone = true; // I-11: without a majority a write is refused, at once.
        }
        gate::lead(&input)?;
        self.room.check(&self.view.borrow().voters)
    }

    /// Makes the best follower the leader and waits for what is under way. Without a live follower there is
    /// nobody to hand over to.
    async fn hand_over(&self) {
        let metrics = self.metrics.borrow_watched().clone();
        let part = Part::of(&metrics);
        if part.role != Role::Leader {
            return;
        }
        let replicas = status::replicas(&metrics, &self.config.peers);
        let lease = self.config.timers.election_max;
        if let Some(to) = status::successor(&replicas, &part.voters, lease) {
            tracing::info!(node = self.config.node, to, "handing leadership over");
            let _ = self.raft.trigger().transfer_leader(to).await;
            let mut view = self.view.clone();
            let _ = view
                .wait_for(|view| view.role != Role::Leader)
                .await
                .is_ok();
        }
        self.budget.all_done().await;
    }
}
