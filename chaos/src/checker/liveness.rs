//! I-20 and I-21: a healed group recovers by itself, and a fault that leaves a majority stops nothing.

use std::collections::BTreeMap;

use super::index::Index;
use super::nodes::{Nodes, View};
use super::report::Findings;
use super::{Invariant, Options};
use crate::history::{Event, FaultResult, KEPT, MAJORITY, QUORUM_LOSS, What};

/// A shorter rest of a fault says nothing about progress.
const JUDGED_FROM_NS: u64 = 2_000_000_000;

pub fn check(
    events: &[Event],
    index: &Index<'_>,
    nodes: &Nodes<'_>,
    options: &Options,
    findings: &mut Findings,
) {
    let mut acks: Vec<(u64, u64)> = index
        .sends()
        .filter(|send| send.ack().is_some())
        .map(|send| (send.done, send.invoke))
        .collect();
    acks.sort_unstable();
    for (at, heal) in events.iter().enumerate() {
        if heal.what == What::Heal {
            recovers(heal.t, &events[at + 1..], &acks, nodes, options, findings);
        }
    }
    for fault in faults(events) {
        goes_on(&fault, &acks, options, findings);
    }
}

fn recovers(
    heal: u64,
    rest: &[Event],
    acks: &[(u64, u64)],
    nodes: &Nodes<'_>,
    options: &Options,
    findings: &mut Findings,
) {
    let due = heal.saturating_add(nanos(options.recovers_within));
    // The next fault or start ends the time in which the group was left alone.
    let disturbed = rest
        .iter()
        .find(|event| {
            matches!(
                event.what,
                What::Start { .. } | What::Boot { .. } | What::Exit { .. }
            )
        })
        .map_or(u64::MAX, |event| event.t);
    let until = due.min(disturbed);
    let ended = rest.last().map_or(heal, |last| last.t);
    let fresh = acks
        .iter()
        .filter(|(done, invoke)| *invoke >= heal && *done <= until)
        .count();
    let level = level_at(heal, nodes);
    let is_level = level
        .as_ref()
        .is_none_or(|level| level.is_some_and(|t| t <= until));
    if fresh >= options.recovers_acks && is_level {
        return;
    }
    let what = format!(
        "{fresh} sends acknowledged (of {} wanted), {}",
        options.recovers_acks,
        if is_level {
            "all nodes level"
        } else {
            "the nodes never level"
        }
    );
    if due <= ended.min(disturbed) {
        findings.add(Invariant::Recovers, || {
            format!(
                "healed at {} ms, but {:?} later: {what}",
                heal / 1_000_000,
                options.recovers_within
            )
        });
    } else if disturbed > ended {
        findings.falls_short(format!(
            "the history ends {} ms after healing: {what}",
            (ended - heal) / 1_000_000
        ));
    }
}

/// When, after healing, all nodes were seen with one leader and everything applied that was known to be
/// committed at the healing. `None`: no node was observed at all. `Some(None)`: never.
fn level_at(heal: u64, nodes: &Nodes<'_>) -> Option<Option<u64>> {
    let views = nodes.in_time();
    if views.is_empty() {
        return None;
    }
    let observed: std::collections::BTreeSet<&str> = views.iter().map(|(node, _)| *node).collect();
    let before = views.iter().take_while(|(_, view)| view.t <= heal);
    let committed = before.filter_map(|(_, view)| view.committed).max();
    let mut now: BTreeMap<&str, &View> = BTreeMap::new();
    for (node, view) in views
        .iter()
        .filter(|(_, view)| view.t > heal && view.term.is_some())
    {
        now.insert(node, view);
        if now.len() == observed.len() && are_level(&now, committed) {
            return Some(Some(view.t));
        }
    }
    Some(None)
}

fn are_level(now: &BTreeMap<&str, &View>, committed: Option<u64>) -> bool {
    let leaders: Vec<&&View> = now.values().filter(|view| view.leads).collect();
    let [leader] = leaders[..] else { return false };
    now.values().all(|view| {
        view.term == leader.term && view.leader == leader.id && view.applied >= committed
    })
}

struct Fault<'a> {
    name: &'a str,
    kept: bool,
    installed: bool,
    start: u64,
    end: u64,
}

/// All faults with their ends; one without an end lasts until the history's end.
fn faults(events: &[Event]) -> Vec<Fault<'_>> {
    let mut faults: Vec<Fault<'_>> = Vec::new();
    let last = events.last().map_or(0, |event| event.t);
    for event in events {
        match &event.what {
            What::Start {
                fault,
                args,
                result,
            } => faults.push(Fault {
                name: fault,
                kept: args.get(MAJORITY).is_some_and(|value| value == KEPT),
                installed: *result == FaultResult::Installed,
                start: event.t,
                end: u64::MAX,
            }),
            What::End { fault } => {
                let open = faults
                    .iter_mut()
                    .rfind(|open| open.name == fault && open.end == u64::MAX);
                if let Some(open) = open {
                    open.end = event.t;
                }
            }
            _ => {}
        }
    }
    for fault in &mut faults {
        fault.end = fault.end.min(last);
    }
    let lost: Vec<(u64, u64)> = faults
        .iter()
        .filter(|fault| fault.name == QUORUM_LOSS && fault.installed)
        .map(|fault| (fault.start, fault.end))
        .collect();
    // Where faults together cost the majority, nothing was promised.
    faults.retain(|fault| {
        let apart = |(start, end): &(u64, u64)| *end <= fault.start || fault.end <= *start;
        fault.kept && fault.installed && lost.iter().all(apart)
    });
    faults
}

fn goes_on(fault: &Fault<'_>, acks: &[(u64, u64)], options: &Options, findings: &mut Findings) {
    let from = fault.start.saturating_add(nanos(options.takeover));
    if fault.end.saturating_sub(from) < JUDGED_FROM_NS {
        return;
    }
    let first = acks.partition_point(|(done, _)| *done < from);
    let behind = acks.partition_point(|(done, _)| *done < fault.end);
    let count = behind - first;
    if count < options.goes_on_acks {
        findings.add(Invariant::GoesOn, || {
            format!(
                "{} left a majority, but only {count} sends were acknowledged in {} ms of it ({} wanted)",
                fault.name,
                (fault.end - from) / 1_000_000,
                options.goes_on_acks
            )
        });
    }
}

fn nanos(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
