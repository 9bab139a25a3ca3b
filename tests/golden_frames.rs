//! Decodes frames recorded between RocketMQ 5.5.0 and its clients (`tests/golden`), compares with what the
//! recorder read, and writes the recorded replies again.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use quorumlog::protocol::body::{CheckClientConfig, Heartbeat, LockBatch};
use quorumlog::protocol::codes::request;
use quorumlog::protocol::frame::{Frame, Reply};
use quorumlog::protocol::header::language_number;
use quorumlog::protocol::message::{Record, records, split_batch};
use quorumlog::protocol::request::{CreateTopic, Pull, QueueRequest, Send, SendBack, Unregister};
use serde_json::Value;

use recorded::{base64, dir};

#[path = "common/recorded.rs"]
mod recorded;

/// One recorded frame.
struct Recorded {
    line: Value,
    /// File and line, for messages.
    place: String,
    raw: Bytes,
}

/// The recorded lines whose bytes were kept: frames, or what is none.
fn recorded(malformed: bool) -> Vec<Recorded> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.ends_with(".jsonl") {
            continue;
        }
        for (index, line) in std::fs::read_to_string(&path).unwrap().lines().enumerate() {
            let line: Value = serde_json::from_str(line).unwrap();
            if let Some(raw) = line["raw_b64"].as_str()
                && (line["dir"] == "event") == malformed
            {
                found.push(Recorded {
                    place: format!("{name}:{}", index + 1),
                    raw: base64(raw).into(),
                    line,
                });
            }
        }
    }
    found
}

fn frames() -> Vec<(Recorded, Frame)> {
    let frames: Vec<_> = recorded(false)
        .into_iter()
        .map(|recorded| {
            let frame = Frame::decode_whole(recorded.raw.clone());
            let frame = frame.unwrap_or_else(|error| panic!("{}: {error}", recorded.place));
            (recorded, frame)
        })
        .collect();
    assert!(frames.len() > 300, "only {} frames", frames.len());
    frames
}

/// A scalar of a recorded header as our ext fields show it.
fn literal(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn number(value: &Value) -> i64 {
    value
        .as_i64()
        .unwrap_or_else(|| value.as_str().unwrap().parse().unwrap())
}

#[test]
fn every_recorded_frame_is_decoded_to_what_the_recorder_read() {
    for (recorded, frame) in frames() {
        let (line, place) = (&recorded.line, &recorded.place);
        let header = &frame.header;
        assert_eq!(i64::from(header.code), number(&line["code"]), "{place}");
        assert_eq!(i64::from(header.flag), number(&line["flag"]), "{place}");
        assert_eq!(i64::from(header.opaque), number(&line["opaque"]), "{place}");
        let language = line["language"].as_str().map_or(0, language_number);
        assert_eq!(header.language, language, "{place}");
        let version = line["version"].as_i64().unwrap_or(0);
        assert_eq!(i64::from(header.version), version, "{place}");
        let remark = header.remark.as_ref().map(|remark| remark.as_str());
        assert_eq!(remark, line["remark"].as_str(), "{place}");
        let ext: BTreeMap<String, String> = (header.ext.iter())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let wanted: BTreeMap<String, String> = (line["extFields"].as_object())
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.clone(), literal(value)))
            .collect();
        assert_eq!(ext, wanted, "{place}");
        let body = line["body_b64"].as_str().map(base64).unwrap_or_default();
        assert_eq!(frame.body, body, "{place}");
        assert_eq!(frame.raw, recorded.raw, "{place}");
    }
}

#[test]
fn what_was_no_frame_to_rocketmq_is_none_to_us() {
    let malformed = recorded(true);
    assert_eq!(malformed.len(), 11);
    for recorded in malformed {
        let mut buffer = BytesMut::from(&recorded.raw[..]);
        let decoded = Frame::decode(&mut buffer);
        assert!(decoded.is_err(), "{}: {decoded:?}", recorded.place);
    }
}

/// The members of a frame's JSON header.
fn json_header(raw: &[u8]) -> serde_json::Map<String, Value> {
    let header_bytes = u32::from_be_bytes([0, raw[5], raw[6], raw[7]]) as usize;
    match serde_json::from_slice(&raw[8..8 + header_bytes]).unwrap() {
        Value::Object(members) => members,
        other => panic!("no object: {other}"),
    }
}

