//! The types openraft is instantiated with.

use std::fmt;

use bytes::Bytes;
use openraft::entry::{EntryPayload, RaftEntry, RaftPayload};
use openraft::{LogId, Membership};

use crate::types::{EntryId, Members, NodeId, Peer, Position};

/// An opaque proposed payload.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Payload(pub Bytes);

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The opaque result of applying one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Applied(pub Bytes);

openraft::declare_raft_types!(
    /// Terms have at most one leader (`leader_id_std`), so an entry's term and index identify its prefix.
    pub(crate) TypeConfig:
        D = Payload,
        R = Applied,
        NodeId = NodeId,
        Node = Peer,
        Term = u64,
        LeaderId = openraft::impls::leader_id_std::LeaderId<u64, NodeId>,
        Vote = openraft::impls::Vote<Self::LeaderId>,
        Payload = EntryPayload<Payload, NodeId, Peer>,
        Entry = LogEntry,
        AsyncRuntime = openraft::impls::TokioRuntime,
);

pub(crate) type TermId =
    <openraft::impls::leader_id_std::LeaderId<u64, NodeId> as openraft::vote::RaftLeaderId>::Committed;
pub(crate) type RaftLogId = LogId<TermId>;
pub(crate) type RaftVote =
    openraft::impls::Vote<openraft::impls::leader_id_std::LeaderId<u64, NodeId>>;
pub(crate) type EntryContent = EntryPayload<Payload, NodeId, Peer>;

/// An entry as openraft sees it, with the position that the log gave it.
#[derive(Clone, Debug)]
pub(crate) struct LogEntry {
    pub id: RaftLogId,
    pub content: EntryContent,
    /// Position of the entry's first byte; 0 until the log has appended it (or for an entry from a peer).
    pub position: Position,
}

impl fmt::Display for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.id, self.content)
    }
}

impl RaftEntry for LogEntry {
    type CommittedLeaderId = TermId;
    type Payload = EntryContent;

    fn new(log_id: RaftLogId, payload: EntryContent) -> Self {
        LogEntry {
            id: log_id,
            content: payload,
            position: 0,
        }
    }

    fn log_id_parts(&self) -> (&TermId, u64) {
        (self.id.committed_leader_id(), self.id.index())
    }

    fn set_log_id(&mut self, new: RaftLogId) {
        self.id = new;
    }

    fn get_membership(&self) -> Option<Membership<NodeId, Peer>> {
        self.content.get_membership()
    }
}

/// Our id of an openraft log id.
pub(crate) fn entry_id(id: &RaftLogId) -> EntryId {
    EntryId {
        term: id.committed_leader_id().term,
        index: id.index(),
    }
}

/// openraft's log id of ours.
pub(crate) fn raft_log_id(id: EntryId) -> RaftLogId {
    RaftLogId::new(TermId::new(id.term), id.index)
}

/// Our form of a membership, for entries, checkpoints and status.
pub(crate) fn members(membership: &Membership<NodeId, Peer>) -> Members {
    Members {
        voters: membership
            .get_joint_config()
            .iter()
            .map(|set| set.iter().copied().collect())
            .collect(),
        nodes: membership
            .nodes()
            .map(|(id, peer)| (*id, peer.clone()))
            .collect(),
    }
}
