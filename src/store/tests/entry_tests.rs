//! Payloads and outcomes: round trips, and what becomes of bytes that are not what was written.

use bytes::Bytes;

use super::world::{Message, topic};
use crate::store::codec;
use crate::store::entry::{OutcomeWriter, decode_outcomes};
use crate::store::unit::{Unit, UnitErrorKind, Units};
use crate::store::*;

fn payload() -> Bytes {
    let mut builder = EntryBuilder::new();
    Message::new("orders", 3, "one")
        .key("K1")
        .push(&mut builder);
    Message::new("orders", 1, "many")
        .batch(3)
        .push(&mut builder);
    builder.push_command(&Command::PutTopic(topic("orders", 4)));
    Message::new("orders", 0, "late").push_delivery(&mut builder, 5, 77);
    builder.take()
}

/// What a payload says, as text; an error where it cannot be read.
fn describe(payload: &[u8]) -> Result<Vec<String>, unit::UnitError> {
    let mut said = Vec::new();
    for unit in Units::new(payload)? {
        said.push(match unit? {
            Unit::Send {
                deduplicate,
                records,
            } => {
                let mut text = format!("send {deduplicate}");
                for placed in records {
                    let record = placed?.record;
                    let body = String::from_utf8_lossy(record.body());
                    text += &format!(" {}/{} {body}", record.topic(), record.queue_id());
                }
                text
            }
            Unit::Delivery {
                level,
                offset,
                record,
            } => format!(
                "deliver {level} {offset} {}",
                String::from_utf8_lossy(record.record.body())
            ),
            Unit::Command { bytes, .. } => format!("{:?}", codec::decode::<Command>(bytes)),
        });
    }
    Ok(said)
}

#[test]
fn units_come_back_as_they_were_pushed() {
    let expected = [
        "send true orders/3 one".to_string(),
        "send true orders/1 many orders/1 many#1 orders/1 many#2".to_string(),
        format!(
            "{:?}",
            Ok::<_, codec::CodecError>(Command::PutTopic(topic("orders", 4)))
        ),
        "deliver 5 77 late".to_string(),
    ];
    assert_eq!(describe(&payload()).unwrap(), expected);
}

#[test]
fn records_stand_behind_their_own_crc() {
    let payload = payload();
    let mut seen = 0;
    for unit in Units::new(&payload).unwrap() {
        let Unit::Send { records, .. } = unit.unwrap() else {
            continue;
        };
        for placed in records {
            let placed = placed.unwrap();
            let bytes = &payload[placed.at..placed.at + placed.record.len()];
            let crc = payload[placed.at - 4..placed.at].try_into().unwrap();
            assert_eq!(crc32c::crc32c(bytes), u32::from_le_bytes(crc));
            seen += 1;
        }
    }
    assert_eq!(seen, 4);
}

#[test]
fn a_builder_is_empty_after_its_payload_was_taken() {
    let mut builder = EntryBuilder::new();
    assert!(builder.is_empty() && builder.take().is_empty());
    Message::new("orders", 0, "a").push(&mut builder);
    let first = builder.take();
    assert!(builder.is_empty());
    assert_eq!((builder.len(), builder.units()), (0, 0));
    Message::new("orders", 0, "a").push(&mut builder);
    assert_eq!(builder.len(), first.len());
    assert_eq!(builder.take(), first);
}

#[test]
fn a_payload_cut_at_any_byte_is_an_error() {
    let payload = payload();
    for length in 0..payload.len() {
        assert!(describe(&payload[..length]).is_err(), "{length} bytes");
    }
    let mut longer = payload.to_vec();
    longer.push(0);
    assert_eq!(
        describe(&longer).unwrap_err().what,
        UnitErrorKind::Trailing(1)
    );
}

#[test]
fn a_payload_with_any_byte_changed_does_not_panic() {
    let payload = payload();
    for byte in 0..payload.len() {
        for bit in 0..8 {
            let mut changed = payload.to_vec();
            changed[byte] ^= 1 << bit;
            let _ = describe(&changed);
        }
    }
}

#[test]
#[should_panic(expected = "one send unit for orders/3 and orders/4")]
fn records_of_two_queues_never_make_one_unit() {
    let message = Message::new("orders", 3, "a");
    let record = |queue_id| crate::protocol::message::NewRecord {
        topic: &message.topic,
        queue_id,
        flag: 0,
        sys_flag: 0,
        born_ms: 0,
        born_host: super::world::HOST,
        store_ms: 0,
        store_host: super::world::HOST,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: b"",
        properties: b"",
    };
    EntryBuilder::new().push_send(&[record(3), record(4)], true);
}

#[test]
fn outcomes_come_back_as_they_were_written() {
    let stored = |duplicate| UnitOutcome::Stored {
        queue_offset: 1 << 40,
        position: 1 << 50,
        duplicate,
    };
    let outcomes = vec![
        stored(false),
        UnitOutcome::NoSuchTopic,
        stored(true),
        UnitOutcome::NoSuchQueue,
        UnitOutcome::AlreadyDelivered,
        UnitOutcome::Command(CommandOutcome::Locked(vec![command::QueueId {
            topic: "orders".to_string(),
            queue: 3,
        }])),
        UnitOutcome::Command(CommandOutcome::Done),
    ];
    let mut writer = OutcomeWriter::with_units(outcomes.len());
    for outcome in &outcomes {
        writer.push(outcome);
    }
    let bytes = writer.finish();
    assert_eq!(decode_outcomes(&bytes).unwrap(), outcomes);
    for length in 1..bytes.len() {
        if let Ok(fewer) = decode_outcomes(&bytes.slice(..length)) {
            assert!(fewer.len() < outcomes.len());
            assert_eq!(fewer, outcomes[..fewer.len()]);
        }
    }
    let mut other = bytes.to_vec();
    other[0] = 9;
    assert!(decode_outcomes(&Bytes::from(other)).is_err());
}

#[test]
fn a_codec_value_of_another_version_is_refused() {
    let mut bytes = codec::encode(&CommandOutcome::Done);
    assert_eq!(codec::decode(&bytes), Ok(CommandOutcome::Done));
    bytes[0] = 2;
    assert_eq!(
        codec::decode::<CommandOutcome>(&bytes),
        Err(codec::CodecError::Version { found: 2 })
    );
    assert_eq!(
        codec::decode::<CommandOutcome>(&[]),
        Err(codec::CodecError::Empty)
    );
}
