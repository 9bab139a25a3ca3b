//! What a run proved. Green needs everything: no violation, no doubt, and enough done to see one.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::{Coverage, Stop};

/// The verdict on one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Enough was done, and everything held.
    Valid,
    /// Something did not hold.
    Violated,
    /// The run proves nothing.
    Invalid,
    /// The machine lacks what the scenario needs.
    Skipped,
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Verdict::Valid => "valid",
            Verdict::Violated => "VIOLATED",
            Verdict::Invalid => "INVALID",
            Verdict::Skipped => "SKIP",
        })
    }
}

/// One run, as `result.json` has it.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    pub scenario: String,
    pub rows: Vec<String>,
    pub seed: u64,
    pub verdict: Verdict,
    /// Why it is not valid; empty when it is.
    pub reason: String,
    /// Every property that did not hold, with its evidence.
    pub violations: Vec<String>,
    pub coverage: Coverage,
    /// Milliseconds from a fault to the first send that was begun after it and acknowledged, by fault.
    pub rto_ms: BTreeMap<String, Vec<u64>>,
    pub figures: BTreeMap<String, Vec<f64>>,
    pub seconds: f64,
    pub dir: PathBuf,
}

/// How a scenario and what came after it ended.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub stop: Option<Stop>,
    /// Errors while healing, draining and looking at the nodes.
    pub after: Vec<Stop>,
}

/// What the checker and the scenario found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub violations: Vec<String>,
    /// What took too long.
    pub late: Vec<String>,
    /// The longest time by which this program's own timers were late.
    pub stall: Duration,
    /// What the floor misses.
    pub lacks: Vec<String>,
}

/// With timers this late nothing that took too long is the group's fault.
const STALL_MAX: Duration = Duration::from_secs(1);

/// Decides. Everything that did not hold is in `found.violations` afterwards, what took too long for want of a
/// machine not among it.
pub(super) fn decide(ends: &Ends, found: &mut Found) -> (Verdict, String) {
    let mut doubts = Vec::new();
    let mut skip = None;
    for stop in ends.stop.iter().chain(&ends.after) {
        match stop {
            Stop::Violated(text) => found.violations.push(text.clone()),
            Stop::Late(text) => found.late.push(text.clone()),
            Stop::Rig(error) if error.is_the_groups() => found.violations.push(error.to_string()),
            // A group that does not come together after the faults has lost something: progress.
            Stop::Drain(error) => found.violations.push(error.to_string()),
            Stop::Skip(text) => skip = Some(text.clone()),
            Stop::Invalid(_) | Stop::Rig(_) | Stop::History(_) => doubts.push(stop.to_string()),
        }
    }
    if found.stall < STALL_MAX {
        found.violations.append(&mut found.late);
    } else if let Some(first) = found.late.first() {
        let stall = found.stall;
        doubts.push(format!(
            "this machine stood still for {stall:?}, and {first}"
        ));
    }
    if let Some(first) = found.violations.first() {
        return (Verdict::Violated, first.clone());
    }
    if let Some(why) = skip {
        return (Verdict::Skipped, why);
    }
    doubts.extend_from_slice(&found.lacks);
    match doubts.is_empty() {
        true => (Verdict::Valid, String::new()),
        false => (Verdict::Invalid, doubts.join("; ")),
    }
}

/// The program's exit status: 1 something was violated, 2 something is invalid, 3 nothing ran, 0 otherwise.
pub fn exit_status(verdicts: &[Verdict]) -> u8 {
    let any = |verdict| verdicts.contains(&verdict);
    if any(Verdict::Violated) {
        1
    } else if any(Verdict::Invalid) {
        2
    } else if any(Verdict::Valid) {
        0
    } else {
        3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(stop: Option<Stop>, violations: &[&str], lacks: &[&str]) -> Verdict {
        let ends = Ends {
            stop,
            after: Vec::new(),
        };
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let mut found = Found {
            violations: owned(violations),
            lacks: owned(lacks),
            ..Found::default()
        };
        decide(&ends, &mut found).0
    }

    fn text() -> String {
        "why".to_owned()
    }

    #[test]
    fn a_violation_outweighs_a_doubt_and_a_doubt_is_never_green() {
        for (stop, violations, lacks, expected) in [
            (None, &[][..], &[][..], Verdict::Valid),
            (None, &["I-1"], &[], Verdict::Violated),
            (None, &["I-1"], &["acks"], Verdict::Violated),
            (None, &[], &["acks"], Verdict::Invalid),
            (
                Some(Stop::Violated(text())),
                &[],
                &["acks"],
                Verdict::Violated,
            ),
            (Some(Stop::Invalid(text())), &[], &[], Verdict::Invalid),
            (
                Some(Stop::Invalid(text())),
                &["I-1"],
                &[],
                Verdict::Violated,
            ),
            (Some(Stop::Skip(text())), &[], &["acks"], Verdict::Skipped),
            (Some(Stop::Skip(text())), &["I-1"], &[], Verdict::Violated),
        ] {
            let case = format!("{stop:?} {violations:?} {lacks:?}");
            assert_eq!(verdict(stop, violations, lacks), expected, "{case}");
        }
    }

    #[test]
    fn what_is_late_is_a_violation_unless_the_machine_stood_still() {
        for (stall_ms, violations, verdict) in [
            (999, 0, Verdict::Violated),
            (1_000, 0, Verdict::Invalid),
            (1_000, 1, Verdict::Violated),
        ] {
            let ends = Ends {
                stop: Some(Stop::Late(text())),
                after: Vec::new(),
            };
            let mut found = Found {
                violations: vec![text(); violations],
                stall: Duration::from_millis(stall_ms),
                ..Found::default()
            };
            assert_eq!(
                decide(&ends, &mut found).0,
                verdict,
                "{stall_ms} {violations}"
            );
        }
    }

    #[test]
    fn only_skips_are_not_green() {
        use Verdict::{Invalid, Skipped, Valid, Violated};
        for (verdicts, status) in [
            (&[Valid, Skipped][..], 0),
            (&[Skipped], 3),
            (&[], 3),
            (&[Valid, Invalid], 2),
            (&[Invalid, Violated, Valid], 1),
        ] {
            assert_eq!(exit_status(verdicts), status, "{verdicts:?}");
        }
    }
}
