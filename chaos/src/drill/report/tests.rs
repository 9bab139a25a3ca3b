use std::collections::BTreeMap;

use super::*;
use crate::drill::tape::{Class, Measured, Role, RoleChange, Sample, Span};

/// One second of three nodes: acknowledged, but for a fault from 300 to 500 ms.
fn measured() -> Measured {
    let mut measured = Measured::default();
    for seq in 0..300u64 {
        let invoke = seq * 3_333_333;
        let class = match invoke / 1_000_000 {
            300..400 => Class::Unknown,
            400..500 => Class::Refused,
            _ => Class::Ok,
        };
        measured.writes.push(Sample {
            seq,
            node: (seq % 3) as u8,
            class,
            code: i32::from(class == Class::Refused),
            words: class == Class::Refused,
            invoke,
            done: invoke + 1_000_000,
        });
    }
    measured.roles.push(RoleChange {
        at: 0,
        node: 1,
        role: Role::Leader,
        term: 3,
    });
    measured.roles.push(RoleChange {
        at: 400_000_000,
        node: 1,
        role: Role::Silent,
        term: 3,
    });
    measured.spans.push(Span {
        label: "kill n1 <b>&\"".to_owned(),
        nodes: vec![1],
        start: 300_000_000,
        effective: 301_000_000,
        end: Some(700_000_000),
    });
    measured
}

fn report() -> Report {
    let names = ["n0", "n1", "n2"].map(str::to_owned);
    let runs = vec![Run {
        number: 1,
        to_ms: 1000.0,
        hit: "n1 (leader) </script><script>alert(1)</script>".to_owned(),
        rto_write_ms: Some(201.0),
        ..Run::default()
    }];
    Report {
        version: VERSION,
        tool: "quorumlog 0".to_owned(),
        command: "quorumlog drill leader-kill".to_owned(),
        begun_ms: 1_700_000_000_000,
        took_ms: 1000.0,
        target: Target {
            what: "a group".to_owned(),
            nodes: Vec::new(),
            rate: 300,
            probe_timeout_ms: 50.0,
            seed: 1,
        },
        verdict: Verdict::Held,
        drills: vec![Drill {
            name: "leader-kill".to_owned(),
            what: "The leader is killed.".to_owned(),
            verdict: Verdict::Held,
            reason: None,
            promises: Vec::new(),
            figures: figure(
                "rto_write_ms",
                "RTO",
                &runs,
                |run| run.rto_write_ms,
                Some(700.0),
            )
            .into_iter()
            .collect(),
            answers: answers(&BTreeMap::from([((1, "{{DATA}}".to_owned()), 3)])),
            totals: Totals::default(),
            timeline: Timeline::build(&measured(), &names, 0, 1_000_000_000),
            runs,
        }],
    }
}

#[test]
fn the_timeline_counts_every_attempt_once() {
    let names = ["n0", "n1", "n2"].map(str::to_owned);
    let timeline = Timeline::build(&measured(), &names, 0, 1_001_000_000);
    let sum = |of: &[u32]| of.iter().sum::<u32>();
    assert_eq!(
        sum(&timeline.acks) + sum(&timeline.refusals) + sum(&timeline.unknowns),
        300
    );
    assert_eq!(sum(&timeline.refusals), 30);
    assert_eq!(timeline.bucket_ms, 20);
    assert_eq!(timeline.acks.len(), timeline.nodes[2].answers.len());
    assert_eq!(timeline.faults[0].nodes, ["n1"]);
    let roles: Vec<&str> = timeline.nodes[1]
        .roles
        .iter()
        .map(|span| span.role.as_str())
        .collect();
    assert_eq!(roles, ["leader", "silent"]);
    let gap = timeline.gaps[0];
    // The last one before the fault arrives at 301 ms, the first one after it at 504.3 ms.
    assert_eq!((gap.from_ms.round(), gap.to_ms.round()), (301.0, 504.0));
}

#[test]
fn a_long_timeline_has_wider_buckets_and_not_more_of_them() {
    let hour = 3_600_000_000_000;
    let timeline = Timeline::build(&measured(), &[], 0, hour);
    assert!(timeline.acks.len() <= 15_001, "{}", timeline.acks.len());
    assert_eq!(timeline.bucket_ms, 500);
}

#[test]
fn verdicts_add_up_to_the_worst_that_was_tried() {
    use Verdict::{Broken, Held, Skipped, Unjudged};
    for (all, expected) in [
        (vec![], Skipped),
        (vec![Held, Skipped], Held),
        (vec![Held, Unjudged], Unjudged),
        (vec![Unjudged, Broken, Held], Broken),
    ] {
        assert_eq!(Verdict::of(all.clone()), expected, "{all:?}");
    }
    assert_eq!(
        [Held, Broken, Unjudged, Skipped].map(Verdict::exit_code),
        [0, 1, 2, 2]
    );
}

#[test]
fn a_figure_has_percentiles_and_says_whether_the_goal_is_met() {
    let runs: Vec<Run> = (1..=100u32)
        .map(|number| Run {
            rto_write_ms: (number > 1).then(|| f64::from(number)),
            ..Run::default()
        })
        .collect();
    let found = figure("x", "x", &runs, |run| run.rto_write_ms, Some(98.5)).unwrap();
    assert_eq!(
        (found.n, found.p50_ms, found.p99_ms, found.max_ms),
        (99, 51.0, 100.0, 100.0)
    );
    assert!(!found.goal.unwrap().met);
    assert!(figure("x", "x", &runs, |run| run.refusal_ms, None).is_none());
}

#[test]
fn the_json_is_read_back_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    report().write(dir.path()).unwrap();
    let text = std::fs::read_to_string(dir.path().join("report.json")).unwrap();
    let read: Report = serde_json::from_str(&text).unwrap();
    assert_eq!(read.version, VERSION);
    assert_eq!(
        read.drills[0].timeline.acks,
        report().drills[0].timeline.acks
    );
}

#[test]
fn the_page_needs_nothing_but_itself() {
    let page = page(&report());
    for outside in ["http://", "https://", "//cdn", "@import", "url(", "src="] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn the_page_is_well_formed_whatever_texts_it_shows() {
    let page = page(&report());
    let mut open = Vec::new();
    let mut rest = page.as_str();
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find('>').expect("a tag that ends");
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        if tag.starts_with('!') || tag.ends_with('/') {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
            continue;
        }
        let name = tag.split_whitespace().next().expect("a name").to_owned();
        // What is in these is text up to their end.
        if matches!(name.as_str(), "script" | "style") {
            let close = format!("</{name}>");
            let len = rest.find(&close).expect("an end");
            rest = &rest[len + close.len()..];
            continue;
        }
        open.push(name);
    }
    assert_eq!(open, Vec::<String>::new());
}

#[test]
fn the_pages_data_is_the_report() {
    let page = page(&report());
    let (_, data) = page.split_once(r#"id="data">"#).unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    let read: Report = serde_json::from_str(data).unwrap();
    assert!(read.drills[0].runs[0].hit.ends_with("</script>"));
    assert_eq!(read.drills[0].answers[0].remark, "{{DATA}}");
}
