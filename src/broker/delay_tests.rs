use bytes::BytesMut;

use super::*;

#[test]
fn a_level_is_read_only_when_something_may_be_due() {
    let next = |offset, due_ms| Level {
        next: Some((offset, due_ms)),
    };
    let table = [
        // level, progress, end, now, to be read
        (Level::default(), 0, 0, 100, false),
        (Level::default(), 5, 5, 100, false),
        (Level::default(), 0, 1, 100, true),
        (next(0, 200), 0, 1, 100, false),
        (next(0, 200), 0, 1, 200, true),
        // Another leader has delivered it meanwhile.
        (next(0, 200), 1, 2, 100, true),
    ];
    for (level, progress, end, now_ms, wanted) in table {
        assert_eq!(
            level.is_to_be_read(progress, end, now_ms),
            wanted,
            "{level:?} {progress} {end} {now_ms}"
        );
    }
}

#[test]
fn a_delivery_goes_to_the_real_topic_without_its_delay() {
    let properties = "TAGS\u{1}a\u{2}DELAY\u{1}3\u{2}REAL_TOPIC\u{1}t\u{2}REAL_QID\u{1}7\u{2}UNIQ_KEY\u{1}K\u{2}";
    let mut bytes = BytesMut::new();
    NewRecord {
        topic: SCHEDULE_TOPIC,
        queue_id: 2,
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
    .encode(&mut bytes);
    let record = Record::parse(&bytes).unwrap();
    assert_eq!(
        Delivery::of(&record),
        Delivery {
            topic: "t",
            queue: 7,
            properties: b"TAGS\x01a\x02UNIQ_KEY\x01K\x02".to_vec(),
        }
    );
}
