//! The line that a seed ends with, the totals of many, and what they must have seen to mean anything.

use serde::{Deserialize, Serialize};

use crate::counts::Counts;
use crate::world::Outcome;

/// One seed's result, one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    pub seed: u64,
    pub verdict: String,
    pub violation: Option<String>,
    pub evidence: Option<String>,
    #[serde(flatten)]
    pub counts: Counts,
    /// Of the trace, hexadecimal; equal for every run of the seed.
    pub trace_hash: String,
    pub trace_lines: u64,
}

impl Line {
    pub fn new(seed: u64, outcome: &Outcome, (hash, lines): (u64, u64)) -> Line {
        let violation = outcome.violation.clone();
        let verdict = if violation.is_none() { "ok" } else { "FAILED" };
        let (violation, evidence) = violation.map(|v| (v.invariant, v.evidence)).unzip();
        Line {
            seed,
            verdict: verdict.to_string(),
            violation,
            evidence,
            counts: outcome.counts,
            trace_hash: format!("{hash:016x}"),
            trace_lines: lines,
        }
    }
}

/// The command that repeats a seed.
pub fn repeat(seed: u64, seconds: u64) -> String {
    format!("quorumlog-sim seed {seed} --seconds {seconds} --trace seed-{seed}.trace")
}

/// What many seeds saw.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Totals {
    pub seeds: u64,
    #[serde(flatten)]
    pub counts: Counts,
}

impl Totals {
    pub fn add(&mut self, line: &Line) {
        self.seeds += 1;
        self.counts.add(&line.counts);
    }

    /// What these seeds did not see enough of to mean anything, floor by floor. Per hundred seeds, so that
    /// small sweeps are judged alike; far below what a sweep sees on average.
    pub fn missing(&self) -> Vec<String> {
        let counts = &self.counts;
        let floors = [
            ("crashes", counts.crashes, 50),
            ("power losses", counts.power_losses, 100),
            ("stops", counts.stops, 10),
            ("partitions", counts.partitions, 100),
            ("holds", counts.holds, 20),
            ("disk faults", counts.disk_faults, 100),
            ("nodes ended by their disk", counts.ended_by_disk, 10),
            ("clock jumps", counts.clock_jumps, 10),
            ("stranded leaders", counts.stranded, 30),
            ("leader changes", counts.leader_changes, 100),
            ("truncations", counts.truncations, 5),
            ("acknowledged sends", counts.acknowledged, 20_000),
            ("refused sends", counts.refused, 100),
            ("unknown sends", counts.unknown, 50),
            ("records drained", counts.drained, 60_000),
        ];
        floors
            .into_iter()
            .filter(|(_, seen, per_hundred)| *seen < per_hundred * self.seeds / 100)
            .map(|(what, seen, per_hundred)| {
                format!(
                    "{what}: {seen}, at least {}",
                    per_hundred * self.seeds / 100
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_that_saw_nothing_is_not_green() {
        let nothing = Totals {
            seeds: 100,
            counts: Counts::default(),
        };
        assert_eq!(nothing.missing().len(), 15);
        assert!(nothing.missing()[0].starts_with("crashes: 0"));
    }

    #[test]
    fn a_line_is_read_back() {
        let outcome = Outcome {
            violation: None,
            counts: Counts {
                crashes: 3,
                ..Counts::default()
            },
        };
        let line = Line::new(7, &outcome, (1, 2));
        let text = serde_json::to_string(&line).unwrap();
        let back: Line = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (back.seed, back.counts.crashes, back.trace_lines),
            (7, 3, 2)
        );
        assert!(back.violation.is_none());
    }
}
