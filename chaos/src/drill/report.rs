//! What a drill reports: `report.json`, for programs and for comparing, and `report.html`, one file for people. Both are
//! made from the same values. All times in them are milliseconds.

mod html;
#[cfg(test)]
mod tests;
pub mod timeline;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use html::page;
pub use timeline::Timeline;

use super::measure::percentile;

/// Grows when a reader of an older report would misread a newer one.
pub const VERSION: u32 = 1;

/// A whole report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub version: u32,
    /// Program and version that made it.
    pub tool: String,
    /// The command as it was called.
    pub command: String,
    /// Wall clock when it began, milliseconds since 1970.
    pub begun_ms: u64,
    /// How long all of it took.
    pub took_ms: f64,
    pub target: Target,
    pub verdict: Verdict,
    pub drills: Vec<Drill>,
}

/// What was drilled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Target {
    /// One sentence.
    pub what: String,
    pub nodes: Vec<Place>,
    /// Sends of the probe in a second, over all nodes.
    pub rate: u32,
    /// What one attempt of the probe waits for its answer.
    pub probe_timeout_ms: f64,
    pub seed: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    pub name: String,
    pub address: String,
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It was checked, and it is so.
    Held,
    /// It was checked, and it is not so.
    Broken,
    /// It could not be checked; this is no success.
    Unjudged,
    /// It was not tried, because the machine cannot do it or it does not apply.
    Skipped,
}

impl Verdict {
    /// The verdict on several: broken if one is, else unjudged if one is, else held if one is.
    pub fn of(all: impl IntoIterator<Item = Verdict>) -> Verdict {
        let mut together = Verdict::Skipped;
        for one in all {
            together = match (together, one) {
                (Verdict::Broken, _) | (_, Verdict::Broken) => Verdict::Broken,
                (Verdict::Unjudged, _) | (_, Verdict::Unjudged) => Verdict::Unjudged,
                (Verdict::Held, _) | (_, Verdict::Held) => Verdict::Held,
                (Verdict::Skipped, Verdict::Skipped) => Verdict::Skipped,
            };
        }
        together
    }

    /// 0: held, 1: broken, 2: could not be judged (nothing was, when all was skipped).
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Held => 0,
            Verdict::Broken => 1,
            Verdict::Unjudged | Verdict::Skipped => 2,
        }
    }
}

/// One drill with all its repetitions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Drill {
    pub name: String,
    /// What was done, in one sentence.
    pub what: String,
    pub verdict: Verdict,
    /// Why it was skipped, or could not be judged.
    pub reason: Option<String>,
    pub promises: Vec<Promise>,
    /// Figures over all repetitions.
    pub figures: Vec<Figure>,
    pub runs: Vec<Run>,
    /// Answers to sends by code and beginning of the remark, other than acknowledgements.
    pub answers: Vec<Answer>,
    /// The probe and the ordinary clients together, as the checker counted them.
    pub totals: Totals,
    pub timeline: Timeline,
}

/// One promise and what became of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Promise {
    /// Short and fixed: `rpo`, `rto`, `refusals`, `duplicates`, `order`, `offsets`, `reads`, `rejoin`.
    pub id: String,
    /// The promise in words.
    pub text: String,
    pub verdict: Verdict,
    /// What was found, with figures.
    pub found: String,
}

/// One measured quantity over all repetitions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// Short and fixed, as the field of [`Run`].
    pub id: String,
    pub text: String,
    /// Repetitions that have it.
    pub n: usize,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    /// A goal that is no promise; missing it breaks nothing.
    pub goal: Option<Goal>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Goal {
    pub p99_ms: f64,
    pub met: bool,
}

/// One repetition.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    pub number: u32,
    /// On the timeline.
    pub from_ms: f64,
    pub to_ms: f64,
    /// Which nodes were hit, and what they were.
    pub hit: String,
    /// Start of the fault to the first acknowledged write that began after it.
    pub rto_write_ms: Option<f64>,
    /// First failed write to the first acknowledged one after it (OpenChaos' definition).
    pub rto_openchaos_ms: Option<f64>,
    /// As `rto_write_ms`, of reads of the newest state.
    pub rto_read_ms: Option<f64>,
    /// Loss of the majority to the first refusal of a write begun after it.
    pub refusal_ms: Option<f64>,
    /// Longest time without an acknowledged write.
    pub write_gap_ms: Option<f64>,
    /// Repair ordered to all nodes in the group again and level.
    pub rejoin_ms: Option<f64>,
    pub acknowledged: u64,
    pub refused: u64,
    pub refused_by_contract: u64,
    pub unreachable: u64,
    pub unknown: u64,
    /// What went wrong in this repetition.
    pub problem: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    pub code: i32,
    pub remark: String,
    pub count: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub acknowledged: u64,
    pub refused: u64,
    pub unknown: u64,
    /// Unknown ones that were found stored in the end.
    pub unknown_found: u64,
    /// Records read back from all nodes together.
    pub read_back: u64,
    /// Acknowledged consumer offset commits.
    pub commits: u64,
}

/// Why a report cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{path} cannot be written: {source}. Choose another place with --out")]
pub struct WriteError {
    path: PathBuf,
    source: std::io::Error,
}

impl Report {
    /// Writes `report.json` and `report.html` into `dir`, which is made.
    pub fn write(&self, dir: &Path) -> Result<(), WriteError> {
        let to = |path: PathBuf| move |source| WriteError { path, source };
        std::fs::create_dir_all(dir).map_err(to(dir.to_owned()))?;
        let json = dir.join("report.json");
        let text = serde_json::to_vec_pretty(self).map_err(std::io::Error::from);
        text.and_then(|text| std::fs::write(&json, text))
            .map_err(to(json.clone()))?;
        let html = dir.join("report.html");
        std::fs::write(&html, page(self)).map_err(to(html.clone()))
    }
}

/// The figure of one field over all runs that have it.
pub fn figure(
    id: &str,
    text: &str,
    runs: &[Run],
    field: impl Fn(&Run) -> Option<f64>,
    goal_p99_ms: Option<f64>,
) -> Option<Figure> {
    let micros: Vec<u64> = runs
        .iter()
        .filter_map(field)
        .map(|ms| (ms * 1000.0).round() as u64)
        .collect();
    let at = |percent| percentile(&micros, percent).map(|micros| micros as f64 / 1000.0);
    let p99_ms = at(99.0)?;
    Some(Figure {
        id: id.to_owned(),
        text: text.to_owned(),
        n: micros.len(),
        p50_ms: at(50.0)?,
        p99_ms,
        max_ms: at(100.0)?,
        goal: goal_p99_ms.map(|goal| Goal {
            p99_ms: goal,
            met: p99_ms <= goal,
        }),
    })
}

/// Nanoseconds as milliseconds, to the microsecond.
pub fn ms(nanos: u64) -> f64 {
    (nanos as f64 / 1000.0).round() / 1000.0
}

/// Answers sorted by how many there were.
pub fn answers(remarks: &BTreeMap<(i32, String), u64>) -> Vec<Answer> {
    let mut answers: Vec<Answer> = remarks
        .iter()
        .map(|((code, remark), count)| Answer {
            code: *code,
            remark: remark.clone(),
            count: *count,
        })
        .collect();
    answers.sort_by_key(|answer| std::cmp::Reverse(answer.count));
    answers
}
