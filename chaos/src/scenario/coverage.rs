//! What a run did, counted from its history, and the least that it must have done to prove something.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::checker;
use crate::history::{Event, FaultResult, QUORUM_LOSS, What};

/// Counts of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    pub acknowledged: usize,
    pub refused: usize,
    pub unknown: usize,
    pub unknown_found: usize,
    pub records_drained: usize,
    pub last_drains: usize,
    /// Observations of the nodes' own views.
    pub observations: usize,
    /// Faults by name: how often they took hold.
    pub faults: BTreeMap<String, usize>,
    pub faults_skipped: usize,
    /// Faults of which nobody knows whether they took hold.
    pub faults_indeterminate: usize,
    /// Changes from one leader to another, as the nodes tell it.
    pub leader_changes: usize,
    /// Terms that were seen.
    pub terms: usize,
}

impl Coverage {
    pub fn of(events: &[Event], report: &checker::Report) -> Coverage {
        let c = &report.coverage;
        let mut coverage = Coverage {
            acknowledged: c.acknowledged,
            refused: c.refused,
            unknown: c.unknown,
            unknown_found: c.unknown_found,
            records_drained: c.records_drained,
            last_drains: c.last_drains,
            ..Coverage::default()
        };
        let mut leaders = BTreeMap::new();
        let mut terms = BTreeSet::new();
        for event in events {
            match &event.what {
                What::Obs { node, table } => {
                    coverage.observations += 1;
                    let Some(term) = table.get("raftTerm").and_then(|term| term.parse().ok())
                    else {
                        continue;
                    };
                    terms.insert(term);
                    if table.get("raftRole").is_some_and(|role| role == "leader") {
                        leaders.insert(term, node.as_str());
                    }
                }
                What::Start { fault, result, .. } if fault != QUORUM_LOSS => {
                    coverage.count_fault(fault, *result)
                }
                _ => {}
            }
        }
        let in_order: Vec<(&u64, &&str)> = leaders.iter().collect();
        coverage.terms = terms.len();
        coverage.leader_changes = in_order
            .windows(2)
            .filter(|two| two[0].1 != two[1].1)
            .count();
        coverage
    }

    fn count_fault(&mut self, fault: &str, result: FaultResult) {
        match result {
            FaultResult::Skipped => self.faults_skipped += 1,
            FaultResult::Indeterminate => self.faults_indeterminate += 1,
            FaultResult::Installed => *self.faults.entry(fault.to_owned()).or_default() += 1,
        }
    }

    /// Faults that took hold, all kinds together.
    pub fn installed(&self) -> usize {
        self.faults.values().sum()
    }
}

/// The least that a run must have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    pub acknowledged: usize,
    pub installed: usize,
    pub leader_changes: usize,
    pub refused: usize,
}

impl Floor {
    /// `acknowledged` messages and `installed` faults, nothing else.
    pub const fn of(acknowledged: usize, installed: usize) -> Floor {
        Floor {
            acknowledged,
            installed,
            leader_changes: 0,
            refused: 0,
        }
    }

    /// And so many leader changes.
    pub const fn with_leader_changes(mut self, leader_changes: usize) -> Floor {
        self.leader_changes = leader_changes;
        self
    }

    /// And so many refused sends.
    pub const fn with_refused(mut self, refused: usize) -> Floor {
        self.refused = refused;
        self
    }

    /// What `coverage` lacks, as sentences; none when it reaches the floor.
    pub fn lacks(&self, coverage: &Coverage) -> Vec<String> {
        let rows = [
            (
                "acknowledged messages",
                self.acknowledged,
                coverage.acknowledged,
            ),
            ("installed faults", self.installed, coverage.installed()),
            (
                "leader changes",
                self.leader_changes,
                coverage.leader_changes,
            ),
            ("refused sends", self.refused, coverage.refused),
            ("observations", 1, coverage.observations),
            ("last drains", 1, coverage.last_drains),
        ];
        let mut lacks: Vec<String> = rows
            .iter()
            .filter(|(_, least, had)| had < least)
            .map(|(what, least, had)| format!("{had} {what}, at least {least} are needed"))
            .collect();
        if coverage.faults_indeterminate > 0 {
            lacks.push(format!(
                "nobody knows whether {} faults took hold",
                coverage.faults_indeterminate
            ));
        }
        lacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(what: What) -> Event {
        Event {
            t: 0,
            a: "adm".to_owned(),
            op: 0,
            what,
        }
    }

    fn obs(node: &str, role: &str, term: u64) -> Event {
        let table = [
            ("raftRole", role.to_owned()),
            ("raftTerm", term.to_string()),
        ];
        event(What::Obs {
            node: node.to_owned(),
            table: table.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
        })
    }

    fn fault(result: FaultResult) -> Event {
        event(What::Start {
            fault: "kill".to_owned(),
            args: BTreeMap::new(),
            result,
        })
    }

    #[test]
    fn leader_changes_faults_and_terms_are_counted_from_the_history() {
        let events = [
            obs("n0", "leader", 1),
            obs("n1", "follower", 1),
            obs("n0", "leader", 2),
            obs("n1", "leader", 5),
            obs("n0", "follower", 5),
            fault(FaultResult::Installed),
            fault(FaultResult::Skipped),
            fault(FaultResult::Indeterminate),
        ];
        let report = checker::check(&events, &checker::Options::default());
        let coverage = Coverage::of(&events, &report);
        assert_eq!((coverage.leader_changes, coverage.terms), (1, 3));
        assert_eq!(coverage.installed(), 1);
        assert_eq!(
            (coverage.faults_skipped, coverage.faults_indeterminate),
            (1, 1)
        );
    }

    #[test]
    fn a_run_below_its_floor_says_what_it_lacks() {
        let mut coverage = Coverage {
            acknowledged: 10,
            observations: 5,
            last_drains: 3,
            faults: [("kill".to_owned(), 1)].into(),
            ..Coverage::default()
        };
        assert_eq!(Floor::of(10, 1).lacks(&coverage), Vec::<String>::new());
        assert_eq!(Floor::of(11, 1).lacks(&coverage).len(), 1);
        assert_eq!(
            Floor::of(11, 2)
                .with_leader_changes(1)
                .lacks(&coverage)
                .len(),
            3
        );
        coverage.faults_indeterminate = 1;
        assert_eq!(Floor::of(10, 1).lacks(&coverage).len(), 1);
    }
}
