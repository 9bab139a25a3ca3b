//! Restarts: from a checkpoint, from a damaged one, with index files missing or damaged.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;

use quorumlog_raft::StateMachine;
use quorumlog_raft::env::Files;

use super::world::{HOST, Message, Node, stored, topic};
use crate::store::log_bytes::LogBytes;
use crate::store::*;

/// A node with several sealed segments.
fn node() -> Node {
    let mut node = Node::new(2_000);
    node.command(Command::PutTopic(topic("orders", 3)));
    node.command(Command::PutTopic(topic("old", 1)));
    node.command(Command::PutGroup(GroupConfig::new("g")));
    for number in 0..100 {
        let text = format!("message {number}");
        let message = Message::new("orders", number % 3, &text).key(&text);
        stored(node.send(&message));
        if number == 50 {
            stored(node.send(&Message::new("old", 0, "old")));
            node.command(Command::DeleteTopic {
                name: "old".to_string(),
            });
            node.command(Command::PutTopic(topic("old", 1)));
        }
    }
    stored(node.send(&Message::new("old", 0, "new")));
    assert!(node.log.segments().len() > 5);
    node
}

fn everything(node: &Node) -> Vec<Vec<bytes::Bytes>> {
    let queues = [("orders", 0), ("orders", 1), ("orders", 2), ("old", 0)];
    queues
        .map(|(topic, queue)| node.read_all(topic, queue))
        .to_vec()
}

/// Restarts the node and checks that nothing changed. Returns it, and up to where it was restored.
fn restart(node: Node) -> (Node, Option<u64>) {
    let (state, messages) = (node.state_bytes(), everything(&node));
    let node = node.restart();
    assert!(node.state_bytes() == state);
    assert_eq!(everything(&node), messages);
    let restored = node.machine.restored().map(|mark| mark.end);
    (node, restored)
}

fn boundaries(node: &Node) -> Vec<u64> {
    let segments = node.log.segments();
    segments.iter().skip(1).map(|segment| segment.0).collect()
}

#[test]
fn a_restart_goes_on_from_the_last_segment_boundary() {
    let node = node();
    assert_eq!(node.files.names(".ckpt").len(), 3);
    let boundaries = boundaries(&node);
    assert_eq!(node.files.names(".index").len(), boundaries.len());
    let (mut node, restored) = restart(node);
    assert_eq!(restored, boundaries.last().copied());
    // Keys from before the restart are still known.
    let retry = Message::new("orders", 0, "message 30").key("message 30");
    assert_eq!(stored(node.send(&retry)).0, 10);
    assert!(stored(node.send(&retry)).2);
}

#[test]
fn a_damaged_checkpoint_falls_back_to_an_older_one_then_to_the_beginning() {
    let node = node();
    let boundaries = boundaries(&node);
    let mut checkpoints = node.files.names(".ckpt");
    let mut node = node;
    for expected in [
        boundaries.len().checked_sub(2),
        boundaries.len().checked_sub(3),
        None,
    ] {
        let newest = checkpoints.pop().unwrap();
        node.files.flip(&newest, 1_000);
        // Replaying makes the checkpoints again: damage those anew.
        let restored;
        (node, restored) = restart(node);
        assert_eq!(restored, expected.map(|number| boundaries[number]));
        for path in node.files.names(".ckpt") {
            if !checkpoints.contains(&path) {
                node.files.flip(&path, 50);
            }
        }
    }
}

#[test]
fn any_byte_of_a_checkpoint_counts() {
    let node = node();
    let newest = node.files.names(".ckpt").pop().unwrap();
    let whole = node.files.bytes(&newest);
    let end = newest
        .file_stem()
        .unwrap()
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    let dir = Path::new("/node/checkpoint");
    let load = || checkpoint::load(&*node.files, dir, end);
    assert!(load().is_ok());
    for byte in 0..whole.len() {
        node.files.flip(&newest, byte);
        assert!(load().is_err(), "byte {byte} of {}", whole.len());
        node.files.flip(&newest, byte);
    }
    for length in (0..whole.len()).rev() {
        node.files.cut(&newest, length);
        assert!(load().is_err(), "{length} bytes of {}", whole.len());
    }
}

#[test]
fn missing_and_damaged_index_files_are_made_again_as_they_were() {
    let mut node = node();
    let (state, messages) = (node.state_bytes(), everything(&node));
    let indexes = node.files.names(".index");
    let contents: Vec<Vec<u8>> = indexes.iter().map(|path| node.files.bytes(path)).collect();
    let last = indexes.len() - 1;
    for damaged in [
        vec![0],
        vec![last],
        vec![2, 3],
        (0..indexes.len()).collect(),
    ] {
        for &number in &damaged {
            match number % 3 {
                0 => node.files.remove(&indexes[number]).unwrap(),
                1 => node.files.flip(&indexes[number], 77 * number),
                _ => node.files.cut(&indexes[number], 50),
            }
        }
        node = node.restart();
        let restored = node.machine.restored().map(|mark| mark.end);
        assert_eq!(restored, boundaries(&node).last().copied());
        assert!(node.state_bytes() == state);
        assert_eq!(everything(&node), messages);
        for (path, content) in indexes.iter().zip(&contents) {
            assert!(node.files.bytes(path) == *content, "{}", path.display());
        }
    }
}

