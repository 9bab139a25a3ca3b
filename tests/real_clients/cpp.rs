//! The C++ client: sends, push consumption by tag, and orderly consumption, through a kill of the leader.
//! Property: nothing acknowledged is missing, nothing is delivered out of order within a queue, a message
//! is stored twice only if the result of its send was unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::common::Cluster;
use crate::script::Script;

const PATIENCE: Duration = Duration::from_secs(90);
/// Sends before the kill, and after it.
const SOME: usize = 400;

fn name_servers(cluster: &Cluster) -> String {
    let addresses: Vec<String> = (0..cluster.len())
        .map(|at| cluster.name_server(at).to_string())
        .collect();
    addresses.join(";")
}

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field]
        .as_str()
        .unwrap_or_else(|| panic!("{field} in {row}"))
}

fn acknowledged(rows: &[Value]) -> Vec<&Value> {
    rows.iter().filter(|row| row["ok"] == true).collect()
}

/// Longest time between the ends of two acknowledged sends.
fn longest_gap(rows: &[Value]) -> Duration {
    let ends: Vec<f64> = acknowledged(rows)
        .iter()
        .filter_map(|row| row["ended"].as_f64())
        .collect();
    let longest = ends
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .fold(0.0, f64::max);
    Duration::from_secs_f64(longest)
}

/// Now, on the clock that the scripts report by, seconds.
fn now() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Kills the leader with SIGKILL between `SOME` acknowledged sends and `SOME` more, restarts it, and waits
/// for `SOME` more. Returns when it was killed.
async fn kill_leader_under(cluster: &mut Cluster, producer: &mut Script) -> f64 {
    producer.wait(PATIENCE, |rows| acknowledged(rows).len() >= SOME);
    let leader = cluster.leader().await;
    let killed = now();
    cluster.kill(&[leader]);
    producer.wait(PATIENCE, |rows| acknowledged(rows).len() >= 2 * SOME);
    cluster.restart_dead().await;
    producer.wait(PATIENCE, |rows| acknowledged(rows).len() >= 3 * SOME);
    killed
}

/// Sends one of whose attempts has an unknown result: those that failed, and the one under way when the
/// leader died, which the client tries again by itself.
fn unknown(sent: &[Value], killed: f64) -> BTreeSet<&str> {
    let under_way = |row: &Value| {
        let (began, ended) = (row["began"].as_f64(), row["ended"].as_f64());
        began.is_some_and(|began| began <= killed) && ended.is_some_and(|ended| ended >= killed)
    };
    sent.iter()
        .filter(|row| row["ok"] != true || under_way(row))
        .map(|row| text(row, "key"))
        .collect()
}

