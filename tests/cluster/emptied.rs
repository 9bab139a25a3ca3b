//! A node is down while messages are acknowledged by the other two; one of those loses its directory, the
//! other dies. Property: the two that are left, one that lacks the messages and one that is empty, serve
//! nothing; when the node that has the messages is back, every one is there, the empty node is filled, and
//! it votes again.

use std::time::{Duration, Instant};

use quorumlog_chaos::checker::Options;
use quorumlog_chaos::wire::Message;

use super::semantics::send;
use crate::common::Cluster;

const TOPIC: &str = "emptied";
/// Several elections would have been over in that time.
const WATCHED: Duration = Duration::from_secs(4);
const FILLED_WITHIN: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_node_and_one_that_lacks_messages_serve_nothing_by_themselves() {
    let mut cluster = Cluster::start().await;
    cluster.create_topic(TOPIC, 1).await;
    let recorder = cluster.recorder();
    let full = cluster.leader().await;
    let (lacks, emptied) = ((full + 1) % 3, (full + 2) % 3);
    cluster.kill(&[lacks]);
    let mut load = cluster.producers(TOPIC, 1);
    load.messages = 50;
    load.start(&recorder).finish().await;
    cluster.kill(&[emptied, full]);
    let dir = cluster.dir().join(format!("n{emptied}"));
    std::fs::remove_dir_all(&dir).expect("the node's directory");

    cluster.spawn(lacks);
    cluster.spawn(emptied);
    let begun = Instant::now();
    while begun.elapsed() < WATCHED {
        assert!(
            !cluster.anyone_leads().await,
            "a node without the messages leads"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    cluster.restart_dead().await;
    assert_eq!(cluster.leader().await, full);
    let begun = Instant::now();
    while dir.join("unfilled").exists() {
        assert!(begun.elapsed() < FILLED_WITHIN, "not filled");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cluster
        .drain_and_check(&recorder, TOPIC, 1, &Options::default())
        .await;

    cluster.kill(&[full]);
    let next = cluster.leader().await;
    let message = Message::new(TOPIC, 0, "after", &b"after"[..]);
    send(&cluster.connect(next).await, &message).await;
}
