//! Tests: record layout, properties, ids and batches against RocketMQ's bytes and by properties.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::ids::ms_of_month;
use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|digit| digit.is_ascii_hexdigit())
        .collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Printed by RocketMQ's own encoder: topic `T`, body `hi`, queue 3, queue offset 5, position 1000.
const RECORD: &str = "
    00000065 daa320a7 58932aac 00000003 00000000 0000000000000005 00000000000003e8 00000000
    0000018bcfe56800 0a000009 00000fa0 0000018bcfe56801 0a000001 00002a9f 00000000
    0000000000000000 00000002 6869 01 54 0007 54414753014102";

fn host(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

fn sample() -> NewRecord<'static> {
    NewRecord {
        topic: "T",
        queue_id: 3,
        flag: 0,
        sys_flag: 0,
        born_ms: 1_700_000_000_000,
        born_host: host("10.0.0.9:4000"),
        store_ms: 1_700_000_000_001,
        store_host: host("10.0.0.1:10911"),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: b"hi",
        properties: b"TAGS\x01A\x02",
    }
}

fn encoded(record: &NewRecord<'_>) -> Vec<u8> {
    let mut out = BytesMut::new();
    record.encode(&mut out);
    assert_eq!(out.len(), record.encoded_len());
    out.to_vec()
}

#[test]
fn a_record_filled_in_is_the_one_that_rocketmq_writes() {
    let mut bytes = encoded(&sample());
    fill_in(&mut bytes, 5, 1000, host("10.0.0.1:10911"));
    assert_eq!(bytes, hex(RECORD));
}

#[test]
fn every_field_of_rocketmqs_record_is_read() {
    let bytes = hex(RECORD);
    let record = Record::parse(&bytes).unwrap();
    assert_eq!(record.len(), 101);
    assert_eq!(record.body_crc(), 1_486_039_724);
    assert!(record.body_matches_crc());
    assert_eq!(record.queue_id(), 3);
    assert_eq!(record.queue_offset(), 5);
    assert_eq!(record.physical_offset(), 1000);
    assert_eq!(record.born_ms(), 1_700_000_000_000);
    assert_eq!(record.born_host(), host("10.0.0.9:4000"));
    assert_eq!(record.store_ms(), 1_700_000_000_001);
    assert_eq!(record.store_host(), host("10.0.0.1:10911"));
    assert_eq!(record.body(), b"hi");
    assert_eq!(record.topic(), "T");
    assert_eq!(record.properties().value("TAGS"), Some("A"));
}

#[test]
fn ids_are_the_ones_that_rocketmq_prints() {
    let id = offset_message_id(host("10.0.0.1:10911"), 1000);
    assert_eq!(id, "0A00000100002A9F00000000000003E8");
    assert_eq!(
        parse_offset_message_id(&id.to_lowercase()),
        Some((host("10.0.0.1:10911"), 1000))
    );
}

