//! What the files of a group's nodes prove together: I-15, I-17, I-18, I-19.

use std::collections::BTreeMap;

use super::{Entry, IndexFile, Item, NodeFiles, Row, Stored};
use crate::checker::{Invariant, Violation};

/// Compares the files of nodes that stand still. `committed`: the last index known to be committed, from
/// anywhere; `None` when nothing is known.
pub fn compare(nodes: &[NodeFiles], committed: Option<u64>) -> Vec<Violation> {
    let mut found = Vec::new();
    for node in nodes {
        nothing_durable_is_damaged(node, &mut found);
        queues_are_what_the_log_says(node, &mut found);
    }
    same_logs(nodes, &mut found);
    if let Some(committed) = committed {
        on_a_majority(nodes, committed, &mut found);
    }
    found
}

/// The last index up to which a majority of the nodes have the same log; everything acknowledged is in it.
pub fn common(nodes: &[NodeFiles]) -> Option<u64> {
    let last = nodes.iter().filter_map(NodeFiles::last).max()?;
    let majority = majority(nodes);
    (0..=last)
        .rev()
        .find(|index| with_the_same(nodes, *index) >= majority)
}

fn majority(nodes: &[NodeFiles]) -> usize {
    let voters = nodes.iter().map(|node| node.voters.len()).max();
    voters.filter(|voters| *voters > 0).unwrap_or(nodes.len()) / 2 + 1
}

/// How many have the entry that most of them have at an index. One that gave it up has it.
fn with_the_same(nodes: &[NodeFiles], index: u64) -> usize {
    let mut same: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    let mut given_up = 0;
    for node in nodes {
        match node.entry(index) {
            Some(entry) => *same.entry((entry.term, entry.hash)).or_default() += 1,
            None if index < node.first() => given_up += 1,
            None => {}
        }
    }
    same.values().max().copied().unwrap_or(0) + given_up
}

fn name(node: &NodeFiles) -> String {
    format!("node {} ({})", node.identity.node, node.dir.display())
}

fn violation(invariant: Invariant, evidence: String) -> Violation {
    Violation {
        invariant,
        evidence,
    }
}

/// I-19: whatever is damaged was promised.
fn nothing_durable_is_damaged(node: &NodeFiles, found: &mut Vec<Violation>) {
    for damage in &node.damage {
        let (path, what) = (damage.path.display(), &damage.what);
        found.push(violation(Invariant::Durable, format!("{path}: {what}")));
    }
}

/// I-15: where two logs agree on an entry's index and term, they agree on it and on everything before.
fn same_logs(nodes: &[NodeFiles], found: &mut Vec<Violation>) {
    for (at, one) in nodes.iter().enumerate() {
        for other in &nodes[at + 1..] {
            let begin = one.first().max(other.first());
            let end = one.last().min(other.last());
            let shared = (begin..=end.unwrap_or(0)).rev().find(|index| {
                let term = |node: &NodeFiles| node.entry(*index).map(|entry| entry.term);
                term(one).is_some() && term(one) == term(other)
            });
            let Some(shared) = shared else { continue };
            let differs = (begin..=shared).find(|index| one.entry(*index) != other.entry(*index));
            if let Some(index) = differs {
                found.push(violation(
                    Invariant::LogMatching,
                    format!(
                        "{} and {} both have index {shared} in one term, but differ at index {index}: {:?} and {:?}",
                        name(one),
                        name(other),
                        one.entry(index),
                        other.entry(index)
                    ),
                ));
            }
        }
    }
}

/// I-17.
fn on_a_majority(nodes: &[NodeFiles], committed: u64, found: &mut Vec<Violation>) {
    let most = with_the_same(nodes, committed);
    if most < majority(nodes) {
        let ends: Vec<_> = nodes.iter().map(|node| (name(node), node.last())).collect();
        found.push(violation(
            Invariant::Quorum,
            format!("index {committed} was committed, but {most} have it in their files: {ends:?}"),
        ));
    }
}

/// I-18: each index file is what a replay of the log gives for its segment.
fn queues_are_what_the_log_says(node: &NodeFiles, found: &mut Vec<Violation>) {
    let Some(replayed) = &node.replayed else {
        return;
    };
    let read_to = node.entries.last().map_or(0, Entry::end);
    // What lies behind damage cannot be replayed.
    for index in node.indexes.iter().filter(|index| index.end <= read_to) {
        let of_segment = |position: i64| {
            u64::try_from(position).is_ok_and(|at| (index.segment..index.end).contains(&at))
        };
        let first = replayed.stored.partition_point(|stored| {
            u64::try_from(stored.got.pos).is_ok_and(|position| position < index.segment)
        });
        let behind =
            first + replayed.stored[first..].partition_point(|stored| of_segment(stored.got.pos));
        let gone = |stored: &Stored| {
            replayed.deleted.iter().any(|(at, topic, incarnation)| {
                *topic == stored.topic
                    && *incarnation == stored.incarnation
                    && node
                        .entry(*at)
                        .is_some_and(|entry| entry.position < index.end)
            })
        };
        let alive = replayed.stored[first..behind]
            .iter()
            .filter(|stored| !gone(stored));
        let rebuilt = rows(alive);
        if rebuilt != index.rows {
            found.push(violation(
                Invariant::QueueView,
                difference(node, index, &rebuilt),
            ));
        }
    }
}

fn rows<'a>(stored: impl Iterator<Item = &'a Stored>) -> Vec<Row> {
    let mut rows: BTreeMap<(&str, i32), Row> = BTreeMap::new();
    for stored in stored {
        let item: Item = (
            u64::try_from(stored.got.pos).unwrap_or(0),
            stored.len,
            stored.tag_hash,
        );
        rows.entry((&stored.topic, stored.queue))
            .or_insert_with(|| Row {
                topic: stored.topic.to_string(),
                incarnation: stored.incarnation,
                queue: stored.queue,
                first: stored.got.off,
                items: Vec::new(),
            })
            .items
            .push(item);
    }
    rows.into_values().collect()
}

fn difference(node: &NodeFiles, index: &IndexFile, rebuilt: &[Row]) -> String {
    let short = |rows: &[Row]| {
        let rows = rows.iter();
        rows.map(|row| {
            format!(
                "{}/{} {}+{}",
                row.topic,
                row.queue,
                row.first,
                row.items.len()
            )
        })
        .collect::<Vec<_>>()
    };
    let (has, says) = (short(&index.rows), short(rebuilt));
    format!(
        "the index of the segment at {} on {} has {has:?}, the log says {says:?}",
        index.segment,
        name(node)
    )
}
