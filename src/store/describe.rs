//! What an entry's payload says, for tools that look into a log offline. Checks everything on the way.

use super::command::Command;
use super::entry::RECORD_PREFIX_BYTES;
use super::unit::{Placed, Unit, UnitError, Units};
use crate::protocol::message::Record;

/// One unit of a payload.
#[derive(Clone, Debug)]
pub enum Described<'a> {
    /// The messages of one send request.
    Send(Vec<Record<'a>>),
    /// The delivery of the delayed message at `offset` of `level`.
    Delivery {
        level: u32,
        offset: i64,
        record: Record<'a>,
    },
    Command(Command),
}

/// Reads all units of a payload. The error says where (byte in the payload) and what is damaged.
pub fn describe(payload: &[u8]) -> Result<Vec<Described<'_>>, String> {
    let text = |error: UnitError| error.to_string();
    Units::new(payload)
        .map_err(text)?
        .map(|unit| match unit.map_err(text)? {
            Unit::Send { records, .. } => records
                .map(|placed| checked(payload, placed.map_err(text)?))
                .collect::<Result<Vec<_>, _>>()
                .map(Described::Send),
            Unit::Delivery {
                level,
                offset,
                record,
            } => Ok(Described::Delivery {
                level,
                offset,
                record: checked(payload, record)?,
            }),
            Unit::Command { at, bytes } => super::codec::decode(bytes)
                .map(Described::Command)
                .map_err(|error| format!("payload byte {at}: {error}")),
        })
        .collect()
}

/// The record, if its CRC32C and its body's CRC32 are right.
fn checked<'a>(payload: &'a [u8], placed: Placed<'a>) -> Result<Record<'a>, String> {
    let Placed { at, record } = placed;
    let damaged = |what: &str| format!("payload byte {at}: {what}");
    let bytes = &payload[at..at + record.len()];
    let prefix = &payload[at - RECORD_PREFIX_BYTES..at];
    if prefix != crc32c::crc32c(bytes).to_le_bytes() {
        return Err(damaged("the record's checksum is wrong"));
    }
    // RocketMQ keeps 31 bits of it.
    if record.body_crc() != crc32fast::hash(record.body()) & 0x7fff_ffff {
        return Err(damaged("the body's checksum is wrong"));
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::message::NewRecord;
    use crate::store::EntryBuilder;
    use std::net::{Ipv4Addr, SocketAddrV4};

    fn payload() -> Vec<u8> {
        let host = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
        let record = NewRecord {
            topic: "T",
            queue_id: 1,
            flag: 0,
            sys_flag: 0,
            born_ms: 1,
            born_host: host,
            store_ms: 2,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: b"body",
            properties: b"",
        };
        let mut builder = EntryBuilder::new();
        builder.push_send(&[record.clone(), record.clone()], false);
        builder.push_delivery(3, 7, &record);
        builder.push_command(&Command::DeleteTopic { name: "X".into() });
        builder.take().to_vec()
    }

    #[test]
    fn all_units_are_described() {
        let payload = payload();
        let units = describe(&payload).unwrap();
        assert!(matches!(&units[0], Described::Send(records) if records.len() == 2));
        assert!(matches!(
            &units[1],
            Described::Delivery { level: 3, offset: 7, record } if record.topic() == "T"
        ));
        assert!(
            matches!(&units[2], Described::Command(Command::DeleteTopic { name }) if name == "X")
        );
    }

    #[test]
    fn any_changed_byte_of_a_record_is_noticed() {
        let good = payload();
        let start = memchr::memmem::find(&good, b"body").unwrap();
        for at in start..start + 4 {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let error = describe(&bad).unwrap_err();
            assert!(error.contains("the record's checksum is wrong"), "{error}");
        }
    }
}
