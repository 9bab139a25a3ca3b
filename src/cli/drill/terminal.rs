//! Reports as lines on a terminal.

use std::fmt::Write as _;

use quorumlog_chaos::drill::report::{Drill, Report, Run, Verdict};

use crate::cli::table;

/// A verdict in one word.
fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Held => "held",
        Verdict::Broken => "BROKEN",
        Verdict::Unjudged => "NOT JUDGED",
        Verdict::Skipped => "SKIP",
    }
}

/// One repetition.
pub(super) fn run_line(run: &Run, of: u32) -> String {
    let mut line = format!("{}/{of}  {}", run.number, run.hit);
    for (name, value) in [
        ("first refusal after", run.refusal_ms),
        ("first write after", run.rto_write_ms),
        ("longest gap", run.write_gap_ms),
        ("level again after", run.rejoin_ms),
    ] {
        if let Some(value) = value {
            // Writing to a text cannot fail.
            let _ = write!(line, ", {name} {}", time(value));
        }
    }
    if let Some(problem) = &run.problem {
        let _ = write!(line, ", BROKEN: {problem}");
    }
    line
}

/// What one drill found.
pub(super) fn drill_lines(drill: &Drill) -> String {
    let mut text = format!("  {}", word(drill.verdict));
    if let Some(reason) = &drill.reason {
        let _ = write!(text, ": {reason}");
    }
    if drill.verdict == Verdict::Held {
        let lost = drill.promises.iter().find(|promise| promise.id == "rpo");
        let found = lost.map_or("", |promise| promise.found.as_str());
        let _ = write!(text, ": {} promises. {found}", drill.promises.len());
        return text;
    }
    for promise in &drill.promises {
        let name = word(promise.verdict);
        let _ = write!(text, "\n    {name:10}  {}: {}", promise.text, promise.found);
    }
    text
}

/// The table at the end.
pub(super) fn summary(report: &Report) -> String {
    let mut rows = Vec::new();
    for drill in &report.drills {
        let figures = drill.figures.iter().filter(|figure| {
            figure.goal.is_some() || matches!(figure.id.as_str(), "rto_write_ms" | "write_gap_ms")
        });
        let mut name = drill.name.clone();
        let mut verdict = word(drill.verdict).to_owned();
        let mut any = false;
        for figure in figures {
            any = true;
            let goal = figure.goal.as_ref().map_or(String::new(), |goal| {
                let met = if goal.met { "met" } else { "missed" };
                format!("p99 <= {}: {met}", time(goal.p99_ms))
            });
            rows.push(vec![
                std::mem::take(&mut name),
                std::mem::take(&mut verdict),
                figure.text.clone(),
                figure.n.to_string(),
                time(figure.p50_ms),
                time(figure.p99_ms),
                time(figure.max_ms),
                goal,
            ]);
        }
        if !any {
            rows.push(vec![
                name,
                verdict,
                brief(drill.reason.as_deref().unwrap_or_default()),
            ]);
        }
    }
    let heading = [
        "DRILL", "PROMISES", "MEASURED", "N", "P50", "P99", "MAX", "GOAL",
    ];
    format!(
        "\n{}\nall together: {}",
        table::render(&heading, &rows),
        word(report.verdict)
    )
}

/// The beginning of a text, for a table.
fn brief(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(70).collect()
}

/// Milliseconds with a unit that suits them.
fn time(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 10_000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_and_no_more_digits_than_mean_something() {
        for (ms, text) in [
            (0.25, "0.2 ms"),
            (9.94, "9.9 ms"),
            (412.4, "412 ms"),
            (12_345.0, "12.3 s"),
        ] {
            assert_eq!(time(ms), text);
        }
    }

    #[test]
    fn a_repetition_tells_what_it_measured_and_what_went_wrong() {
        let run = Run {
            number: 2,
            hit: "n1 (leader)".to_owned(),
            rto_write_ms: Some(412.0),
            problem: Some("n1 does not come back".to_owned()),
            ..Run::default()
        };
        assert_eq!(
            run_line(&run, 5),
            "2/5  n1 (leader), first write after 412 ms, BROKEN: n1 does not come back"
        );
    }
}
