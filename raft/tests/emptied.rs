//! A node whose data directory was emptied: it must not help a node into the lead that lacks acknowledged
//! entries, and nobody founds a group of which a member is unknown.

mod support;

use std::time::Duration;

use quorumlog_raft::Role;
use support::{Cluster, eventually};
use tokio::time::sleep;

/// Some elections would have been over in that time.
const WATCHED: Duration = Duration::from_secs(10);

async fn start() -> Cluster {
    let mut cluster = Cluster::calm(3);
    for node in 1..=3 {
        cluster.start_node(node).await;
    }
    cluster
}

fn empty(cluster: &Cluster, node: u64) {
    std::fs::remove_dir_all(cluster.config(node).dir).unwrap();
}

fn marked(cluster: &Cluster, node: u64) -> bool {
    cluster.config(node).dir.join("unfilled").exists()
}

/// Nobody among the running nodes leads while it is watched.
async fn nobody_leads(cluster: &Cluster) {
    let until = tokio::time::Instant::now() + WATCHED;
    while tokio::time::Instant::now() < until {
        for node in cluster.nodes.keys() {
            assert_ne!(cluster.role(*node), Role::Leader, "node {node} leads");
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// Three nodes, of which the first has all of 30 acknowledged entries, the second lacks 20 of them, and the
/// last had them and was emptied. Nobody runs. Returns them in that order.
async fn one_lacks_one_is_emptied(cluster: &mut Cluster) -> (u64, u64, u64) {
    let (full, lacks, emptied) = (1, 2, 3);
    for number in 0..10u8 {
        cluster.acknowledge(&[number]).await;
    }
    cluster.stop_node(lacks).await;
    for number in 10..30u8 {
        cluster.acknowledge(&[number]).await;
    }
    cluster.all_have(30).await;
    cluster.stop_node(emptied).await;
    cluster.stop_node(full).await;
    empty(cluster, emptied);
    (full, lacks, emptied)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_node_elects_nobody_who_may_lack_what_it_confirmed() {
    let mut cluster = start().await;
    let (full, lacks, emptied) = one_lacks_one_is_emptied(&mut cluster).await;
    cluster.start_node(lacks).await;
    cluster.start_node(emptied).await;
    nobody_leads(&cluster).await;

    // With the node that has everything back, the group serves, and the emptied node is filled.
    cluster.start_node(full).await;
    cluster.acknowledge(&[30]).await;
    cluster.all_have(31).await;
    cluster.assert_all_the_same();
    eventually("the emptied node is filled", || !marked(&cluster, emptied)).await;

    // A filled node votes like any other.
    cluster.stop_node(full).await;
    cluster.acknowledge(&[31]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_node_is_taken_at_an_operators_word() {
    let mut cluster = start().await;
    let (_, lacks, emptied) = one_lacks_one_is_emptied(&mut cluster).await;
    cluster.start_node(lacks).await;
    let mut config = cluster.config(emptied);
    config.accept_empty = true;
    cluster.start_node_with(emptied, config).await;
    assert_eq!(cluster.leader().await, lacks);
    assert!(!marked(&cluster, emptied));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_is_founded_when_all_of_its_nodes_say_that_they_are_empty() {
    let mut cluster = Cluster::calm(3);
    cluster.start_node(1).await;
    cluster.start_node(2).await;
    nobody_leads(&cluster).await;
    cluster.start_node(3).await;
    cluster.acknowledge(&[0]).await;
    cluster.all_have(1).await;
    for node in 1..=3 {
        eventually("it counts as filled", || !marked(&cluster, node)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_emptied_nodes_of_three_do_not_start_over() {
    let mut cluster = start().await;
    let (full, lacks, emptied) = one_lacks_one_is_emptied(&mut cluster).await;
    empty(&cluster, full);
    for node in [full, lacks, emptied] {
        cluster.start_node(node).await;
    }
    nobody_leads(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_node_stays_careful_when_it_is_restarted_half_filled() {
    let mut cluster = start().await;
    let (full, lacks, emptied) = one_lacks_one_is_emptied(&mut cluster).await;
    // It gets its identity, and nothing else.
    cluster.start_node(emptied).await;
    cluster.stop_node(emptied).await;
    assert!(marked(&cluster, emptied));
    cluster.start_node(lacks).await;
    cluster.start_node(emptied).await;
    nobody_leads(&cluster).await;
    cluster.start_node(full).await;
    cluster.all_have(30).await;
}
