//! The first start of a group, and the check that configuration and stored membership agree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use openraft::errors::{InitializeError, RaftError};
use tokio::sync::watch;
use tokio::time::sleep;

use super::GroupConfig;
use super::RaftNode;
use super::newcomer::Newcomer;
use super::view::Heard;
use crate::peer::{Links, PeersTag};
use crate::types::{NodeId, Peer};

/// How long an empty node waits for a leader to speak before it takes part in founding the group. Longer
/// than the longest pause between two attempts of a leader to reach it (500 ms) and a heartbeat.
const ELDER_WAIT: Duration = Duration::from_millis(700);

/// How long an answer to a question is waited for, and the pause before it is asked again.
const ASK_BOUND: Duration = Duration::from_secs(1);

/// Founds the group, unless this node has a log already or a leader is there. Every node may do this at the
/// same time: all write the same first entry, and an election decides. A node that is filled by a leader
/// must not: it takes the entry the group was founded with, which may name other addresses.
///
/// By itself a node does so only when all nodes have found out that none of them has data. With an operator's
/// word for it, it waits for a leader of old a while.
pub(super) async fn found(
    raft: RaftNode,
    config: GroupConfig,
    newcomer: Arc<Newcomer>,
    mut heard: watch::Receiver<Option<Heard>>,
) {
    let GroupConfig { node, peers, .. } = config;
    match raft.is_initialized().await {
        Ok(true) => return compare(&raft, &peers),
        Ok(false) => {}
        // The core is gone, which is noticed elsewhere.
        Err(_) => return,
    }
    let leader_speaks = heard.wait_for(Option::is_some);
    let nobody_speaks = async {
        match (config.accept_empty, peers.len()) {
            (_, 1) => {}
            (true, _) => sleep(ELDER_WAIT).await,
            (false, _) => {
                newcomer.filled().await;
                newcomer.all_filled().await;
            }
        }
    };
    tokio::select! {
        biased;
        _ = leader_speaks => {
            tracing::info!(node, "empty node, filled by the leader of its group");
            return;
        }
        () = nobody_speaks => {}
    }
    let members: BTreeMap<NodeId, Peer> = peers
        .into_iter()
        .map(|(node, address)| (node, Peer { address }))
        .collect();
    let count = members.len();
    match raft.initialize(members).await {
        Ok(()) => tracing::info!(node, members = count, "founding the group"),
        // A leader was faster.
        Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
        Err(error) => tracing::warn!(node, %error, "cannot found the group"),
    }
}

/// Asks each other node once for its list of peers, as soon as it answers, and warns when it differs.
pub(super) async fn compare_peers(links: Links, ours: PeersTag) {
    let compared = links.iter().map(|(node, link)| async move {
        let theirs = loop {
            match link.standing(ASK_BOUND).await {
                Some(said) => break said.peers,
                None => sleep(ASK_BOUND).await,
            }
        };
        if let Some(difference) = ours.difference(theirs) {
            tracing::warn!(
                "dLegerPeers of node {node} names {difference} than this node's: it must be the same on all \
                 nodes, and no group is founded while it names other nodes"
            );
        }
    });
    join_all(compared).await;
}

/// Warns when the configured peers are not the stored members.
fn compare(raft: &RaftNode, peers: &BTreeMap<NodeId, String>) {
    use openraft::async_runtime::watch::WatchReceiver;
    let metrics = raft.metrics();
    let metrics = metrics.borrow_watched();
    let stored: BTreeMap<NodeId, String> = metrics
        .membership_config
        .membership()
        .nodes()
        .map(|(node, peer)| (*node, peer.address.clone()))
        .collect();
    for difference in differences(peers, &stored) {
        tracing::warn!(node = metrics.id, "{difference}");
    }
}

/// One sentence for each disagreement.
fn differences(
    configured: &BTreeMap<NodeId, String>,
    stored: &BTreeMap<NodeId, String>,
) -> Vec<String> {
    // The group has no members yet.
    if stored.is_empty() {
        return Vec::new();
    }
    let nodes: BTreeSet<NodeId> = configured.keys().chain(stored.keys()).copied().collect();
    let difference = |node: NodeId| match (configured.get(&node), stored.get(&node)) {
        (Some(address), Some(old)) if address != old => Some(format!(
            "dLegerPeers says that node {node} is at {address}, the group was founded with {old}; {address} is used"
        )),
        (Some(_), None) => Some(format!(
            "dLegerPeers names node {node}, which is not a member of the group: it gets no data and has no vote"
        )),
        (None, Some(_)) => Some(format!(
            "node {node} is a member of the group but is missing in dLegerPeers: it cannot be reached, \
             and still counts for the majority"
        )),
        _ => None,
    };
    nodes.into_iter().filter_map(difference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_disagreement_with_the_stored_membership_is_named() {
        let map = |peers: &[(NodeId, &str)]| -> BTreeMap<NodeId, String> {
            peers
                .iter()
                .map(|(node, at)| (*node, at.to_string()))
                .collect()
        };
        let stored = map(&[(1, "a:1"), (2, "b:1"), (3, "c:1")]);
        assert_eq!(differences(&stored, &stored), Vec::<String>::new());
        assert_eq!(differences(&stored, &map(&[])), Vec::<String>::new());
        let said = differences(&map(&[(1, "a:1"), (2, "b:2"), (4, "d:1")]), &stored);
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].contains("node 2 is at b:2"), "{said:?}");
        assert!(said[1].contains("node 3"), "{said:?}");
        assert!(said[2].contains("node 4"), "{said:?}");
    }
}
