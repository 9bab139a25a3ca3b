//! Bodies: records, batches, properties, JSON requests, tag expressions, ids, names.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use quorumlog::protocol::body::{CheckClientConfig, Heartbeat, LockBatch};
use quorumlog::protocol::filter::TagFilter;
use quorumlog::protocol::message::{
    Properties, Record, offset_message_id, parse_offset_message_id, push_batch_item, records,
    split_batch, tags_code,
};
use quorumlog::protocol::names::{check_group, check_topic};

fn check_record(record: &Record<'_>) {
    let _ = (
        record.born_host(),
        record.store_host(),
        record.body_matches_crc(),
    );
    assert_eq!(record.bytes().len(), record.len());
    check_properties(record.properties());
}

fn check_properties(properties: Properties<'_>) {
    for (name, value) in properties.iter() {
        assert!(!name.is_empty() && !value.is_empty());
        assert!(properties.value(name).is_some());
    }
    let hot = properties.hot();
    assert_eq!(hot.tags, properties.value("TAGS"));
    assert_eq!(hot.unique_key, properties.value("UNIQ_KEY"));
    assert_eq!(hot.delay, properties.value("DELAY"));
}

fn check_batch(body: &[u8]) {
    let Ok(items) = split_batch(body) else {
        return;
    };
    let mut again = Vec::new();
    for item in &items {
        check_properties(Properties(item.properties));
        push_batch_item(&mut again, *item);
    }
    assert_eq!(again.len(), body.len());
    assert_eq!(split_batch(&again), Ok(items));
}

fn check_text(text: &str) {
    if let Ok(filter) = TagFilter::parse(text) {
        for tag in text
            .split("||")
            .map(str::trim)
            .filter(|tag| !tag.is_empty())
        {
            assert!(filter.matches(tags_code(Some(tag))));
        }
    }
    if let Some((host, position)) = parse_offset_message_id(text) {
        assert!(offset_message_id(host, position).eq_ignore_ascii_case(text));
    }
    let _ = (check_topic(text), check_group(text));
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, body)) = data.split_first() else {
        return;
    };
    match kind % 7 {
        0 => records(&Bytes::copy_from_slice(body))
            .iter()
            .flatten()
            .for_each(check_record),
        1 => check_batch(body),
        2 => check_properties(Properties(body)),
        3 => drop(Heartbeat::parse(body)),
        4 => drop(LockBatch::parse(body)),
        5 => drop(CheckClientConfig::parse(body)),
        _ => check_text(&String::from_utf8_lossy(body)),
    }
});
