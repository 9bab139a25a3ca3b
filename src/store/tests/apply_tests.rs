//! What entries do to the state.

use std::sync::{Arc, Mutex};

use quorumlog_raft::StateMachine;

use super::world::{Message, Node, stored, topic};
use crate::store::command::QueueId;
use crate::store::*;

fn node() -> Node {
    let mut node = Node::new(1 << 20);
    node.command(Command::PutTopic(topic("orders", 4)));
    node
}

#[test]
fn queue_offsets_count_from_zero_without_holes() {
    let mut node = node();
    for expected in 0..5 {
        let (offset, _, duplicate) = stored(node.send(&Message::new("orders", 1, "m")));
        assert_eq!((offset, duplicate), (expected, false));
    }
    let (offset, position, _) = stored(node.send(&Message::new("orders", 1, "b").batch(10)));
    assert_eq!(offset, 5);
    assert_eq!(stored(node.send(&Message::new("orders", 1, "m"))).0, 15);
    assert_eq!(stored(node.send(&Message::new("orders", 2, "m"))).0, 0);
    assert_eq!(node.store.queue_bounds("orders", 1), Some((0, 16)));
    assert_eq!(node.store.queue_bounds("orders", 0), None);
    // The records of a unit follow one another with a prefix between them.
    let first = node.read_all("orders", 1)[5].len() as u64;
    let second = node
        .store
        .message_at(position + first + 4, super::world::HOST)
        .unwrap();
    assert!(second.is_some());
}

#[test]
fn a_message_for_no_topic_or_no_queue_is_not_stored() {
    let mut node = node();
    assert_eq!(
        node.send(&Message::new("nothing", 0, "m")),
        UnitOutcome::NoSuchTopic
    );
    for queue in [4, -1, i32::MAX, i32::MIN] {
        let outcome = node.send(&Message::new("orders", queue, "m"));
        assert_eq!(outcome, UnitOutcome::NoSuchQueue);
    }
    let mut more_to_read = topic("orders", 4);
    more_to_read.read_queues = 6;
    node.command(Command::PutTopic(more_to_read));
    assert_eq!(stored(node.send(&Message::new("orders", 5, "m"))).0, 0);
}

#[test]
fn an_existing_topic_is_replaced_by_put_and_kept_by_ensure() {
    let mut node = node();
    stored(node.send(&Message::new("orders", 3, "m")));
    node.command(Command::EnsureTopic(topic("orders", 9)));
    assert_eq!(node.store.topic("orders"), Some(topic("orders", 4)));
    node.command(Command::PutTopic(topic("orders", 2)));
    assert_eq!(node.store.topic("orders"), Some(topic("orders", 2)));
    assert_eq!(
        node.read_all("orders", 3).len(),
        1,
        "still readable in a smaller topic"
    );
    node.command(Command::EnsureTopic(topic("bills", 1)));
    let names: Vec<String> = node.store.topics().into_iter().map(|t| t.name).collect();
    assert_eq!(names, ["bills", "orders"]);
}

#[test]
fn a_deleted_topic_takes_everything_with_it_and_begins_anew() {
    let mut node = node();
    node.command(Command::PutTopic(topic("bills", 1)));
    node.command(Command::PutGroup(GroupConfig::new("g")));
    let message = Message::new("orders", 0, "m").key("K");
    stored(node.send(&message));
    for topic in ["orders", "bills"] {
        let outcome = node.command(Command::CommitOffset {
            group: "g".to_string(),
            topic: topic.to_string(),
            queue: 0,
            offset: 1,
        });
        assert_eq!(outcome, CommandOutcome::Done);
        node.command(lock("a", topic, &[0], 5));
    }
    node.command(Command::DeleteTopic {
        name: "orders".to_string(),
    });
    assert_eq!(node.store.topic("orders"), None);
    assert_eq!(node.store.queue_bounds("orders", 0), None);
    assert_eq!(node.store.consumer_offset("g", "orders", 0), None);
    assert_eq!(node.store.consumer_offset("g", "bills", 0), Some(1));
    assert_eq!(node.store.lock_holder("g", "orders", 0), None);
    assert!(node.store.lock_holder("g", "bills", 0).is_some());
    assert!(matches!(node.read("orders", 0, 0), ReadOutcome::Empty));
    assert_eq!(node.send(&message), UnitOutcome::NoSuchTopic);

    node.command(Command::PutTopic(topic("orders", 1)));
    let (offset, _, duplicate) = stored(node.send(&message));
    assert_eq!((offset, duplicate), (0, false));
    assert_eq!(node.read_all("orders", 0).len(), 1);
}

