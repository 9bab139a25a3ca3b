//! Two of three nodes gone: every send is refused or unknown, says so, in time; and what was refused is
//! nowhere once the group is whole again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quorumlog_chaos::checker::Options;
use quorumlog_chaos::history::{Call, Event, QUORUM_LOSS, Recorder, What};
use quorumlog_chaos::wire::{Message, SendOptions, SendOutcome};
use quorumlog_chaos::workload::Producers;

use crate::common::Cluster;

const TOPIC: &str = "majority_loss";
const QUEUES: i32 = 2;
/// A leader may acknowledge or take in writes for so long after it lost its majority.
const LEASE: Duration = Duration::from_millis(400);
/// A client's own time limit: every answer must come before.
const CLIENT_LIMIT: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_followers_refuses_writes_that_then_never_appear() {
    run(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_alone_refuses_writes_that_then_never_appear() {
    run(false).await;
}

/// Under load few sends get as far as the log, because those before them fill what may be under way: a leader that
/// takes in what it cannot have confirmed shows itself when nothing else is going on.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_leader_without_followers_refuses_the_first_send() {
    let mut cluster = Cluster::start().await;
    cluster.create_topic(TOPIC, QUEUES).await;
    let recorder = cluster.recorder();
    load(&cluster, "before").start(&recorder).finish().await;
    let leader = cluster.leader().await;
    let others: Vec<usize> = (0..cluster.len()).filter(|at| *at != leader).collect();
    cluster.kill(&others);
    tokio::time::sleep(3 * LEASE).await;
    refuses_for_certain(&cluster, leader).await;
}

async fn run(leader_survives: bool) {
    let mut cluster = Cluster::start().await;
    cluster.create_topic(TOPIC, QUEUES).await;
    let recorder = cluster.recorder();
    let before = load(&cluster, "before");
    before.start(&recorder).finish().await;

    let leader = cluster.leader().await;
    let survivor = if leader_survives {
        leader
    } else {
        cluster.followers().await[0]
    };
    let others: Vec<usize> = (0..cluster.len()).filter(|at| *at != survivor).collect();
    // Sends are under way while the others die.
    let mut during = load(&cluster, "during");
    during.nodes = vec![cluster.node(survivor)];
    during.messages = u64::MAX;
    let during = during.start(&recorder);
    assert!(
        during.progress(20, CLIENT_LIMIT * 5).await,
        "no load at the survivor"
    );
    cluster.kill(&others);
    let lost_at = Instant::now();
    let lost = recorder.now();
    recorder.fault_start(QUORUM_LOSS, &[]);
    // Long enough for what was under way to be answered, and for more to be asked.
    tokio::time::sleep_until((lost_at + CLIENT_LIMIT).into()).await;
    during.stop().await;
    assert!(lost_at.elapsed() > LEASE);
    refuses_for_certain(&cluster, survivor).await;
    late_sends(&cluster, survivor, &recorder).await;
    recorder.fault_end(QUORUM_LOSS);
    every_answer_says_why(&recorder.events().expect("the history"), lost);

    cluster.restart_dead().await;
    let options = Options {
        lease: LEASE,
        ..Options::default()
    };
    let report = cluster
        .drain_and_check(&recorder, TOPIC, QUEUES, &options)
        .await;
    assert!(report.coverage.refused >= 20, "{report}");
    assert!(report.coverage.acknowledged >= 100, "{report}");
}

fn load(cluster: &Cluster, prefix: &str) -> Producers {
    Producers {
        messages: 25,
        attempts: 1,
        timeout: CLIENT_LIMIT,
        prefix: prefix.to_owned(),
        ..cluster.producers(TOPIC, QUEUES)
    }
}

/// Sends that begin when the lease is certainly over: refused, not unknown.
async fn refuses_for_certain(cluster: &Cluster, survivor: usize) {
    let connection = cluster.connect(survivor).await;
    // Not in the history: the refusal itself is looked at. Its absence is checked with the others'.
    for at in 0..3 {
        let message = Message::new(TOPIC, 0, &format!("certain-{at}"), &b"refused"[..]);
        let options = SendOptions {
            timeout: Some(CLIENT_LIMIT),
            ..SendOptions::default()
        };
        match connection.send(&message, &options).await {
            SendOutcome::Fail { code: 1, remark } => assert!(
                remark.starts_with("[REFUSED] in-sync replicas not enough"),
                "{remark}"
            ),
            outcome => panic!("a send without a majority ended as {outcome:?}"),
        }
    }
}

async fn late_sends(cluster: &Cluster, survivor: usize, recorder: &Arc<Recorder>) {
    let mut late = load(cluster, "late");
    late.nodes = vec![cluster.node(survivor)];
    // All at once: the survivor may hold each for a second.
    late.messages = 1;
    late.connections = 20;
    let acknowledged = late.start(recorder).finish().await;
    assert_eq!(acknowledged, 0, "acknowledged without a majority");
}

/// Every send begun after the loss got code 1 with a prefix, before the client would have given up.
fn every_answer_says_why(events: &[Event], lost: u64) {
    let mut begun = std::collections::BTreeMap::new();
    let mut answers = 0;
    for event in events.iter().filter(|event| event.t >= lost) {
        if let What::Invoke(Call::Send { key, .. }) = &event.what {
            begun.insert(event.op, (event.t, key));
            continue;
        }
        let Some((t, key)) = begun.remove(&event.op) else {
            continue;
        };
        answers += 1;
        let (code, text) = match &event.what {
            What::Fail { code, remark } => (Some(*code), remark),
            What::Info { code, why } => (*code, why),
            other => panic!("{key} ended as {other:?} without a majority"),
        };
        assert_eq!(code, Some(1), "{key}: {text}");
        assert!(
            text.starts_with("[REFUSED]") || text.starts_with("[UNKNOWN]"),
            "{key}: {text}"
        );
        let took = Duration::from_nanos(event.t - t);
        assert!(took < CLIENT_LIMIT, "{key} took {took:?}");
    }
    assert!(begun.is_empty(), "never answered: {begun:?}");
    assert!(answers >= 20, "only {answers} answers");
}