#[test]
fn a_recorded_reply_written_by_us_keeps_its_fields() {
    let mut replies = 0;
    for (recorded, frame) in frames() {
        let (line, place) = (&recorded.line, &recorded.place);
        if line["from"] != "server" || line["dir"] != "resp" {
            continue;
        }
        let mut reply = Reply::new(frame.header.code, frame.header.opaque);
        if let Some(remark) = &frame.header.remark {
            reply = reply.with_remark(remark.as_str());
        }
        reply.ext = frame.header.ext.clone();
        let reply = reply.with_body(frame.body.clone());
        let mut out = BytesMut::new();
        reply.encode(&mut out);
        let ours = json_header(&out);
        let theirs = json_header(&recorded.raw);
        for member in ["code", "flag", "opaque", "language", "remark"] {
            assert_eq!(ours.get(member), theirs.get(member), "{place} {member}");
        }
        let names = |header: &serde_json::Map<String, Value>| -> BTreeSet<String> {
            let fields = header.get("extFields").and_then(Value::as_object);
            fields
                .into_iter()
                .flatten()
                .map(|(name, _)| name.clone())
                .collect()
        };
        assert_eq!(names(&ours), names(&theirs), "{place}");
        assert!(ours["extFields"].is_object(), "{place}");
        for (name, value) in ours["extFields"].as_object().unwrap() {
            assert!(value.is_string(), "{place} {name}");
        }
        let again = Frame::decode_whole(out.freeze()).unwrap();
        assert_eq!(again.header.ext, frame.header.ext, "{place}");
        assert_eq!(again.body, frame.body, "{place}");
        replies += 1;
    }
    assert!(replies > 100, "only {replies} replies");
}

#[test]
fn every_recorded_request_of_a_client_has_fields_that_we_can_read() {
    let mut read = BTreeMap::new();
    for (recorded, frame) in frames() {
        let (line, place) = (&recorded.line, &recorded.place);
        let by_hand = line["conn"].as_str().unwrap().starts_with("raw");
        if line["from"] != "client" || line["dir"] != "req" || by_hand {
            continue;
        }
        let (header, ext) = (&frame.header, &frame.header.ext);
        let error = match header.code {
            request::SEND_MESSAGE | request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => {
                match Send::read(header) {
                    Ok(send) if send.batch => {
                        let items = split_batch(&frame.body);
                        assert_eq!(items.map(|items| items.len()), Ok(3), "{place}");
                        None
                    }
                    other => other.err(),
                }
            }
            request::PULL_MESSAGE => Pull::read(ext).err(),
            request::QUERY_CONSUMER_OFFSET | request::UPDATE_CONSUMER_OFFSET => {
                QueueRequest::read(ext, true).err()
            }
            request::SEARCH_OFFSET_BY_TIMESTAMP
            | request::GET_MAX_OFFSET
            | request::GET_MIN_OFFSET
            | request::GET_EARLIEST_MSG_STORETIME => QueueRequest::read(ext, false).err(),
            request::UPDATE_AND_CREATE_TOPIC => CreateTopic::read(ext).err(),
            request::CONSUMER_SEND_MSG_BACK => SendBack::read(ext).err(),
            request::UNREGISTER_CLIENT => Unregister::read(ext).err(),
            request::HEART_BEAT => {
                let heartbeat = Heartbeat::parse(&frame.body).unwrap();
                assert!(!heartbeat.client_id.is_empty(), "{place}");
                None
            }
            request::LOCK_BATCH_MQ | request::UNLOCK_BATCH_MQ => {
                let lock = LockBatch::parse(&frame.body).unwrap();
                assert!(!lock.queues.is_empty(), "{place}");
                None
            }
            request::CHECK_CLIENT_CONFIG => {
                let check = CheckClientConfig::parse(&frame.body).unwrap();
                assert!(check.subscription.is_some(), "{place}");
                None
            }
            _ => continue,
        };
        assert_eq!(error, None, "{place}");
        *read.entry(header.code).or_insert(0) += 1;
    }
    let codes: Vec<i32> = read.into_keys().collect();
    assert_eq!(
        codes,
        [
            10, 11, 14, 15, 17, 29, 30, 31, 32, 34, 35, 36, 41, 42, 46, 310, 320
        ]
    );
}

#[test]
fn every_recorded_pull_body_is_whole_records() {
    let mut count = 0;
    for (recorded, frame) in frames() {
        let pulled = recorded.line["to"] == 11 && frame.header.code == 0;
        if !pulled {
            continue;
        }
        let place = &recorded.place;
        let found: Result<Vec<Record<'_>>, _> = records(&frame.body).into_iter().collect();
        for record in found.unwrap_or_else(|error| panic!("{place}: {error}")) {
            assert!(record.body_matches_crc(), "{place}");
            assert!(record.properties().hot().unique_key.is_some(), "{place}");
            count += 1;
        }
    }
    assert!(count > 5, "only {count} records");
}