#[test]
fn a_retry_gets_the_places_of_the_first_one() {
    let mut node = node();
    let message = Message::new("orders", 0, "m").key("K");
    let (offset, position, _) = stored(node.send(&message));
    // A retry may choose another queue, and comes later.
    let mut retry = message.clone().at(30_000);
    retry.queue = 2;
    assert_eq!(stored(node.send(&retry)), (offset, position, true));
    assert_eq!(node.store.queue_bounds("orders", 2), None);

    for other in [
        Message::new("orders", 0, "m").key("L"),
        Message::new("orders", 0, "other body").key("K"),
        Message::new("orders", 0, "m"),
    ] {
        assert!(!stored(node.send(&other)).2, "{other:?}");
    }
    let mut unchecked = message.clone();
    unchecked.deduplicate = false;
    assert!(!stored(node.send(&unchecked)).2);
    for quarter in 1..=5 {
        node.send(&Message::new("orders", 1, "between").at(quarter * 15_000));
    }
    assert!(!stored(node.send(&message)).2, "a minute later");
}

#[test]
fn a_batch_is_known_by_its_first_record() {
    let mut node = node();
    let batch = Message::new("orders", 0, "m").key("K").batch(3);
    let (offset, position, _) = stored(node.send(&batch));
    assert_eq!(stored(node.send(&batch)), (offset, position, true));
    assert_eq!(node.store.queue_bounds("orders", 0), Some((0, 3)));
}

#[test]
fn a_duplicate_within_one_entry_is_found() {
    let mut node = node();
    let message = Message::new("orders", 0, "m").key("K");
    let outcomes = node.commit(|builder| {
        message.push(builder);
        message.push(builder);
    });
    let places: Vec<_> = outcomes.into_iter().map(stored).collect();
    assert_eq!(places[0].1, places[1].1);
    assert_eq!((places[0].2, places[1].2), (false, true));
}

#[test]
fn brokers_own_topics_are_never_deduplicated() {
    let mut node = node();
    for name in ["%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX"] {
        node.command(Command::PutTopic(topic(name, 1)));
        let message = Message::new(name, 0, "m").key("K");
        for expected in 0..2 {
            assert_eq!(stored(node.send(&message)).0, expected, "{name}");
        }
    }
}

#[test]
fn a_delayed_message_is_delivered_once_and_in_turn() {
    let mut node = node();
    let message = Message::new("orders", 0, "m").key("K");
    let deliver = |node: &mut Node, message: &Message, offset| {
        let outcomes = node.commit(|builder| message.push_delivery(builder, 3, offset));
        outcomes.into_iter().next().unwrap()
    };
    assert_eq!(
        deliver(&mut node, &message, 1),
        UnitOutcome::AlreadyDelivered
    );
    assert_eq!(stored(deliver(&mut node, &message, 0)).0, 0);
    assert_eq!(
        deliver(&mut node, &message, 0),
        UnitOutcome::AlreadyDelivered
    );
    assert_eq!(node.store.delay_progress(3), 1);
    assert_eq!(node.store.delay_progress(4), 0);
    // The same key again is another message for the window does not count here.
    assert_eq!(stored(deliver(&mut node, &message, 1)).0, 1);
    // A topic that is gone does not hold up those behind.
    let lost = Message::new("nothing", 0, "m");
    assert_eq!(deliver(&mut node, &lost, 2), UnitOutcome::NoSuchTopic);
    assert_eq!(stored(deliver(&mut node, &message, 3)).0, 2);
    assert_eq!(node.store.delay_progress(3), 4);
}

fn lock(client: &str, topic: &str, queues: &[i32], now_ms: i64) -> Command {
    Command::Lock {
        group: "g".to_string(),
        client: client.to_string(),
        queues: ids(topic, queues),
        now_ms,
    }
}

fn ids(topic: &str, queues: &[i32]) -> Vec<QueueId> {
    let id = |queue: &i32| QueueId {
        topic: topic.to_string(),
        queue: *queue,
    };
    queues.iter().map(id).collect()
}

#[test]
fn a_lock_is_held_until_a_minute_passes_without_renewal() {
    let mut node = node();
    let held = |queues: &[i32]| CommandOutcome::Locked(ids("orders", queues));
    let table: [(&str, &[i32], i64, &[i32]); 7] = [
        ("a", &[0, 1], 1_000, &[0, 1]),
        ("b", &[1, 2], 2_000, &[2]),
        ("a", &[0], 50_000, &[0]),
        // 1 was renewed last at 1,000: exactly a minute is not over it.
        ("b", &[0, 1], 61_000, &[]),
        ("b", &[0, 1], 61_001, &[1]),
        // Time in the state does not run backwards: by now 0 is free.
        ("c", &[3], 110_001, &[3]),
        ("b", &[0], 50_000, &[0]),
    ];
    for (client, queues, now_ms, expected) in table {
        let outcome = node.command(lock(client, "orders", queues, now_ms));
        assert_eq!(outcome, held(expected), "{client} {queues:?} at {now_ms}");
    }
    assert_eq!(
        node.store.lock_holder("g", "orders", 0),
        Some(("b".to_string(), 110_001))
    );
    // Queues that do not exist cannot be held.
    assert_eq!(node.command(lock("a", "orders", &[4], 0)), held(&[]));
    assert_eq!(node.command(lock("a", "nothing", &[0], 0)), held(&[]));
}

