//! Runs a drill as often as asked for, and makes its part of the report.

use std::time::Duration;

use super::group::Group;
use super::kind::Kind;
use super::measure::{self, Counts};
use super::report::timeline::Timeline;
use super::report::{Drill, Figure, Promise, Run, Verdict, answers, figure, ms};
use super::scene::{DrillError, Scene, Settings};
use super::scripts::{self, Done};
use super::tape::Measured;
use crate::rng::Rng;

/// Before each repetition, so that the report shows what is usual.
const BASELINE: Duration = Duration::from_millis(300);
/// Up to so many milliseconds more, by the seed: faults hit heartbeats at any point.
const JITTER_MS: usize = 200;

/// The group is given back, for the next drill.
pub struct Drilled {
    pub drill: Drill,
    pub group: Group,
    /// The group is whole: another drill may follow.
    pub whole: bool,
}

/// Runs one drill. `progress` is told every repetition.
pub async fn drill(
    kind: Kind,
    group: Group,
    settings: &Settings,
    mut progress: impl FnMut(&Run),
) -> Drilled {
    if let Some(reason) = group.lacks(kind) {
        return Drilled {
            drill: skipped(kind, reason),
            group,
            whole: true,
        };
    }
    let mut scene = Scene::new(group, kind.name(), settings);
    let mut runs = Vec::new();
    let outcome = repeat(kind, &mut scene, &mut runs, &mut progress).await;
    let whole = outcome.is_ok() && runs.iter().all(|run| run.problem.is_none());
    let reason = outcome.err().map(|error| error.to_string());
    Drilled {
        drill: report(kind, &scene, runs, reason),
        group: scene.group,
        whole,
    }
}

/// A drill that was not tried.
pub fn skipped(kind: Kind, reason: String) -> Drill {
    Drill {
        name: kind.name().to_owned(),
        what: kind.what().to_owned(),
        verdict: Verdict::Skipped,
        reason: Some(reason),
        promises: Vec::new(),
        figures: Vec::new(),
        runs: Vec::new(),
        answers: Vec::new(),
        totals: Default::default(),
        timeline: Timeline::default(),
    }
}

async fn repeat(
    kind: Kind,
    scene: &mut Scene,
    runs: &mut Vec<Run>,
    progress: &mut impl FnMut(&Run),
) -> Result<(), DrillError> {
    let mut rng = Rng::new(scene.settings.seed);
    for number in 1..=scene.settings.repeat.max(1) {
        scene.ready().await?;
        let from = scene.tape.now();
        let jitter = Duration::from_millis(rng.below(JITTER_MS) as u64);
        tokio::time::sleep(BASELINE + jitter).await;
        let done = scripts::run(kind, scene).await?;
        let to = scene.tape.now();
        let run = scene
            .tape
            .look(|measured| figures(kind, number, (from, to), &done, measured));
        let broken = run.problem.is_some();
        progress(&run);
        runs.push(run);
        if broken {
            break;
        }
    }
    scene.finish().await
}

/// The figures of one repetition.
fn figures(
    kind: Kind,
    number: u32,
    (from, to): (u64, u64),
    done: &Done,
    measured: &Measured,
) -> Run {
    let writes = since(&measured.writes, from);
    let reads = since(&measured.reads, from);
    let Counts {
        acknowledged,
        refused,
        refused_by_contract,
        unreachable,
        unknown,
    } = match done.lost {
        Some((lost, until)) => measure::counts(writes, lost.effective, until),
        None => measure::counts(writes, done.begun, to),
    };
    // Elsewhere the first failed attempt is one at a node whose loss costs nothing.
    let whole_outage = matches!(
        kind,
        Kind::LeaderKill | Kind::LeaderPause | Kind::LeaderIsolate | Kind::PowerCut
    );
    let recovery = |samples| {
        let from = done.recovers?;
        measure::recovery(samples, from.start, from.effective).map(ms)
    };
    Run {
        number,
        from_ms: ms(from),
        to_ms: ms(to),
        hit: done.hit.clone(),
        rto_write_ms: recovery(writes),
        rto_openchaos_ms: whole_outage
            .then(|| measure::first_failure_to_success(writes, done.begun, to).map(ms))
            .flatten(),
        rto_read_ms: recovery(reads),
        refusal_ms: done.lost.and_then(|(lost, _)| {
            measure::time_to_refusal(writes, lost.start, lost.effective).map(ms)
        }),
        write_gap_ms: Some(ms(measure::longest_gap(writes, done.begun, to))),
        rejoin_ms: done.rejoin.map(ms),
        acknowledged,
        refused,
        refused_by_contract,
        unreachable,
        unknown,
        problem: done.problem.clone(),
    }
}

/// The samples that ended at `from` or later; they are in the order of their ends.
fn since(samples: &[super::tape::Sample], from: u64) -> &[super::tape::Sample] {
    &samples[samples.partition_point(|sample| sample.done < from)..]
}

