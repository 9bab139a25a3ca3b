use super::*;
use crate::drill::tape::{Class, Sample};

const OK: Class = Class::Ok;
const NO: Class = Class::Refused;
const LOST: Class = Class::Unknown;
const DEAD: Class = Class::Unreachable;

/// Attempts as (begin, end, class), one node after the other of three.
fn samples(of: &[(u64, u64, Class)]) -> Vec<Sample> {
    (0u64..)
        .zip(of)
        .map(|(seq, (invoke, done, class))| Sample {
            seq,
            node: (seq % 3) as u8,
            class: *class,
            code: i32::from(*class == NO),
            words: *class == NO,
            invoke: *invoke,
            done: *done,
        })
        .collect()
}

#[test]
fn recovery_counts_only_acknowledgements_of_attempts_begun_after_the_damage() {
    for (name, of, start, effective, expected) in [
        ("nothing at all", vec![], 10, 12, None),
        ("begun before the damage", vec![(9, 30, OK)], 10, 12, None),
        (
            "begun while the damage was being done",
            vec![(11, 13, OK)],
            10,
            12,
            None,
        ),
        (
            "the first one after it",
            vec![(11, 13, OK), (12, 40, OK)],
            10,
            12,
            Some(30),
        ),
        (
            "refusals do not count",
            vec![(12, 20, NO), (30, 45, OK)],
            10,
            12,
            Some(35),
        ),
        (
            "the earliest completion",
            vec![(12, 90, OK), (40, 50, OK)],
            10,
            12,
            Some(40),
        ),
        (
            "unknown ones do not count",
            vec![(12, 62, LOST), (13, 13, DEAD)],
            10,
            12,
            None,
        ),
    ] {
        assert_eq!(
            recovery(&samples(&of), start, effective),
            expected,
            "{name}"
        );
    }
}

#[test]
fn openchaos_measures_from_the_first_failure_to_the_next_success() {
    for (name, of, expected) in [
        ("nothing failed", vec![(11, 12, OK), (20, 21, OK)], None),
        (
            "failed before the fault",
            vec![(5, 6, LOST), (20, 21, OK)],
            None,
        ),
        (
            "failed, then good",
            vec![(12, 62, LOST), (50, 51, OK), (60, 61, OK)],
            Some(39),
        ),
        (
            "a success begun before the failure",
            vec![(12, 62, LOST), (11, 70, OK)],
            None,
        ),
        (
            "a refusal is a failure",
            vec![(15, 16, NO), (20, 25, OK)],
            Some(10),
        ),
        (
            "failed after the end of the run",
            vec![(100, 101, NO), (110, 111, OK)],
            None,
        ),
    ] {
        let got = first_failure_to_success(&samples(&of), 10, 100);
        assert_eq!(got, expected, "{name}");
    }
}

#[test]
fn windows_are_the_times_without_an_acknowledgement() {
    let of = samples(&[
        (0, 2, OK),
        (3, 5, OK),
        (6, 56, LOST),
        (40, 50, OK),
        (52, 53, OK),
    ]);
    let found = windows(&of, 0, 60, 5);
    let seen: Vec<(u64, u64)> = found.iter().map(|w| (w.start, w.end)).collect();
    assert_eq!(seen, [(5, 50), (53, 60)]);
    assert_eq!(longest_gap(&of, 0, 60), 45);
    // Without any, all of the time is one window.
    assert_eq!(longest_gap(&[], 10, 60), 50);
    assert_eq!(windows(&of, 0, 60, 46), []);
}

#[test]
fn time_to_refusal_wants_an_answer_and_one_begun_after_the_loss() {
    for (name, of, expected) in [
        ("none", vec![(20, 70, LOST), (21, 21, DEAD)], None),
        ("begun before", vec![(9, 14, NO)], None),
        (
            "the first",
            vec![(20, 70, LOST), (300, 301, NO), (310, 311, NO)],
            Some(291),
        ),
    ] {
        assert_eq!(time_to_refusal(&samples(&of), 10, 12), expected, "{name}");
    }
}

#[test]
fn refusals_count_as_the_contracts_only_with_its_code_and_words() {
    let mut of = samples(&[
        (1, 2, NO),
        (2, 3, NO),
        (3, 4, NO),
        (4, 5, OK),
        (5, 6, LOST),
        (6, 6, DEAD),
    ]);
    of[1].code = 14;
    of[2].words = false;
    let all = counts(&of, 0, 10);
    let expected = Counts {
        acknowledged: 1,
        refused: 3,
        refused_by_contract: 1,
        unreachable: 1,
        unknown: 1,
    };
    assert_eq!(all, expected);
    assert_eq!(counts(&of, 4, 5).acknowledged, 1);
    assert_eq!(counts(&of, 5, 5), Counts::default());
}

#[test]
fn percentiles_are_values_that_were_measured() {
    assert_eq!(percentile(&[], 50.0), None);
    assert_eq!(percentile(&[7], 99.0), Some(7));
    let hundred: Vec<u64> = (1..=100).rev().collect();
    for (percent, expected) in [
        (0.0, 1),
        (1.0, 1),
        (50.0, 50),
        (99.0, 99),
        (99.1, 100),
        (100.0, 100),
    ] {
        assert_eq!(percentile(&hundred, percent), Some(expected), "p{percent}");
    }
    assert_eq!(percentile(&[5, 1, 3], 50.0), Some(3));
}
