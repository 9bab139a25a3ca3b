//! The types openraft is instantiated with.

use std::collections::BTreeSet;
use std::fmt;
use std::io;

use bytes::Bytes;
use openraft::entry::{EntryPayload, RaftEntry, RaftPayload};
use openraft::{LogId, Membership, OptionalSend};

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

/// The types of this crate's Raft. Terms have at most one leader (`leader_id_std`), so an entry's term and
/// index identify its prefix. Written out, as openraft's macro knows no `Responder`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TypeConfig;

impl openraft::RaftTypeConfig for TypeConfig {
    type D = Payload;
    type R = Applied;
    type NodeId = NodeId;
    type Node = Peer;
    type Term = u64;
    type LeaderId = openraft::impls::leader_id_std::LeaderId<u64, NodeId>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = EntryPayload<Payload, NodeId, Peer>;
    type Entry = LogEntry;
    type Responder<T>
        = super::Reply<T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type AsyncRuntime = super::runtime::Runtime;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

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

/// openraft's form of our members. Fails when a voter is not among the nodes.
pub(crate) fn membership(members: &Members) -> io::Result<Membership<NodeId, Peer>> {
    if members.voters.is_empty() && members.nodes.is_empty() {
        return Ok(Membership::default());
    }
    let voters = members
        .voters
        .iter()
        .map(|set| set.iter().copied().collect::<BTreeSet<NodeId>>())
        .collect();
    Membership::new(voters, members.nodes.clone())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}
