//! I-15, I-16, I-17 and I-3 from dumps: the logs as they lie in the nodes' files.

use std::collections::{BTreeMap, HashMap};

use super::Invariant;
use super::index::Index;
use super::nodes::{Nodes, Step};
use super::report::Findings;
use crate::history::{Event, FaultResult, LogDump, NODE, WIPE, What};

/// One dump with what is known of its node at that time.
struct Dumped<'a> {
    node: &'a str,
    log: &'a LogDump,
    /// The last index that the node itself called committed.
    committed: Option<u64>,
    /// The last term in which it led.
    led: Option<u64>,
}

/// The term of a committed entry, and who has it. (Its content goes with index and term.)
#[derive(Clone, Copy)]
struct Entry<'a> {
    term: u64,
    node: &'a str,
}

pub fn check(events: &[Event], index: &Index<'_>, nodes: &Nodes<'_>, findings: &mut Findings) {
    let dumps = dumps(events, nodes);
    refused_is_in_no_log(index, &dumps, findings);
    same_entry_same_prefix(&dumps, findings);
    let committed = same_committed(&dumps, findings);
    leaders_have_it(&dumps, &committed, findings);
    on_a_majority(events, nodes, findings);
}

fn dumps<'a>(events: &'a [Event], nodes: &Nodes<'a>) -> Vec<Dumped<'a>> {
    let mut dumps = Vec::new();
    for (node, steps) in &nodes.steps {
        let (mut committed, mut led) = (None, None);
        for step in steps {
            match step {
                Step::View(view) => {
                    committed = committed.max(view.committed);
                    led = led.max(view.term.filter(|_| view.leads));
                }
                Step::Wiped => (committed, led) = (None, None),
                Step::Life { .. } => {}
                Step::Dump { at, .. } => {
                    if let What::Dump { log, .. } = &events[*at].what {
                        dumps.push(Dumped {
                            node,
                            log,
                            committed: committed.max(log.committed),
                            led,
                        });
                    }
                }
            }
        }
    }
    dumps
}

/// I-3: what was refused was not even proposed.
fn refused_is_in_no_log(index: &Index<'_>, dumps: &[Dumped<'_>], findings: &mut Findings) {
    for dump in dumps {
        let keys = dump.log.unsure.iter();
        for message in keys.filter_map(|key| index.message(key)) {
            if message.first_invoke().is_none() {
                findings.add(Invariant::FailMeansAbsent, || {
                    format!(
                        "every attempt to send {} was refused, yet it is in the log of {}",
                        message.key, dump.node
                    )
                });
            }
        }
    }
}

fn entries(log: &LogDump) -> impl Iterator<Item = (u64, u64, u64)> {
    let mut runs = log.terms.iter().peekable();
    let mut term = 0;
    (log.first..).zip(&log.hashes).map(move |(index, hash)| {
        while let Some((next, _)) = runs.next_if(|(_, first)| *first <= index) {
            term = *next;
        }
        (index, term, *hash)
    })
}

/// I-15: an entry is known by index and term; its content and the term before it are the same in all logs,
/// hence everything before it is, too.
fn same_entry_same_prefix(dumps: &[Dumped<'_>], findings: &mut Findings) {
    let mut known: HashMap<(u64, u64), (u64, Option<u64>, &str)> = HashMap::new();
    for dump in dumps {
        let mut before = None;
        for (index, term, hash) in entries(dump.log) {
            let (other, other_before, node) = known
                .entry((index, term))
                .or_insert((hash, before, dump.node));
            let same_before = match (*other_before, before) {
                (Some(one), Some(other)) => one == other,
                _ => true,
            };
            if *other != hash || !same_before {
                findings.add(Invariant::LogMatching, || {
                    format!(
                        "entry {index} of term {term} is {other:x} after term {other_before:?} on {node}, but \
                         {hash:x} after term {before:?} on {}",
                        dump.node
                    )
                });
            }
            *other_before = other_before.or(before);
            before = Some(term);
        }
    }
}

/// I-15: what a node knows to be committed is the same on every other that knows it, too.
fn same_committed<'a>(dumps: &[Dumped<'a>], findings: &mut Findings) -> BTreeMap<u64, Entry<'a>> {
    let mut committed: BTreeMap<u64, Entry<'a>> = BTreeMap::new();
    for dump in dumps {
        for (index, term, _) in entries(dump.log) {
            if Some(index) > dump.committed {
                break;
            }
            let node = dump.node;
            let known = *committed.entry(index).or_insert(Entry { term, node });
            if known.term != term {
                findings.add(Invariant::LogMatching, || {
                    format!(
                        "committed entry {index} has term {} on {}, but term {term} on {node}",
                        known.term, known.node
                    )
                });
            }
        }
    }
    committed
}

