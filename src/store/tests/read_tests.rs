//! Reading: limits, filters, coalescing, damage, lookups by position and time.

use std::sync::atomic::Ordering;

use super::world::{HOST, Message, Node, stored, topic};
use crate::protocol::message::{Record, tags_code};
use crate::store::log_bytes::LogBytes;
use crate::store::*;

const ALL: ReadLimits = ReadLimits {
    messages_max: 100_000,
    bytes_max: 1 << 30,
};

fn node(segment_bytes: u64) -> Node {
    let mut node = Node::new(segment_bytes);
    node.command(Command::PutTopic(topic("orders", 4)));
    node
}

fn found(outcome: ReadOutcome) -> (usize, i64) {
    match outcome {
        ReadOutcome::Found { count, next, .. } => (count, next),
        other => panic!("{other:?}"),
    }
}

#[test]
fn records_are_filled_in() {
    let mut node = node(1 << 20);
    stored(node.send(&Message::new("orders", 1, "first")));
    let (offset, position, _) = stored(node.send(&Message::new("orders", 1, "second")));
    let records = node.read_all("orders", 1);
    let record = Record::parse(&records[1]).unwrap();
    assert_eq!(record.body(), b"second");
    assert_eq!(record.queue_offset(), offset);
    assert_eq!(record.physical_offset(), position as i64);
    let other = std::net::SocketAddrV4::new([1, 2, 3, 4].into(), 5);
    let outcome = node
        .store
        .read("orders", 1, 1, ALL, &|_| true, other, Wait::No);
    let ReadOutcome::Found { records, .. } = outcome.unwrap() else {
        panic!("not found");
    };
    assert_eq!(Record::parse(&records).unwrap().store_host(), other);
}

#[test]
fn a_read_outside_the_queue_says_where_the_queue_is() {
    let mut node = node(1 << 20);
    assert!(matches!(node.read("orders", 0, 0), ReadOutcome::Empty));
    assert!(matches!(node.read("nothing", 0, 7), ReadOutcome::Empty));
    stored(node.send(&Message::new("orders", 0, "m").batch(2)));
    assert!(matches!(
        node.read("orders", 0, 2),
        ReadOutcome::AtEnd { min: 0, max: 2 }
    ));
    for from in [-1, 3, i64::MIN, i64::MAX] {
        assert!(matches!(
            node.read("orders", 0, from),
            ReadOutcome::OutOfRange { min: 0, max: 2 }
        ));
    }
}

#[test]
fn limits_hold_but_for_the_first_message() {
    let mut node = node(1 << 20);
    for _ in 0..10 {
        stored(node.send(&Message::new("orders", 0, "0123456789")));
    }
    let size = node.read_all("orders", 0)[0].len();
    let read = |messages_max, bytes_max| {
        let limits = ReadLimits {
            messages_max,
            bytes_max,
        };
        found(node.read_limited("orders", 0, 0, limits, &|_| true))
    };
    assert_eq!(read(3, usize::MAX), (3, 3));
    assert_eq!(read(0, usize::MAX), (1, 1));
    assert_eq!(read(32, 4 * size), (4, 4));
    assert_eq!(read(32, 4 * size - 1), (3, 3));
    assert_eq!(read(32, 0), (1, 1));
    assert_eq!(read(usize::MAX, usize::MAX), (10, 10));
}

#[test]
fn messages_that_do_not_match_are_skipped() {
    let mut node = node(1 << 20);
    for number in 0..10 {
        let tag = ["A", "B"][number % 2];
        stored(node.send(&Message::new("orders", 0, "m").tag(tag)));
    }
    let only_b = |code| code == tags_code(Some("B"));
    assert_eq!(
        found(node.read_limited("orders", 0, 0, ALL, &only_b)),
        (5, 10)
    );
    // Behind the last match the messages looked at count as examined.
    let two = ReadLimits {
        messages_max: 2,
        ..ALL
    };
    assert_eq!(
        found(node.read_limited("orders", 0, 0, two, &only_b)),
        (2, 5)
    );
    assert!(matches!(
        node.read_limited("orders", 0, 3, ALL, &|_| false),
        ReadOutcome::NoneMatched {
            next: 10,
            min: 0,
            max: 10
        }
    ));
    let with_sign = tags_code(Some("negative-hash"));
    stored(node.send(&Message::new("orders", 1, "m").tag("negative-hash")));
    assert!(with_sign < 0);
    assert_eq!(
        found(node.read_limited("orders", 1, 0, ALL, &|code| code == with_sign)),
        (1, 1)
    );
}

