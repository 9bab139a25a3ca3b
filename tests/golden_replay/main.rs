//! Replays what real clients said to RocketMQ 5.5.0 (`tests/golden`) to a group of three, and requires the same
//! reply codes, fields and bodies, but for the differences that `differences` lists with their reasons.

#[path = "../common/mod.rs"]
mod common;
mod compare;
mod differences;
mod player;
#[path = "../common/recorded.rs"]
mod recorded;
mod transcript;

use std::sync::Arc;

use common::{Cluster, Setup};
use player::{Servers, play};
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread")]
async fn recorded_clients_get_the_replies_that_rocketmq_gave_them() {
    // A busy machine is no reason to change the leader: what is compared is what an undisturbed group says.
    let setup = Setup::default()
        .with("brokerClusterName", "GoldenCluster")
        .with("raftElectionTimeoutMin", "2000")
        .with("raftElectionTimeoutMax", "4000");
    let cluster = Cluster::start_with(setup).await;
    let leader = cluster.leader().await;
    let followers = cluster.followers().await;
    let servers = Arc::new(Servers {
        leader: cluster.address(leader),
        name_server: cluster.name_server(leader),
        followers: followers.iter().map(|at| cluster.address(*at)).collect(),
    });
    let mut playing = JoinSet::new();
    for transcript in transcript::load() {
        let servers = servers.clone();
        playing.spawn(async move { play(&transcript, &servers).await });
    }
    let mut compared = 0;
    let mut found = Vec::new();
    while let Some(played) = playing.join_next().await {
        let (replies, differences) = played.expect("a transcript played to its end");
        compared += replies;
        found.extend(differences);
    }
    println!("{compared} replies compared, {} differences", found.len());
    assert_eq!(cluster.leader().await, leader, "the leader changed");
    differences::check(&found);
}
