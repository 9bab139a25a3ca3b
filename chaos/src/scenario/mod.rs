//! Scenarios: what is done to a group, under which load, and what must be seen. One file per family of the
//! fault catalogue; `context` is what a scenario works with, `evidence` reads its history while it runs,
//! `runner` and `finish` start, heal, drain and check, `verdict` decides what a run proved.

mod clients;
mod clock;
mod context;
mod coverage;
mod evidence;
mod finish;
mod graceful;
mod kill;
mod links;
mod partition;
mod pause;
mod peers;
mod refusal;
mod runner;
mod starve;
mod storage;
mod syscall;
mod verdict;

pub use context::{Load, Run};
pub use coverage::{Coverage, Floor};
pub use runner::{RunError, Runner, Skips};
pub use verdict::{Record, Verdict, exit_status};

use std::future::Future;
use std::pin::Pin;

use crate::history::HistoryError;
use crate::rig::doctor::Facility;
use crate::rig::{Placement, RigError};
use crate::workload::DrainError;

/// What a scenario's function returns: it borrows its context.
pub type Running<'a> = Pin<Box<dyn Future<Output = Result<(), Stop>> + 'a>>;

/// One scenario.
pub struct Scenario {
    pub name: &'static str,
    /// Rows of the fault catalogue that it covers.
    pub rows: &'static [&'static str],
    /// The property it states, one sentence.
    pub about: &'static str,
    /// What it cannot run without, beside what its placement needs.
    pub needs: &'static [Facility],
    pub placement: Placement,
    pub nodes: usize,
    /// The smallest tier that it is part of.
    pub tier: Tier,
    /// A run below this proves nothing.
    pub floor: Floor,
    /// Starts the group with [`Run::start`], hurts it, and checks what only it knows. Returns with the faults
    /// over or not: the runner heals, drains and checks the history afterwards.
    pub run: for<'a> fn(&'a mut Run) -> Running<'a>,
}

/// How often a scenario is run: each tier has the scenarios of the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Tier {
    /// Part of `cargo test`: seconds.
    Smoke,
    /// Before every merge: ten minutes.
    Ci,
    /// An hour.
    Nightly,
    /// Every row.
    Release,
}

/// What ends a scenario early.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// A property does not hold.
    #[error("{0}")]
    Violated(String),
    /// Something took too long. Not a violation where the machine itself stood still.
    #[error("{0}")]
    Late(String),
    /// The run proves nothing.
    #[error("{0}")]
    Invalid(String),
    /// The machine lacks something that only showed now.
    #[error("{0}")]
    Skip(String),
    #[error(transparent)]
    Rig(#[from] RigError),
    #[error(transparent)]
    Drain(#[from] DrainError),
    #[error(transparent)]
    History(#[from] HistoryError),
}

/// All scenarios, in the order of the catalogue.
pub fn all() -> Vec<&'static Scenario> {
    let processes_and_network = [
        kill::SCENARIOS,
        syscall::SCENARIOS,
        pause::SCENARIOS,
        graceful::SCENARIOS,
        starve::SCENARIOS,
        partition::SCENARIOS,
        links::SCENARIOS,
        peers::SCENARIOS,
    ];
    let families = processes_and_network
        .into_iter()
        .chain(storage::FAMILIES)
        .chain([clock::SCENARIOS, clients::SCENARIOS]);
    families.flatten().collect()
}

/// The scenario of this name.
pub fn find(name: &str) -> Option<&'static Scenario> {
    all().into_iter().find(|scenario| scenario.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_scenario_names_its_rows_and_its_property() {
        let all = all();
        let names: std::collections::BTreeSet<_> = all.iter().map(|each| each.name).collect();
        assert_eq!(names.len(), all.len());
        for scenario in all {
            assert!(!scenario.rows.is_empty(), "{}", scenario.name);
            assert!(scenario.about.len() > 20, "{}", scenario.name);
        }
    }
}