#[test]
fn one_read_looks_at_a_bounded_number_of_messages() {
    let mut node = node(1 << 30);
    for _ in 0..5 {
        stored(node.send(&Message::new("orders", 0, "m").batch(1_000)));
    }
    let none = node.read_limited("orders", 0, 0, ALL, &|_| false);
    let ReadOutcome::NoneMatched { next, .. } = none else {
        panic!("{none:?}");
    };
    assert!((4_096..5_000).contains(&next), "{next}");
}

#[test]
fn neighbouring_records_are_read_at_once() {
    let mut node = node(1 << 30);
    for number in 0..64 {
        stored(node.send(&Message::new("orders", number % 2, "m")));
    }
    let reads = || node.log.reads.swap(0, Ordering::Relaxed);
    reads();
    assert_eq!(
        found(node.read_limited("orders", 0, 0, ALL, &|_| true)),
        (32, 32)
    );
    assert_eq!(reads(), 1);
}

#[test]
fn records_far_apart_are_read_one_by_one_and_long_rows_in_pieces() {
    let mut node = node(1 << 30);
    let far = "x".repeat(8 * 1024);
    for _ in 0..4 {
        stored(node.send(&Message::new("orders", 0, "m")));
        stored(node.send(&Message::new("orders", 1, &far)));
    }
    let reads = || node.log.reads.swap(0, Ordering::Relaxed);
    reads();
    assert_eq!(node.read_all("orders", 0).len(), 4);
    assert_eq!(reads(), 4);
    let long = "y".repeat(100 * 1024);
    let mut node = self::node(1 << 30);
    for _ in 0..5 {
        stored(node.send(&Message::new("orders", 0, &long)));
    }
    node.log.reads.store(0, Ordering::Relaxed);
    assert_eq!(
        found(node.read_limited("orders", 0, 0, ALL, &|_| true)),
        (5, 5)
    );
    assert_eq!(
        node.log.reads.load(Ordering::Relaxed),
        3,
        "256 KiB hold two of them"
    );
}

#[test]
fn a_read_never_spans_two_segments() {
    // The log in memory refuses a range over a boundary.
    let mut node = node(300);
    for number in 0..50 {
        stored(node.send(&Message::new("orders", 0, &format!("m{number}"))));
    }
    assert!(node.log.committed(50).segment > 0);
    assert_eq!(
        found(node.read_limited("orders", 0, 0, ALL, &|_| true)),
        (50, 50)
    );
}

#[test]
fn a_read_that_would_wait_says_so() {
    let mut node = node(300);
    for _ in 0..20 {
        stored(node.send(&Message::new("orders", 0, "m")));
    }
    let read = |wait| {
        node.store
            .read("orders", 0, 0, ALL, &|_| true, HOST, wait)
            .unwrap()
    };
    node.log.cold.store(true, Ordering::Relaxed);
    assert!(matches!(read(Wait::No), ReadOutcome::WouldBlock));
    assert_eq!(found(read(Wait::Yes)).0, 20);
    node.log.cold.store(false, Ordering::Relaxed);
    assert_eq!(found(read(Wait::No)).0, 20);

    // The same when only the index file is cold.
    let node = node.restart();
    node.files.cold.store(true, Ordering::Relaxed);
    let read = |wait| {
        node.store
            .read("orders", 0, 0, ALL, &|_| true, HOST, wait)
            .unwrap()
    };
    assert!(matches!(read(Wait::No), ReadOutcome::WouldBlock));
    assert_eq!(found(read(Wait::Yes)).0, 20);
    assert_eq!(found(read(Wait::No)).0, 20, "the blocks are cached now");
}

