//! The checker's verdict on histories, added up over the stretches of a drill and told as promises. What a violation is, is
//! the checker's.

use std::collections::BTreeMap;
use std::time::Duration;

use super::report::{Promise, Totals, Verdict};
use crate::checker::{self, Invariant, Options};
use crate::history::{Event, Reply, What};

/// A leader may acknowledge for so long after the loss of its majority: the lease, and a little.
const LEASE: Duration = Duration::from_millis(400);

/// What was judged so far.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// Histories that were judged.
    pub stretches: u32,
    pub totals: Totals,
    /// Violations of each family, and the first few in words.
    counts: BTreeMap<&'static str, u64>,
    evidence: BTreeMap<&'static str, Vec<String>>,
}

/// Violations that are told in words.
const TOLD: usize = 3;

/// Families of invariants: id and the promise in words.
pub const FAMILIES: [(&str, &str); 6] = [
    ("rpo", "Every acknowledged message is there, on every node"),
    (
        "refusals",
        "A refused message never appears, and every answer says what became of the message",
    ),
    ("duplicates", "No message is there twice"),
    (
        "order",
        "Offsets have no gaps and agree with the order of the sends",
    ),
    ("reads", "What was read was sent, and stays"),
    ("offsets", "Committed consumer offsets are not behind"),
];

fn family(invariant: Invariant) -> &'static str {
    match invariant {
        Invariant::NoLoss | Invariant::OneValue => "rpo",
        Invariant::FailMeansAbsent | Invariant::Refusal => "refusals",
        Invariant::AtMostOnce => "duplicates",
        Invariant::Dense | Invariant::RealTimeOrder => "order",
        Invariant::ConsumerOffset => "offsets",
        _ => "reads",
    }
}

/// Judges one history and adds it up; true when nothing is wrong. `deduplication`: the group promises to recognise
/// retries.
pub fn judge(events: &[Event], deduplication: bool, judged: &mut Judged) -> bool {
    let options = Options {
        deduplication,
        lease: LEASE,
        ..Options::default()
    };
    let report = checker::check(events, &options);
    judged.stretches += 1;
    let totals = &mut judged.totals;
    totals.acknowledged += report.coverage.acknowledged as u64;
    totals.refused += refused(events);
    totals.unknown += report.coverage.unknown as u64;
    totals.unknown_found += report.coverage.unknown_found as u64;
    totals.read_back += report.coverage.records_drained as u64;
    totals.commits += commits(events);
    for (invariant, count) in &report.counts {
        *judged.counts.entry(family(*invariant)).or_default() += *count as u64;
    }
    for violation in &report.violations {
        let told = judged
            .evidence
            .entry(family(violation.invariant))
            .or_default();
        if told.len() < TOLD {
            told.push(format!("{}: {}", violation.invariant, violation.evidence));
        }
    }
    report.is_green()
}

/// Refusals that somebody answered; an attempt without a connection has none.
fn refused(events: &[Event]) -> u64 {
    let answered = |event: &&Event| matches!(event.what, What::Fail { code, .. } if code != -1);
    events.iter().filter(answered).count() as u64
}

fn commits(events: &[Event]) -> u64 {
    let acknowledged = |event: &&Event| matches!(event.what, What::Ok(Reply::CommitOffset));
    events.iter().filter(acknowledged).count() as u64
}

impl Judged {
    /// Violations of one family.
    pub fn violations(&self, id: &str) -> u64 {
        self.counts.get(id).copied().unwrap_or(0)
    }

    /// The promises that the checker judges. `promised`: those the group makes; others are told, and break nothing.
    pub fn promises(&self, promised: impl Fn(&str) -> bool) -> Vec<Promise> {
        FAMILIES
            .iter()
            .map(|(id, text)| {
                let wrong = self.violations(id);
                let verdict = match wrong {
                    _ if !self.tried(id) => Verdict::Unjudged,
                    0 => Verdict::Held,
                    _ if promised(id) => Verdict::Broken,
                    _ => Verdict::Skipped,
                };
                Promise {
                    id: (*id).to_owned(),
                    text: (*text).to_owned(),
                    verdict,
                    found: self.found(id, wrong),
                }
            })
            .collect()
    }

    /// Whether there was anything that could have broken it.
    fn tried(&self, id: &str) -> bool {
        match id {
            "offsets" => self.totals.commits > 0,
            _ => self.totals.acknowledged > 0 && self.totals.read_back > 0,
        }
    }

    fn found(&self, id: &str, wrong: u64) -> String {
        let Totals {
            acknowledged,
            refused,
            unknown,
            unknown_found,
            read_back,
            commits,
        } = self.totals;
        let what = match id {
            "rpo" => format!(
                "{wrong} of {acknowledged} acknowledged messages missing; {read_back} records read back"
            ),
            "refusals" => format!(
                "{wrong} of {refused} refusals wrong; {unknown} attempts stayed unknown, {unknown_found} of them were stored"
            ),
            "duplicates" => format!("{wrong} messages there more often than allowed"),
            "order" => format!("{wrong} gaps or reversals"),
            "reads" => format!("{wrong} reads that cannot be"),
            _ => format!("{wrong} answers behind {commits} acknowledged commits"),
        };
        let mut what = what;
        for line in self.evidence.get(id).into_iter().flatten() {
            what.push_str("; ");
            what.push_str(line);
        }
        what
    }
}
