//! Messages that a consumer gives back: delayed, delivered again through the group's retry topic, and put
//! with the dead letters in the end.

use std::time::{Duration, Instant};

use quorumlog_chaos::wire::{Connection, Consumer, Message, Pull, Record, SendBack};

use super::semantics::send;
use crate::common::{Cluster, read_at_least};

const GROUP: &str = "givers_back";
const TOPIC: &str = "retries";
const PATIENCE: Duration = Duration::from_secs(30);

async fn first_of(connection: &Connection, topic: &str) -> Record {
    let pull = Pull::new(GROUP, topic, 0, 0);
    read_at_least(connection, pull, 1, PATIENCE).await.remove(0)
}

fn back(record: &Record, delay_level: i32) -> SendBack {
    SendBack {
        group: GROUP.to_owned(),
        position: record.position,
        delay_level,
        origin_topic: record.topic.clone(),
        origin_id: record.key().unwrap_or_default().to_owned(),
        max_reconsume_times: Some(1),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_given_back_comes_again_after_its_delay_and_ends_with_the_dead_letters() {
    let cluster = Cluster::start().await;
    cluster.create_topic(TOPIC, 1).await;
    let leader = cluster.connect_leader().await;
    let consumer = Consumer::new(GROUP, TOPIC, "*", 1);
    leader
        .heartbeat("c1", &[], &[consumer])
        .await
        .expect("a heartbeat");
    let message = Message::new(TOPIC, 0, "given-back", &b"try again"[..]).with_tag("A");
    send(&leader, &message).await;
    let original = first_of(&leader, TOPIC).await;
    assert_eq!(original.reconsume_times, 0);

    let given = Instant::now();
    // Level 1 is one second.
    leader
        .send_back(&back(&original, 1))
        .await
        .expect("an answer");
    let retry_topic = format!("%RETRY%{GROUP}");
    let again = first_of(&leader, &retry_topic).await;
    assert!(given.elapsed() >= Duration::from_millis(900), "no delay");
    assert_eq!(again.body, original.body);
    assert_eq!(again.reconsume_times, 1);
    assert_eq!(again.property("RETRY_TOPIC"), Some(TOPIC));
    assert_eq!(again.property("TAGS"), Some("A"));

    // Once was all that this consumer allows.
    leader.send_back(&back(&again, 1)).await.expect("an answer");
    let dead = first_of(&leader, &format!("%DLQ%{GROUP}")).await;
    assert_eq!(dead.body, original.body);
    let retried = leader.max_offset(&retry_topic, 0).await;
    assert_eq!(retried, Ok(1), "not tried again");

    let nowhere = SendBack {
        position: original.position + 1,
        ..back(&original, 1)
    };
    assert!(leader.send_back(&nowhere).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_retry_outlives_the_leader() {
    let mut cluster = Cluster::start().await;
    cluster.create_topic(TOPIC, 1).await;
    let leader = cluster.connect_leader().await;
    let consumer = Consumer::new(GROUP, TOPIC, "*", 1);
    leader
        .heartbeat("c1", &[], &[consumer])
        .await
        .expect("a heartbeat");
    send(&leader, &Message::new(TOPIC, 0, "delayed", &b"later"[..])).await;
    let original = first_of(&leader, TOPIC).await;
    leader
        .send_back(&back(&original, 2))
        .await
        .expect("an answer");
    let dead = cluster.leader().await;
    cluster.kill(&[dead]);
    let retry_topic = format!("%RETRY%{GROUP}");
    let next = cluster.connect_leader().await;
    let again = first_of(&next, &retry_topic).await;
    assert_eq!((again.reconsume_times, &again.body), (1, &original.body));
    cluster.restart_dead().await;
    let leader = cluster.connect_leader().await;
    assert_eq!(leader.max_offset(&retry_topic, 0).await, Ok(1), "once");
}