#[test]
fn a_damaged_record_is_never_returned() {
    let mut node = node(1 << 20);
    stored(node.send(&Message::new("orders", 0, "a")));
    let (_, position, _) = stored(node.send(&Message::new("orders", 0, "b")));
    stored(node.send(&Message::new("orders", 0, "c")));
    let length = node.read_all("orders", 0)[1].len() as u64;
    for at in position - 4..position + length {
        node.log.flip(at);
        let read = node
            .store
            .read("orders", 0, 0, ALL, &|_| true, HOST, Wait::Yes);
        let Err(StoreError::Damaged { position: told, .. }) = read else {
            panic!("byte {at}: {read:?}");
        };
        assert_eq!(told, position);
        assert!(!matches!(
            node.store.message_at(position, HOST),
            Ok(Some(_))
        ));
        node.log.flip(at);
    }
    assert_eq!(node.read_all("orders", 0).len(), 3);
}

#[test]
fn only_positions_of_messages_find_one() {
    let mut node = node(600);
    // A body that looks like a record with its CRC is no message.
    let mut inner = EntryBuilder::new();
    Message::new("orders", 0, "inner").push(&mut inner);
    let mut outer = Message::new("orders", 0, "");
    outer.body = inner.take().to_vec();
    let mut positions = Vec::new();
    for number in 0..6 {
        positions.push(stored(node.send(&outer)).1);
        let message = Message::new("orders", number % 4, "m").batch(2);
        let position = stored(node.send(&message)).1;
        let first = node.store.message_at(position, HOST).unwrap().unwrap();
        positions.extend([position, position + first.len() as u64 + 4]);
    }
    let gone = stored(node.send(&Message::new("orders", 3, "gone"))).1;
    for node in [node.restart()] {
        let end = node.log.segments().last().unwrap().1;
        for position in (0..end + 10).chain([u64::MAX, u64::MAX - 3, 1 << 63]) {
            let found = node.store.message_at(position, HOST).unwrap();
            let expected = positions.contains(&position) || position == gone;
            assert_eq!(found.is_some(), expected, "position {position}");
            if let Some(record) = found {
                let record = Record::parse(&record).unwrap();
                assert_eq!(record.physical_offset(), position as i64);
            }
        }
    }
}

#[test]
fn a_message_of_a_deleted_topic_is_not_found_by_position() {
    let mut node = node(1 << 20);
    let position = stored(node.send(&Message::new("orders", 0, "m"))).1;
    node.command(Command::DeleteTopic {
        name: "orders".to_string(),
    });
    assert!(node.store.message_at(position, HOST).unwrap().is_none());
    node.command(Command::PutTopic(topic("orders", 4)));
    stored(node.send(&Message::new("orders", 0, "m")));
    assert!(node.store.message_at(position, HOST).unwrap().is_none());
}

#[test]
fn offsets_are_found_by_store_time() {
    let mut node = node(400);
    for time in [100, 200, 200, 300] {
        stored(node.send(&Message::new("orders", 0, "m").at(time)));
    }
    let table = [
        (50, 0, 0),
        (100, 0, 0),
        (150, 1, 0),
        (200, 1, 2),
        (250, 3, 2),
        (300, 3, 3),
        (301, 4, 3),
    ];
    for (time, lower, upper) in table {
        let find = |upper| node.store.offset_by_time("orders", 0, time, upper).unwrap();
        assert_eq!((find(false), find(true)), (lower, upper), "{time}");
    }
    assert_eq!(
        node.store.offset_by_time("orders", 1, 100, false).unwrap(),
        0
    );
    assert_eq!(node.store.store_time("orders", 0, 3).unwrap(), Some(300));
    assert_eq!(node.store.store_time("orders", 0, 4).unwrap(), None);
    assert_eq!(node.store.store_time("orders", 0, -1).unwrap(), None);
}

#[test]
fn bytes_behind_reach_from_the_message_to_the_end() {
    let mut node = node(1 << 20);
    let first = stored(node.send(&Message::new("orders", 0, "m"))).1;
    stored(node.send(&Message::new("orders", 1, "m")));
    let end = node.log.segments()[0].1;
    assert_eq!(node.store.bytes_behind("orders", 0, 0), Some(end - first));
    assert_eq!(node.store.bytes_behind("orders", 0, 1), None);
    assert_eq!(node.store.bytes_behind("orders", 2, 0), None);
}
