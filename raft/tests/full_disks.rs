//! Disks that fill up and are freed, without a restart: a full follower leaves the quorum and comes back, a full
//! leader hands over, and when too many are full writes are refused for certain while reads go on.

mod support;

use std::time::Duration;

use quorumlog_raft::{ProposeError, Refusal};
use support::{Cluster, eventually};
use tokio::time::sleep;

const RESERVE: u64 = 64 << 20;
/// More than is ever needed.
const PLENTY: u64 = 1 << 40;
/// Not even what is under way is taken.
const CRAMPED: u64 = RESERVE / 2 - 1;

async fn start() -> Cluster {
    let mut cluster = Cluster::calm(3);
    cluster.disk_reserve = RESERVE;
    for node in 1..=3 {
        cluster.start_node(node).await;
    }
    cluster
}

fn nobody_died(cluster: &Cluster) {
    for (node, running) in &cluster.nodes {
        assert_eq!(*running.fatal.lock().unwrap(), None, "node {node}");
    }
}

/// The machine is busy, and a node looks at its disk only now and then.
const LOOKED: Duration = Duration::from_secs(3);

fn is_full(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::DiskFull { .. } | Refusal::ReplicasFull)
}

/// Some node refuses because of full disks: the one that leads.
async fn full_refusal(cluster: &Cluster) {
    eventually("writes are refused", || {
        let mut nodes = cluster.nodes.values();
        nodes.any(|node| matches!(node.group.gate(), Err(refusal) if is_full(&refusal)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_follower_takes_nothing_and_catches_up_when_there_is_space() {
    let cluster = start().await;
    cluster.acknowledge(&[0]).await;
    cluster.all_have(1).await;
    let full = cluster.leader().await % 3 + 1;
    cluster.set_free(full, CRAMPED);
    sleep(LOOKED).await;
    let before = cluster.numbers(full);
    for number in 1..50u8 {
        cluster.acknowledge(&[number]).await;
    }
    sleep(LOOKED).await;
    assert_eq!(cluster.numbers(full), before);
    cluster.set_free(full, PLENTY);
    cluster.all_have(50).await;
    cluster.assert_all_the_same();
    nobody_died(&cluster);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_leader_hands_over_to_a_node_with_space() {
    let cluster = start().await;
    cluster.acknowledge(&[0]).await;
    let full = cluster.leader().await;
    cluster.set_free(full, CRAMPED);
    let others: Vec<u64> = (1..=3).filter(|node| *node != full).collect();
    cluster.leader_among(&others).await;
    for number in 1..20u8 {
        cluster.acknowledge(&[number]).await;
    }
    cluster.set_free(full, PLENTY);
    cluster.all_have(20).await;
    cluster.assert_all_the_same();
    nobody_died(&cluster);
}

/// The one asked to take over, and everybody else, hears nothing of it: the leader has given up its writes and nobody
/// knows. When the network is back, writes go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_that_nobody_heard_of_ends_in_another_election() {
    let cluster = start().await;
    cluster.acknowledge(&[0]).await;
    cluster.all_have(1).await;
    let full = cluster.leader().await;
    cluster.cuts.isolate(full);
    cluster.set_free(full, CRAMPED);
    // It still has its lease, and what the others said of their disks.
    let given_away =
        || matches!(cluster.group(full).lease_read(), Err(refusal) if !is_full(&refusal));
    eventually("leadership is handed over", given_away).await;
    cluster.cuts.heal();
    cluster.set_free(full, PLENTY);
    cluster.acknowledge(&[1]).await;
    cluster.all_have(2).await;
    nobody_died(&cluster);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_all_disks_are_full_writes_are_refused_reads_go_on_and_space_ends_it() {
    let cluster = start().await;
    cluster.acknowledge(&[0]).await;
    cluster.all_have(1).await;
    for node in 1..=3 {
        cluster.set_free(node, CRAMPED);
    }
    full_refusal(&cluster).await;
    sleep(LOOKED).await;
    let mut reads = 0;
    let until = tokio::time::Instant::now() + Duration::from_secs(2);
    while tokio::time::Instant::now() < until || reads == 0 {
        for node in cluster.nodes.values() {
            assert!(node.group.gate().is_err(), "a write is let in");
            reads += usize::from(node.group.lease_read().is_ok());
        }
        sleep(Duration::from_millis(10)).await;
    }
    // Space on a majority is enough, wherever it is.
    cluster.set_free(1, PLENTY);
    cluster.set_free(2, PLENTY);
    cluster.acknowledge(&[1]).await;
    cluster.set_free(3, PLENTY);
    cluster.all_have(2).await;
    nobody_died(&cluster);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_only_follower_is_full_refuses_for_certain() {
    let mut cluster = start().await;
    cluster.acknowledge(&[0]).await;
    let leader = cluster.leader().await;
    let (full, down) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    cluster.stop_node(down).await;
    cluster.set_free(full, CRAMPED);
    full_refusal(&cluster).await;
    for node in [leader, full] {
        let refused = cluster.write(node, &[9]).await;
        assert!(
            matches!(refused, Err(ProposeError::Refused(_))),
            "{refused:?}"
        );
    }
    cluster.start_node(down).await;
    cluster.acknowledge(&[1]).await;
    cluster.set_free(full, PLENTY);
    cluster.all_have(2).await;
    nobody_died(&cluster);
}
