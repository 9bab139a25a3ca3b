//! I-14 and I-19 from observations: what a node committed, applied and made durable does not go back.
//!
//! The rules allow for how a node tells its figures: committed, term, role and leader are one reading, the
//! applied index is read after it, what is appended and durable last. Observations of one node are made one
//! after the other. After a start the applied index may begin lower, because the log is applied again; but
//! from when the node says that it is ready, it covers everything that any client was shown by it before.
//!
//! A durable entry that was not committed may be cut by the leader of a later term. It may not be cut when
//! it was committed, or while the node stays in a term in which it came from that term's leader: then it is
//! part of the leader's own log.

use std::collections::BTreeMap;

use super::index::{End, Index};
use super::nodes::{Nodes, Step, View};
use super::report::Findings;
use super::{Invariant, Options};
use crate::history::{Call, Event, LogDump, Reply, What};

pub fn check(
    events: &[Event],
    index: &Index<'_>,
    nodes: &Nodes<'_>,
    options: &Options,
    findings: &mut Findings,
) {
    let shown = shown_by_node(index);
    for (node, steps) in &nodes.steps {
        let shown = shown.get(node).map_or(&[][..], Vec::as_slice);
        let mut history = Kept::new(node, shown);
        for step in steps {
            match step {
                Step::View(view) => history.view(view, findings),
                Step::Life { t } => history.restart(*t),
                Step::Wiped => history = Kept::new(node, shown),
                Step::Dump { t, at } => {
                    if let What::Dump { log, .. } = &events[*at].what {
                        history.dump(*t, log, findings);
                    }
                }
            }
        }
        committed_follows(node, steps, options, findings);
    }
}

/// Per node, positions that it showed to clients: (time of the answer, highest position so far).
fn shown_by_node<'a>(index: &Index<'a>) -> BTreeMap<&'a str, Vec<(u64, i64)>> {
    let mut shown: BTreeMap<&str, Vec<(u64, i64)>> = BTreeMap::new();
    for op in index.sends().chain(&index.reads) {
        let (node, pos) = match (op.call, op.end) {
            (Call::Pull { node, .. }, End::Ok(Reply::Pull { got, .. }))
            | (Call::Drain { node, .. }, End::Ok(Reply::Drain { got, .. })) => {
                (node, got.iter().map(|got| got.pos).max())
            }
            _ => continue,
        };
        if let Some(pos) = pos {
            shown.entry(node).or_default().push((op.done, pos));
        }
    }
    for shown in shown.values_mut() {
        shown.sort_unstable();
        let mut highest = i64::MIN;
        for (_, pos) in shown {
            highest = highest.max(*pos);
            *pos = highest;
        }
    }
    shown
}

/// What is known of one node.
struct Kept<'a> {
    node: &'a str,
    shown: &'a [(u64, i64)],
    /// Highest position that clients were shown by the processes before this one.
    before: Option<i64>,
    /// Of this process.
    last: Option<View>,
    /// First appended index seen by this process in this term: (term, index).
    term_began: Option<(u64, u64)>,
    /// Durable and committed at once, ever.
    safe: Option<u64>,
    /// Durable in this term and from its leader: (term, index).
    firm: Option<(u64, u64)>,
}

