//! A group under load, with kills: what its nodes said of themselves, what they served and what lies in their
//! files is one story.

use std::sync::Arc;
use std::time::Duration;

use quorumlog_chaos::checker::{Floor, Invariant, Options, Verdict, check, run_dir, save_options};
use quorumlog_chaos::history::{Call, Event, Got, KEPT, MAJORITY, NODE, Recorder, Reply, What};
use quorumlog_chaos::offline::{self, NodeFiles};
use quorumlog_chaos::wire::{Connection, Message, SendOptions, SendOutcome, Stored};
use quorumlog_chaos::workload::{Drainer, Node, body};
use tokio::task::JoinHandle;

use crate::common::{Cluster, Setup};
use crate::copies::{edit, of_kind};

const TOPIC: &str = "offline";
const QUEUES: i32 = 3;
const PATIENCE: Duration = Duration::from_secs(90);

/// Asks every node what it has to say of itself, again and again, one after the other.
fn observe(nodes: Vec<Node>, recorder: Arc<Recorder>) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            for node in &nodes {
                let within = Duration::from_millis(500);
                if let Ok(connection) = Connection::open(node.address, within).await
                    && let Ok(table) = connection.runtime_info().await
                {
                    recorder.observe(&node.name, table);
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

/// Sends until it is acknowledged, under one key, and says where the message is.
async fn send(cluster: &Cluster, message: &Message) -> Stored {
    loop {
        let leader = cluster.connect_leader().await;
        if let SendOutcome::Ok(stored) = leader.send(message, &SendOptions::default()).await {
            return stored;
        }
    }
}

/// What entries can do beside plain sends: repeated keys, a batch's worth of delays, topics that go.
async fn curiosities(cluster: &Cluster) {
    cluster.create_topic("gone", 1).await;
    cluster.create_topic("twice", 1).await;
    for topic in ["gone", "twice"] {
        let message = Message::new(topic, 0, "same", body("same", 100)).with_tag("Tag");
        let first = send(cluster, &message).await;
        let again = send(cluster, &message).await;
        assert_eq!((first.offset, again.offset), (0, 0));
    }
    while cluster
        .connect_leader()
        .await
        .delete_topic("gone")
        .await
        .is_err()
    {}
    cluster.create_topic("gone", 1).await;
    let message = Message::new("gone", 0, "same", body("same", 100));
    assert_eq!(send(cluster, &message).await.offset, 0);
    let delayed = Message::new("twice", 0, "late", body("late", 50)).with_property("DELAY", "1");
    send(cluster, &delayed).await;
}

/// What a drain of `node` returned.
fn drained(events: &[Event], name: &str, queue: i32) -> Vec<Got> {
    let mut op = None;
    let mut found = Vec::new();
    for event in events {
        match &event.what {
            What::Invoke(Call::Drain { q, node, .. }) if node == name && *q == queue => {
                op = Some(event.op);
            }
            What::Ok(Reply::Drain { got, .. }) if op == Some(event.op) => found.clone_from(got),
            _ => {}
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nodes_say_and_serve_is_what_lies_in_their_files() {
    let setup = Setup::default().with("mappedFileSizeCommitLog", "1048576");
    let mut cluster = Cluster::start_with(setup).await;
    cluster.create_topic(TOPIC, QUEUES).await;
    curiosities(&cluster).await;
    let recorder = cluster.recorder();
    for node in cluster.nodes() {
        recorder.boot(&node.name);
    }
    let observing = observe(cluster.nodes(), Arc::clone(&recorder));
    let reading = cluster.readers(TOPIC, QUEUES).start(&recorder);
    let mut load = cluster.producers(TOPIC, QUEUES);
    load.body = (32, 16 * 1024);
    let load = load.start(&recorder);
    for round in 1..=3 {
        let grows = load.progress(round * 200, PATIENCE).await;
        assert!(grows, "no load in round {round}");
        let leader = cluster.leader().await;
        let name = cluster.node(leader).name;
        recorder.fault_start("kill", &[(NODE, &name), (MAJORITY, KEPT)]);
        cluster.kill(&[leader]);
        recorder.exit(&name, "killed", true);
        tokio::time::sleep(Duration::from_millis(1500)).await;
        recorder.boot(&name);
        cluster.restart_dead().await;
        recorder.fault_end("kill");
    }
    recorder.heal();
    let more = load.progress(700, PATIENCE).await;
    assert!(more, "no load after healing");
    load.stop().await;
    reading.stop().await;
    // The delayed message is due after a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Drainer::new(cluster.nodes(), TOPIC, QUEUES)
        .drain_all(&recorder)
        .await
        .unwrap_or_else(|error| panic!("drain: {error}"));
    tokio::time::sleep(Duration::from_millis(300)).await;
    observing.abort();
    cluster.kill(&[0, 1, 2]);

    let files: Vec<NodeFiles> = (0..cluster.len())
        .map(|at| offline::read(&cluster.dir().join(format!("n{at}"))).expect("readable files"))
        .collect();
    judge_files(&files);
    let committed = offline::common(&files);
    for (node, files) in cluster.nodes().iter().zip(&files) {
        recorder.exit(&node.name, "killed", true);
        offline::record(&recorder, &node.name, files, &[(TOPIC, QUEUES)], committed);
    }
    let events = recorder.events().expect("the history");
    for q in 0..QUEUES {
        let online = drained(&events, "n0", q);
        assert!(online.len() > 100);
        for at in 0..3 {
            let name = format!("n{at}:files");
            assert!(drained(&events, &name, q) == online, "{name}, queue {q}");
        }
    }
    let options = Options {
        floor: Floor {
            acknowledged: 700,
            leader_changes: 3,
            boots: 6,
            dumps: 3,
            faults: 3,
            last_drains: 2 * 3 * QUEUES as usize,
            all_faults: true,
            ..Floor::default()
        },
        recovers_acks: 20,
        ..Options::default()
    };
    let report = check(&events, &options);
    assert!(report.is_green(), "{report}");
    println!("{report}");
    // The run's directory is enough to come to the same verdict, and the nodes' files in it are judged, too.
    save_options(cluster.dir(), &options).expect("written options");
    let again = run_dir(cluster.dir()).expect("a run's directory");
    assert!(again.is_green(), "{again}");
    assert_eq!(again.coverage, report.coverage);
    let first = of_kind(&cluster.dir().join("n1"), "seg").swap_remove(0);
    edit(&first, |bytes| bytes[6000] ^= 1);
    let broken = run_dir(cluster.dir()).expect("a run's directory");
    assert_eq!(broken.verdict(), Verdict::Violated);
    assert!(broken.counts.contains_key(&Invariant::Durable), "{broken}");
}

fn judge_files(files: &[NodeFiles]) {
    let committed = offline::common(files).expect("a common log");
    assert_eq!(offline::compare(files, Some(committed)), []);
    for node in files {
        assert_eq!(node.damage, []);
        assert_eq!(node.bad_indexes, []);
        assert_eq!(node.voters.len(), 3);
        assert!(node.segments.len() > 2, "{:?}", node.segments);
        assert!(
            node.indexes.len() + 1 >= node.segments.len() - 1,
            "{:?}",
            node.indexes.len()
        );
        assert!(node.last() >= Some(committed));
        let keys = |topic: &str| -> Vec<String> {
            let got = node.queue(topic, 0, committed).expect("a whole log");
            let mut keys: Vec<String> = got.into_iter().map(|got| got.key).collect();
            // A delayed message is not recognised: one that was sent again is there again.
            keys.dedup();
            keys
        };
        // A repeated key adds nothing; a topic made again is another one; a delayed message is delivered.
        assert_eq!(keys("twice"), ["same", "late"]);
        assert_eq!(keys("gone"), ["same"]);
    }
}
