//! The stored message as a pull returns it: records one behind the other. Checks every length, the body's
//! CRC and the magic, because these are what a damaged or mixed-up log shows first.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::{Buf, Bytes};

const MAGIC_V1: u32 = 0xDAA3_20A7;
const MAGIC_V2: u32 = 0xDAA3_20AB;
const SYS_BORN_V6: i32 = 1 << 4;
const SYS_STORE_V6: i32 = 1 << 5;

/// Why bytes are no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("record ends early at its {0}")]
    Short(&'static str),
    #[error("record magic {0:#010x}")]
    Magic(u32),
    #[error("record size {announced}, of which its parts take {taken}")]
    Size { announced: usize, taken: usize },
    #[error("body CRC {stored:#010x} does not match {computed:#010x} at queue offset {offset}")]
    Crc {
        stored: u32,
        computed: u32,
        offset: i64,
    },
}

/// One message as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub queue: i32,
    pub flag: i32,
    /// Queue offset.
    pub offset: i64,
    /// Position in the commit log, bytes.
    pub position: i64,
    pub sys_flag: i32,
    pub born_ms: i64,
    pub born_host: SocketAddr,
    pub store_ms: i64,
    pub store_host: SocketAddr,
    pub reconsume_times: i32,
    pub body: Bytes,
    pub topic: String,
    pub properties: BTreeMap<String, String>,
    /// Whole record, bytes.
    pub size: usize,
}

impl Record {
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties.get(name).map(String::as_str)
    }

    /// The producer's own id of the message.
    pub fn key(&self) -> Option<&str> {
        self.property("UNIQ_KEY")
    }
}

/// All records of a pull's body.
pub fn decode_records(mut body: Bytes) -> Result<Vec<Record>, RecordError> {
    let mut records = Vec::new();
    while !body.is_empty() {
        let size = peek_size(&body)?;
        records.push(decode(body.split_to(size))?);
    }
    Ok(records)
}

fn peek_size(body: &Bytes) -> Result<usize, RecordError> {
    let Some(word) = body.get(..4) else {
        return Err(RecordError::Short("size"));
    };
    let size = u32::from_be_bytes([word[0], word[1], word[2], word[3]]) as usize;
    if size < 4 || size > body.len() {
        return Err(RecordError::Short("whole"));
    }
    Ok(size)
}

fn decode(mut bytes: Bytes) -> Result<Record, RecordError> {
    let size = bytes.len();
    if size < 40 {
        return Err(RecordError::Short("head"));
    }
    bytes.advance(4);
    let magic = bytes.get_u32();
    if magic != MAGIC_V1 && magic != MAGIC_V2 {
        return Err(RecordError::Magic(magic));
    }
    let crc = bytes.get_u32();
    let queue = bytes.get_i32();
    let flag = bytes.get_i32();
    let offset = bytes.get_i64();
    let position = bytes.get_i64();
    let sys_flag = bytes.get_i32();
    let born_ms = i64_at(&mut bytes, "born time")?;
    let born_host = host_at(&mut bytes, sys_flag & SYS_BORN_V6 != 0)?;
    let store_ms = i64_at(&mut bytes, "store time")?;
    let store_host = host_at(&mut bytes, sys_flag & SYS_STORE_V6 != 0)?;
    let reconsume_times = i32_at(&mut bytes, "reconsume times")?;
    i64_at(&mut bytes, "prepared offset")?;
    let len = i32_at(&mut bytes, "body length")? as u32 as usize;
    let body = part(&mut bytes, len, "body")?;
    let len = topic_len(&mut bytes, magic)?;
    let topic = part(&mut bytes, len, "topic")?;
    let len = part(&mut bytes, 2, "properties length")?.get_u16() as usize;
    let properties = part(&mut bytes, len, "properties")?;
    if !bytes.is_empty() {
        return Err(RecordError::Size {
            announced: size,
            taken: size - bytes.len(),
        });
    }
    let computed = crc32fast::hash(&body) & 0x7fff_ffff;
    if computed != crc {
        return Err(RecordError::Crc {
            stored: crc,
            computed,
            offset,
        });
    }
    Ok(Record {
        queue,
        flag,
        offset,
        position,
        sys_flag,
        born_ms,
        born_host,
        store_ms,
        store_host,
        reconsume_times,
        body,
        topic: String::from_utf8_lossy(&topic).into_owned(),
        properties: parse_properties(&String::from_utf8_lossy(&properties)),
        size,
    })
}

