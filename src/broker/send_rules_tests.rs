use std::time::Duration;

use super::*;
use crate::protocol::message::BODY_BYTES_MAX;

fn send<'a>(topic: &'a str) -> Send<'a> {
    Send {
        producer_group: "pg",
        topic,
        default_topic: "TBW102",
        default_topic_queue_nums: 4,
        queue_id: 0,
        sys_flag: 0,
        born_ms: 1,
        flag: 0,
        properties: "",
        reconsume_times: 0,
        max_reconsume_times: None,
        batch: false,
        broker_name: None,
    }
}

fn template(queues: u32, perm: u32) -> TopicConfig {
    TopicConfig::plain("TBW102", queues, perm)
}

fn code<T>(result: Result<T, Refused>) -> i32 {
    result.map_or_else(|(code, _)| code, |_| 0)
}

#[test]
fn system_topics_and_illegal_names_are_not_sent_to() {
    for (topic, wanted) in [
        ("orders", 0),
        ("TBW102", 0),
        ("%RETRY%g", 0),
        ("bad topic!", 29),
        ("", 29),
        ("SCHEDULE_TOPIC_XXXX", 16),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 16),
        ("SELF_TEST_TOPIC", 16),
    ] {
        assert_eq!(code(check_topic(topic)), wanted, "{topic}");
    }
}

#[test]
fn a_first_send_makes_its_topic_from_the_template() {
    let made = topic_to_make(&send("t"), Some(&template(8, 7)), None, true).unwrap();
    assert_eq!(made, TopicConfig::plain("t", 4, 6));
    let few = topic_to_make(&send("t"), Some(&template(2, 7)), None, true).unwrap();
    assert_eq!(few.write_queues, 2, "no more than the template has");
    let mut asks = send("t");
    for (asked, made) in [(0, 1), (-5, 1), (i32::MAX, 8)] {
        asks.default_topic_queue_nums = asked;
        let topic = topic_to_make(&asks, Some(&template(8, 7)), None, true).unwrap();
        assert_eq!(topic.read_queues, made, "asked for {asked}");
    }
}

#[test]
fn no_topic_is_made_without_a_template_that_may_be_inherited() {
    let no_inherit = template(8, 6);
    let inherit = template(8, 7);
    for (template, auto) in [
        (None, true),
        (Some(&no_inherit), true),
        (Some(&inherit), false),
    ] {
        assert_eq!(
            topic_to_make(&send("t"), template, None, auto),
            Err((17, "topic[t] not exist, apply first please!".to_string()))
        );
    }
}

#[test]
fn a_retry_topic_is_made_for_its_group_without_a_template() {
    let mut group = GroupConfig::new("g");
    group.retry_queues = 3;
    let made = topic_to_make(&send("%RETRY%g"), None, Some(&group), false).unwrap();
    assert_eq!(made, TopicConfig::plain("%RETRY%g", 3, 6));
}

#[test]
fn queue_ids_are_resolved_by_the_table() {
    let mut topic = TopicConfig::plain("t", 4, 6);
    topic.read_queues = 6;
    let table = [
        (0, None, QueueChoice::Queue(0)),
        (5, None, QueueChoice::Queue(5)),
        (6, None, QueueChoice::Illegal),
        (i32::MAX, None, QueueChoice::Illegal),
        (-1, None, QueueChoice::Any),
        (i32::MIN, None, QueueChoice::Any),
        // Fronts: node n stands for queue n - 1, around.
        (0, Some(1), QueueChoice::Queue(0)),
        (0, Some(3), QueueChoice::Queue(2)),
        (0, Some(5), QueueChoice::Queue(0)),
        (2, Some(3), QueueChoice::Queue(2)),
        (-1, Some(3), QueueChoice::Any),
        (6, Some(3), QueueChoice::Illegal),
    ];
    for (asked, front, wanted) in table {
        assert_eq!(
            choose_queue(asked, front, &topic),
            wanted,
            "{asked} {front:?}"
        );
    }
    let none = TopicConfig::plain("t", 0, 6);
    assert_eq!(choose_queue(0, None, &none), QueueChoice::Illegal);
}

#[test]
fn a_message_is_given_up_after_more_tries_than_its_limit() {
    let group = GroupConfig::new("g");
    let table = [
        // tries, limit of the request, client version, given up
        (16, None, 477, false),
        (17, None, 477, true),
        (2, Some(1), 477, true),
        (1, Some(1), 477, false),
        (2, Some(1), 63, false),
        (17, Some(100), 477, false),
    ];
    for (tried, max, version, wanted) in table {
        let mut send = send("%RETRY%g");
        send.reconsume_times = tried;
        send.max_reconsume_times = max;
        assert_eq!(
            is_exhausted(&send, version, &group),
            wanted,
            "{tried} {max:?} {version}"
        );
    }
}

#[test]
fn a_delay_level_is_clamped_and_nonsense_is_refused() {
    let levels = [Duration::from_secs(1), Duration::from_secs(5)];
    for (text, wanted) in [
        (None, Ok(None)),
        (Some("0"), Ok(None)),
        (Some("-1"), Ok(None)),
        (Some("1"), Ok(Some(1))),
        (Some("2"), Ok(Some(2))),
        (Some("99"), Ok(Some(2))),
    ] {
        assert_eq!(delay_level(text, &levels), wanted, "{text:?}");
    }
    assert_eq!(code(delay_level(Some("abc"), &levels)), 13);
    assert_eq!(code(delay_level(Some("99999999999999999999"), &levels)), 13);
    assert_eq!(delay_level(Some("3"), &[]), Ok(None));
}