#[test]
fn a_batch_body_of_rocketmq_is_split() {
    let body = hex("00000029 00000000 00000000 00000000 00000002 6869 0011
         5741495401747275650254414753014102");
    let items = split_batch(&body).unwrap();
    assert_eq!(items.len(), 1);
    assert_eq!(items[0].body, b"hi");
    let properties = Properties(items[0].properties);
    assert_eq!(
        properties.iter().collect::<Vec<_>>(),
        [("WAIT", "true"), ("TAGS", "A")]
    );
    let mut again = Vec::new();
    push_batch_item(&mut again, items[0]);
    assert_eq!(again, body);
}

#[test]
fn ipv6_flags_of_a_client_do_not_reach_the_record() {
    let bytes = encoded(&NewRecord {
        sys_flag: SYS_FLAG_COMPRESSED | SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6,
        ..sample()
    });
    let record = Record::parse(&bytes).unwrap();
    assert_eq!(record.sys_flag(), SYS_FLAG_COMPRESSED);
}

#[test]
fn a_topic_above_127_bytes_takes_the_second_layout() {
    for (len, magic) in [
        (127, 0xDAA3_20A7u32),
        (128, 0xDAA3_20AB),
        (255, 0xDAA3_20AB),
    ] {
        let topic = "t".repeat(len);
        let bytes = encoded(&NewRecord {
            topic: &topic,
            ..sample()
        });
        assert_eq!(bytes[4..8], magic.to_be_bytes(), "{len}");
        let record = Record::parse(&bytes).unwrap();
        assert_eq!(record.topic(), topic);
        assert_eq!(record.properties().value("TAGS"), Some("A"));
    }
}

#[test]
#[should_panic(expected = "properties too long")]
fn properties_above_the_limit_are_not_written() {
    let properties = vec![b'x'; PROPERTIES_BYTES_MAX + 1];
    let record = NewRecord {
        properties: &properties,
        ..sample()
    };
    record.encode(&mut BytesMut::new());
}

#[test]
fn a_damaged_record_is_refused_by_the_field_that_is_wrong() {
    let good = hex(RECORD);
    let with = |at: usize, bytes: &[u8]| {
        let mut record = good.clone();
        record[at..at + bytes.len()].copy_from_slice(bytes);
        record
    };
    let refused = |record: &[u8]| Record::parse(record).unwrap_err();
    assert_eq!(refused(&[]), RecordError::Short(0));
    assert_eq!(refused(&good[..100]), RecordError::Short(100));
    assert_eq!(
        refused(&with(4, &[0xcb, 0xd4, 0x31, 0x94])),
        RecordError::Magic(0xcbd4_3194)
    );
    for (at, bytes, field) in [
        (0, &[0x80, 0, 0, 101][..], "total size"),
        (0, &[0, 0, 0, 90], "total size"),
        (0, &[0, 0, 0, 100], "properties length"),
        (39, &[SYS_FLAG_BORN_HOST_V6 as u8], "host"),
        (84, &[0xff, 0xff, 0xff, 0xff], "body length"),
        (84, &[0x7f, 0xff, 0xff, 0xff], "body length"),
        (84, &[0, 0, 0, 14], "body length"),
        (90, &[200], "topic length"),
        (91, &[0xff], "topic"),
        (92, &[0, 8], "properties length"),
        (92, &[0, 6], "properties length"),
    ] {
        assert_eq!(
            refused(&with(at, bytes)),
            RecordError::Field(field),
            "{at} {bytes:?}"
        );
    }
    let flipped = with(88, b"H");
    assert!(!Record::parse(&flipped).unwrap().body_matches_crc());
}

#[test]
fn records_stop_at_the_first_that_is_none() {
    let mut bytes = [hex(RECORD), hex(RECORD)].concat();
    let body = Bytes::from(bytes.clone());
    assert_eq!(records(&body).into_iter().flatten().count(), 2);
    bytes.extend([0; 8]);
    let body = Bytes::from(bytes);
    let found = records(&body);
    assert_eq!(found.len(), 3);
    assert_eq!(found[2].as_ref().unwrap_err(), &RecordError::Magic(0));
    assert!(records(&Bytes::new()).is_empty());
}

#[test]
fn odd_properties_are_read_as_rocketmq_does() {
    for (text, wanted) in [
        ("A\u{1}b\u{2}", vec![("A", "b")]),
        ("A\u{1}b", vec![("A", "b")]),
        ("noSeparator\u{2}=\u{1}\u{2}A\u{1}b", vec![("A", "b")]),
        (
            "\u{1}b\u{2}A\u{1}\u{2}\u{2}\u{2}B\u{1}c\u{2}",
            vec![("B", "c")],
        ),
        ("A\u{1}b\u{1}c\u{2}", vec![("A", "b\u{1}c")]),
        ("A\u{1}1\u{2}A\u{1}2\u{2}", vec![("A", "1"), ("A", "2")]),
        ("", vec![]),
        ("\u{2}", vec![]),
    ] {
        let properties = Properties(text.as_bytes());
        assert_eq!(properties.iter().collect::<Vec<_>>(), wanted, "{text:?}");
        let last = wanted.iter().rfind(|(name, _)| *name == "A");
        assert_eq!(properties.value("A"), last.map(|(_, value)| *value));
    }
    let properties = Properties(b"A\x011\x02A\x01\xff\x02\xff\x012\x02TAGS\x01\xfe\x02");
    assert_eq!(properties.value("A"), Some("1"), "not UTF-8: skipped");
    assert_eq!(properties.iter().count(), 1);
    assert_eq!(properties.hot(), HotProperties::default());
}

#[test]
fn a_property_is_appended_behind_a_text_without_its_last_separator() {
    let mut text = b"A\x01b".to_vec();
    push_property(&mut text, "B", "c\u{1}\u{2}d");
    push_property(&mut text, "C", "e");
    assert_eq!(text, b"A\x01b\x02B\x01cd\x02C\x01e\x02");
}

#[test]
fn tags_codes_are_javas_hash_codes() {
    for (tag, wanted) in [
        (None, 0),
        (Some(""), 0),
        (Some("A"), 65),
        (Some("TagA"), 2_598_919),
        (Some("hello"), 99_162_322),
        (Some("polygenelubricants"), i64::from(i32::MIN)),
        // Two UTF-16 units: 0xd83d * 31 + 0xde00.
        (Some("\u{1f600}"), 1_772_899),
    ] {
        assert_eq!(tags_code(tag), wanted, "{tag:?}");
    }
}

#[test]
fn a_batch_body_has_at_least_one_message_and_no_cut_one() {
    assert_eq!(split_batch(&[]), Err(RecordError::Short(0)));
    let mut body = Vec::new();
    let item = BatchItem {
        flag: 3,
        body: b"x",
        properties: b"A\x01b",
    };
    push_batch_item(&mut body, item);
    let whole = body.len();
    push_batch_item(&mut body, item);
    assert_eq!(split_batch(&body), Ok(vec![item, item]));
    for end in 1..body.len() {
        assert_eq!(split_batch(&body[..end]).is_ok(), end == whole, "{end}");
    }
    for (at, bytes, field) in [
        (16, &[0xff; 4][..], "body length"),
        (21, &[0x80, 0], "properties length"),
    ] {
        let mut body = body.clone();
        body[at..at + bytes.len()].copy_from_slice(bytes);
        assert_eq!(split_batch(&body), Err(RecordError::Field(field)));
    }
}

#[test]
fn what_is_no_offset_id_is_told_apart() {
    for id in [
        "",
        "0A00000100002A9F00000000000003E",
        "0A00000100002A9F00000000000003E80",
        "0A00000100002A9F00000000000003EG",
        // A unique key: what stands where the port would is too large.
        "0A000009617B1B6D358671C4A3F20003",
        // A position above i64::MAX.
        "0A00000100002A9F8000000000000000",
        "+A00000100002A9F00000000000003E8",
        "0A00000100002A9F000000000000üü",
    ] {
        assert_eq!(parse_offset_message_id(id), None, "{id}");
    }
}

#[test]
fn unique_keys_have_rocketmqs_layout_and_are_unique() {
    let mut seen = BTreeSet::new();
    for _ in 0..70_000 {
        assert!(seen.insert(new_unique_key(host("10.0.0.9:10911"), 1_796_034_183_401)));
    }
    let key = new_unique_key(host("10.0.0.9:10911"), 1_796_034_183_401);
    assert_eq!(key.len(), 32);
    let upper_hex = |byte: u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte);
    assert!(key.bytes().all(upper_hex), "{key}");
    assert!(key.starts_with("0A000009"), "{key}");
    let ms = u32::from_str_radix(&key[20..28], 16).unwrap();
    assert_eq!(ms, ms_of_month(1_796_034_183_401));
}

