//! Queues as a consumer sees them: offsets, committed offsets, tags, long polling.

use std::time::{Duration, Instant};

use quorumlog_chaos::wire::{
    Connection, Consumer, Message, Pull, SendOptions, Stored, WireError, code,
};

use crate::common::{Cluster, read_at_least};

const GROUP: &str = "readers";
const PATIENCE: Duration = Duration::from_secs(20);

/// Sends, and requires an acknowledgement.
pub async fn send(connection: &Connection, message: &Message) -> Stored {
    let outcome = connection.send(message, &SendOptions::default()).await;
    match outcome.stored() {
        Some(stored) => stored.clone(),
        None => panic!("{} was not stored: {outcome:?}", message.key),
    }
}

async fn send_tagged(connection: &Connection, topic: &str, tags: &[&str]) {
    for (at, tag) in tags.iter().enumerate() {
        let mut message = Message::new(topic, 0, &format!("{topic}-{at}"), tag.as_bytes().to_vec());
        message.body = format!("body {at}").into();
        if !tag.is_empty() {
            message = message.with_tag(tag);
        }
        assert_eq!(send(connection, &message).await.offset, at as i64);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_counts_from_zero_and_says_where_to_go_on() {
    let cluster = Cluster::start().await;
    cluster.create_topic("offsets", 2).await;
    let leader = cluster.connect_leader().await;
    for at in 0..5 {
        let key = format!("offsets-{at}");
        let stored = send(&leader, &Message::new("offsets", 1, &key, key.clone())).await;
        assert_eq!((stored.queue, stored.offset), (1, at));
    }
    assert_eq!(leader.max_offset("offsets", 1).await, Ok(5));
    assert_eq!(leader.min_offset("offsets", 1).await, Ok(0));
    assert_eq!(leader.max_offset("offsets", 0).await, Ok(0));
    assert_eq!(leader.max_offset("no_such_topic", 0).await, Ok(0));

    let found = leader.pull(&Pull::new(GROUP, "offsets", 1, 2)).await;
    let found = found.expect("messages");
    let offsets: Vec<i64> = found.records.iter().map(|record| record.offset).collect();
    assert_eq!((offsets, found.next), (vec![2, 3, 4], 5));
    assert!(found.records.is_sorted_by_key(|record| record.position));
    for (queue, offset, code, next) in [
        (1, 5, code::PULL_NOT_FOUND, 5),
        (1, 99, code::PULL_OFFSET_MOVED, 5),
        (1, -1, code::PULL_OFFSET_MOVED, 0),
        (0, 0, code::PULL_NOT_FOUND, 0),
        (0, 7, code::PULL_OFFSET_MOVED, 0),
    ] {
        let pull = Pull::new(GROUP, "offsets", queue, offset);
        let none = leader.pull(&pull).await.expect("an answer");
        assert_eq!(
            (none.code, none.next, none.records.len()),
            (code, next, 0),
            "queue {queue} from {offset}"
        );
    }
    let third = found.records[0].store_ms;
    let at = leader.search_offset("offsets", 1, third).await;
    assert!((0..=2).contains(&at.clone().expect("an offset")), "{at:?}");
    assert_eq!(leader.search_offset("offsets", 1, 0).await, Ok(0));
    let future = third + 3_600_000;
    assert_eq!(leader.search_offset("offsets", 1, future).await, Ok(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_committed_offset_outlives_the_leader() {
    let mut cluster = Cluster::start().await;
    cluster.create_topic("commits", 2).await;
    let leader = cluster.connect_leader().await;
    let consumer = Consumer::new(GROUP, "commits", "*", 1);
    leader
        .heartbeat("c1", &[], &[consumer])
        .await
        .expect("a heartbeat");
    assert_eq!(leader.consumer_offset(GROUP, "commits", 0).await, Ok(None));
    for offset in [30, 10] {
        let committed = leader.commit_offset(GROUP, "commits", 0, offset).await;
        committed.expect("a commit");
        let now = leader.consumer_offset(GROUP, "commits", 0).await;
        assert_eq!(now, Ok(Some(offset)), "a smaller offset overwrites");
    }
    assert_eq!(leader.consumer_offset(GROUP, "commits", 1).await, Ok(None));
    let missing = leader.commit_offset(GROUP, "no_such_topic", 0, 1).await;
    assert!(
        matches!(
            missing,
            Err(WireError::Code {
                code: code::TOPIC_NOT_EXIST,
                ..
            })
        ),
        "{missing:?}"
    );

    let dead = cluster.leader().await;
    cluster.kill(&[dead]);
    let begun = Instant::now();
    loop {
        let next = cluster.connect_leader().await;
        match next.consumer_offset(GROUP, "commits", 0).await {
            Ok(offset) => {
                assert_eq!(offset, Some(10));
                return;
            }
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_by_tag_returns_what_matches_and_passes_the_rest() {
    let cluster = Cluster::start().await;
    cluster.create_topic("tags", 1).await;
    let leader = cluster.connect_leader().await;
    send_tagged(&leader, "tags", &["A", "B", "", "A", "C"]).await;
    for (expression, offsets, code) in [
        ("A", vec![0, 3], code::SUCCESS),
        (" A || B ", vec![0, 1, 3], code::SUCCESS),
        ("*", vec![0, 1, 2, 3, 4], code::SUCCESS),
        ("", vec![0, 1, 2, 3, 4], code::SUCCESS),
        ("D", vec![], code::PULL_RETRY),
    ] {
        let mut pull = Pull::new(GROUP, "tags", 0, 0);
        pull.subscription = Some(expression.to_owned());
        let pulled = leader.pull(&pull).await.expect("an answer");
        let got: Vec<i64> = pulled.records.iter().map(|record| record.offset).collect();
        assert_eq!((got, pulled.code), (offsets, code), "{expression:?}");
        assert_eq!(pulled.next, 5, "{expression:?} examined everything");
    }

    // Without a subscription in the pull, the heartbeat's counts.
    let mut pull = Pull::new("heartbeat_tags", "tags", 0, 0);
    pull.subscription = None;
    let consumer = Consumer::new("heartbeat_tags", "tags", "B", 7);
    leader
        .heartbeat("c1", &[], &[consumer])
        .await
        .expect("a heartbeat");
    pull.subscription_version = 7;
    let pulled = leader.pull(&pull).await.expect("an answer");
    let got: Vec<i64> = pulled.records.iter().map(|record| record.offset).collect();
    assert_eq!(got, [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_pull_is_woken_by_what_it_waits_for_and_by_nothing_else() {
    let cluster = Cluster::start().await;
    cluster.create_topic("polls", 1).await;
    let leader = cluster.connect_leader().await;
    let mut pull = Pull::new(GROUP, "polls", 0, 0);
    pull.suspend = Some(Duration::from_secs(1));
    let begun = Instant::now();
    let none = leader.pull(&pull).await.expect("an answer");
    assert_eq!((none.code, none.next), (code::PULL_NOT_FOUND, 0));
    assert!(begun.elapsed() >= Duration::from_millis(900), "not held");

    // Far longer than the test waits: only a message can answer it.
    pull.suspend = Some(Duration::from_secs(25));
    pull.subscription = Some("wanted".to_owned());
    let held = leader.pull(&pull);
    let wake = async {
        // On the same connection: a held pull must not block it.
        send_tagged(&leader, "polls", &["other", "wanted"]).await;
    };
    let (woken, ()) = tokio::time::timeout(PATIENCE, async { tokio::join!(held, wake) })
        .await
        .expect("the message did not wake the pull");
    let woken = woken.expect("an answer");
    assert_eq!(woken.code, code::SUCCESS);
    let tags: Vec<_> = woken.records.iter().map(|r| r.property("TAGS")).collect();
    assert_eq!((tags, woken.next), (vec![Some("wanted")], 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_consecutive_records_with_their_own_properties() {
    let cluster = Cluster::start().await;
    cluster.create_topic("batches", 1).await;
    let leader = cluster.connect_leader().await;
    send_tagged(&leader, "batches", &["first"]).await;
    let messages: Vec<Message> = (0..10)
        .map(|at| {
            let key = format!("in-batch-{at}");
            Message::new("batches", 0, &key, key.clone()).with_tag(&format!("T{at}"))
        })
        .collect();
    let outcome = leader.send_batch(&messages, &SendOptions::default()).await;
    let stored = outcome.stored().unwrap_or_else(|| panic!("{outcome:?}"));
    assert_eq!(stored.offset, 1);
    assert_eq!(stored.id.split(',').count(), 10);
    let pull = Pull::new(GROUP, "batches", 0, 1);
    let records = read_at_least(&leader, pull, 10, PATIENCE).await;
    assert_eq!(records.len(), 10);
    for (at, record) in records.iter().enumerate() {
        assert_eq!(record.offset, at as i64 + 1);
        assert_eq!(record.key(), Some(format!("in-batch-{at}").as_str()));
        assert_eq!(record.property("TAGS"), Some(format!("T{at}")).as_deref());
    }
}
