//! A node is started, written to and stopped; then its files are read offline, whole and damaged.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::cli::node;
use crate::config::Config;
use crate::protocol::message::{NewRecord, push_property};
use crate::store::{TopicConfig, UnitOutcome};

fn topic(name: &str) -> TopicConfig {
    TopicConfig {
        name: name.into(),
        read_queues: 1,
        write_queues: 1,
        perm: 6,
        sys_flag: 0,
        order: false,
        attributes: String::new(),
    }
}

/// A directory with a topic and two messages in its log.
async fn written_log(dir: &Path) {
    let text = format!("brokerIP1=127.0.0.1\nstorePathRootDir={}\n", dir.display());
    let broker = node::start(Config::parse(&text, "test").unwrap(), false)
        .await
        .unwrap();
    let mut view = broker.group.view();
    let leads = view.wait_for(|view| view.ready && view.leader == Some(1));
    tokio::time::timeout(Duration::from_secs(20), leads)
        .await
        .unwrap()
        .unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    let command = Command::PutTopic(topic("T"));
    broker.proposer.command(deadline, &command).await.unwrap();
    let host = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
    let mut properties = Vec::new();
    push_property(&mut properties, property::KEYS, "k1");
    push_property(&mut properties, property::UNIQ_KEY, "u1");
    let record = NewRecord {
        topic: "T",
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_ms: 1,
        born_host: host,
        store_ms: 2,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: b"hello body",
        properties: &properties,
    };
    let (done, outcome) = mpsc::channel();
    broker.proposer.submit(
        deadline,
        |entry| entry.push_send(&[record.clone(), record.clone()], false),
        move |result| done.send(result).unwrap(),
    );
    let outcome = tokio::task::spawn_blocking(move || outcome.recv())
        .await
        .unwrap();
    let stored = outcome.unwrap().unwrap();
    assert!(matches!(
        stored,
        UnitOutcome::Stored {
            queue_offset: 0,
            ..
        }
    ));
    broker.group.shutdown().await;
}

fn dumped(dir: &Path, messages: bool) -> String {
    let mut text = String::new();
    let report = read(dir, false, &mut |entry| {
        text.push_str(&entry_lines(entry, &units(entry), messages));
    })
    .unwrap();
    text + &findings_text(&report)
}

fn verified(dir: &Path) -> (bool, String) {
    let mut counts = Counts::default();
    let report = read(dir, false, &mut |entry| counts.take(entry)).unwrap();
    let sound = report.sound() && counts.damaged.is_empty();
    (sound, verdict(&report, &counts))
}

/// The only segment file, and the byte where `content` first stands in it.
fn place_of(dir: &Path, content: &[u8]) -> (PathBuf, u64) {
    let segment = std::fs::read_dir(dir.join("log"))
        .unwrap()
        .map(|found| found.unwrap().path())
        .find(|path| path.extension().is_some_and(|e| e == "seg"))
        .unwrap();
    let bytes = std::fs::read(&segment).unwrap();
    let at = memchr::memmem::find(&bytes, content).unwrap();
    (segment, at as u64)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_is_dumped_and_verified_and_damage_is_named() {
    let dir = tempfile::tempdir().unwrap();
    written_log(dir.path()).await;

    let lines = dumped(dir.path(), true);
    // The node's own commands may share these entries.
    assert!(lines.contains("put topic T"), "{lines}");
    assert!(lines.contains("sends 1 (messages 2)"), "{lines}");
    let record = "    T/0 keys k1 id u1 body 10 bytes\n";
    assert_eq!(lines.matches(record).count(), 2, "{lines}");
    assert!(!dumped(dir.path(), false).contains("keys k1"));

    let (sound, text) = verified(dir.path());
    assert!(sound, "{text}");
    assert!(
        text.contains("messages: 2 (20 bytes of bodies)\n"),
        "{text}"
    );
    assert!(text.ends_with("sound\n"), "{text}");

    let (segment, at) = place_of(dir.path(), b"hello body");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&segment)
        .unwrap();
    file.write_all_at(b"J", at).unwrap();
    let (sound, text) = verified(dir.path());
    assert!(!sound, "{text}");
    assert!(
        text.contains(&format!("DAMAGED: {} at byte", segment.display())),
        "{text}"
    );
    assert!(text.ends_with("NOT SOUND\n"), "{text}");
}

#[test]
fn a_directory_in_use_is_refused_unless_forced() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("log")).unwrap();
    let held = Env::real().files.lock(&dir.path().join("LOCK")).unwrap();
    let error = read(dir.path(), false, &mut |_| {})
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("is in use by a running node") && error.contains("--force"),
        "{error}"
    );
    assert!(read(dir.path(), true, &mut |_| {}).is_ok());
    drop(held);
    assert!(read(dir.path(), false, &mut |_| {}).is_ok());
}

#[test]
fn a_directory_that_is_none_of_a_node_is_named() {
    let error = verify(Path::new("/no/such/dir"), false)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("/no/such/dir") && error.contains("storePathRootDir"),
        "{error}"
    );
}