impl<'a> Kept<'a> {
    fn new(node: &'a str, shown: &'a [(u64, i64)]) -> Kept<'a> {
        Kept {
            node,
            shown,
            before: None,
            last: None,
            term_began: None,
            safe: None,
            firm: None,
        }
    }

    fn restart(&mut self, t: u64) {
        let answered = self.shown.partition_point(|(when, _)| *when < t);
        self.before = answered.checked_sub(1).map(|at| self.shown[at].1);
        self.last = None;
        self.term_began = None;
    }

    fn view(&mut self, view: &View, findings: &mut Findings) {
        if view.term.is_none() {
            // An observation of other figures.
            return;
        }
        self.order(view, findings);
        self.within_life(view, findings);
        self.durable(view, findings);
        self.last = Some(view.clone());
    }

    fn order(&self, view: &View, findings: &mut Findings) {
        for (name, lower) in [("applied", view.applied), ("committed", view.committed)] {
            if view.appended.is_some() && lower > view.appended {
                findings.add(Invariant::Progress, || {
                    format!(
                        "node {} has {name} {lower:?}, but appended only {:?}",
                        self.node, view.appended
                    )
                });
            }
        }
    }

    fn within_life(&self, view: &View, findings: &mut Findings) {
        let Some(last) = &self.last else { return };
        for (name, before, now) in [
            ("committed", last.committed, view.committed),
            ("applied", last.applied, view.applied),
            ("the log's beginning", last.begins, view.begins),
            ("the applied position", last.applied_end, view.applied_end),
        ] {
            if now < before {
                findings.add(Invariant::Progress, || {
                    format!(
                        "node {}: {name} went back from {before:?} to {now:?} at {} ms",
                        self.node,
                        view.t / 1_000_000
                    )
                });
            }
        }
        // Ready is read last: what was applied is told for certain only by the next observation.
        let Some(shows) = view.applied_end.filter(|_| last.ready) else {
            return;
        };
        let shows = i64::try_from(shows).unwrap_or(i64::MAX);
        if let Some(before) = self.before.filter(|before| shows <= *before) {
            findings.add(Invariant::Progress, || {
                format!(
                    "node {} says it is ready and has applied up to position {shows}, but before its start it \
                     had shown position {before}",
                    self.node
                )
            });
        }
    }

    /// The last durable index that a node in `term` must still have.
    fn promised(&self, term: Option<u64>) -> Option<u64> {
        let firm = self.firm.filter(|(known, _)| term == Some(*known));
        self.safe.max(firm.map(|(_, index)| index))
    }

    fn still_has(&self, t: u64, term: Option<u64>, has: Option<u64>, findings: &mut Findings) {
        let promised = self.promised(term);
        if has < promised {
            findings.add(Invariant::Durable, || {
                format!(
                    "node {} had reported index {promised:?} durable, but has only {has:?} at {} ms",
                    self.node,
                    t / 1_000_000
                )
            });
        }
    }

    fn dump(&self, t: u64, log: &LogDump, findings: &mut Findings) {
        // An empty log begins behind what was given up.
        let has = log.last().or(log.first.checked_sub(1));
        self.still_has(t, Some(log.vote_term), has, findings);
    }

    fn durable(&mut self, view: &View, findings: &mut Findings) {
        self.still_has(view.t, view.term, view.appended, findings);
        if let (Some(durable), Some(committed)) = (view.durable, view.committed) {
            self.safe = self.safe.max(Some(durable.min(committed)));
        }
        let (Some(term), Some(appended)) = (view.term, view.appended) else {
            return;
        };
        let began = match self.term_began {
            Some((known, began)) if known == term => began,
            _ => {
                self.term_began = Some((term, appended));
                appended
            }
        };
        let from_leader = view.leads || view.durable > Some(began);
        if let Some(durable) = view.durable.filter(|_| from_leader) {
            let known = self.firm.filter(|(known, _)| *known == term);
            self.firm = Some((term, durable.max(known.map_or(0, |(_, index)| index))));
        }
    }
}

/// Applied never outruns committed. The two are published by different parts of a node: what was applied
/// must be committed in the observations from `committed_lag` later on.
fn committed_follows(node: &str, steps: &[Step], options: &Options, findings: &mut Findings) {
    let lag = u64::try_from(options.committed_lag.as_nanos()).unwrap_or(u64::MAX);
    // Of this process, not yet due: (due, applied); grows in both.
    let mut waiting: std::collections::VecDeque<(u64, u64)> = std::collections::VecDeque::new();
    let mut due = 0;
    for step in steps {
        let view = match step {
            Step::View(view) => view,
            _ => {
                waiting.clear();
                due = 0;
                continue;
            }
        };
        if let Some(applied) = view.applied {
            waiting.push_back((view.t.saturating_add(lag), applied));
        }
        while let Some((_, applied)) = waiting.pop_front_if(|(when, _)| *when <= view.t) {
            due = due.max(applied);
        }
        if view.committed.is_some_and(|committed| committed < due) {
            findings.add(Invariant::Progress, || {
                format!(
                    "node {node} had applied index {due}, but knows only {:?} to be committed at {} ms",
                    view.committed,
                    view.t / 1_000_000
                )
            });
        }
    }
}
