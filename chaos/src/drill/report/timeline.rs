//! The measured samples as the picture needs them: counts by time, and spans.

use serde::{Deserialize, Serialize};

use super::ms;
use crate::drill::tape::{Class, Measured, Sample};

/// Buckets of one timeline at most: enough for an engineer to zoom, small enough for a browser.
const BUCKETS_MAX: u64 = 15_000;
/// Bucket widths to choose from, milliseconds.
const WIDTHS: [u64; 9] = [20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000];

/// What happened when. Every list of numbers has one number for each bucket.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Timeline {
    pub bucket_ms: u64,
    pub length_ms: f64,
    pub acks: Vec<u32>,
    pub refusals: Vec<u32>,
    pub unknowns: Vec<u32>,
    /// Attempts that found no connection.
    pub unreachable: Vec<u32>,
    /// Slowest acknowledgement, ms; 0 when there was none.
    pub latency_ms: Vec<f32>,
    pub nodes: Vec<NodeLane>,
    pub faults: Vec<FaultSpan>,
    /// Times without an acknowledged write of at least 100 ms.
    pub gaps: Vec<Gap>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeLane {
    pub name: String,
    pub roles: Vec<RoleSpan>,
    /// What the node answered to the probe in each bucket: 0 nothing asked, 1 acknowledged, 2 refused, 3 unknown,
    /// 4 unreachable; the best of the bucket.
    pub answers: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoleSpan {
    pub from_ms: f64,
    pub to_ms: f64,
    pub role: String,
    pub term: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FaultSpan {
    pub from_ms: f64,
    pub to_ms: f64,
    pub label: String,
    pub nodes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    pub from_ms: f64,
    pub to_ms: f64,
}

impl Timeline {
    /// The timeline of `measured` from `from` to `to`; `names` are the nodes'.
    pub fn build(measured: &Measured, names: &[String], from: u64, to: u64) -> Timeline {
        let length = to.saturating_sub(from);
        let bucket_ms = width(length / 1_000_000);
        let grid = Grid {
            from,
            bucket: bucket_ms * 1_000_000,
            count: usize::try_from(length / (bucket_ms * 1_000_000) + 1).unwrap_or(0),
        };
        let mut timeline = Timeline {
            bucket_ms,
            length_ms: ms(length),
            acks: vec![0; grid.count],
            refusals: vec![0; grid.count],
            unknowns: vec![0; grid.count],
            unreachable: vec![0; grid.count],
            latency_ms: vec![0.0; grid.count],
            ..Timeline::default()
        };
        for sample in &measured.writes {
            timeline.count(&grid, sample);
        }
        timeline.nodes = (0u8..)
            .zip(names)
            .map(|(at, name)| NodeLane {
                name: name.clone(),
                roles: role_spans(measured, at, from, to),
                answers: node_answers(measured, at, &grid),
            })
            .collect();
        timeline.faults = fault_spans(measured, names, from, to);
        timeline.gaps = crate::drill::measure::windows(&measured.writes, from, to, GAP)
            .into_iter()
            .map(|gap| Gap {
                from_ms: ms(gap.start - from),
                to_ms: ms(gap.end - from),
            })
            .collect();
        timeline
    }

    fn count(&mut self, grid: &Grid, sample: &Sample) {
        // An acknowledgement counts when it arrives, a failure when the attempt began.
        let at = match sample.class {
            Class::Ok => sample.done,
            _ => sample.invoke,
        };
        let Some(at) = grid.at(at) else { return };
        match sample.class {
            Class::Ok => {
                self.acks[at] += 1;
                let took = (sample.done - sample.invoke) as f32 / 1e6;
                let took = (took * 100.0).round() / 100.0;
                self.latency_ms[at] = self.latency_ms[at].max(took);
            }
            Class::Refused => self.refusals[at] += 1,
            Class::Unknown => self.unknowns[at] += 1,
            Class::Unreachable => self.unreachable[at] += 1,
        }
    }
}

/// Shorter times without an acknowledgement are not listed.
const GAP: u64 = 100_000_000;

struct Grid {
    from: u64,
    bucket: u64,
    count: usize,
}

impl Grid {
    fn at(&self, time: u64) -> Option<usize> {
        let at = usize::try_from(time.checked_sub(self.from)? / self.bucket).ok()?;
        (at < self.count).then_some(at)
    }
}

/// The narrowest width that needs no more buckets than allowed.
fn width(length_ms: u64) -> u64 {
    let fits = |width: &&u64| length_ms / **width < BUCKETS_MAX;
    let widest = WIDTHS[WIDTHS.len() - 1];
    WIDTHS.iter().find(fits).copied().unwrap_or(widest)
}

fn role_spans(measured: &Measured, node: u8, from: u64, to: u64) -> Vec<RoleSpan> {
    let changes: Vec<_> = measured.roles.iter().filter(|c| c.node == node).collect();
    let mut spans = Vec::new();
    for (at, change) in changes.iter().enumerate() {
        let end = changes.get(at + 1).map_or(to, |next| next.at).min(to);
        let begin = change.at.max(from);
        if begin < end {
            spans.push(RoleSpan {
                from_ms: ms(begin - from),
                to_ms: ms(end - from),
                role: change.role.name().to_owned(),
                term: change.term,
            });
        }
    }
    spans
}

fn node_answers(measured: &Measured, node: u8, grid: &Grid) -> String {
    let mut answers = vec![b'0'; grid.count];
    for sample in measured.writes.iter().filter(|sample| sample.node == node) {
        if let Some(at) = grid.at(sample.invoke) {
            let digit = match sample.class {
                Class::Ok => b'1',
                Class::Refused => b'2',
                Class::Unknown => b'3',
                Class::Unreachable => b'4',
            };
            if answers[at] == b'0' || digit < answers[at] {
                answers[at] = digit;
            }
        }
    }
    String::from_utf8(answers).unwrap_or_default()
}

fn fault_spans(measured: &Measured, names: &[String], from: u64, to: u64) -> Vec<FaultSpan> {
    measured
        .spans
        .iter()
        .filter(|span| span.start < to && span.end.unwrap_or(to) >= from)
        .map(|span| FaultSpan {
            from_ms: ms(span.start.saturating_sub(from)),
            to_ms: ms(span.end.unwrap_or(to).min(to).saturating_sub(from)),
            label: span.label.clone(),
            nodes: span
                .nodes
                .iter()
                .filter_map(|node| names.get(usize::from(*node)).cloned())
                .collect(),
        })
        .collect()
}
