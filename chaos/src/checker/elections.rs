//! I-12 and I-13: a term has one leader, and a node's term and vote are never taken back.

use std::collections::BTreeMap;

use super::Invariant;
use super::nodes::{Nodes, Step, View};
use super::report::Findings;
use crate::history::{Event, What};

pub fn check(events: &[Event], nodes: &Nodes<'_>, findings: &mut Findings) {
    one_leader(nodes, findings);
    for (node, steps) in &nodes.steps {
        votes_are_kept(events, node, steps, findings);
    }
}

/// I-12: whoever says that it leads, and whoever is said to.
fn one_leader(nodes: &Nodes<'_>, findings: &mut Findings) {
    let mut leaders: BTreeMap<u64, (u64, &str)> = BTreeMap::new();
    for (node, view) in nodes.in_time() {
        let Some(term) = view.term.filter(|term| *term > 0) else {
            continue;
        };
        let own = view.id.filter(|_| view.leads);
        for leader in [own, view.leader].into_iter().flatten() {
            let (known, told_by) = *leaders.entry(term).or_insert((leader, node));
            if known != leader {
                findings.add(Invariant::ElectionSafety, || {
                    format!(
                        "term {term} is led by node {known} to {told_by}, and by node {leader} to {node}"
                    )
                });
            }
        }
    }
}

/// What a node had said of its vote.
#[derive(Clone, Copy, Default)]
struct Vote {
    term: u64,
    voted_for: Option<u64>,
    /// It followed the one it voted for: that vote is final.
    elected: bool,
}

/// I-13. In one term a vote may go over to the leader that the others elected, once; nothing else changes it.
fn votes_are_kept(events: &[Event], node: &str, steps: &[Step], findings: &mut Findings) {
    let mut kept = Vote::default();
    for step in steps {
        let (t, vote) = match step {
            Step::View(view) => (view.t, vote_of(view)),
            Step::Dump { t, at } => (*t, vote_in(&events[*at])),
            Step::Wiped => {
                kept = Vote::default();
                continue;
            }
            Step::Life { .. } => continue,
        };
        let Some(vote) = vote else { continue };
        if vote.term < kept.term {
            findings.add(Invariant::VoteKept, || {
                format!(
                    "node {node} went back from term {} to {} at {} ms",
                    kept.term,
                    vote.term,
                    t / 1_000_000
                )
            });
            continue;
        }
        let changed = kept.voted_for.is_some() && vote.voted_for != kept.voted_for;
        if vote.term == kept.term && changed && (kept.elected || !vote.elected) {
            findings.add(Invariant::VoteKept, || {
                format!(
                    "node {node} voted for {:?} in term {} and then for {:?}",
                    kept.voted_for, vote.term, vote.voted_for
                )
            });
        }
        let elected = vote.elected || (vote.term == kept.term && kept.elected);
        kept = Vote { elected, ..vote };
    }
}

fn vote_of(view: &View) -> Option<Vote> {
    Some(Vote {
        term: view.term?,
        voted_for: view.voted_for,
        elected: view.voted_for.is_some() && view.leader == view.voted_for,
    })
}

/// The vote in a dumped node's vote file.
fn vote_in(event: &Event) -> Option<Vote> {
    let What::Dump { log, .. } = &event.what else {
        return None;
    };
    Some(Vote {
        term: log.vote_term,
        voted_for: log.voted_for,
        elected: log.elected,
    })
}
