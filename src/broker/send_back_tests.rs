use bytes::BytesMut;

use super::*;

#[test]
fn the_fate_of_a_message_follows_its_tries_and_the_asked_level() {
    let table = [
        // tried, max, asked level, fate
        (0, 16, 0, Fate::Retry { level: 3 }),
        (1, 16, 0, Fate::Retry { level: 4 }),
        (15, 16, 0, Fate::Retry { level: 18 }),
        (16, 16, 0, Fate::DeadLetter),
        (0, 0, 0, Fate::DeadLetter),
        (0, 16, 1, Fate::Retry { level: 1 }),
        (0, 16, 99, Fate::Retry { level: 18 }),
        (0, 16, -1, Fate::DeadLetter),
        (1, 1, 1, Fate::DeadLetter),
        (i32::MAX - 1, i32::MAX, 0, Fate::Retry { level: 18 }),
        (i32::MIN, 16, 0, Fate::Retry { level: 3 }),
    ];
    for (tried, max, asked, wanted) in table {
        assert_eq!(fate(tried, max, asked, 18), wanted, "{tried} {max} {asked}");
    }
}

fn record(topic: &str, properties: &str) -> BytesMut {
    let mut out = BytesMut::new();
    NewRecord {
        topic,
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_ms: 1,
        born_host: "10.0.0.9:4000".parse().unwrap(),
        store_ms: 2,
        store_host: "10.0.0.1:10911".parse().unwrap(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: b"body",
        properties: properties.as_bytes(),
    }
    .encode(&mut out);
    out
}

fn given_back(topic: &str, properties: &str, to: &Destination<'_>) -> String {
    let bytes = record(topic, properties);
    let record = Record::parse(&bytes).unwrap();
    String::from_utf8(given_back_properties(&record, "ID", to))
        .unwrap()
        .replace('\u{1}', "=")
        .replace('\u{2}', " ")
}

#[test]
fn a_first_retry_remembers_topic_and_message() {
    let to = Destination {
        topic: "%RETRY%g",
        queue: 0,
        level: Some(3),
    };
    assert_eq!(
        given_back("t", "TAGS\u{1}a\u{2}WAIT\u{1}true\u{2}", &to),
        "TAGS=a RETRY_TOPIC=t ORIGIN_MESSAGE_ID=ID WAIT=false DELAY=3 REAL_TOPIC=%RETRY%g REAL_QID=0 "
    );
}

#[test]
fn a_later_retry_keeps_the_first_topic_and_message() {
    let to = Destination {
        topic: "%RETRY%g",
        queue: 1,
        level: Some(4),
    };
    let earlier = "RETRY_TOPIC\u{1}t\u{2}ORIGIN_MESSAGE_ID\u{1}FIRST\u{2}REAL_TOPIC\u{1}%RETRY%g\u{2}REAL_QID\u{1}0\u{2}";
    assert_eq!(
        given_back("%RETRY%g", earlier, &to),
        "RETRY_TOPIC=t ORIGIN_MESSAGE_ID=FIRST WAIT=false DELAY=4 REAL_TOPIC=%RETRY%g REAL_QID=1 "
    );
}

#[test]
fn a_dead_letter_says_where_it_came_from_and_is_not_delayed() {
    let to = Destination {
        topic: "%DLQ%g",
        queue: 0,
        level: None,
    };
    let earlier = "RETRY_TOPIC\u{1}t\u{2}ORIGIN_MESSAGE_ID\u{1}FIRST\u{2}DELAY\u{1}3\u{2}";
    assert_eq!(
        given_back("%RETRY%g", earlier, &to),
        "RETRY_TOPIC=t ORIGIN_MESSAGE_ID=FIRST WAIT=false DLQ_ORIGIN_TOPIC=t DLQ_ORIGIN_MESSAGE_ID=FIRST "
    );
}
