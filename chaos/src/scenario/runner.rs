//! Runs one scenario: its directory, its place, the scenario itself, then heal, drain, check, and the verdict.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::context::Run;
use super::verdict::{Ends, Found, Record, Verdict, decide};
use super::{Coverage, Scenario, Stop, finish};
use crate::checker::{self, Invariant, Options};
use crate::history::{self, Event, FaultResult, HistoryError, Recorder, What};
use crate::rig::doctor::{Facility, Missing};
use crate::rig::{Placement, RigError, Site};
use crate::rng::Rng;

/// What placement in namespaces needs, on top of a scenario's own needs.
const FOR_NAMESPACES: [Facility; 2] = [Facility::Root, Facility::Namespaces];

/// Words of the checker for a send that its client did not end in time.
const NO_END: &str = "had no end within";

/// Why a run could not even be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("there is no scenario {name}; `chaos list` names them")]
    NoScenario { name: String },
    #[error("{path}: {source}")]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error(transparent)]
    Rig(#[from] RigError),
}

/// Which scenarios may be skipped for want of a facility.
#[derive(Clone, Debug, Default)]
pub struct Skips {
    /// These may not.
    pub must_run: Vec<String>,
    /// Only these may, when given.
    pub allowed: Option<Vec<String>>,
}

impl Skips {
    /// Whether the scenario may be skipped.
    pub fn allow(&self, scenario: &str) -> bool {
        let listed = |names: &[String]| names.iter().any(|name| name == scenario);
        !listed(&self.must_run) && self.allowed.as_deref().is_none_or(listed)
    }
}

/// Runs scenarios against one server program.
pub struct Runner {
    pub server: PathBuf,
    /// Each run makes a directory below this.
    pub out: PathBuf,
    pub skips: Skips,
    facilities: BTreeMap<Facility, Result<(), Missing>>,
}

/// What one run left behind for the verdict.
struct Left {
    ends: Ends,
    findings: Vec<String>,
    late: Vec<String>,
    stall: Duration,
    figures: BTreeMap<String, Vec<f64>>,
    options: Options,
}

impl Runner {
    pub fn new(server: PathBuf, out: PathBuf, skips: Skips) -> Runner {
        Runner {
            server,
            out,
            skips,
            facilities: BTreeMap::new(),
        }
    }

    /// Runs a scenario once and writes `result.json`.
    pub fn run(&mut self, scenario: &Scenario, seed: u64) -> Result<Record, RunError> {
        let begun = Instant::now();
        let dir = self.out.join(format!("{}-{seed}", scenario.name));
        remake(&dir)?;
        write_json(&dir.join("plan.json"), &plan(scenario, seed, &self.server))?;
        let mut record = match self.missing(scenario) {
            Some(why) => skipped(scenario, seed, &dir, why),
            None => run_once(scenario, seed, &dir, &self.server)?,
        };
        if record.verdict == Verdict::Skipped && !self.skips.allow(scenario.name) {
            record.verdict = Verdict::Invalid;
            record.reason = format!("may not be skipped: {}", record.reason);
        }
        record.seconds = begun.elapsed().as_secs_f64();
        write_json(&dir.join("result.json"), &json!(record))?;
        Ok(record)
    }

    /// What the machine lacks for a scenario.
    fn missing(&mut self, scenario: &Scenario) -> Option<String> {
        let for_placement = match scenario.placement {
            Placement::Loopback => &[][..],
            Placement::Namespaces => &FOR_NAMESPACES,
        };
        for facility in for_placement.iter().chain(scenario.needs) {
            let probed = self
                .facilities
                .entry(*facility)
                .or_insert_with(|| facility.probe());
            if let Err(missing) = probed {
                let name = facility.name();
                return Some(format!("no {name}: {} ({})", missing.why, missing.remedy));
            }
        }
        None
    }
}

fn run_once(scenario: &Scenario, seed: u64, dir: &Path, server: &Path) -> Result<Record, RunError> {
    let recorder = Arc::new(Recorder::create(&dir.join("history.jsonl"))?);
    let site = Arc::new(Site::create(scenario.placement, scenario.nodes)?);
    let left = site.block_on(async || {
        let mut run = Run::new(seed, dir, server, &site, &recorder);
        run_and_finish(scenario, &mut run).await
    })?;
    let events = recorder.events()?;
    Ok(judge(scenario, seed, dir, left, &events))
}

async fn run_and_finish(scenario: &Scenario, run: &mut Run) -> Left {
    let stop = (scenario.run)(run).await.err();
    let skipped = matches!(stop, Some(Stop::Skip(_)));
    let after = match run.rig.is_some() && !skipped {
        true => finish::finish(run).await,
        false => Vec::new(),
    };
    Left {
        ends: Ends { stop, after },
        findings: std::mem::take(&mut run.findings),
        late: std::mem::take(&mut run.late),
        stall: run.stall,
        figures: std::mem::take(&mut run.figures),
        options: run.options,
    }
}