#[test]
fn any_byte_of_an_index_file_counts() {
    let node = node();
    let path = node.files.names(".index").swap_remove(1);
    let (first, end) = node.log.segments()[1];
    let dir = Path::new("/node/log");
    let load = || index_file::load(&*node.files, dir, first, end);
    assert!(load().is_ok());
    assert!(index_file::load(&*node.files, dir, first, end + 1).is_err());
    let length = node.files.bytes(&path).len();
    for byte in 0..length {
        node.files.flip(&path, byte);
        assert!(load().is_err(), "byte {byte} of {length}");
        node.files.flip(&path, byte);
    }
    for shorter in (0..length).rev() {
        node.files.cut(&path, shorter);
        assert!(load().is_err(), "{shorter} bytes of {length}");
    }
}

#[test]
fn damage_of_an_index_file_while_running_is_an_error_until_the_restart() {
    let node = node();
    let path = node.files.names(".index").swap_remove(0);
    let length = node.files.bytes(&path).len();
    node.files.flip(&path, length - 20);
    let read = |queue| {
        let limits = ReadLimits {
            messages_max: 5,
            bytes_max: 1 << 20,
        };
        node.store
            .read("orders", queue, 0, limits, &|_| true, HOST, Wait::Yes)
    };
    // The last row of the file is that of queue 2.
    assert!(read(0).is_ok());
    assert!(matches!(read(2), Err(StoreError::Index { .. })));
    assert!(read(1).is_ok());
    let node = node.restart();
    assert_eq!(node.read_all("orders", 2).len(), 33);
}

#[test]
fn a_segment_with_many_messages_of_a_queue_is_read_block_by_block() {
    let mut node = Node::new(1 << 20);
    node.command(Command::PutTopic(topic("orders", 2)));
    for number in 0..80 {
        let body = format!("batch {number}");
        stored(node.send(&Message::new("orders", 0, &body).batch(100)));
        stored(node.send(&Message::new("orders", 1, &body)));
    }
    while node.log.segments().len() < 2 {
        stored(node.send(&Message::new("orders", 1, &"x".repeat(10_000))));
    }
    let live = node.read_all("orders", 0);
    assert_eq!(live.len(), 8_000);
    let node = node.restart();
    assert_eq!(node.read_all("orders", 0), live);
    for offset in [0, 1_023, 1_024, 7_999] {
        let record = &live[offset as usize];
        let position = crate::protocol::message::Record::parse(record)
            .unwrap()
            .physical_offset();
        let found = node.store.message_at(position as u64, HOST).unwrap();
        assert_eq!(found.as_ref(), Some(record));
    }
}

#[test]
fn a_full_disk_costs_checkpoints_and_nothing_else() {
    let mut node = Node::new(2_000);
    node.command(Command::PutTopic(topic("orders", 1)));
    node.files.full.store(true, Ordering::Relaxed);
    for number in 0..60 {
        stored(node.send(&Message::new("orders", 0, &format!("{number}"))));
    }
    assert!(node.log.segments().len() > 3);
    assert_eq!(node.files.names("").len(), 0);
    assert_eq!(node.read_all("orders", 0).len(), 60);
    // When there is space again everything is written at the next boundary.
    node.files.full.store(false, Ordering::Relaxed);
    let before = node.log.segments().len();
    while node.log.segments().len() == before {
        stored(node.send(&Message::new("orders", 0, "more")));
    }
    assert_eq!(node.files.names(".index").len(), before);
    assert!(!node.files.names(".ckpt").is_empty());
    let live = node.read_all("orders", 0);
    assert_eq!(node.restart().read_all("orders", 0), live);
}

#[test]
fn a_checkpoint_of_another_log_is_not_used() {
    let node = node();
    let files = node.files.clone();
    let other = Node::open(super::fake_log::FakeLog::new(100), files);
    assert_eq!(other.machine.restored(), None);
    assert!(other.store.topics().is_empty());
}

#[test]
fn unfinished_files_are_removed() {
    let node = node();
    let path = Path::new("/node/checkpoint/00000000000000000009.ckpt.tmp");
    node.files.open(path, true).unwrap();
    let (node, _) = restart(node);
    assert!(!node.files.exists(path).unwrap());
    let names: BTreeSet<_> = node.files.names(".tmp").into_iter().collect();
    assert!(names.is_empty());
}