fn part(bytes: &mut Bytes, len: usize, what: &'static str) -> Result<Bytes, RecordError> {
    if len > bytes.len() {
        return Err(RecordError::Short(what));
    }
    Ok(bytes.split_to(len))
}

fn i64_at(bytes: &mut Bytes, what: &'static str) -> Result<i64, RecordError> {
    Ok(part(bytes, 8, what)?.get_i64())
}

fn i32_at(bytes: &mut Bytes, what: &'static str) -> Result<i32, RecordError> {
    Ok(part(bytes, 4, what)?.get_i32())
}

fn topic_len(bytes: &mut Bytes, magic: u32) -> Result<usize, RecordError> {
    if magic == MAGIC_V1 {
        Ok(part(bytes, 1, "topic length")?.get_u8() as usize)
    } else {
        Ok(part(bytes, 2, "topic length")?.get_u16() as usize)
    }
}

fn host_at(bytes: &mut Bytes, v6: bool) -> Result<SocketAddr, RecordError> {
    let ip = if v6 {
        IpAddr::V6(Ipv6Addr::from(part(bytes, 16, "host")?.get_u128()))
    } else {
        IpAddr::V4(Ipv4Addr::from(part(bytes, 4, "host")?.get_u32()))
    };
    let port = part(bytes, 4, "port")?.get_i32();
    Ok(SocketAddr::new(ip, port as u16))
}

/// `name 0x01 value 0x02` repeated; the last of equal names wins, empty names and values do not count.
pub(super) fn parse_properties(text: &str) -> BTreeMap<String, String> {
    text.split('\u{2}')
        .filter_map(|pair| pair.split_once('\u{1}'))
        .filter(|(name, value)| !name.is_empty() && !value.is_empty())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The text of a properties field.
pub fn properties_text<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        text.push_str(name);
        text.push('\u{1}');
        text.push_str(value);
        text.push('\u{2}');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by the original's own classes.
    const VECTOR: &str = "00000065daa320a758932aac0000000300000000000000000000000500000000000003e8\
        000000000000018bcfe568000a00000900000fa00000018bcfe568010a00000100002a9f00000000\
        0000000000000000000000026869015400075441475301\
        4102";

    fn vector() -> Vec<u8> {
        (0..VECTOR.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&VECTOR[at..at + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn the_vector_printed_by_the_original_decodes() {
        let mut two = vector();
        two.extend(vector());
        let records = decode_records(two.into()).unwrap();
        assert_eq!(records.len(), 2);
        let record = &records[0];
        assert_eq!((record.queue, record.offset, record.position), (3, 5, 1000));
        assert_eq!(record.topic, "T");
        assert_eq!(record.body.as_ref(), b"hi");
        assert_eq!(record.property("TAGS"), Some("A"));
        assert_eq!(record.born_host, "10.0.0.9:4000".parse().unwrap());
        assert_eq!(record.store_host, "10.0.0.1:10911".parse().unwrap());
        assert_eq!(record.store_ms, 1_700_000_000_001);
        assert_eq!(record.size, 101);
    }

    #[test]
    fn every_cut_and_every_damaged_body_byte_is_seen() {
        let whole = vector();
        for len in 1..whole.len() {
            assert!(decode_records(Bytes::copy_from_slice(&whole[..len])).is_err());
            let mut shorter = whole[..len].to_vec();
            if len >= 4 {
                shorter[..4].copy_from_slice(&(len as u32).to_be_bytes());
                assert!(decode_records(shorter.into()).is_err(), "cut at {len}");
            }
        }
        let mut damaged = whole;
        damaged[88] ^= 1;
        assert!(matches!(
            decode_records(damaged.into()),
            Err(RecordError::Crc { offset: 5, .. })
        ));
    }

    #[test]
    fn properties_keep_the_last_value_and_drop_the_empty_ones() {
        let parsed = parse_properties("a\u{1}1\u{2}a\u{1}2\u{2}b\u{1}\u{2}junk\u{2}c\u{1}3");
        assert_eq!(
            parsed.into_iter().collect::<Vec<_>>(),
            [("a".into(), "2".into()), ("c".into(), "3".into())]
        );
    }
}
