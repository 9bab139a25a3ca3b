//! What is in an entry's payload: units, records, the commands that matter to queues, memberships.

use bytes::Bytes;

use super::bytes::Fields;
use crate::wire::{Record, decode_records};

/// One unit.
#[derive(Clone, Debug)]
pub enum Unit {
    Send {
        deduplicate: bool,
        records: Vec<Placed>,
    },
    Delivery {
        level: u32,
        offset: i64,
        record: Placed,
    },
    Command(Command),
}

/// A record and the byte of the payload it starts at.
#[derive(Clone, Debug)]
pub struct Placed {
    pub at: usize,
    pub record: Record,
}

/// A command, as far as queues go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    PutTopic(Topic),
    EnsureTopic(Topic),
    DeleteTopic(String),
    /// Read to its end, and of no matter here.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    pub name: String,
    /// Queue numbers below are there.
    pub queues: u64,
}

/// The units of a payload; `Err` says what cannot be read.
pub fn units(payload: &Bytes) -> Result<Vec<Unit>, String> {
    if payload.is_empty() {
        return Ok(Vec::new());
    }
    let mut fields = Fields(payload);
    if fields.u8() != Some(1) {
        return Err("payload version".to_owned());
    }
    let count = fields.u32().ok_or("the number of units")?;
    let mut units = Vec::new();
    for number in 0..count {
        let kind = fields.u8();
        let len = fields.u32().unwrap_or(u32::MAX) as usize;
        let start = payload.len() - fields.0.len();
        if fields.take(len).is_none() {
            return Err(format!("unit {number} is cut short"));
        }
        let content = payload.slice(start..start + len);
        let unit = match kind {
            Some(1) => send(&content, start),
            Some(2) => delivery(&content, start),
            Some(3) => command(&content)
                .map(Unit::Command)
                .ok_or_else(|| "a command".to_owned()),
            _ => Err("an unknown kind".to_owned()),
        };
        units.push(unit.map_err(|what| format!("unit {number}: {what}"))?);
    }
    if !fields.is_empty() {
        return Err(format!("{} bytes behind the last unit", fields.0.len()));
    }
    Ok(units)
}

fn send(content: &Bytes, start: usize) -> Result<Unit, String> {
    let mut fields = Fields(content);
    let flags = fields.u8().filter(|flags| *flags <= 1).ok_or("flags")?;
    let count = fields
        .u32()
        .filter(|count| *count > 0)
        .ok_or("no records")?;
    let mut records = Vec::new();
    for _ in 0..count {
        records.push(record(content, start, &mut fields)?);
    }
    if !fields.is_empty() {
        return Err("bytes behind the last record".to_owned());
    }
    Ok(Unit::Send {
        deduplicate: flags == 1,
        records,
    })
}

fn delivery(content: &Bytes, start: usize) -> Result<Unit, String> {
    let mut fields = Fields(content);
    let level = fields.u32().ok_or("no level")?;
    let offset = fields.i64().ok_or("no offset")?;
    let record = record(content, start, &mut fields)?;
    if !fields.is_empty() {
        return Err("bytes behind the record".to_owned());
    }
    Ok(Unit::Delivery {
        level,
        offset,
        record,
    })
}

fn record(content: &Bytes, start: usize, fields: &mut Fields<'_>) -> Result<Placed, String> {
    let crc = fields.u32().ok_or("no record")?;
    let at = content.len() - fields.0.len();
    let size = fields
        .0
        .first_chunk()
        .copied()
        .map_or(0, u32::from_be_bytes) as usize;
    let bytes = fields.take(size).ok_or("a record cut short")?;
    if crc32c::crc32c(bytes) != crc {
        return Err("a record's checksum".to_owned());
    }
    let mut records =
        decode_records(content.slice(at..at + size)).map_err(|error| error.to_string())?;
    match (records.pop(), records.is_empty()) {
        (Some(record), true) => Ok(Placed {
            at: start + at,
            record,
        }),
        _ => Err("a record of no size".to_owned()),
    }
}

fn command(content: &[u8]) -> Option<Command> {
    let mut fields = Fields(content);
    if fields.u8()? != 1 {
        return None;
    }
    let command = match fields.varint()? {
        0 => Command::PutTopic(topic(&mut fields)?),
        1 => Command::EnsureTopic(topic(&mut fields)?),
        2 => Command::DeleteTopic(fields.text()?.to_owned()),
        3 | 4 => skip(&mut fields, "tbbnib")?,
        5 => skip(&mut fields, "ttii")?,
        6 => skip(&mut fields, "ttqi")?,
        7 => skip(&mut fields, "ttq")?,
        8 => skip(&mut fields, "ntttb")?,
        _ => return None,
    };
    fields.is_empty().then_some(command)
}

/// Reads fields of no matter here: text, bool, number, signed integer, list of queues.
fn skip(fields: &mut Fields<'_>, layout: &str) -> Option<Command> {
    for field in layout.chars() {
        match field {
            't' => fields.text().map(drop),
            'b' => fields.flag().map(drop),
            'n' => fields.varint().map(drop),
            'i' => fields.signed().map(drop),
            _ => fields
                .list(|fields| Some((fields.text()?, fields.signed()?)))
                .map(drop),
        }?;
    }
    Some(Command::Other)
}

fn topic(fields: &mut Fields<'_>) -> Option<Topic> {
    let name = fields.text()?.to_owned();
    let queues = fields.varint()?.max(fields.varint()?);
    skip(fields, "nibt")?;
    Some(Topic { name, queues })
}

/// All voters of a membership.
pub fn voters(payload: &[u8]) -> Option<Vec<u64>> {
    let mut fields = Fields(payload);
    if fields.u8()? != 1 {
        return None;
    }
    let lists = fields.list(|fields| fields.list(Fields::varint))?;
    fields.list(|fields| Some((fields.varint()?, fields.text()?)))?;
    let mut voters: Vec<u64> = lists.into_iter().flatten().collect();
    voters.sort_unstable();
    voters.dedup();
    fields.is_empty().then_some(voters)
}