fn report(kind: Kind, scene: &Scene, runs: Vec<Run>, reason: Option<String>) -> Drill {
    let promises = promises(kind, scene, &runs);
    let mut verdict = Verdict::of(promises.iter().map(|promise| promise.verdict));
    if reason.is_some() && verdict != Verdict::Broken {
        verdict = Verdict::Unjudged;
    }
    let names = scene.group.names();
    scene.tape.look(|measured| Drill {
        name: kind.name().to_owned(),
        what: kind.what().to_owned(),
        verdict,
        reason: reason.clone(),
        promises: promises.clone(),
        figures: all_figures(kind, &runs),
        answers: answers(&measured.remarks),
        totals: scene.judged.totals,
        timeline: Timeline::build(measured, &names, 0, end_of(&runs)),
        runs: runs.clone(),
    })
}

fn end_of(runs: &[Run]) -> u64 {
    let last = runs.last().map_or(0.0, |run| run.to_ms);
    (last * 1e6) as u64
}

/// The quantities that mean something in a drill, over all repetitions.
fn all_figures(kind: Kind, runs: &[Run]) -> Vec<Figure> {
    let goal = kind.recovery_goal_ms();
    let gap_counts = matches!(
        kind,
        Kind::Transfer | Kind::RollingRestart | Kind::SlowDisk | Kind::FollowerLag
    );
    let write = match kind {
        Kind::MajorityLoss | Kind::PowerCut | Kind::DiskFull => {
            "Nodes or room given back to the first acknowledged write"
        }
        _ => "Fault to the first acknowledged write (RTO)",
    };
    [
        figure(
            "rto_write_ms",
            write,
            runs,
            |run| run.rto_write_ms,
            goal.filter(|_| !gap_counts),
        ),
        figure(
            "refusal_ms",
            "Loss of the majority to the first refusal",
            runs,
            |run| run.refusal_ms,
            Some(REFUSAL_GOAL_MS),
        ),
        figure(
            "write_gap_ms",
            "Longest time without an acknowledged write",
            runs,
            |run| run.write_gap_ms,
            goal.filter(|_| gap_counts),
        ),
        figure(
            "rto_openchaos_ms",
            "First failed write to the first good one (OpenChaos)",
            runs,
            |run| run.rto_openchaos_ms,
            None,
        ),
        figure(
            "rto_read_ms",
            "Fault to the first read of the newest state",
            runs,
            |run| run.rto_read_ms,
            None,
        ),
        figure(
            "rejoin_ms",
            "Repair to all nodes level again",
            runs,
            |run| run.rejoin_ms,
            None,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The lease, and 100 ms.
const REFUSAL_GOAL_MS: f64 = 400.0;

fn promises(kind: Kind, scene: &Scene, runs: &[Run]) -> Vec<Promise> {
    let mut promises = scene.judged.promises(|_| true);
    promises.insert(1.min(promises.len()), service(kind, runs));
    if kind == Kind::MajorityLoss {
        promises.insert(2.min(promises.len()), refusals_by_contract(runs));
    }
    promises
}

/// Writes come back in time, and every node does.
fn service(kind: Kind, runs: &[Run]) -> Promise {
    let within = kind.recovers_within_ms();
    let longest =
        |field: fn(&Run) -> Option<f64>| runs.iter().filter_map(field).fold(0.0, f64::max);
    let away = match kind {
        Kind::Transfer | Kind::RollingRestart | Kind::SlowDisk | Kind::FollowerLag => {
            longest(|run| run.write_gap_ms)
        }
        _ => longest(|run| run.rto_write_ms),
    };
    let problem = runs.iter().find_map(|run| run.problem.as_ref());
    let verdict = match problem {
        _ if runs.is_empty() => Verdict::Unjudged,
        Some(_) => Verdict::Broken,
        None if away > within => Verdict::Broken,
        None => Verdict::Held,
    };
    let found = match problem {
        Some(problem) => problem.clone(),
        None => format!(
            "{} of {} repetitions; the longest took {away:.0} ms, and every node came back",
            runs.len(),
            runs.len()
        ),
    };
    Promise {
        id: "rto".to_owned(),
        text: format!(
            "Writes go on within {:.0} s, and every node comes back",
            within / 1000.0
        ),
        verdict,
        found,
    }
}

/// Without a majority every refusal says `in-sync replicas not enough`, and nothing is acknowledged for long.
fn refusals_by_contract(runs: &[Run]) -> Promise {
    let refused: u64 = runs.iter().map(|run| run.refused).sum();
    let right: u64 = runs.iter().map(|run| run.refused_by_contract).sum();
    let none = runs.iter().filter(|run| run.refused == 0).count();
    let verdict = match (runs.is_empty(), none, refused == right) {
        (true, _, _) => Verdict::Unjudged,
        (false, 0, true) => Verdict::Held,
        _ => Verdict::Broken,
    };
    Promise {
        id: "in_sync".to_owned(),
        text: "Without a majority every write is refused with IN_SYNC_REPLICAS_NOT_ENOUGH (code 1)"
            .to_owned(),
        verdict,
        found: format!(
            "{right} of {refused} refusals carry the code and the words; {none} repetitions without a refusal"
        ),
    }
}