fn judge(scenario: &Scenario, seed: u64, dir: &Path, left: Left, events: &[Event]) -> Record {
    let report = checker::check(events, &left.options);
    let coverage = Coverage::of(events, &report);
    let mut found = Found {
        violations: left.findings,
        late: left.late,
        stall: left.stall,
        lacks: scenario.floor.lacks(&coverage),
    };
    for each in &report.violations {
        let text = format!("{}: {}", each.invariant, each.evidence);
        match each.invariant == Invariant::Refusal && each.evidence.contains(NO_END) {
            true => found.late.push(text),
            false => found.violations.push(text),
        }
    }
    let (verdict, reason) = decide(&left.ends, &mut found);
    let violations = found.violations;
    Record {
        scenario: scenario.name.to_owned(),
        rows: owned(scenario.rows),
        seed,
        verdict,
        reason,
        violations,
        coverage,
        rto_ms: recoveries(events),
        figures: left.figures,
        seconds: 0.0,
        dir: dir.to_owned(),
    }
}

/// Recovery after each fault, by its name, milliseconds. A fault after which nothing was acknowledged has none.
fn recoveries(events: &[Event]) -> BTreeMap<String, Vec<u64>> {
    let mut recoveries: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (at, event) in events.iter().enumerate() {
        if let What::Start {
            fault,
            result: FaultResult::Installed,
            ..
        } = &event.what
            && let Some(ns) = history::recovery_ns(&events[at..], event.t)
        {
            let times = recoveries.entry(fault.clone()).or_default();
            times.push(ns / 1_000_000);
        }
    }
    recoveries
}

fn skipped(scenario: &Scenario, seed: u64, dir: &Path, why: String) -> Record {
    Record {
        scenario: scenario.name.to_owned(),
        rows: owned(scenario.rows),
        seed,
        verdict: Verdict::Skipped,
        reason: why,
        violations: Vec::new(),
        coverage: Coverage::default(),
        rto_ms: BTreeMap::new(),
        figures: BTreeMap::new(),
        seconds: 0.0,
        dir: dir.to_owned(),
    }
}

fn plan(scenario: &Scenario, seed: u64, server: &Path) -> serde_json::Value {
    json!({
        "scenario": scenario.name, "rows": scenario.rows, "property": scenario.about,
        "seed": seed, "nodes": scenario.nodes, "server": server,
        "repeat": format!("chaos run {} --seed {seed}", scenario.name),
    })
}

fn owned(rows: &[&str]) -> Vec<String> {
    rows.iter().map(|row| (*row).to_owned()).collect()
}

/// An empty directory: what an earlier run of the same seed left goes.
fn remake(dir: &Path) -> Result<(), RunError> {
    let io = |source| RunError::Io {
        path: dir.to_owned(),
        source,
    };
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
        _ => {}
    }
    std::fs::create_dir_all(dir).map_err(io)
}

fn write_json(path: &Path, value: &serde_json::Value) -> Result<(), RunError> {
    std::fs::write(path, format!("{value:#}\n")).map_err(|source| RunError::Io {
        path: path.to_owned(),
        source,
    })
}

impl Run {
    fn new(
        seed: u64,
        dir: &Path,
        server: &Path,
        site: &Arc<Site>,
        recorder: &Arc<Recorder>,
    ) -> Run {
        Run {
            seed,
            rng: Rng::new(seed),
            dir: dir.to_owned(),
            server: server.to_owned(),
            site: Arc::clone(site),
            recorder: Arc::clone(recorder),
            options: Options::default(),
            panics_expected: false,
            rig: None,
            loads: Vec::new(),
            loads_made: 0,
            reading: None,
            committing: None,
            observer: None,
            undo: Vec::new(),
            kept: Vec::new(),
            pulse: None,
            stall: Duration::ZERO,
            findings: Vec::new(),
            late: Vec::new(),
            figures: BTreeMap::new(),
            fds_at_start: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_are_pinned_by_either_list() {
        let names = |names: &[&str]| owned(names);
        let none = Skips::default();
        assert!(none.allow("a"));
        let must = Skips {
            must_run: names(&["a"]),
            allowed: None,
        };
        assert!(!must.allow("a") && must.allow("b"));
        let only = Skips {
            must_run: names(&["a"]),
            allowed: Some(names(&["a", "b"])),
        };
        assert!(!only.allow("a") && only.allow("b") && !only.allow("c"));
    }
}
