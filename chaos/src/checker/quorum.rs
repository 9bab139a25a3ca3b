//! I-17 and I-16 from observations: what a leader calls committed is durable on a majority, and the leader
//! of a later term has it.

use std::collections::BTreeMap;

use super::Invariant;
use super::nodes::{Nodes, Step, View};
use super::report::Findings;

pub fn check(nodes: &Nodes<'_>, findings: &mut Findings) {
    durable_on_majority(nodes, findings);
    leaders_have_it(nodes, findings);
}

/// For each committed index that a leader told of, the nodes that certainly lacked it. A node certainly
/// lacked it when an observation that was asked for later, in the same term, still shows less durable.
fn durable_on_majority(nodes: &Nodes<'_>, findings: &mut Findings) {
    let learners = nodes.learners();
    let voters = nodes.voters();
    let by_node: Vec<Vec<&View>> = nodes
        .steps
        .iter()
        .filter(|(node, _)| !learners.contains(*node))
        .map(|(_, steps)| until_wiped(steps))
        .collect();
    let majority = voters / 2 + 1;
    for (node, view) in nodes.views().filter(|(_, view)| view.leads) {
        let Some(committed) = view.committed else {
            continue;
        };
        let lacking = by_node
            .iter()
            .filter(|views| lacks(views, view, committed))
            .count();
        if voters - lacking < majority {
            findings.add(Invariant::Quorum, || {
                format!(
                    "{node}, leader of term {:?}, called index {committed} committed, but {lacking} of {} nodes \
                     did not have it durable",
                    view.term, voters
                )
            });
        }
    }
}

/// What a node showed until its directory was emptied: afterwards it may lack what it had durable, and what was
/// committed by that.
fn until_wiped(steps: &[Step]) -> Vec<&View> {
    let before = steps.iter().take_while(|step| !matches!(step, Step::Wiped));
    before
        .filter_map(|step| match step {
            Step::View(view) => Some(&**view),
            _ => None,
        })
        .collect()
}

fn lacks(views: &[&View], of: &View, committed: u64) -> bool {
    // The first one after that time may have been asked for before; the second one was not.
    let later = views.partition_point(|view| view.t <= of.t) + 1;
    views
        .get(later)
        .is_some_and(|view| view.term == of.term && view.durable < Some(committed))
}

/// A leader's log holds everything that was known to be committed in an earlier term.
fn leaders_have_it(nodes: &Nodes<'_>, findings: &mut Findings) {
    let mut committed: BTreeMap<u64, (u64, &str)> = BTreeMap::new();
    for (node, view) in nodes.views() {
        if let (Some(term), Some(index)) = (view.term, view.committed) {
            let known = committed.entry(term).or_insert((index, node));
            if index > known.0 {
                *known = (index, node);
            }
        }
    }
    let mut highest: Option<(u64, &str)> = None;
    for known in committed.values_mut() {
        highest = highest.max(Some(*known));
        *known = highest.unwrap_or(*known);
    }
    for (node, view) in nodes.views().filter(|(_, view)| view.leads) {
        let (Some(term), Some(appended)) = (view.term, view.appended) else {
            continue;
        };
        let Some((_, (index, told_by))) = committed.range(..term).next_back() else {
            continue;
        };
        if appended < *index {
            findings.add(Invariant::LeaderCompleteness, || {
                format!(
                    "{node} leads term {term} with index {appended} at its end, but {told_by} knew index {index} to \
                     be committed in an earlier term"
                )
            });
        }
    }
}
