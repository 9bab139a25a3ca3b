//! Says which promises a history breaks. An append-only log that answers with offsets carries its own
//! witness, so everything is hash joins and sorted sweeps, no search. One file per family of invariants;
//! `index` joins the history once for all of them.

mod index;
mod offsets;
mod order;
mod queues;
mod reads;
mod refusals;
mod sends;

#[cfg(test)]
mod brute;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::history::Event;
use index::Index;

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// I-1: an acknowledged message is at its offset on every node.
    NoLoss,
    /// I-2: every message read was sent, with these bytes, before it was read.
    NoPhantom,
    /// I-3: a refused message is nowhere.
    FailMeansAbsent,
    /// I-4: a message is there once (per attempt, where retries are not deduplicated).
    AtMostOnce,
    /// I-5: one offset has one value, for everybody and for ever.
    OneValue,
    /// I-6: offsets have no gaps, and a queue's ends do not go back.
    Dense,
    /// I-7: what was acknowledged before a send began has a smaller offset.
    RealTimeOrder,
    /// I-8: reads skip nothing, see what was acknowledged before, and what was read stays.
    Reads,
    /// I-9: a committed consumer offset is not lost.
    ConsumerOffset,
    /// I-11: without a majority nothing is acknowledged, everything is answered in time and says why.
    Refusal,
}

impl fmt::Display for Invariant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Invariant::NoLoss => "I-1 no loss",
            Invariant::NoPhantom => "I-2 no phantom",
            Invariant::FailMeansAbsent => "I-3 fail means absent",
            Invariant::AtMostOnce => "I-4 at most once",
            Invariant::OneValue => "I-5 one offset, one value",
            Invariant::Dense => "I-6 dense and monotonic",
            Invariant::RealTimeOrder => "I-7 real-time order",
            Invariant::Reads => "I-8 reads",
            Invariant::ConsumerOffset => "I-9 consumer offset",
            Invariant::Refusal => "I-11 refusal",
        })
    }
}

/// A broken promise and what shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: Invariant,
    pub evidence: String,
}

/// What the broker was configured to promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Retries with the same key are recognised (`brokerDeduplication`).
    pub deduplication: bool,
    /// How long a leader may go on acknowledging after the majority is gone.
    pub lease: Duration,
    /// Old messages may be deleted during the run, so a queue need not begin at 0.
    pub retention: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            deduplication: true,
            lease: Duration::from_millis(400),
            retention: false,
        }
    }
}

/// Violations of each kind that are kept; more are only counted.
const KEPT_PER_INVARIANT: usize = 20;

/// What the checks find.
#[derive(Debug, Default)]
struct Findings {
    kept: Vec<Violation>,
    counts: BTreeMap<Invariant, usize>,
}

impl Findings {
    fn add(&mut self, invariant: Invariant, evidence: impl FnOnce() -> String) {
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
}

/// Counts that tell whether a run means anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    pub acknowledged: usize,
    pub refused: usize,
    pub unknown: usize,
    /// Messages of which no attempt was acknowledged, found in a queue all the same (allowed for unknown ones).
    pub unknown_found: usize,
    pub last_drains: usize,
    pub records_drained: usize,
}

/// The verdict on one history.
#[derive(Debug)]
pub struct Report {
    /// The first of each kind, in the order of the checks.
    pub violations: Vec<Violation>,
    /// All of each kind.
    pub counts: BTreeMap<Invariant, usize>,
    pub coverage: Coverage,
}

impl Report {
    pub fn is_green(&self) -> bool {
        self.counts.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.coverage;
        writeln!(
            out,
            "{} acknowledged, {} refused, {} unknown ({} found), {} last drains with {} records",
            c.acknowledged, c.refused, c.unknown, c.unknown_found, c.last_drains, c.records_drained
        )?;
        for (invariant, count) in &self.counts {
            writeln!(out, "{invariant}: {count} violations")?;
        }
        for violation in &self.violations {
            writeln!(out, "  {}: {}", violation.invariant, violation.evidence)?;
        }
        Ok(())
    }
}

/// Checks a whole history.
pub fn check(events: &[Event], options: &Options) -> Report {
    let index = Index::build(events);
    let mut findings = Findings::default();
    sends::check(&index, options, &mut findings);
    queues::check(&index, options, &mut findings);
    order::check(&index, options, &mut findings);
    reads::check(&index, &mut findings);
    offsets::check(&index, &mut findings);
    refusals::check(&index, options, &mut findings);
    Report {
        violations: findings.kept,
        counts: findings.counts,
        coverage: sends::coverage(&index),
    }
}
