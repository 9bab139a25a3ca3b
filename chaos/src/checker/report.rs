//! The verdict and what it rests on.

use std::collections::BTreeMap;
use std::fmt;

use super::Invariant;

/// A broken promise and what shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: Invariant,
    pub evidence: String,
}

/// Violations of each kind that are kept; more are only counted.
const KEPT_PER_INVARIANT: usize = 20;

/// What the checks find.
#[derive(Debug, Default)]
pub(super) struct Findings {
    kept: Vec<Violation>,
    counts: BTreeMap<Invariant, usize>,
    /// Why the run proves nothing.
    short: Vec<String>,
}

impl Findings {
    pub(super) fn add(&mut self, invariant: Invariant, evidence: impl FnOnce() -> String) {
        let count = self.counts.entry(invariant).or_default();
        *count += 1;
        if *count <= KEPT_PER_INVARIANT {
            let evidence = evidence();
            self.kept.push(Violation {
                invariant,
                evidence,
            });
        }
    }

    pub(super) fn falls_short(&mut self, why: String) {
        self.short.push(why);
    }

    pub(super) fn report(self, coverage: Coverage) -> Report {
        Report {
            violations: self.kept,
            counts: self.counts,
            coverage,
            short: self.short,
        }
    }
}

/// Counts that tell whether a run means anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    pub acknowledged: usize,
    pub refused: usize,
    pub unknown: usize,
    /// Messages of which no attempt was acknowledged, found in a queue all the same (allowed for unknown ones).
    pub unknown_found: usize,
    pub last_drains: usize,
    pub records_drained: usize,
    pub observations: usize,
    /// Times that another node was seen to lead than before, or the same one in a later term.
    pub leader_changes: usize,
    pub boots: usize,
    pub dumps: usize,
    /// By name: how often it was brought on, and how often only tried.
    pub faults: BTreeMap<String, (usize, usize)>,
}

/// What is to be said of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is broken, and enough happened.
    Valid,
    /// A promise is broken.
    Violated,
    /// Nothing is broken, but not enough happened for that to mean anything.
    Invalid(Vec<String>),
}

/// The verdict on one history, with its evidence.
#[derive(Clone, Debug)]
pub struct Report {
    /// The first of each kind, in the order of the checks.
    pub violations: Vec<Violation>,
    /// All of each kind.
    pub counts: BTreeMap<Invariant, usize>,
    pub coverage: Coverage,
    /// What was asked of the run's coverage and did not happen.
    pub short: Vec<String>,
}

impl Report {
    pub fn verdict(&self) -> Verdict {
        if !self.counts.is_empty() {
            Verdict::Violated
        } else if !self.short.is_empty() {
            Verdict::Invalid(self.short.clone())
        } else {
            Verdict::Valid
        }
    }

    pub fn is_green(&self) -> bool {
        self.verdict() == Verdict::Valid
    }

    /// Adds what was found beside the history.
    pub fn extend(&mut self, violations: Vec<Violation>) {
        for violation in violations {
            *self.counts.entry(violation.invariant).or_default() += 1;
            self.violations.push(violation);
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Valid => out.write_str("valid"),
            Verdict::Violated => out.write_str("violated"),
            Verdict::Invalid(why) => write!(out, "invalid: {}", why.join("; ")),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.coverage;
        writeln!(out, "verdict: {}", self.verdict())?;
        writeln!(
            out,
            "{} acknowledged, {} refused, {} unknown ({} found), {} last drains with {} records",
            c.acknowledged, c.refused, c.unknown, c.unknown_found, c.last_drains, c.records_drained
        )?;
        writeln!(
            out,
            "{} observations, {} changes of leader, {} boots, {} dumps",
            c.observations, c.leader_changes, c.boots, c.dumps
        )?;
        for (fault, (installed, other)) in &c.faults {
            writeln!(out, "fault {fault}: {installed} times, {other} times not")?;
        }
        for (invariant, count) in &self.counts {
            writeln!(out, "{invariant}: {count} violations")?;
        }
        for violation in &self.violations {
            writeln!(out, "  {}: {}", violation.invariant, violation.evidence)?;
        }
        Ok(())
    }
}
