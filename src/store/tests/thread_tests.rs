//! The store with the real files and the keeper's thread.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use quorumlog_raft::StateMachine;
use quorumlog_raft::env::Env;

use super::fake_log::FakeLog;
use super::world::{HOST, Message, topic};
use crate::store::*;

fn open(dir: &Path, log: &FakeLog) -> (Store, Machine) {
    let options = StoreOptions {
        dir: dir.to_path_buf(),
        env: Env::real(),
    };
    Store::open_over(options, Arc::new(log.clone())).unwrap()
}

fn append(log: &FakeLog, machine: &mut Machine, build: impl FnOnce(&mut EntryBuilder)) {
    let mut builder = EntryBuilder::new();
    build(&mut builder);
    let entry = log.append(builder.take());
    machine.apply(&entry);
}

fn read(store: &Store, from: i64) -> (Bytes, i64) {
    let limits = ReadLimits {
        messages_max: 1_000,
        bytes_max: 1 << 30,
    };
    let outcome = store.read("orders", 0, from, limits, &|_| true, HOST, Wait::Yes);
    match outcome.unwrap() {
        ReadOutcome::Found { records, next, .. } => (records, next),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_the_thread_has_written_is_found_by_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = FakeLog::new(10_000);
    log.dir = dir.path().join("log");
    std::fs::create_dir(&log.dir).unwrap();
    let (store, mut machine) = open(dir.path(), &log);
    append(&log, &mut machine, |builder| {
        builder.push_command(&Command::PutTopic(topic("orders", 1)));
    });
    for number in 0..500 {
        let message = Message::new("orders", 0, &format!("message {number}"));
        append(&log, &mut machine, |builder| message.push(builder));
    }
    let before = read(&store, 0);
    assert_eq!(before.1, 500);
    // Ends when everything that waits is written.
    drop(machine);
    assert_eq!(read(&store, 0), before, "now from index files");
    drop(store);

    let (store, machine) = open(dir.path(), &log);
    let last_boundary = log_bytes::LogBytes::segments(&log).pop().unwrap().0;
    assert!(last_boundary > 0);
    let restored = machine.restored().unwrap();
    assert_eq!(restored.end, last_boundary);
    assert_eq!(store.warm_topics(), [topic("orders", 1)]);
    let (records, next) = read(&store, 0);
    assert_eq!(before.0.slice(..records.len()), records);
    assert!(next > 400 && next == store.queue_bounds("orders", 0).unwrap().1);
}
