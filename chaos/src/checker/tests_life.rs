//! The checker's own tests of recovery, progress, bounds and coverage.

use std::time::Duration;

use super::sample_group::{NODES, good};
use super::tests_group::*;
use super::*;
use crate::history::{FaultResult, KEPT, MAJORITY, QUORUM_LOSS, Reply, What};

#[test]
fn a_group_that_does_not_get_level_after_healing_is_caught() {
    let mut events = without_dumps(good(16, STEPS));
    let heal = healing(&events);
    for event in &mut events[heal..] {
        if let What::Obs { node, table } = &mut event.what
            && node == NODES[2]
        {
            // It follows nobody.
            set(table, "raftLeader", "");
        }
    }
    caught_alone(&events, &options(), Invariant::Recovers);
}

#[test]
fn a_healed_group_that_acknowledges_nothing_is_caught() {
    let mut events = good(17, STEPS);
    let heal = healing(&events);
    let healed = events[heal].t;
    let mut late = Vec::new();
    for event in &events {
        if event.t > healed && matches!(&event.what, What::Ok(Reply::Send { .. })) {
            late.push(event.op);
        }
    }
    assert!(!late.is_empty());
    for event in &mut events {
        if late.contains(&event.op) && matches!(event.what, What::Ok(_)) {
            let why = "timeout".to_owned();
            event.what = What::Info { code: None, why };
        }
    }
    caught_alone(&events, &options(), Invariant::Recovers);
}

#[test]
fn a_history_that_ends_before_the_group_is_level_is_invalid() {
    let mut events = good(18, STEPS);
    let heal = healing(&events);
    events.truncate(heal + 1);
    let mut report = check(&events, &options());
    // Without drains the acknowledged messages are unproven, which is another matter.
    report.counts.clear();
    let Verdict::Invalid(why) = report.verdict() else {
        panic!("{report}");
    };
    assert!(why[0].contains("the history ends"), "{why:?}");
}

#[test]
fn a_fault_with_a_majority_that_stops_writing_is_caught() {
    let mut events = good(19, STEPS);
    let end = events.last().unwrap().t;
    let kept = [(MAJORITY, KEPT)];
    let begin = note(end, start("pause", &kept, FaultResult::Installed));
    let ended = note(
        end + 60_000 * MS,
        What::End {
            fault: "pause".to_owned(),
        },
    );
    events.extend([begin, ended]);
    caught_alone(&events, &options(), Invariant::GoesOn);
    let allowed = Options {
        takeover: Duration::from_secs(59),
        ..options()
    };
    assert!(
        check(&events, &allowed).is_green(),
        "too short a rest to judge"
    );
    // The same, when the faults together cost the majority, or the fault was never there.
    let at = events.len() - 1;
    let mut together = events.clone();
    together.insert(
        at,
        note(end + 1, start(QUORUM_LOSS, &[], FaultResult::Installed)),
    );
    assert!(check(&together, &options()).is_green());
    let skipped = start("pause", &kept, FaultResult::Skipped);
    events[at - 1] = note(end, skipped);
    assert!(check(&events, &options()).is_green());
}

#[test]
fn a_process_that_ends_or_panics_by_itself_is_caught() {
    let mut events = good(20, STEPS);
    let last = events.len() - 1;
    let exit = What::Exit {
        node: NODES[1].to_owned(),
        status: "exit status: 101".to_owned(),
        expected: false,
    };
    events.insert(last, note(events[last].t, exit));
    caught_alone(&events, &options(), Invariant::Bounded);

    let mut events = good(21, STEPS);
    let view = *views(&events, NODES[0]).last().unwrap();
    set(table(&mut events, view), "panicLines", 1);
    caught_alone(&events, &options(), Invariant::Bounded);
}

#[test]
fn figures_and_elections_beyond_their_limits_are_caught() {
    let mut limits = Limits {
        fds: Some(40),
        terms_per_minute: Some(1000),
        ..Limits::default()
    };
    let mut events = good(22, STEPS);
    assert!(
        check(
            &events,
            &Options {
                limits,
                ..options()
            }
        )
        .is_green()
    );
    let view = *views(&events, NODES[0]).last().unwrap();
    set(table(&mut events, view), "procFds", 41);
    caught_alone(
        &events,
        &Options {
            limits,
            ..options()
        },
        Invariant::Bounded,
    );
    limits.fds = None;
    limits.terms_per_minute = Some(2);
    caught_alone(
        &events,
        &Options {
            limits,
            ..options()
        },
        Invariant::Bounded,
    );
}

#[test]
fn a_run_below_its_floor_is_invalid_and_not_green() {
    let events = good(23, STEPS);
    let have = check(&events, &options()).coverage;
    let floor = Floor {
        acknowledged: have.acknowledged,
        leader_changes: have.leader_changes,
        boots: have.boots,
        dumps: 3,
        faults: 1,
        all_faults: true,
        ..Floor::default()
    };
    let judged = |events: &[Event], floor| check(events, &Options { floor, ..options() });
    assert_eq!(judged(&events, floor).verdict(), Verdict::Valid);
    for floor in [
        Floor {
            acknowledged: have.acknowledged + 1,
            ..floor
        },
        Floor {
            leader_changes: have.leader_changes + 1,
            ..floor
        },
        Floor {
            boots: have.boots + 1,
            ..floor
        },
        Floor { dumps: 4, ..floor },
        Floor {
            refused: 1,
            ..floor
        },
        Floor {
            unknown: 1000,
            ..floor
        },
        Floor {
            last_drains: 4,
            ..floor
        },
        Floor {
            faults: 1000,
            ..floor
        },
    ] {
        let report = judged(&events, floor);
        let Verdict::Invalid(why) = report.verdict() else {
            panic!("{floor:?}: {report}");
        };
        assert_eq!(why.len(), 1, "{why:?}");
        assert!(!report.is_green());
    }
    let mut skipped = events;
    let last = skipped.last().unwrap().t;
    skipped.push(note(last, start("D19", &[], FaultResult::Skipped)));
    assert!(matches!(
        judged(&skipped, floor).verdict(),
        Verdict::Invalid(_)
    ));
}

#[test]
fn a_violation_counts_more_than_a_run_below_its_floor() {
    let mut events = good(24, STEPS);
    dump(&mut events, NODES[1]).hashes[3] ^= 1;
    let floor = Floor {
        refused: 1000,
        ..Floor::default()
    };
    let report = check(&events, &Options { floor, ..options() });
    assert_eq!(report.verdict(), Verdict::Violated);
    assert_eq!(report.short.len(), 1);
}
