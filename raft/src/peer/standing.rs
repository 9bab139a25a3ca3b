//! What a node says of itself when another node of the group asks.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::codec;
use super::frame::Kind;
use super::link::Link;
use crate::types::{EntryId, NodeId};

/// How a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// Of its process: the same number in two answers means that nothing was forgotten in between.
    pub incarnation: u64,
    /// Its directory was made empty, and what it promised before may be missing.
    pub unfilled: bool,
    /// Term and candidate of its last durable vote.
    pub voted: Option<(u64, NodeId)>,
    /// The last entry in its log, maybe not durable.
    pub last: Option<EntryId>,
    /// The term that it leads.
    pub leads: Option<u64>,
    /// Its disk is nearly full.
    pub full: bool,
    /// The nodes of its dLegerPeers.
    pub peers: PeersTag,
}

/// Which nodes a node's `dLegerPeers` names, and where: to see that two differ, not how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeersTag {
    nodes: u32,
    addresses: u32,
}

impl PeersTag {
    pub(crate) fn of(peers: &BTreeMap<NodeId, String>) -> PeersTag {
        let mut tag = PeersTag {
            nodes: 0,
            addresses: 0,
        };
        for (node, address) in peers {
            tag.nodes = crc32c::crc32c_append(tag.nodes, &node.to_le_bytes());
            tag.addresses = crc32c::crc32c_append(tag.addresses, address.as_bytes());
        }
        tag
    }

    /// Do both name the same nodes, wherever they are?
    pub(crate) fn same_nodes(self, other: PeersTag) -> bool {
        self.nodes == other.nodes
    }

    /// What to tell an operator about two nodes whose tags differ.
    pub(crate) fn difference(self, other: PeersTag) -> Option<&'static str> {
        match (self.same_nodes(other), self == other) {
            (_, true) => None,
            (true, false) => Some("other addresses"),
            (false, false) => Some("other nodes"),
        }
    }
}

impl Link {
    /// Asks the other node how it stands; `None` without an answer within `bound`.
    pub(crate) async fn standing(&self, bound: Duration) -> Option<Standing> {
        let answer = tokio::time::timeout(bound, self.ask(Kind::Standing, &[])).await;
        codec::decode_standing(&answer.ok()?.ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_peers_that_differ_are_told_apart() {
        let tag = |peers: &[(NodeId, &str)]| {
            let peers = peers.iter().map(|(node, at)| (*node, at.to_string()));
            PeersTag::of(&peers.collect())
        };
        let ours = tag(&[(1, "a:1"), (2, "b:1")]);
        let table = [
            (tag(&[(1, "a:1"), (2, "b:1")]), None),
            (tag(&[(1, "a:1"), (2, "c:1")]), Some("other addresses")),
            (tag(&[(1, "a:1"), (3, "b:1")]), Some("other nodes")),
            (tag(&[(1, "a:1")]), Some("other nodes")),
        ];
        for (theirs, expected) in table {
            assert_eq!(ours.difference(theirs), expected, "{theirs:?}");
        }
    }
}
