//! The leader goes away under load, in three ways: nothing acknowledged is missing, and writing goes on.

use std::time::Duration;

use quorumlog_chaos::checker::Options;
use quorumlog_chaos::history::recovery_ns;

use crate::common::Cluster;

const TOPIC: &str = "failover";
const QUEUES: i32 = 4;

/// A run of this size says something; the exact number does not matter.
const SOME: u64 = 200;
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_costs_no_message_and_a_client_writes_again() {
    let mut cluster = Cluster::start().await;
    cluster.create_topic(TOPIC, QUEUES).await;
    let recorder = cluster.recorder();
    let reading = cluster.readers(TOPIC, QUEUES).start(&recorder);
    let load = cluster.producers(TOPIC, QUEUES).start(&recorder);
    assert!(
        load.progress(SOME, PATIENCE).await,
        "no load before the kill"
    );
    let leader = cluster.leader().await;
    let killed = recorder.now();
    recorder.fault_start("kill-leader", &[]);
    cluster.kill(&[leader]);
    assert!(
        load.progress(SOME, PATIENCE).await,
        "no load after the kill"
    );
    cluster.restart_dead().await;
    recorder.fault_end("kill-leader");
    assert!(
        load.progress(SOME, PATIENCE).await,
        "no load after the restart"
    );
    let acknowledged = load.stop().await;
    assert!(reading.stop().await > SOME);

    let events = recorder.events().expect("the history");
    let recovery = Duration::from_nanos(recovery_ns(&events, killed).expect("an acknowledgement"));
    println!("kill of the leader to the first acknowledged write: {recovery:?}");
    assert!(recovery < Duration::from_secs(5), "{recovery:?}");
    let report = cluster
        .drain_and_check(&recorder, TOPIC, QUEUES, &Options::default())
        .await;
    assert!(report.coverage.acknowledged as u64 >= acknowledged);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_stood_still_acknowledges_nothing_it_cannot_keep() {
    let cluster = Cluster::start().await;
    cluster.create_topic(TOPIC, QUEUES).await;
    let recorder = cluster.recorder();
    let reading = cluster.readers(TOPIC, QUEUES).start(&recorder);
    let mut load = cluster.producers(TOPIC, QUEUES);
    load.timeout = Duration::from_secs(1);
    let load = load.start(&recorder);
    assert!(
        load.progress(SOME, PATIENCE).await,
        "no load before the pause"
    );
    let leader = cluster.leader().await;
    recorder.fault_start("pause-leader", &[]);
    cluster.pause(leader);
    let went_on = load.progress(SOME, PATIENCE).await;
    cluster.resume(leader);
    recorder.fault_end("pause-leader");
    assert!(went_on, "no load while the old leader stood still");
    assert!(
        load.progress(SOME, PATIENCE).await,
        "no load after the pause"
    );
    load.stop().await;
    assert!(reading.stop().await > SOME);
    cluster
        .drain_and_check(&recorder, TOPIC, QUEUES, &Options::default())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_by_sigterm_costs_no_message() {
    let mut cluster = Cluster::start().await;
    cluster.create_topic(TOPIC, QUEUES).await;
    let recorder = cluster.recorder();
    let reading = cluster.readers(TOPIC, QUEUES).start(&recorder);
    let load = cluster.producers(TOPIC, QUEUES).start(&recorder);
    for at in 0..cluster.len() {
        assert!(
            load.progress(SOME, PATIENCE).await,
            "no load before node {at}"
        );
        let status = cluster.terminate(at).await;
        assert!(status.success(), "node {at} ended with {status}");
        cluster.restart_dead().await;
    }
    assert!(load.progress(SOME, PATIENCE).await, "no load in the end");
    load.stop().await;
    assert!(reading.stop().await > SOME);
    cluster
        .drain_and_check(&recorder, TOPIC, QUEUES, &Options::default())
        .await;
}