#[test]
fn kinds_that_are_not_supported_are_refused_instead_of_shown_early() {
    let kind = |properties: &str, sys_flag, tries, level| {
        code(check_kind(&scan(properties), sys_flag, tries, level))
    };
    assert_eq!(kind("TAGS\u{1}a\u{2}", 0, 0, None), 0);
    assert_eq!(kind("TRAN_MSG\u{1}true\u{2}", 4, 0, None), 16);
    assert_eq!(kind("TRAN_MSG\u{1}false\u{2}", 0, 0, None), 0);
    assert_eq!(kind("", 4, 0, None), 16);
    assert_eq!(
        kind("", 8, 0, None),
        0,
        "a committed one is an ordinary message"
    );
    assert_eq!(kind("TRAN_MSG\u{1}true\u{2}", 0, 1, Some(3)), 0);
    assert_eq!(kind("TIMER_DELAY_SEC\u{1}5\u{2}", 0, 0, None), 13);
    assert_eq!(kind("TIMER_DELIVER_MS\u{1}5\u{2}", 0, 0, Some(1)), 0);
}

#[test]
fn limits_are_exact_and_named_with_the_value() {
    let body = vec![0_u8; BODY_BYTES_MAX + 1];
    assert_eq!(check_body(&body[1..], BODY_BYTES_MAX), Ok(()));
    let (code, remark) = check_body(&body, BODY_BYTES_MAX).unwrap_err();
    assert_eq!(code, 13);
    assert!(
        remark.contains("4194304B") && remark.contains("4194305B"),
        "{remark}"
    );
    assert_eq!(check_body(b"", 10).unwrap_err().0, 13);
    assert_eq!(check_properties(&body[..32767]), Ok(()));
    let (code, remark) = check_properties(&body[..32768]).unwrap_err();
    assert_eq!(code, 13);
    assert!(
        remark.contains("32767B") && remark.contains("32768B"),
        "{remark}"
    );
}

#[test]
fn a_batch_is_checked_message_by_message() {
    let item = |body| BatchItem {
        flag: 0,
        body,
        properties: b"",
    };
    assert_eq!(check_batch("t", &[item(b"a"), item(b"b")], 10), Ok(()));
    assert_eq!(code(check_batch("t", &[item(b"a"), item(b"")], 10)), 13);
    assert_eq!(
        check_batch("%RETRY%g", &[item(b"a")], 10).unwrap_err().1,
        "batch request does not support retry group %RETRY%g"
    );
}

#[test]
fn a_batch_of_very_many_small_messages_is_too_large_for_the_log() {
    let record = NewRecord {
        topic: "t",
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_ms: 0,
        born_host: "10.0.0.9:4000".parse().unwrap(),
        store_ms: 0,
        store_host: "10.0.0.1:10911".parse().unwrap(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: b"x",
        properties: b"",
    };
    let fit = UNIT_BYTES_MAX / (record.encoded_len() + RECORD_PREFIX_BYTES);
    let records = vec![record; fit + 1];
    assert_eq!(check_stored_bytes(&records[1..]), Ok(()));
    assert_eq!(code(check_stored_bytes(&records)), 13);
}

/// A properties text in readable form.
fn readable(properties: &[u8]) -> String {
    String::from_utf8_lossy(properties)
        .replace('\u{1}', "=")
        .replace('\u{2}', " ")
}

#[test]
fn stored_properties_are_the_clients_and_the_brokers() {
    let at = Destination {
        topic: "t",
        queue: 3,
        level: None,
    };
    // No last separator, a mark of POP and a region from elsewhere: as some clients send.
    let client =
        "TAGS\u{1}a\u{2}POP_CK\u{1}x\u{2}MSG_REGION\u{1}far\u{2}UNIQ_KEY\u{1}K\u{2}k\u{1}v";
    assert_eq!(
        readable(&stored_properties(client, "K", "Cluster", &at, false)),
        "TAGS=a k=v UNIQ_KEY=K MSG_REGION=DefaultRegion CLUSTER=Cluster TRACE_ON=true "
    );
    assert_eq!(at.stored_at(), ("t", 3));
}

#[test]
fn a_delayed_message_remembers_where_it_goes() {
    let at = Destination {
        topic: "t",
        queue: 3,
        level: Some(2),
    };
    let client = "DELAY\u{1}99\u{2}REAL_TOPIC\u{1}old\u{2}";
    assert_eq!(
        readable(&stored_properties(client, "K", "C", &at, false)),
        "UNIQ_KEY=K MSG_REGION=DefaultRegion CLUSTER=C TRACE_ON=true DELAY=2 REAL_TOPIC=t REAL_QID=3 "
    );
    assert_eq!(at.stored_at(), ("SCHEDULE_TOPIC_XXXX", 1));
}

#[test]
fn a_message_that_is_given_up_is_not_delayed_again() {
    let at = Destination {
        topic: "%DLQ%g",
        queue: 0,
        level: None,
    };
    let stored = stored_properties("DELAY\u{1}5\u{2}", "K", "C", &at, true);
    assert!(!readable(&stored).contains("DELAY"));
}

#[test]
fn only_ordinary_sends_are_recognised_as_retries() {
    let mut config = crate::config::Config::parse("", "test").unwrap();
    let at = |topic, level| Destination {
        topic,
        queue: 0,
        level,
    };
    assert!(deduplicates(&at("t", None), &config));
    assert!(!deduplicates(&at("t", Some(1)), &config));
    assert!(!deduplicates(&at("%RETRY%g", None), &config));
    assert!(!deduplicates(&at("%DLQ%g", None), &config));
    config.deduplicate = false;
    assert!(!deduplicates(&at("t", None), &config));
}
