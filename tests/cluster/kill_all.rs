//! All nodes killed at once under load, again and again: every acknowledged message is at its offset on
//! every node. (Says nothing about a power cut: the page cache survives a killed process.)

use std::time::Duration;

use quorumlog_chaos::checker::Options;

use crate::common::{Cluster, Setup};

const TOPIC: &str = "kill_all";
const QUEUES: i32 = 4;

/// Set this variable for more rounds than an ordinary run has time for.
const ROUNDS: &str = "QUORUMLOG_KILL_ALL_ROUNDS";

#[tokio::test(flavor = "multi_thread")]
async fn a_group_killed_at_once_keeps_what_it_acknowledged() {
    let rounds: usize = match std::env::var(ROUNDS) {
        Ok(text) => text.parse().expect("a number of rounds"),
        Err(_) => 5,
    };
    // Small segments and larger bodies, so that a kill can meet the beginning of a new segment.
    let setup = Setup::default().with("mappedFileSizeCommitLog", "8388608");
    let mut cluster = Cluster::start_with(setup).await;
    cluster.create_topic(TOPIC, QUEUES).await;
    let recorder = cluster.recorder();
    let reading = cluster.readers(TOPIC, QUEUES).start(&recorder);
    for round in 0..rounds {
        let mut load = cluster.producers(TOPIC, QUEUES);
        load.prefix = format!("r{round}p");
        load.seed = round as u64;
        load.body = (32, 32 * 1024);
        let load = load.start(&recorder);
        let progress = load.progress(200, Duration::from_secs(20)).await;
        assert!(progress, "no load in round {round}");
        recorder.fault_start("kill-all", &[]);
        cluster.kill(&[0, 1, 2]);
        load.stop().await;
        cluster.restart_dead().await;
        recorder.fault_end("kill-all");
    }
    reading.stop().await;
    let report = cluster
        .drain_and_check(&recorder, TOPIC, QUEUES, &Options::default())
        .await;
    assert!(report.coverage.acknowledged >= 200 * rounds, "{report}");
}
