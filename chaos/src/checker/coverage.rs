//! I-23: whether enough happened for a verdict to mean anything.

use std::collections::BTreeSet;

use super::Floor;
use super::index::{End, Index};
use super::nodes::Nodes;
use super::report::{Coverage, Findings};
use crate::history::{Event, FaultResult, What};

pub fn of(events: &[Event], index: &Index<'_>, nodes: &Nodes<'_>) -> Coverage {
    let mut coverage = Coverage::default();
    for attempt in index.sends() {
        match attempt.end {
            End::Ok(_) => coverage.acknowledged += 1,
            End::Fail { .. } => coverage.refused += 1,
            End::Info { .. } | End::Open => coverage.unknown += 1,
        }
    }
    drains(index, &mut coverage);
    leaders(nodes, &mut coverage);
    for event in events {
        match &event.what {
            What::Obs { .. } => coverage.observations += 1,
            What::Boot { .. } => coverage.boots += 1,
            What::Dump { .. } => coverage.dumps += 1,
            What::Start { fault, result, .. } => {
                let (installed, other) = coverage.faults.entry(fault.clone()).or_default();
                match result {
                    FaultResult::Installed => *installed += 1,
                    FaultResult::Skipped | FaultResult::Indeterminate => *other += 1,
                }
            }
            _ => {}
        }
    }
    coverage
}

fn drains(index: &Index<'_>, coverage: &mut Coverage) {
    let mut found: BTreeSet<&str> = BTreeSet::new();
    for drain in index.drains.iter().filter(|drain| drain.last) {
        coverage.last_drains += 1;
        coverage.records_drained += drain.got.len();
        found.extend(drain.got.iter().map(|got| got.key.as_str()));
    }
    coverage.unknown_found = found
        .iter()
        .filter_map(|key| index.message(key))
        .filter(|message| {
            message
                .attempts
                .iter()
                .all(|attempt| attempt.ack().is_none())
        })
        .count();
}

fn leaders(nodes: &Nodes<'_>, coverage: &mut Coverage) {
    let leaders: BTreeSet<(u64, &str)> = nodes
        .views()
        .filter(|(_, view)| view.leads)
        .filter_map(|(node, view)| Some((view.term?, node)))
        .collect();
    coverage.leader_changes = leaders.len().saturating_sub(1);
}

/// Names everything that fell short.
pub fn judge(coverage: &Coverage, floor: &Floor, findings: &mut Findings) {
    let installed = coverage
        .faults
        .values()
        .map(|(installed, _)| installed)
        .sum();
    for (what, have, wanted) in [
        (
            "acknowledged sends",
            coverage.acknowledged,
            floor.acknowledged,
        ),
        ("refused sends", coverage.refused, floor.refused),
        ("unknown sends", coverage.unknown, floor.unknown),
        ("last drains", coverage.last_drains, floor.last_drains),
        (
            "changes of leader",
            coverage.leader_changes,
            floor.leader_changes,
        ),
        ("boots", coverage.boots, floor.boots),
        ("dumps", coverage.dumps, floor.dumps),
        ("faults", installed, floor.faults),
    ] {
        if have < wanted {
            findings.falls_short(format!("{have} {what}, {wanted} wanted"));
        }
    }
    if floor.all_faults {
        for (fault, (installed, other)) in &coverage.faults {
            if *installed == 0 {
                findings.falls_short(format!(
                    "{fault} was tried {other} times and never brought on"
                ));
            }
        }
    }
}
