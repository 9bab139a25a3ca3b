//! What a read becomes as a reply, and the checks before it.

use super::*;

fn pull<'a>() -> Pull<'a> {
    Pull {
        consumer_group: "g",
        topic: "t",
        queue_id: 0,
        queue_offset: 0,
        max_msg_nums: 32,
        sys_flag: 0,
        commit_offset: -1,
        suspend_timeout_ms: 0,
        sub_version: 0,
        subscription: None,
        expression_type: None,
        max_msg_bytes: None,
    }
}

fn topic(read_queues: u32, perm: u32) -> TopicConfig {
    TopicConfig {
        name: "t".into(),
        read_queues,
        write_queues: 8,
        perm,
        sys_flag: 0,
        order: false,
        attributes: String::new(),
    }
}

fn found(next: i64) -> ReadOutcome {
    ReadOutcome::Found {
        records: Bytes::from_static(b"records"),
        count: 1,
        next,
        min: 2,
        max: 9,
    }
}

#[test]
fn each_outcome_of_a_read_has_its_reply() {
    use ReadOutcome::{AtEnd, Empty, NoneMatched, OutOfRange};
    // outcome, asked from, code, next, min, max, remark
    let cases = [
        (found(5), 4, (0, 5, 2, 9, "FOUND")),
        (
            NoneMatched {
                next: 7,
                min: 2,
                max: 9,
            },
            4,
            (20, 7, 2, 9, "NO_MATCHED_MESSAGE"),
        ),
        (
            AtEnd { min: 2, max: 9 },
            9,
            (19, 9, 2, 9, "OFFSET_OVERFLOW_ONE"),
        ),
        (
            AtEnd { min: 0, max: 0 },
            0,
            (19, 0, 0, 0, "NO_MESSAGE_IN_QUEUE"),
        ),
        (
            AtEnd { min: 9, max: 9 },
            9,
            (19, 9, 9, 9, "OFFSET_OVERFLOW_ONE"),
        ),
        (Empty, 0, (19, 0, 0, 0, "NO_MESSAGE_IN_QUEUE")),
        (Empty, 5, (21, 0, 0, 0, "NO_MESSAGE_IN_QUEUE")),
        (Empty, -1, (21, 0, 0, 0, "NO_MESSAGE_IN_QUEUE")),
        (
            OutOfRange { min: 2, max: 9 },
            1,
            (21, 2, 2, 9, "OFFSET_TOO_SMALL"),
        ),
        (
            OutOfRange { min: 0, max: 4 },
            -1,
            (21, 0, 0, 4, "OFFSET_TOO_SMALL"),
        ),
        (
            OutOfRange { min: 0, max: 4 },
            99,
            (21, 4, 0, 4, "OFFSET_OVERFLOW_BADLY"),
        ),
    ];
    for (outcome, from, wanted) in cases {
        let what = format!("{outcome:?} from {from}");
        let got = answer(outcome, from);
        assert_eq!(
            (got.code, got.next, got.min, got.max, got.remark),
            wanted,
            "{what}"
        );
    }
}

#[test]
fn every_answer_carries_all_offsets() {
    for outcome in [found(5), ReadOutcome::Empty] {
        let reply = answer(outcome, 0).reply(3, 1);
        let names: Vec<&str> = reply.ext.iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            [
                "suggestWhichBrokerId",
                "nextBeginOffset",
                "minOffset",
                "maxOffset",
                "topicSysFlag",
                "groupSysFlag"
            ]
        );
        assert_eq!(reply.ext.text("topicSysFlag"), Some("1"));
        assert_eq!(reply.opaque, 3);
    }
}

#[test]
fn checks_come_in_rocketmqs_order_with_its_words() {
    let group = || Some(GroupConfig::new("g"));
    let disabled = || {
        Some(GroupConfig {
            consume_enable: false,
            ..GroupConfig::new("g")
        })
    };
    let at = |queue_id| Pull { queue_id, ..pull() };
    let illegal = "topic:[t] topicConfig.readQueueNums:[2] consumer:[/1.2.3.4:5]";
    type Case<'a> = (
        Pull<'a>,
        Option<GroupConfig>,
        Option<TopicConfig>,
        (i32, String, Option<i32>),
    );
    let cases: Vec<Case<'_>> = vec![
        (
            pull(),
            None,
            None,
            (26, "subscription group [g] does not exist".into(), None),
        ),
        (
            pull(),
            disabled(),
            None,
            (16, "subscription group no permission, g".into(), Some(2)),
        ),
        (
            at(-1),
            group(),
            None,
            (17, "topic[t] not exist, apply first please!".into(), None),
        ),
        (
            at(-1),
            group(),
            Some(topic(2, 2)),
            (
                16,
                "the topic[t] pulling message is forbidden".into(),
                Some(3),
            ),
        ),
        (
            at(-1),
            group(),
            Some(topic(2, 6)),
            (29, format!("queueId[-1] is illegal, {illegal}"), None),
        ),
        (
            at(2),
            group(),
            Some(topic(2, 6)),
            (29, format!("queueId[2] is illegal, {illegal}"), None),
        ),
    ];
    for (pull, group, topic, (code, remark, forbidden)) in cases {
        let refusal = check(&pull, group, topic, &"1.2.3.4:5").unwrap_err();
        assert_eq!(
            refusal,
            PullRefusal {
                code,
                remark,
                forbidden
            }
        );
    }
    assert!(check(&at(1), group(), Some(topic(2, 4)), &"1.2.3.4:5").is_ok());
}

#[test]
fn a_remark_never_quotes_a_name_of_any_length() {
    let long = "ü".repeat(100_000);
    let pull = Pull {
        consumer_group: &long,
        ..pull()
    };
    assert!(check(&pull, None, None, &"").unwrap_err().remark.len() < 1_000);
}

#[test]
fn a_pull_gets_at_least_one_message_and_no_more_than_the_bounds() {
    let of = |max_msg_nums, max_msg_bytes| {
        let limits = limits(&Pull {
            max_msg_nums,
            max_msg_bytes,
            ..pull()
        });
        (limits.messages_max, limits.bytes_max)
    };
    const KIB: usize = 1024;
    assert_eq!(of(32, None), (32, 256 * KIB));
    assert_eq!(of(0, None), (1, 256 * KIB));
    assert_eq!(of(-1, Some(-1)), (1, 256 * KIB));
    assert_eq!(of(i32::MAX, Some(i64::MAX)), (1024, 4096 * KIB));
    assert_eq!(of(32, Some(10)), (32, 256 * KIB));
    assert_eq!(of(32, Some(1024 * 1024)), (32, 1024 * KIB));
}

#[test]
fn a_pull_is_held_only_as_long_as_it_asks_and_never_beyond_the_bound() {
    let of = |sys_flag, suspend_timeout_ms| {
        hold_time(&Pull {
            sys_flag,
            suspend_timeout_ms,
            ..pull()
        })
    };
    assert_eq!(of(PULL_SUSPEND, 15_000), Some(Duration::from_secs(15)));
    assert_eq!(of(PULL_SUSPEND, i64::MAX), Some(HOLD_MAX));
    assert_eq!(of(PULL_SUSPEND, 0), None);
    assert_eq!(of(PULL_SUSPEND, -5), None);
    assert_eq!(of(0, 15_000), None);
}
