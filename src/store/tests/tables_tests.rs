//! The tables in sled: what a node knows before it has replayed its log.

use std::path::Path;

use super::world::{Node, topic};
use crate::store::tables::Tables;
use crate::store::*;

fn node_with_everything() -> Node {
    let mut node = Node::new(1 << 20);
    node.command(Command::PutTopic(topic("orders", 4)));
    node.command(Command::PutTopic(topic("bills", 1)));
    node.command(Command::PutGroup(GroupConfig::new("g")));
    node.command(Command::CommitOffset {
        group: "g".to_string(),
        topic: "orders".to_string(),
        queue: 1,
        offset: 5,
    });
    node.command(Command::AnnounceNode(NodeInfo {
        node: 1,
        address: "a:1".to_string(),
        front_address: String::new(),
        namesrv_address: String::new(),
        slave_read: true,
    }));
    node
}

fn write(node: &Node, dir: &Path) {
    let rows = node.store.shared.write().take_changed_rows();
    Tables::open(dir).0.unwrap().write(&rows).unwrap();
}

fn warm_topics(dir: &Path) -> Vec<String> {
    let (tables, warm) = Tables::open(dir);
    assert!(tables.is_some());
    warm.topics.into_iter().map(|topic| topic.name).collect()
}

#[test]
fn topics_and_nodes_are_warm_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = node_with_everything();
    write(&node, dir.path());
    assert_eq!(warm_topics(dir.path()), ["bills", "orders"]);
    assert_eq!(Tables::open(dir.path()).1.nodes, node.store.nodes());
    node.command(Command::DeleteTopic {
        name: "bills".to_string(),
    });
    write(&node, dir.path());
    assert_eq!(warm_topics(dir.path()), ["orders"]);
}

#[test]
fn a_whole_table_replaces_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    write(&node_with_everything(), dir.path());
    let mut other = Node::new(1 << 20);
    other.command(Command::PutTopic(topic("new", 1)));
    other.store.shared.write().changes = changes::Changes::all();
    write(&other, dir.path());
    assert_eq!(warm_topics(dir.path()), ["new"]);
}

#[test]
fn tables_that_cannot_be_opened_are_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("tables"), b"not a directory").unwrap();
    let (tables, warm) = Tables::open(dir.path());
    assert!(warm.topics.is_empty());
    // A file in the way cannot be removed as a directory: the node runs without tables.
    assert!(tables.is_none());
    std::fs::remove_file(dir.path().join("tables")).unwrap();

    write(&node_with_everything(), dir.path());
    for file in std::fs::read_dir(dir.path().join("tables")).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            std::fs::write(path, b"noise").unwrap();
        }
    }
    let (tables, _) = Tables::open(dir.path());
    assert!(tables.is_some());
}

#[test]
fn tables_whose_opening_ended_the_process_are_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    write(&node_with_everything(), dir.path());
    std::fs::write(dir.path().join("tables.opening"), b"").unwrap();
    assert!(warm_topics(dir.path()).is_empty());
    write(&node_with_everything(), dir.path());
    assert_eq!(warm_topics(dir.path()), ["bills", "orders"]);
}

#[test]
fn a_table_that_changed_a_lot_is_written_as_a_whole() {
    let mut rows = changes::Rows::default();
    for number in 0..10_000 {
        rows.add(number);
    }
    assert!(matches!(&rows, changes::Rows::Some(keys) if keys.len() == 10_000));
    rows.add(3);
    assert!(matches!(&rows, changes::Rows::Some(_)));
    rows.add(10_000);
    assert_eq!(rows, changes::Rows::All);
}
