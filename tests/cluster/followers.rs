//! What any node does for any client: passing sends on, serving reads, routing, and recognising a retry.

use std::collections::BTreeSet;
use std::time::Duration;

use quorumlog_chaos::wire::{Connection, Message, Pull, SendOptions};

use super::semantics::send;
use crate::common::{BROKER, Cluster, read_at_least};

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn every_node_takes_a_send_and_serves_the_same_records() {
    let cluster = Cluster::start().await;
    cluster.create_topic("anywhere", 1).await;
    for at in 0..cluster.len() {
        let node = cluster.connect(at).await;
        let key = format!("via-{at}");
        let stored = send(&node, &Message::new("anywhere", 0, &key, key.clone())).await;
        assert_eq!(stored.offset, at as i64);
    }
    let mut all = Vec::new();
    for at in 0..cluster.len() {
        let node = cluster.connect(at).await;
        let pull = Pull::new("readers", "anywhere", 0, 0);
        let mut records = read_at_least(&node, pull, cluster.len(), PATIENCE).await;
        for record in &mut records {
            // The one field that is the serving node's own: where it can be asked for the message.
            assert_eq!(record.store_host.ip(), node.peer().ip());
            record.store_host = node.peer();
            record.store_host.set_port(0);
        }
        all.push(records);
    }
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0], all[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_with_the_same_key_finds_the_first_message_even_at_the_next_leader() {
    let mut cluster = Cluster::start().await;
    cluster.create_topic("again", 1).await;
    let leader = cluster.connect_leader().await;
    let message = Message::new("again", 0, "once", &b"only once"[..]);
    let first = send(&leader, &message).await;
    assert_eq!(send(&leader, &message).await, first);
    for at in cluster.followers().await {
        let follower = cluster.connect(at).await;
        let again = send(&follower, &message).await;
        assert_eq!((again.queue, again.offset), (first.queue, first.offset));
        assert_eq!(again.position, first.position);
    }
    // The same key on other bytes is another message.
    let other = Message::new("again", 0, "once", &b"other bytes"[..]);
    assert_eq!(send(&leader, &other).await.offset, 1);

    let dead = cluster.leader().await;
    cluster.kill(&[dead]);
    let at = cluster.leader().await;
    let again = send_until_stored(&cluster.connect(at).await, &message).await;
    assert_eq!(again, (first.offset, first.position));
    cluster.restart_dead().await;
    let leader = cluster.connect_leader().await;
    assert_eq!(leader.max_offset("again", 0).await, Ok(2));
}

async fn send_until_stored(connection: &Connection, message: &Message) -> (i64, Option<i64>) {
    let sending = async {
        loop {
            let outcome = connection.send(message, &SendOptions::default()).await;
            if let Some(stored) = outcome.stored() {
                return (stored.offset, stored.position);
            }
        }
    };
    tokio::time::timeout(PATIENCE, sending)
        .await
        .expect("stored in the end")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_send_creates_its_topic_and_every_name_server_routes_it() {
    let cluster = Cluster::start().await;
    let follower = cluster.connect(cluster.followers().await[0]).await;
    let message = Message::new("made_by_a_send", 3, "k", &b"x"[..]);
    let stored = send(&follower, &message).await;
    assert_eq!((stored.queue, stored.offset), (3, 0));
    let leader = cluster.address(cluster.leader().await).to_string();
    for at in 0..cluster.len() {
        let route = cluster
            .wait_route_where(at, "made_by_a_send", |route| {
                route.broker(BROKER).is_some_and(|broker| {
                    broker.broker_addrs.get(&0) == Some(&leader)
                        && broker.broker_addrs.len() == cluster.len()
                })
            })
            .await;
        let queues = route.queues(BROKER).expect("the group's queues");
        assert_eq!((queues.read_queue_nums, queues.write_queue_nums), (4, 4));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_write_front_of_the_route_takes_messages_of_the_topic() {
    let cluster = Cluster::start().await;
    cluster.create_topic("fronts", 4).await;
    let route = cluster
        .wait_route_where(0, "fronts", |route| {
            route.broker_datas.len() == 1 + cluster.len()
        })
        .await;
    let mut addresses = BTreeSet::new();
    let mut sent = 0;
    for front in &route.broker_datas {
        if front.broker_name == BROKER {
            continue;
        }
        let queues = route.queues(&front.broker_name).expect("its queues");
        assert_eq!((queues.write_queue_nums, queues.perm), (1, 2));
        let address = front.broker_addrs.get(&0).expect("its address");
        addresses.insert(address.clone());
        let address = address.parse().expect("an address");
        let node = Connection::open(address, PATIENCE).await.expect("a front");
        let key = format!("front-{sent}");
        let options = SendOptions {
            broker_name: Some(front.broker_name.clone()),
            ..SendOptions::default()
        };
        let message = Message::new("fronts", 0, &key, key.clone());
        let outcome = node.send(&message, &options).await;
        assert!(outcome.stored().is_some(), "{outcome:?}");
        sent += 1;
    }
    assert_eq!(addresses.len(), cluster.len(), "one front a node");
    let leader = cluster.connect_leader().await;
    let mut stored = 0;
    for queue in 0..4 {
        stored += leader.max_offset("fronts", queue).await.expect("an offset");
    }
    assert_eq!(stored, sent);
}
