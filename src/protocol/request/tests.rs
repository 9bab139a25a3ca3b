//! Tests: the fields of requests by every client's habits.

use super::*;

fn ext(fields: &[(&str, &str)]) -> Ext {
    let mut ext = Ext::new();
    for (name, value) in fields {
        ext.push(name, value);
    }
    ext
}

fn header(code: i32, fields: &[(&str, &str)]) -> Header {
    Header {
        code,
        ext: ext(fields),
        ..Header::default()
    }
}

const LETTERS: [(&str, &str); 14] = [
    ("a", "pg"),
    ("b", "T"),
    ("c", "TBW102"),
    ("d", "8"),
    ("e", "3"),
    ("f", "1"),
    ("g", "1700000000000"),
    ("h", "5"),
    ("i", "TAGS\u{1}A\u{2}"),
    ("j", "2"),
    ("k", "false"),
    ("l", "16"),
    ("m", "false"),
    ("n", "broker-a"),
];

const NAMES: [&str; 14] = [
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "unitMode",
    "maxReconsumeTimes",
    "batch",
    "bname",
];

#[test]
fn a_send_reads_the_same_by_letters_and_by_names_under_any_code() {
    let named: Vec<_> = (NAMES.iter().zip(LETTERS))
        .map(|(name, (_, value))| (*name, value))
        .collect();
    for code in [10, 310] {
        for fields in [&LETTERS[..], &named[..]] {
            let header = header(code, fields);
            let send = Send::read(&header).unwrap();
            assert_eq!(send.producer_group, "pg");
            assert_eq!(send.topic, "T");
            assert_eq!(send.default_topic, "TBW102");
            assert_eq!(send.default_topic_queue_nums, 8);
            assert_eq!(send.queue_id, 3);
            assert_eq!(send.sys_flag, 1);
            assert_eq!(send.born_ms, 1_700_000_000_000);
            assert_eq!(send.flag, 5);
            assert_eq!(send.properties, "TAGS\u{1}A\u{2}");
            assert_eq!(send.reconsume_times, 2);
            assert_eq!(send.max_reconsume_times, Some(16));
            assert!(!send.batch);
            assert_eq!(send.broker_name, Some("broker-a"));
        }
    }
}

#[test]
fn a_batch_is_known_by_its_code_or_by_its_field() {
    let fields = |batch| [("b", "T"), ("e", "0"), ("f", "0"), ("g", "0"), ("m", batch)];
    for (code, batch, wanted) in [
        (310, "false", false),
        (310, "0", false),
        (310, "true", true),
        (310, "TRUE", true),
        (10, "1", true),
        (320, "false", true),
    ] {
        let header = header(code, &fields(batch));
        assert_eq!(Send::read(&header).unwrap().batch, wanted, "{code} {batch}");
    }
}

#[test]
fn a_send_lacks_what_rocketmq_fails_without() {
    for (missing, name) in [("e", "queueId"), ("f", "sysFlag"), ("g", "bornTimestamp")] {
        let fields: Vec<_> = (LETTERS.iter().copied())
            .filter(|(letter, _)| *letter != missing)
            .collect();
        let error = Send::read(&header(310, &fields)).unwrap_err();
        assert_eq!(error, FieldError::Missing(name));
        assert_eq!(
            error.to_string(),
            format!("the custom field <{name}> is null")
        );
    }
    for missing in ["a", "b", "c", "d", "h", "i", "j", "k", "l", "m", "n"] {
        let fields: Vec<_> = (LETTERS.iter().copied())
            .filter(|(letter, _)| *letter != missing)
            .collect();
        assert!(Send::read(&header(310, &fields)).is_ok(), "{missing}");
    }
}

#[test]
fn an_unreadable_number_is_an_error_that_quotes_its_beginning() {
    for (letter, value) in [("e", "abc"), ("f", ""), ("g", "1.5"), ("d", "99999999999")] {
        let mut fields = LETTERS.to_vec();
        fields.push((letter, value));
        let error = Send::read(&header(310, &fields)).unwrap_err();
        assert!(
            matches!(&error, FieldError::Unreadable { found, .. } if found == value),
            "{error}"
        );
    }
    let long = "x".repeat(1_000_000);
    let error = ext(&[("queueId", &long)]).i32("queueId").unwrap_err();
    assert!(error.to_string().len() < 200);
}

