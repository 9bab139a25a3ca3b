//! I-22: what a node's process uses stays within bounds, elections do not run wild, and no process ends or
//! panics by itself.

use std::collections::{BTreeMap, VecDeque};

use super::nodes::Nodes;
use super::report::Findings;
use super::{Invariant, Options};
use crate::history::{Event, What};

const MINUTE_NS: u64 = 60_000_000_000;

pub fn check(events: &[Event], nodes: &Nodes<'_>, options: &Options, findings: &mut Findings) {
    for event in events {
        if let What::Exit {
            node,
            status,
            expected: false,
        } = &event.what
        {
            findings.add(Invariant::Bounded, || {
                format!(
                    "{node} ended by itself at {} ms: {status}",
                    event.t / 1_000_000
                )
            });
        }
    }
    panics(nodes, findings);
    figures(nodes, options, findings);
    if let Some(limit) = options.limits.terms_per_minute {
        terms(nodes, limit, findings);
    }
}

/// Each further panic line is one violation.
fn panics(nodes: &Nodes<'_>, findings: &mut Findings) {
    let mut known: BTreeMap<&str, u64> = BTreeMap::new();
    for (node, view) in nodes.views() {
        let Some(lines) = view.panic_lines else {
            continue;
        };
        let known = known.entry(node).or_insert(0);
        if lines > *known {
            findings.add(Invariant::Bounded, || {
                format!("{node} has {lines} lines about panics in its log, {known} before")
            });
        }
        *known = lines;
    }
}

/// The highest of each figure counts, once a node.
fn figures(nodes: &Nodes<'_>, options: &Options, findings: &mut Findings) {
    let mut highest: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for (node, view) in nodes.views() {
        let limits = &options.limits;
        for (name, value, limit) in [
            ("bytes of memory", view.rss_bytes, limits.rss_bytes),
            ("open files", view.fds, limits.fds),
            ("threads", view.threads, limits.threads),
        ] {
            if let (Some(value), Some(limit)) = (value, limit) {
                let known = highest.entry((node, name)).or_insert((0, limit));
                known.0 = known.0.max(value);
            }
        }
    }
    for ((node, name), (value, limit)) in highest {
        if value > limit {
            findings.add(Invariant::Bounded, || {
                format!("{node} had {value} {name}, {limit} allowed")
            });
        }
    }
}

fn terms(nodes: &Nodes<'_>, limit: u64, findings: &mut Findings) {
    // When each new term was first seen, of the last minute; once above the limit is enough to be told.
    let mut recent: VecDeque<(u64, u64)> = VecDeque::new();
    let mut highest: Option<u64> = None;
    for (_, view) in nodes.in_time() {
        let Some(term) = view.term else { continue };
        let new = match highest {
            Some(highest) if term > highest => term - highest,
            Some(_) => continue,
            None => 0,
        };
        highest = Some(term);
        recent.push_back((view.t, new));
        while recent
            .pop_front_if(|(t, _)| *t + MINUTE_NS < view.t)
            .is_some()
        {}
        let count: u64 = recent.iter().map(|(_, new)| new).sum();
        if count > limit {
            findings.add(Invariant::Bounded, || {
                format!(
                    "{count} new terms in the minute before {} ms, {limit} allowed",
                    view.t / 1_000_000
                )
            });
            return;
        }
    }
}