#[test]
fn milliseconds_of_the_month_begin_on_its_first_day() {
    const DAY_MS: u32 = 86_400_000;
    for (wall_ms, wanted) in [
        (0, 0),
        (-1, 31 * DAY_MS - 1),
        // 2024-02-29T00:00:00.005Z and the day after.
        (1_709_164_800_005, 28 * DAY_MS + 5),
        (1_709_251_200_005, 5),
        // 2023-03-01, 2026-11-30, 2000-02-29.
        (1_677_628_800_000, 0),
        (1_796_034_183_401, 29 * DAY_MS + 37_383_401),
        (951_782_400_000, 28 * DAY_MS),
    ] {
        assert_eq!(ms_of_month(wall_ms), wanted, "{wall_ms}");
    }
    for extreme in [i64::MIN, i64::MAX] {
        assert!(ms_of_month(extreme) < 31 * DAY_MS);
    }
}

/// A text without the separators, not empty.
fn any_word() -> impl Strategy<Value = String> {
    any::<String>()
        .prop_map(|text| text.replace(['\u{1}', '\u{2}'], "x"))
        .prop_filter("not empty", |text| !text.is_empty())
}

proptest! {
    #[test]
    fn a_record_is_read_as_it_was_written(
        topic in "[%|a-zA-Z0-9_-]{1,255}",
        numbers in any::<[i32; 4]>(),
        times in any::<[i64; 4]>(),
        hosts in any::<[(u32, u16); 2]>(),
        body in prop::collection::vec(any::<u8>(), 0..200),
        properties in prop::collection::vec(any::<u8>(), 0..200),
        behind in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let [born_host, store_host] = hosts.map(|(ip, port)| SocketAddrV4::new(ip.into(), port));
        let new = NewRecord {
            topic: &topic,
            queue_id: numbers[0],
            flag: numbers[1],
            sys_flag: numbers[2],
            born_ms: times[0],
            born_host,
            store_ms: times[1],
            store_host: host("0.0.0.0:0"),
            reconsume_times: numbers[3],
            prepared_transaction_offset: times[2],
            body: &body,
            properties: &properties,
        };
        let mut bytes = encoded(&new);
        let len = bytes.len();
        bytes.extend(behind);
        fill_in(&mut bytes, times[3], times[0], store_host);
        let record = Record::parse(&bytes).unwrap();
        prop_assert_eq!(record.len(), len);
        prop_assert!(record.body_matches_crc());
        prop_assert_eq!(record.topic(), &topic);
        prop_assert_eq!(record.queue_id(), numbers[0]);
        prop_assert_eq!(record.flag(), numbers[1]);
        let v6 = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6;
        prop_assert_eq!(record.sys_flag(), numbers[2] & !v6);
        prop_assert_eq!(record.reconsume_times(), numbers[3]);
        prop_assert_eq!(record.born_ms(), times[0]);
        prop_assert_eq!(record.store_ms(), times[1]);
        prop_assert_eq!(record.prepared_transaction_offset(), times[2]);
        prop_assert_eq!(record.queue_offset(), times[3]);
        prop_assert_eq!(record.physical_offset(), times[0]);
        prop_assert_eq!(record.born_host(), born_host);
        prop_assert_eq!(record.store_host(), store_host);
        prop_assert_eq!(record.body(), &body[..]);
        prop_assert_eq!(record.properties().0, &properties[..]);
    }

    #[test]
    fn a_changed_or_cut_record_never_panics(
        body in prop::collection::vec(any::<u8>(), 0..50),
        at in any::<prop::sample::Index>(),
        byte: u8,
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encoded(&NewRecord { body: &body, ..sample() });
        let at = at.index(bytes.len());
        bytes[at] = byte;
        for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
            if let Ok(record) = Record::parse(bytes) {
                prop_assert!(record.len() <= bytes.len());
                let _ = (record.born_host(), record.store_host(), record.body_matches_crc());
                let _ = record.properties().iter().count();
            }
            let _ = records(&Bytes::copy_from_slice(bytes));
        }
    }

    #[test]
    fn noise_is_split_without_a_panic(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        // With small lengths, so that more than the first of them is looked at.
        let small: Vec<u8> = noise.iter().map(|byte| byte % 3).collect();
        for bytes in [&noise, &small] {
            if let Ok(items) = split_batch(bytes) {
                let mut again = Vec::new();
                for item in &items {
                    push_batch_item(&mut again, *item);
                }
                prop_assert_eq!(again.len(), bytes.len());
            }
            let _ = records(&Bytes::copy_from_slice(bytes));
            let properties = Properties(bytes);
            prop_assert!(properties.iter().all(|(name, value)| !name.is_empty() && !value.is_empty()));
        }
    }

    #[test]
    fn a_batch_is_split_into_what_it_was_made_of(
        items in prop::collection::vec(
            (any::<i32>(), prop::collection::vec(any::<u8>(), 0..50), prop::collection::vec(any::<u8>(), 0..50)),
            1..10,
        ),
    ) {
        let items: Vec<BatchItem<'_>> = items
            .iter()
            .map(|(flag, body, properties)| BatchItem { flag: *flag, body, properties })
            .collect();
        let mut body = Vec::new();
        for item in &items {
            push_batch_item(&mut body, *item);
        }
        prop_assert_eq!(split_batch(&body), Ok(items));
    }

    #[test]
    fn pushed_properties_are_found(pairs in prop::collection::vec((any_word(), any_word()), 0..10)) {
        let mut text = Vec::new();
        for (name, value) in &pairs {
            push_property(&mut text, name, value);
        }
        let properties = Properties(&text);
        let found: Vec<_> = properties.iter().collect();
        let wanted: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        prop_assert_eq!(&found, &wanted);
        let last: BTreeMap<_, _> = wanted.into_iter().collect();
        for (name, value) in last {
            prop_assert_eq!(properties.value(name), Some(value));
        }
    }

    #[test]
    fn hot_properties_are_the_ones_that_a_search_finds(
        pairs in prop::collection::vec(
            (prop::sample::select(vec!["TAGS", "UNIQ_KEY", "DELAY", "KEYS"]), "[a-c]{0,2}"),
            0..8,
        ),
    ) {
        let mut text = Vec::new();
        for (name, value) in &pairs {
            push_property(&mut text, name, value);
        }
        let properties = Properties(&text);
        prop_assert_eq!(properties.hot(), HotProperties {
            tags: properties.value(property::TAGS),
            unique_key: properties.value(property::UNIQ_KEY),
            delay: properties.value(property::DELAY),
        });
    }

    #[test]
    fn an_offset_id_leads_back_to_its_place(ip: u32, port: u16, position in 0..=i64::MAX as u64) {
        let host = SocketAddrV4::new(ip.into(), port);
        let id = offset_message_id(host, position);
        prop_assert_eq!(parse_offset_message_id(&id), Some((host, position)));
    }
}