/// I-16: whoever led a term has the last entry that was committed in the terms before.
fn leaders_have_it(
    dumps: &[Dumped<'_>],
    committed: &BTreeMap<u64, Entry<'_>>,
    findings: &mut Findings,
) {
    // The last committed index of each term.
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for (index, entry) in committed {
        last.insert(entry.term, *index);
    }
    for dump in dumps {
        let Some(led) = dump.led else { continue };
        let Some((term, index)) = last.range(..led).next_back() else {
            continue;
        };
        let has = dump.log.entry(*index).map(|(term, _)| term);
        if *index >= dump.log.first && has != Some(*term) {
            findings.add(Invariant::LeaderCompleteness, || {
                format!(
                    "{} led term {led}, but its log has term {has:?} at index {index}, where {} has a committed \
                     entry of term {term}",
                    dump.node, committed[index].node
                )
            });
        }
    }
}

/// I-17: while all nodes stand still and were read, the last index that any of them had called committed is
/// in the files of a majority, with the same content.
fn on_a_majority(events: &[Event], nodes: &Nodes<'_>, findings: &mut Findings) {
    let count = nodes.voters();
    let mut still: BTreeMap<&str, &LogDump> = BTreeMap::new();
    let mut committed: Option<(u64, &str)> = None;
    for event in events {
        match &event.what {
            What::Obs { node, table } => {
                still.remove(node.as_str());
                let told = table
                    .get("raftCommitted")
                    .and_then(|text| text.parse().ok());
                if let Some(told) = told.filter(|told| committed.is_none_or(|(c, _)| *told > c)) {
                    committed = Some((told, node));
                }
            }
            What::Boot { node } => {
                still.remove(node.as_str());
            }
            What::Start {
                fault,
                args,
                result,
            } if fault == WIPE && *result != FaultResult::Skipped && args.contains_key(NODE) => {
                // A lost disk holds nothing that was promised: such a group is not judged any more.
                return;
            }
            What::Dump { node, log } => {
                still.insert(node, log);
                if still.len() == count
                    && let Some((index, told_by)) = committed
                {
                    is_on_majority(&still, index, told_by, findings);
                }
            }
            _ => {}
        }
    }
}

fn is_on_majority(
    still: &BTreeMap<&str, &LogDump>,
    index: u64,
    told_by: &str,
    findings: &mut Findings,
) {
    let mut same: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    let mut given_up = 0;
    for log in still.values() {
        match log.entry(index) {
            Some(entry) => *same.entry(entry).or_default() += 1,
            None if index < log.first => given_up += 1,
            None => {}
        }
    }
    let most = same.values().max().copied().unwrap_or(0) + given_up;
    if most < still.len() / 2 + 1 {
        findings.add(Invariant::Quorum, || {
            let ends: Vec<_> = still.iter().map(|(node, log)| (node, log.last())).collect();
            format!(
                "{told_by} had called index {index} committed, but only {most} of {} nodes have it: {ends:?}",
                still.len()
            )
        });
    }
}
