//! What was watched, told as a report: one repetition for each hook, or for each outage when there were no hooks.

use super::{OUTAGE, Watch};
use crate::drill::discover::Found;
use crate::drill::measure;
use crate::drill::report::timeline::Timeline;
use crate::drill::report::{Drill, Promise, Run, Totals, Verdict, answers, figure, ms};
use crate::drill::tape::{Class, Measured, Sample};

/// Totals, the promises that the checker judged, and why it could not.
pub(super) type Judgement = (Totals, Vec<Promise>, Option<String>);

pub(super) fn report(
    what: &Watch,
    found: &Found,
    measured: &Measured,
    spans: &[usize],
    until: u64,
    (totals, mut promises, reason): Judgement,
) -> Drill {
    let names: Vec<String> = found.nodes.iter().map(|node| node.name.clone()).collect();
    let runs = runs(measured, spans, until);
    promises.insert(1.min(promises.len()), service(&runs));
    let mut verdict = Verdict::of(promises.iter().map(|promise| promise.verdict));
    if reason.is_some() && verdict != Verdict::Broken {
        verdict = Verdict::Unjudged;
    }
    let figures = [
        figure(
            "rto_write_ms",
            "Damage to the first acknowledged write",
            &runs,
            |run| run.rto_write_ms,
            None,
        ),
        figure(
            "write_gap_ms",
            "Longest time without an acknowledged write",
            &runs,
            |run| run.write_gap_ms,
            None,
        ),
        figure(
            "rto_openchaos_ms",
            "First failed write to the first good one (OpenChaos)",
            &runs,
            |run| run.rto_openchaos_ms,
            None,
        ),
        figure(
            "rto_read_ms",
            "Damage to the first answered read",
            &runs,
            |run| run.rto_read_ms,
            None,
        ),
    ];
    Drill {
        name: "watch".to_owned(),
        what: format!(
            "The group was probed while {}. A write counts as gone through when any node acknowledges it; nodes that \
             take none are shown as refusing.",
            match what.hooks.len() {
                0 => "somebody else did the damage".to_owned(),
                hooks => format!("{hooks} hooks ran"),
            }
        ),
        verdict,
        reason,
        promises,
        figures: figures.into_iter().flatten().collect(),
        answers: answers(&measured.remarks),
        totals,
        timeline: Timeline::build(measured, &names, 0, until),
        runs,
    }
}

/// One run for each hook; without hooks one for each time without an acknowledgement.
fn runs(measured: &Measured, spans: &[usize], until: u64) -> Vec<Run> {
    let damages: Vec<(u64, String)> = match spans {
        [] => measure::windows(&measured.writes, first(measured), until, OUTAGE)
            .into_iter()
            .map(|window| (window.start, "seen by the probe".to_owned()))
            .collect(),
        spans => spans
            .iter()
            .filter_map(|at| measured.spans.get(*at))
            .map(|span| (span.start, span.label.clone()))
            .collect(),
    };
    (1u32..)
        .zip(&damages)
        .map(|(number, (start, label))| {
            let end = damages
                .get(number as usize)
                .map_or(until, |(next, _)| *next);
            // A hook may take its time: service is away where the longest silence begins.
            let lost = measure::longest_window(&measured.writes, *start, end)
                .filter(|window| window.length() >= OUTAGE)
                .map(|window| window.start);
            let counts = measure::counts(&measured.writes, *start, end);
            Run {
                number,
                from_ms: ms(*start),
                to_ms: ms(end),
                hit: label.clone(),
                rto_write_ms: lost
                    .and_then(|lost| measure::recovery(&measured.writes, *start, lost))
                    .map(ms),
                rto_openchaos_ms: lost
                    .and_then(|lost| measure::first_failure_to_success(&measured.writes, lost, end))
                    .map(ms),
                rto_read_ms: lost
                    .and_then(|lost| measure::recovery(&measured.reads, *start, lost))
                    .map(ms),
                write_gap_ms: Some(ms(measure::longest_gap(&measured.writes, *start, end))),
                acknowledged: counts.acknowledged,
                refused: counts.refused,
                refused_by_contract: counts.refused_by_contract,
                unreachable: counts.unreachable,
                unknown: counts.unknown,
                ..Run::default()
            }
        })
        .collect()
}

/// When the first write was acknowledged.
fn first(measured: &Measured) -> u64 {
    let acknowledged = |sample: &&Sample| sample.class == Class::Ok;
    measured
        .writes
        .iter()
        .find(acknowledged)
        .map_or(0, |sample| sample.done)
}

/// Whether service was back after each damage. How long it may take is for the reader to judge.
fn service(runs: &[Run]) -> Promise {
    let longest = runs
        .iter()
        .filter_map(|run| run.write_gap_ms)
        .fold(0.0, f64::max);
    let away = |run: &&Run| {
        run.write_gap_ms
            .is_none_or(|gap| gap >= run.to_ms - run.from_ms)
    };
    let verdict = match runs.iter().filter(away).count() {
        0 => Verdict::Held,
        _ => Verdict::Broken,
    };
    Promise {
        id: "rto".to_owned(),
        text: "Writes came back after each damage".to_owned(),
        verdict,
        found: format!(
            "{} times; the longest time without an acknowledged write was {longest:.0} ms",
            runs.len()
        ),
    }
}
