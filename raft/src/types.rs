//! The words of the log: ids, positions, entries, and the state machine a group drives.
//!
//! Types only. What is written to disk or to a peer is encoded by `log::codec` and `peer::codec`; no
//! openraft type appears in either.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A node's id within its group, from 1: the number in its name (`n0`, `n1`, ... in `dLegerPeers`) plus 1.
pub type NodeId = u64;

/// Byte offset in the log: the sum of the framed lengths of all entries before it. A function of the log
/// prefix, hence the same on every replica. RocketMQ calls it the physical offset.
pub type Position = u64;

/// Raft's address of an entry. The term and the index together identify the whole prefix.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct EntryId {
    pub term: u64,
    pub index: u64,
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.term, self.index)
    }
}

/// One member of the group as written in membership entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// `host:port` of the node's peer listener.
    pub address: String,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

/// The members of a group, as stored in entries and checkpoints. More than one set of voters only while a
/// change of membership is under way (Raft's joint consensus).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    pub voters: Vec<Vec<NodeId>>,
    pub nodes: BTreeMap<NodeId, Peer>,
}

/// How far a state machine has come: everything up to and including `id` is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedMark {
    pub id: EntryId,
    /// Position of the first byte after the entry `id`.
    pub end: Position,
    /// The last membership entry at or before `id`, if there was one.
    pub members_id: Option<EntryId>,
    pub members: Members,
}

/// A committed entry, handed to the state machine exactly in log order.
#[derive(Clone, Debug)]
pub struct Committed {
    pub id: EntryId,
    /// First position of the segment that holds the entry. Grows when a segment was sealed: everything
    /// applied before belongs to sealed segments.
    pub segment: Position,
    /// Position of the first byte of `payload` (not of the entry's header).
    pub payload_position: Position,
    /// The opaque payload as proposed. Empty for entries that Raft made for itself.
    pub payload: Bytes,
    /// The mark to remember when this entry has been applied.
    pub mark: AppliedMark,
}

/// A state machine's own image of everything up to a mark, opaque to this crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub mark: AppliedMark,
    pub bytes: Bytes,
}

/// What committed entries mean. The raft crate calls it from one task, in log order, never twice for an
/// index that [`StateMachine::restored`] covers.
pub trait StateMachine: Send + 'static {
    /// What the machine restored from its own newest checkpoint, before the first `apply`. Replay starts
    /// after it. `None` for an empty machine: replay starts at the log's beginning.
    fn restored(&self) -> Option<AppliedMark>;

    /// Applies one proposed entry and returns its opaque result, which the proposer of this entry gets.
    /// Must depend on nothing but the entries so far: every replica computes the same.
    fn apply(&mut self, entry: &Committed) -> Bytes;

    /// An entry that Raft made for itself (a blank entry of a new term, a membership) was committed. The
    /// payload is empty; only `segment` and `mark` matter.
    fn advance(&mut self, entry: &Committed);

    /// The newest image to bring another node's machine to where this one was. `None`: this machine makes
    /// none, and its log must never be purged.
    fn checkpoint(&mut self) -> Option<Checkpoint> {
        None
    }

    /// Replaces everything by another node's image. `false`: this machine cannot.
    fn install(&mut self, _checkpoint: &Checkpoint) -> bool {
        false
    }
}

/// Requests from other nodes of the group that are not Raft's own: what a follower passes to the leader.
pub trait PeerService: Send + Sync + 'static {
    /// Answers one call. `from` was checked by the handshake. Must answer within the caller's deadline,
    /// which it does not know: bound the work.
    fn call(&self, from: NodeId, request: Bytes)
    -> futures_util::future::BoxFuture<'static, Bytes>;
}

/// Why a write is refused before it is proposed: it is in no log and never will be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("this node is not the leader")]
    NotLeader { leader: Option<NodeId> },
    #[error("the leader has had no answer from a majority for {since_ms} ms (lease {lease_ms} ms)")]
    NoLease { since_ms: u64, lease_ms: u64 },
    #[error("the new leader has not finished taking over")]
    NotReady,
    #[error("the disk has only {free} bytes left, {reserve} are kept in reserve")]
    DiskFull { free: u64, reserve: u64 },
    #[error("the disks of so many nodes are nearly full that no majority can take the entry")]
    ReplicasFull,
    #[error("this node is stopping")]
    Stopping,
    /// Sending it again does not help.
    #[error("an entry of {bytes} bytes, at most {limit} are possible")]
    TooLarge { bytes: u64, limit: u64 },
}

/// Role of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    Leader,
    Follower,
    Candidate,
    Learner,
    Stopped,
}

/// What this node knows about its group now. Published on every change of role, term or leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub node: NodeId,
    pub role: Role,
    pub term: u64,
    /// The leader this node follows (itself when it leads); `None` while there is none.
    pub leader: Option<NodeId>,
    /// The last leader this node knew, kept while an election runs.
    pub last_leader: Option<NodeId>,
    /// True when this node's applied state is known to include everything that was acknowledged before it
    /// started or took over. Only then may it answer reads (leader, or follower with follower reads).
    pub ready: bool,
    pub voters: Vec<NodeId>,
}

/// One replica as the leader sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaStatus {
    pub node: NodeId,
    pub address: String,
    /// Last index known to be durable there. `None` before the first answer.
    pub matched: Option<u64>,
    /// Time since its last answer. `None` before the first.
    pub last_answer: Option<Duration>,
}

/// A snapshot of this node's inner figures, for `quorumlog status` and the drills.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub node: NodeId,
    pub group: String,
    pub role: Role,
    pub term: u64,
    pub voted_for: Option<NodeId>,
    pub leader: Option<NodeId>,
    pub ready: bool,
    /// Last index in the log, maybe not durable yet.
    pub appended: Option<u64>,
    /// Last index that is durable here.
    pub durable: Option<u64>,
    pub committed: Option<u64>,
    pub applied: Option<u64>,
    pub first_position: Position,
    /// Position after the last appended entry.
    pub end_position: Position,
    /// Position after the last applied entry.
    pub applied_position: Position,
    /// On a leader: time since a majority last answered.
    pub since_quorum: Option<Duration>,
    pub lease: Duration,
    /// On a leader: the other members.
    pub replicas: Vec<ReplicaStatus>,
}
