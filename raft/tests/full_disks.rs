//! Disks that fill up and are freed, without a restart: a full follower leaves the quorum and comes back, a full
//! leader hands over, and when too many are full writes are refused for certain while reads go on.

mod support;

use std::time::Duration;

use quorumlog_raft::{ProposeError, Refusal, Role};
use support::{Cluster, eventually};
use tokio::time::sleep;

const RESERVE: u64 = 64 << 20;
/// More than is ever needed.
const PLENTY: u64 = 1 << 40;
/// Not even what is under way is taken.
const CRAMPED: u64 = RESERVE / 2 - 1;

async fn start() -> Cluster {
    let mut cluster = Cluster::new(3);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_follower_takes_nothing_disturbs_nobody_and_catches_up_when_there_is_space() {
    let cluster = start().await;
    let leader = cluster.leader().await;
    cluster.write(leader, &[0]).await.unwrap();
    cluster.all_applied(1).await;
    let term = cluster.group(leader).view().borrow().term;
    let full = leader % 3 + 1;
    cluster.set_free(full, CRAMPED);
    // It looks at its disk now and then.
    sleep(Duration::from_secs(1)).await;
    for number in 1..50u8 {
        cluster.write(leader, &[number]).await.unwrap();
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(cluster.nodes[&full].machine.payloads().len(), 1);
    let view = cluster.group(full).view().borrow().clone();
    assert_eq!((view.term, view.leader), (term, Some(leader)), "{view:?}");

    cluster.set_free(full, PLENTY);
    cluster.all_applied(50).await;
    cluster.assert_all_the_same();
    assert_eq!(cluster.group(leader).view().borrow().term, term);
    nobody_died(&cluster);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_leader_refuses_and_hands_over_to_a_node_with_space() {
    let cluster = start().await;
    let full = cluster.leader().await;
    cluster.write(full, b"before").await.unwrap();
    cluster.set_free(full, CRAMPED);
    eventually("another node leads", || {
        cluster.role(full) == Role::Follower
    })
    .await;
    let others: Vec<u64> = (1..=3).filter(|node| *node != full).collect();
    let next = cluster.leader_among(&others).await;
    for number in 0..20u8 {
        cluster.write(next, &[number]).await.unwrap();
    }
    cluster.set_free(full, PLENTY);
    cluster.all_applied(21).await;
    cluster.assert_all_the_same();
    nobody_died(&cluster);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_all_disks_are_full_writes_are_refused_reads_go_on_and_space_ends_it() {
    let cluster = start().await;
    let leader = cluster.leader().await;
    cluster.write(leader, b"before").await.unwrap();
    for node in 1..=3 {
        cluster.set_free(node, CRAMPED);
    }
    let refused = |cluster: &Cluster| {
        let gate = cluster.group(leader).gate();
        matches!(gate, Err(Refusal::DiskFull { .. } | Refusal::ReplicasFull))
    };
    eventually("writes are refused", || refused(&cluster)).await;
    let until = tokio::time::Instant::now() + Duration::from_secs(2);
    while tokio::time::Instant::now() < until {
        assert_eq!(cluster.role(leader), Role::Leader, "nobody is better off");
        assert!(refused(&cluster));
        assert_eq!(cluster.group(leader).lease_read(), Ok(()), "reads go on");
        sleep(Duration::from_millis(10)).await;
    }
    // Space on a majority is enough, wherever it is.
    let others: Vec<u64> = (1..=3).filter(|node| *node != leader).collect();
    for node in &others {
        cluster.set_free(*node, PLENTY);
    }
    let next = cluster.leader_among(&others).await;
    cluster.write(next, b"after").await.unwrap();
    cluster.set_free(leader, PLENTY);
    cluster.all_applied(2).await;
    nobody_died(&cluster);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_only_follower_is_full_refuses_for_certain() {
    let mut cluster = start().await;
    let leader = cluster.leader().await;
    cluster.write(leader, b"before").await.unwrap();
    let (full, down) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    cluster.stop_node(down).await;
    cluster.set_free(full, CRAMPED);
    eventually("writes are refused", || {
        cluster.group(leader).gate() == Err(Refusal::ReplicasFull)
    })
    .await;
    let refused = cluster.write(leader, b"refused").await;
    assert_eq!(refused, Err(ProposeError::Refused(Refusal::ReplicasFull)));
    cluster.start_node(down).await;
    assert_eq!(cluster.leader().await, leader);
    cluster.write(leader, b"after").await.unwrap();
    nobody_died(&cluster);
}