#[test]
fn a_pull_of_any_client_is_read() {
    let fields = ext(&[
        ("consumerGroup", "g"),
        ("topic", "T"),
        ("queueId", "1"),
        ("queueOffset", "7"),
        ("maxMsgNums", "32"),
        ("sysFlag", "6"),
        ("commitOffset", "-1"),
        ("suspendTimeoutMillis", "15000"),
        ("subVersion", "9"),
        ("subscription", ""),
        ("maxMsgBytes", "2147483647"),
    ]);
    let pull = Pull::read(&fields).unwrap();
    assert_eq!((pull.consumer_group, pull.topic), ("g", "T"));
    assert_eq!((pull.queue_id, pull.queue_offset), (1, 7));
    assert_eq!((pull.max_msg_nums, pull.commit_offset), (32, -1));
    assert_eq!(pull.sys_flag, PULL_SUSPEND | PULL_SUBSCRIPTION);
    assert_eq!((pull.suspend_timeout_ms, pull.sub_version), (15000, 9));
    assert_eq!(pull.subscription, Some(""));
    assert_eq!(pull.expression_type, None);
    assert_eq!(pull.max_msg_bytes, Some(i64::from(i32::MAX)));
}

#[test]
fn a_pull_without_commit_offset_commits_nothing() {
    let fields = ext(&[
        ("consumerGroup", "g"),
        ("topic", "T"),
        ("queueId", "1"),
        ("queueOffset", "7"),
        ("maxMsgNums", "32"),
        ("sysFlag", "1"),
    ]);
    assert_eq!(Pull::read(&fields).unwrap().commit_offset, -1);
    let error = Pull::read(&Ext::new()).unwrap_err();
    assert_eq!(error, FieldError::Missing("consumerGroup"));
}

#[test]
fn a_queue_request_has_a_group_only_where_asked_for() {
    let fields = ext(&[("topic", "T"), ("queueId", "1"), ("boundaryType", "UPPER")]);
    let request = QueueRequest::read(&fields, false).unwrap();
    assert_eq!((request.consumer_group, request.topic), ("", "T"));
    assert!(request.boundary_upper);
    assert_eq!(
        QueueRequest::read(&fields, true).unwrap_err(),
        FieldError::Missing("consumerGroup")
    );
    let fields = ext(&[
        ("topic", "T"),
        ("queueId", "1"),
        ("consumerGroup", "g"),
        ("commitOffset", "-5"),
        ("setZeroIfNotFound", "false"),
    ]);
    let request = QueueRequest::read(&fields, true).unwrap();
    assert_eq!(request.commit_offset, Some(-5));
    assert_eq!(request.set_zero_if_not_found, Some(false));
    assert!(!request.boundary_upper);
}

#[test]
fn a_topic_to_create_has_a_known_filter_type() {
    let fields = |filter| {
        ext(&[
            ("topic", "T"),
            ("readQueueNums", "2"),
            ("writeQueueNums", "3"),
            ("perm", "6"),
            ("topicFilterType", filter),
            ("order", "true"),
        ])
    };
    let single = fields("SINGLE_TAG");
    let topic = CreateTopic::read(&single).unwrap();
    assert_eq!((topic.read_queue_nums, topic.write_queue_nums), (2, 3));
    assert!(topic.order && !topic.multi_tag);
    assert!(CreateTopic::read(&fields("MULTI_TAG")).unwrap().multi_tag);
    assert!(CreateTopic::read(&fields("NONSENSE")).is_err());
}

#[test]
fn a_send_back_of_the_cpp_client_has_three_fields() {
    let fields = ext(&[("group", "g"), ("delayLevel", "0"), ("offset", "1000")]);
    let back = SendBack::read(&fields).unwrap();
    assert_eq!((back.group, back.offset, back.delay_level), ("g", 1000, 0));
    assert_eq!(back.origin_topic, None);
    assert_eq!(back.max_reconsume_times, None);
}

#[test]
fn an_empty_group_of_an_unregister_is_none() {
    let fields = ext(&[
        ("clientID", "c"),
        ("producerGroup", ""),
        ("consumerGroup", "g"),
    ]);
    let unregister = Unregister::read(&fields).unwrap();
    assert_eq!(unregister.client_id, "c");
    assert_eq!(unregister.producer_group, None);
    assert_eq!(unregister.consumer_group, Some("g"));
    assert_eq!(Unregister::read(&Ext::new()).unwrap().client_id, "");
}