/// A message was stored twice only if a result was unknown, and then under another id: this client gives
/// each attempt of a send an id of its own, so the broker cannot tell a retry from a new message. The same id
/// is never stored twice.
fn check_duplicates(sent: &[Value], killed: f64, delivered: &[Value]) {
    let unknown = unknown(sent, killed);
    let mut places: BTreeMap<&str, BTreeMap<(i64, i64), &str>> = BTreeMap::new();
    for row in delivered {
        let place = (
            row["queue"].as_i64().expect("a queue"),
            row["offset"].as_i64().expect("an offset"),
        );
        let of_key = places.entry(text(row, "key")).or_default();
        of_key.insert(place, text(row, "unique"));
    }
    for (key, places) in places.iter().filter(|(_, places)| places.len() > 1) {
        let ids: BTreeSet<_> = places.values().collect();
        assert_eq!(
            ids.len(),
            places.len(),
            "{key}: one id stored twice: {places:?}"
        );
        assert!(
            unknown.contains(key),
            "{key} stored twice though its result was known: {places:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cpp_client_sends_and_consumes_by_tag_through_a_leader_kill() {
    let mut cluster = Cluster::start().await;
    cluster.create_topic("cpp_push", 4).await;
    let home = cluster.dir().to_owned();
    let servers = name_servers(&cluster);
    let mut consumer = consume(
        &servers,
        "cpp_push",
        "cpp_push_consumers",
        &["--expression", "TagA"],
        &home,
    );
    let mut producer = produce(&servers, "cpp_push", "cpp_push_producers", &[], &home);
    let killed = kill_leader_under(&mut cluster, &mut producer).await;
    let sent = producer.finish();

    let wanted: BTreeSet<String> = acknowledged(&sent)
        .iter()
        .filter(|row| row["tag"] == "TagA")
        .map(|row| text(row, "key").to_owned())
        .collect();
    consumer.wait(PATIENCE, |rows| {
        let got: BTreeSet<&str> = rows.iter().map(|row| text(row, "key")).collect();
        wanted.iter().all(|key| got.contains(key.as_str()))
    });
    let delivered = consumer.finish();
    assert!(
        delivered.iter().all(|row| row["tag"] == "TagA"),
        "a message of another tag was delivered"
    );
    check_duplicates(&sent, killed, &delivered);
    println!(
        "C++ client, push by tag: {} sent, {} acknowledged, {} of the tag delivered, longest gap between two \
         acknowledged sends {:?}",
        sent.len(),
        acknowledged(&sent).len(),
        wanted.len(),
        longest_gap(&sent)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cpp_client_consumes_in_order_through_a_leader_kill() {
    let mut cluster = Cluster::start().await;
    cluster.create_topic("cpp_order", 4).await;
    let home = cluster.dir().to_owned();
    let servers = name_servers(&cluster);
    let mut consumer = consume(
        &servers,
        "cpp_order",
        "cpp_order_consumers",
        &["--orderly"],
        &home,
    );
    let mut producer = produce(
        &servers,
        "cpp_order",
        "cpp_order_producers",
        &["--orderly-keys", "8"],
        &home,
    );
    let killed = kill_leader_under(&mut cluster, &mut producer).await;
    let sent = producer.finish();

    let wanted: BTreeSet<String> = acknowledged(&sent)
        .iter()
        .map(|row| text(row, "key").to_owned())
        .collect();
    consumer.wait(PATIENCE, |rows| {
        let got: BTreeSet<&str> = rows.iter().map(|row| text(row, "key")).collect();
        wanted.iter().all(|key| got.contains(key.as_str()))
    });
    let delivered = consumer.finish();
    check_duplicates(&sent, killed, &delivered);
    check_order(&delivered);
    println!(
        "C++ client, orderly: {} sent, {} acknowledged, {} delivered, longest gap between two acknowledged \
         sends {:?}",
        sent.len(),
        acknowledged(&sent).len(),
        delivered.len(),
        longest_gap(&sent)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_fails_in_the_cpp_client_comes_again() {
    let cluster = Cluster::start().await;
    cluster.create_topic("cpp_retry", 2).await;
    let home = cluster.dir().to_owned();
    let servers = name_servers(&cluster);
    let failing = "cpp_retry_producers-0-3";
    let mut consumer = consume(
        &servers,
        "cpp_retry",
        "cpp_retry_consumers",
        &["--fail-first", failing],
        &home,
    );
    let producer = produce(
        &servers,
        "cpp_retry",
        "cpp_retry_producers",
        &["--count", "10"],
        &home,
    );
    consumer.wait(PATIENCE, |rows| {
        let times: Vec<i64> = rows
            .iter()
            .filter(|row| row["key"] == failing)
            .filter_map(|row| row["times"].as_i64())
            .collect();
        times.contains(&0) && times.contains(&1)
    });
    drop(producer);
    consumer.finish();
}

/// Within a queue offsets only grow, and so do the sequence numbers of each key. (A retry may go to another
/// queue: that is the client's choice.)
fn check_order(delivered: &[Value]) {
    let mut newest: BTreeMap<i64, i64> = BTreeMap::new();
    let mut sequence: BTreeMap<(i64, i64), i64> = BTreeMap::new();
    for row in delivered {
        let queue = row["queue"].as_i64().expect("a queue");
        let offset = row["offset"].as_i64().expect("an offset");
        if let Some(before) = newest.insert(queue, offset) {
            assert!(
                offset > before,
                "queue {queue}: offset {offset} delivered after {before}"
            );
        }
        let body: Value = serde_json::from_str(text(row, "body")).expect("the body is JSON");
        let key = body["group_key"].as_i64().expect("a key");
        let seq = body["seq"].as_i64().expect("a number");
        if let Some(before) = sequence.insert((queue, key), seq) {
            assert!(
                seq > before,
                "queue {queue}, key {key}: message {seq} delivered after {before}"
            );
        }
    }
}

fn produce(servers: &str, topic: &str, group: &str, more: &[&str], home: &Path) -> Script {
    let mut arguments = vec!["--namesrv", servers, "--topic", topic, "--group", group];
    arguments.extend_from_slice(more);
    Script::start("cpp_produce.py", &arguments, home)
}

fn consume(servers: &str, topic: &str, group: &str, more: &[&str], home: &Path) -> Script {
    let mut arguments = vec!["--namesrv", servers, "--topic", topic, "--group", group];
    arguments.extend_from_slice(more);
    Script::start("cpp_consume.py", &arguments, home)
}
