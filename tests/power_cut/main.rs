//! Real power cuts: every node's disk is an XFS of its own on a loop device, shut down without flushing.
//! Property: whatever was acknowledged before the cut is at its offset on every node after it, and nothing
//! that was refused is anywhere. Without a sync before the acknowledgement this fails; a killed process
//! alone would not show it, because the page cache survives.

#[path = "../common/mod.rs"]
mod common;
mod disk;

use std::time::Duration;

use common::{Cluster, Setup};
use disk::Disk;
use quorumlog_chaos::checker::Options;

const TOPIC: &str = "power_cut";
const QUEUES: i32 = 4;
const PATIENCE: Duration = Duration::from_secs(30);

/// Set this variable for more or fewer rounds.
const ROUNDS: &str = "QUORUMLOG_POWER_CUT_ROUNDS";

fn rounds() -> usize {
    match std::env::var(ROUNDS) {
        Ok(text) => text.parse().expect("a number of rounds"),
        Err(_) => 10,
    }
}

fn setup(disks: &[Disk]) -> Setup {
    let mut setup = Setup::default()
        .with("mappedFileSizeCommitLog", "8388608")
        .with("diskReserveBytes", "33554432");
    setup.stores = disks.iter().map(|disk| disk.path().to_owned()).collect();
    setup
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_of_all_nodes_loses_nothing_that_was_acknowledged() {
    let dir = tempfile::Builder::new()
        .prefix("quorumlog-power-")
        .tempdir()
        .expect("a temporary directory");
    let disks: Vec<Disk> = (0..3)
        .map(|at| Disk::create(dir.path(), &format!("disk{at}")))
        .collect();
    let mut cluster = Cluster::start_with(setup(&disks)).await;
    cluster.create_topic(TOPIC, QUEUES).await;
    let recorder = cluster.recorder();
    let rounds = rounds();
    for round in 0..rounds {
        let mut load = cluster.producers(TOPIC, QUEUES);
        load.prefix = format!("r{round}p");
        load.seed = round as u64;
        let load = load.start(&recorder);
        let progress = load.progress(200, PATIENCE).await;
        assert!(progress, "no load in round {round}");
        recorder.fault_start("power-cut-all", &[]);
        std::thread::scope(|scope| {
            for disk in &disks {
                scope.spawn(|| disk.cut());
            }
        });
        cluster.kill(&[0, 1, 2]);
        load.stop().await;
        for disk in &disks {
            disk.power_on();
        }
        cluster.restart_dead().await;
        recorder.fault_end("power-cut-all");
    }
    let report = cluster
        .drain_and_check(&recorder, TOPIC, QUEUES, &Options::default())
        .await;
    assert!(report.coverage.acknowledged >= 200 * rounds, "{report}");
    println!("{rounds} power cuts of all nodes: {report}");
    drop(cluster);
}