#[test]
fn only_the_holder_unlocks() {
    let mut node = node();
    node.command(lock("a", "orders", &[0, 1], 0));
    let unlock = |client: &str| Command::Unlock {
        group: "g".to_string(),
        client: client.to_string(),
        queues: ids("orders", &[0]),
    };
    node.command(unlock("b"));
    assert!(node.store.lock_holder("g", "orders", 0).is_some());
    node.command(unlock("a"));
    assert_eq!(node.store.lock_holder("g", "orders", 0), None);
    assert!(node.store.lock_holder("g", "orders", 1).is_some());
}

#[test]
fn consumer_offsets_need_a_group_and_a_queue() {
    let mut node = node();
    let commit = |group: &str, topic: &str, queue, offset| Command::CommitOffset {
        group: group.to_string(),
        topic: topic.to_string(),
        queue,
        offset,
    };
    assert_eq!(
        node.command(commit("g", "orders", 0, 5)),
        CommandOutcome::NoSuchGroup
    );
    node.command(Command::EnsureGroup(GroupConfig::new("g")));
    for (topic, queue) in [("nothing", 0), ("orders", 4), ("orders", -1)] {
        assert_eq!(
            node.command(commit("g", topic, queue, 5)),
            CommandOutcome::NoSuchTopic
        );
    }
    for offset in [5, 3] {
        assert_eq!(
            node.command(commit("g", "orders", 3, offset)),
            CommandOutcome::Done
        );
        assert_eq!(node.store.consumer_offset("g", "orders", 3), Some(offset));
    }
    assert_eq!(node.store.consumer_offset("g", "orders", 2), None);
}

#[test]
fn groups_and_nodes_are_kept() {
    let mut node = node();
    let mut other = GroupConfig::new("g");
    other.retry_max_times = 3;
    node.command(Command::PutGroup(other.clone()));
    node.command(Command::EnsureGroup(GroupConfig::new("g")));
    assert_eq!(node.store.group("g"), Some(other));
    node.command(Command::PutGroup(GroupConfig::new("g")));
    assert_eq!(node.store.groups(), [GroupConfig::new("g")]);
    let info = |node, address: &str| NodeInfo {
        node,
        address: address.to_string(),
        front_address: String::new(),
        namesrv_address: String::new(),
        slave_read: false,
    };
    for (id, address) in [(2, "b:1"), (1, "a:1"), (2, "b:2")] {
        node.command(Command::AnnounceNode(info(id, address)));
    }
    assert_eq!(node.store.nodes(), [info(1, "a:1"), info(2, "b:2")]);
}

#[derive(Default)]
struct Heard(Mutex<Vec<(String, i32, i64)>>);

impl Arrivals for Heard {
    fn arrived(&self, topic: &str, queue: i32, end: i64) {
        let mut heard = self.0.lock().unwrap();
        heard.push((topic.to_string(), queue, end));
    }
}

#[test]
fn each_queue_that_grew_is_told_once_per_entry() {
    let mut node = node();
    let heard = Arc::new(Heard::default());
    node.store.watch_arrivals(heard.clone());
    node.commit(|builder| {
        Message::new("orders", 2, "a").batch(3).push(builder);
        Message::new("orders", 0, "b").key("K").push(builder);
        Message::new("orders", 2, "c").push(builder);
        Message::new("orders", 1, "b").key("K").push(builder);
    });
    node.send(&Message::new("orders", 0, "d"));
    node.command(Command::PutTopic(topic("bills", 1)));
    let heard = std::mem::take(&mut *heard.0.lock().unwrap());
    let orders = |queue, end| ("orders".to_string(), queue, end);
    assert_eq!(heard, [orders(2, 4), orders(0, 1), orders(0, 2)]);
}

#[test]
#[should_panic(expected = "committed entry 1/1 at position")]
fn a_committed_entry_that_cannot_be_read_stops_the_node() {
    let mut node = node();
    let entry = node.log.append(bytes::Bytes::from_static(&[9, 0, 0, 0, 0]));
    node.machine.apply(&entry);
}

#[test]
fn entries_without_a_payload_only_move_the_mark() {
    let mut node = node();
    let entry = node.log.append(bytes::Bytes::new());
    node.machine.advance(&entry);
    let entry = node.log.append(bytes::Bytes::new());
    assert!(node.machine.apply(&entry).is_empty());
    assert_eq!(stored(node.send(&Message::new("orders", 0, "m"))).0, 0);
}
