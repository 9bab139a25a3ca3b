//! A snapshot of this node's figures, and the choice of a successor from them.

use std::collections::BTreeMap;
use std::time::Duration;

use openraft::metrics::RaftMetrics;
use openraft::type_config::alias::InstantOf;

use super::view::Part;
use crate::storage::entry::TypeConfig;
use crate::types::{NodeId, ReplicaStatus, Role};

/// Time since an instant of openraft's, which is of the monotonic clock that everything here goes by.
pub(crate) fn age(instant: InstantOf<TypeConfig>) -> Duration {
    openraft::Instant::elapsed(&instant)
}

/// The other members as a leader sees them; empty on others.
pub(crate) fn replicas(
    metrics: &RaftMetrics<TypeConfig>,
    peers: &BTreeMap<NodeId, String>,
) -> Vec<ReplicaStatus> {
    if metrics.replication.is_none() {
        return Vec::new();
    }
    let matched = |node: NodeId| {
        let replication = metrics.replication.as_ref()?;
        replication.get(&node)?.as_ref().map(|id| id.index())
    };
    let answered = |node: NodeId| {
        let heartbeat = metrics.heartbeat.as_ref()?;
        let sent = heartbeat.get(&node)?.as_ref()?;
        Some(age(**sent))
    };
    metrics
        .membership_config
        .membership()
        .nodes()
        .filter(|(node, _)| **node != metrics.id)
        .map(|(node, peer)| ReplicaStatus {
            node: *node,
            address: peers.get(node).unwrap_or(&peer.address).clone(),
            matched: matched(*node),
            last_answer: answered(*node),
        })
        .collect()
}

/// Time since a majority last answered; `None` unless leading.
pub(crate) fn since_quorum(metrics: &RaftMetrics<TypeConfig>, part: &Part) -> Option<Duration> {
    if part.role != Role::Leader {
        return None;
    }
    if part.voters.len() == 1 {
        return Some(Duration::ZERO);
    }
    let acked = metrics.last_quorum_acked.as_ref()?;
    Some(age(**acked))
}

/// Who should lead next: of the voters that answered within `lease`, the one with the most of the log.
pub(crate) fn successor(
    replicas: &[ReplicaStatus],
    voters: &[NodeId],
    lease: Duration,
) -> Option<NodeId> {
    replicas
        .iter()
        .filter(|replica| voters.contains(&replica.node))
        .filter(|replica| replica.last_answer.is_some_and(|age| age < lease))
        .max_by_key(|replica| (replica.matched, std::cmp::Reverse(replica.node)))
        .map(|replica| replica.node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(node: NodeId, matched: Option<u64>, age_ms: Option<u64>) -> ReplicaStatus {
        ReplicaStatus {
            node,
            address: String::new(),
            matched,
            last_answer: age_ms.map(Duration::from_millis),
        }
    }

    #[test]
    fn the_successor_is_alive_a_voter_and_has_the_most() {
        let lease = Duration::from_millis(300);
        let table = [
            (vec![], None),
            (vec![replica(2, Some(9), None)], None),
            (vec![replica(2, Some(9), Some(300))], None),
            (
                vec![
                    replica(2, Some(9), Some(10)),
                    replica(3, Some(10), Some(20)),
                ],
                Some(3),
            ),
            (
                vec![
                    replica(2, Some(9), Some(10)),
                    replica(3, Some(10), Some(900)),
                ],
                Some(2),
            ),
            (
                vec![replica(2, Some(9), Some(10)), replica(3, Some(9), Some(5))],
                Some(2),
            ),
            (
                vec![replica(2, None, Some(10)), replica(4, Some(9), Some(5))],
                Some(2),
            ),
        ];
        for (replicas, expected) in table {
            assert_eq!(
                successor(&replicas, &[1, 2, 3], lease),
                expected,
                "{replicas:?}"
            );
        }
    }
}
