//! What is recorded is read back, and broken lines are named.

use super::*;

fn send(key: &str) -> Call {
    Call::Send {
        topic: "t".to_owned(),
        q: 3,
        key: key.to_owned(),
        attempt: 1,
        hash: u64::MAX,
        len: 5,
        to: "n0".to_owned(),
        timeout_ms: 3000,
    }
}

#[test]
fn what_is_written_is_read_back_in_the_order_of_its_times() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::create(&dir.path().join("h.jsonl")).unwrap();
    let first = recorder.invoke("p0", send("k0"));
    let second = recorder.invoke("p1", send("k1"));
    let reply = Reply::Send {
        q: 3,
        off: 0,
        pos: Some(7),
        code: 0,
    };
    recorder.complete("p1", second, What::Ok(reply));
    recorder.complete(
        "p0",
        first,
        What::Info {
            code: None,
            why: "closed".to_owned(),
        },
    );
    recorder.fault_start(QUORUM_LOSS, &[("node", "n1")]);
    recorder.fault_end(QUORUM_LOSS);
    recorder.observe("n0", BTreeMap::from([("raftTerm".into(), "3".into())]));
    let got = Got::from((1, "k".to_owned(), 2, 3));
    recorder.complete(
        "d",
        9,
        What::Ok(Reply::Drain {
            got: vec![got],
            min: 0,
            max: 2,
        }),
    );
    let events = recorder.events().unwrap();
    assert_eq!(events.len(), 8);
    assert!(events.is_sorted_by_key(|event| event.t));
    assert_eq!(events[0].what, What::Invoke(send("k0")));
    let line = serde_json::to_string(&events[2]).unwrap();
    assert!(
        line.contains(r#""ev":"ok","f":"send","q":3,"off":0"#),
        "{line}"
    );
    let line = serde_json::to_string(&events[7]).unwrap();
    assert!(line.contains(r#""got":[[1,"k",2,3]]"#), "{line}");
}

#[test]
fn recovery_counts_only_sends_begun_after_the_fault() {
    let event = |t, op, what| Event {
        t,
        a: "p".to_owned(),
        op,
        what,
    };
    let reply = Reply::Send {
        q: 0,
        off: 0,
        pos: None,
        code: 0,
    };
    let events = [
        event(10, 1, What::Invoke(send("a"))),
        event(21, 1, What::Ok(reply.clone())),
        event(25, 2, What::Invoke(send("b"))),
        event(90, 2, What::Ok(reply)),
    ];
    assert_eq!(recovery_ns(&events, 20), Some(70));
    assert_eq!(recovery_ns(&events, 26), None);
}

#[test]
fn a_broken_line_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("h.jsonl");
    std::fs::write(&path, "{\"t\":1}\n").unwrap();
    assert!(matches!(
        read(&path),
        Err(HistoryError::Line { line: 1, .. })
    ));
}

#[test]
fn a_history_in_memory_is_stamped_by_the_callers_clock() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    let time = Arc::new(AtomicU64::new(5));
    let clock = Arc::clone(&time);
    let recorder = Recorder::in_memory(move || clock.load(Ordering::Relaxed));
    let op = recorder.invoke("p0", send("k0"));
    time.store(70, Ordering::Relaxed);
    assert_eq!(recorder.now(), 70);
    let why = "timeout".to_owned();
    recorder.complete("p0", op, What::Info { code: None, why });
    let events = recorder.events().unwrap();
    assert_eq!(events.len(), 2);
    assert_eq!((events[0].t, events[1].t), (5, 70));
    assert_eq!((events[0].op, events[1].op), (op, op));
    assert_eq!(events[0].what, What::Invoke(send("k0")));
}

#[test]
fn the_life_of_nodes_and_faults_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::create(&dir.path().join("h.jsonl")).unwrap();
    recorder.boot("n0");
    recorder.fault(
        "N1",
        &[(NODE, "n0"), (MAJORITY, KEPT)],
        FaultResult::Skipped,
    );
    recorder.exit("n0", "signal 9", true);
    recorder.heal();
    let log = LogDump {
        vote_term: 4,
        voted_for: Some(2),
        elected: true,
        committed: Some(11),
        first: 10,
        terms: vec![(1, 10), (3, 12)],
        hashes: vec![u64::MAX, 8, 9],
        unsure: vec!["k".to_owned()],
        torn: 7,
    };
    recorder.dump("n0", log.clone());
    let events = recorder.events().unwrap();
    let node = "n0".to_owned();
    assert_eq!(events[0].what, What::Boot { node: node.clone() });
    assert!(matches!(
        events[1].what,
        What::Start {
            result: FaultResult::Skipped,
            ..
        }
    ));
    assert_eq!(events[3].what, What::Heal);
    assert_eq!(events[4].what, What::Dump { node, log });
}

#[test]
fn a_start_without_a_result_is_an_installed_fault() {
    let line = r#"{"t":1,"a":"nem","op":1,"ev":"start","fault":"x","args":{}}"#;
    let event: Event = serde_json::from_str(line).unwrap();
    let What::Start { result, .. } = event.what else {
        panic!("{event:?}");
    };
    assert_eq!(result, FaultResult::Installed);
}

#[test]
fn a_dump_tells_term_and_hash_of_the_entries_it_has() {
    let log = LogDump {
        first: 10,
        terms: vec![(1, 10), (3, 12)],
        hashes: vec![7, 8, 9],
        ..LogDump::default()
    };
    assert_eq!(log.last(), Some(12));
    assert_eq!(log.entry(11), Some((1, 8)));
    assert_eq!(log.entry(12), Some((3, 9)));
    assert_eq!(log.entry(9), None);
    assert_eq!(log.entry(13), None);
    assert_eq!(LogDump::default().last(), None);
}
