//! `quorumlog drill` as an operator calls it. Properties: a drill on a throw-away group ends with a report whose figures
//! are there and whose safety promises were judged; a given group is not touched without consent.

use std::path::Path;
use std::process::{Command, Output};

use quorumlog_chaos::drill::report::{Drill, Report, Verdict};

/// Runs a drill on loopback, whoever runs the test, and gives its report.
fn drill(words: &[&str], out: &Path) -> (Output, Report) {
    let output = Command::new(env!("CARGO_BIN_EXE_quorumlog"))
        .arg("drill")
        .args(words)
        .args(["--loopback", "--seed", "7", "--out"])
        .arg(out)
        .output()
        .expect("the program");
    let json = std::fs::read(out.join("report.json"))
        .unwrap_or_else(|error| panic!("no report: {error}\n{}", text(&output)));
    let report = serde_json::from_slice(&json).expect("a report");
    (output, report)
}

fn text(output: &Output) -> String {
    let (out, error) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(error)
    )
}

/// What is promised whatever the machine's speed. How long writes may be away is judged on a machine of one's own.
fn safety_held(drill: &Drill, output: &Output) {
    for promise in drill.promises.iter().filter(|promise| promise.id != "rto") {
        assert_eq!(
            promise.verdict,
            Verdict::Held,
            "{promise:?}\n{}",
            text(output)
        );
    }
}

#[test]
fn a_drill_of_killed_leaders_reports_its_downtime_and_that_nothing_is_lost() {
    let out = tempfile::tempdir().expect("a directory");
    let (output, report) = drill(&["leader-kill", "--repeat", "2"], out.path());
    let drill = &report.drills[0];
    safety_held(drill, &output);
    assert_eq!(drill.runs.len(), 2, "{}", text(&output));
    for run in &drill.runs {
        let rto = run.rto_write_ms.expect("a first write");
        assert!(run.write_gap_ms.expect("a gap") <= run.to_ms - run.from_ms);
        assert!(rto > 1.0 && run.acknowledged > 0, "{run:?}");
    }
    assert!(drill.totals.acknowledged > 0 && drill.totals.commits > 0);
    let terms = drill.timeline.nodes.iter().flat_map(|node| &node.roles);
    let highest = terms
        .filter(|span| span.role == "leader")
        .map(|span| span.term)
        .max();
    assert!(
        highest >= Some(3),
        "two kills make two new leaders: {highest:?}"
    );
    let code = output.status.code().expect("an exit code");
    assert_eq!(
        code,
        i32::from(report.verdict.exit_code()),
        "{}",
        text(&output)
    );
    let html = std::fs::read_to_string(out.path().join("report.html")).expect("a page");
    assert!(html.contains("leader-kill"));
}

#[test]
fn a_drill_of_a_lost_majority_sees_every_write_refused_by_the_contract() {
    let out = tempfile::tempdir().expect("a directory");
    let (output, report) = drill(&["majority-loss", "--repeat", "1"], out.path());
    let drill = &report.drills[0];
    safety_held(drill, &output);
    let run = &drill.runs[0];
    assert!(
        run.refused > 20 && run.refused == run.refused_by_contract,
        "{run:?}"
    );
    assert!(run.refusal_ms.is_some(), "{run:?}");
}

#[test]
fn a_given_group_is_told_the_plan_and_not_touched_without_consent() {
    let dir = tempfile::tempdir().expect("a directory");
    let touched = dir.path().join("touched");
    let file = dir.path().join("group.conf");
    let lines: String = (0..3)
        .map(|at| {
            let touch = format!("touch {}", touched.display());
            format!("n{at}.address = 127.0.0.1:1\nn{at}.kill = {touch}\nn{at}.start = {touch}\n")
        })
        .collect();
    std::fs::write(&file, lines).expect("a file");
    let output = Command::new(env!("CARGO_BIN_EXE_quorumlog"))
        .args(["drill", "leader-kill", "--out"])
        .arg(dir.path().join("out"))
        .arg("--on")
        .arg(&file)
        .output()
        .expect("the program");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(
        text(&output).contains("kill of n2 may run: touch"),
        "{}",
        text(&output)
    );
    assert!(!touched.exists(), "a command was run without consent");
}
