//! Consumer groups: who is in one, who is told about changes, and queue locks.

use std::time::Duration;

use quorumlog_chaos::wire::{Connection, Consumer, QueueRef, code};

use crate::common::{BROKER, Cluster};

const GROUP: &str = "members";
const TOPIC: &str = "groups";
const PATIENCE: Duration = Duration::from_secs(10);

async fn join(connection: &Connection, client: &str) {
    let consumer = Consumer::new(GROUP, TOPIC, "*", 1);
    connection
        .heartbeat(client, &["producers"], &[consumer])
        .await
        .expect("a heartbeat");
}

/// Waits for the notification that the group has changed.
async fn told(connection: &Connection, why: &str) {
    let pushed = connection
        .server_request(PATIENCE)
        .await
        .unwrap_or_else(|| panic!("not told: {why}"));
    assert_eq!(pushed.code, code::NOTIFY_CONSUMERS_CHANGED, "{why}");
    assert_eq!(
        pushed.ext.get("consumerGroup").map(String::as_str),
        Some(GROUP)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_told_when_one_comes_or_goes() {
    let cluster = Cluster::start().await;
    cluster.create_topic(TOPIC, 4).await;
    let first = cluster.connect_leader().await;
    assert_eq!(first.consumer_list(GROUP).await, Ok(vec![]));
    join(&first, "c1").await;
    assert_eq!(first.consumer_list(GROUP).await, Ok(vec!["c1".to_owned()]));
    // Its own arrival may be announced to itself, once.
    let _own = first.server_request(Duration::from_millis(200)).await;

    let second = cluster.connect_leader().await;
    join(&second, "c2").await;
    told(&first, "c2 came").await;
    let both = vec!["c1".to_owned(), "c2".to_owned()];
    assert_eq!(first.consumer_list(GROUP).await, Ok(both.clone()));
    join(&second, "c2").await;
    let again = first.server_request(Duration::from_millis(300)).await;
    assert_eq!(again, None, "a repeated heartbeat changes nothing");

    second.unregister("c2", GROUP).await.expect("an answer");
    told(&first, "c2 unregistered").await;
    assert_eq!(first.consumer_list(GROUP).await, Ok(vec!["c1".to_owned()]));

    let third = cluster.connect_leader().await;
    join(&third, "c3").await;
    told(&first, "c3 came").await;
    drop(third);
    told(&first, "c3's connection closed").await;
    assert_eq!(first.consumer_list(GROUP).await, Ok(vec!["c1".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_locked_by_one_client_until_it_unlocks() {
    let cluster = Cluster::start().await;
    cluster.create_topic(TOPIC, 4).await;
    let leader = cluster.connect_leader().await;
    let queue = |queue_id| QueueRef {
        broker_name: BROKER.to_owned(),
        queue_id,
        topic: TOPIC.to_owned(),
    };
    let (low, all) = ([queue(0), queue(1)], [queue(0), queue(1), queue(2)]);
    for what in ["locks", "renews"] {
        let held = leader.lock(GROUP, "c1", &low).await;
        assert_eq!(held.as_deref(), Ok(&low[..]), "c1 {what}");
    }
    let held = leader.lock(GROUP, "c2", &all).await;
    assert_eq!(held, Ok(vec![queue(2)]), "only what is free");
    let held = leader.lock("other_group", "c2", &low).await;
    assert_eq!(held.as_deref(), Ok(&low[..]), "locks are a group's own");
    leader.unlock(GROUP, "c2", &low).await.expect("an answer");
    let held = leader.lock(GROUP, "c2", &low).await;
    assert_eq!(held, Ok(vec![]), "another's lock cannot be undone");
    leader.unlock(GROUP, "c1", &low).await.expect("an answer");
    let held = leader.lock(GROUP, "c2", &all).await;
    assert_eq!(held.as_deref(), Ok(&all[..]));
}
