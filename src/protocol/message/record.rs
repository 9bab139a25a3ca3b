//! The record itself: writing one, reading one in place, and filling in what only a reader knows.

use std::net::{Ipv4Addr, SocketAddrV4};

use bytes::{BufMut, Bytes, BytesMut};

use super::properties::Properties;
use super::{PROPERTIES_BYTES_MAX, SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6, TOPIC_BYTES_MAX};

/// Magic of a record with a one-byte topic length.
const MAGIC_V1: u32 = 0xDAA3_20A7;
/// Magic of a record with a two-byte topic length.
const MAGIC_V2: u32 = 0xDAA3_20AB;
/// Longest topic in bytes that fits into the (signed) length byte of a v1 record.
const TOPIC_BYTES_MAX_V1: usize = 127;

// Places of the fixed fields, IPv4 hosts.
const AT_MAGIC: usize = 4;
const AT_BODY_CRC: usize = 8;
const AT_QUEUE_ID: usize = 12;
const AT_FLAG: usize = 16;
const AT_QUEUE_OFFSET: usize = 20;
const AT_PHYSICAL_OFFSET: usize = 28;
const AT_SYS_FLAG: usize = 36;
const AT_BORN_MS: usize = 40;
const AT_BORN_HOST: usize = 48;
const AT_STORE_MS: usize = 56;
const AT_STORE_HOST: usize = 64;
const AT_RECONSUME_TIMES: usize = 72;
const AT_PREPARED_OFFSET: usize = 76;
const AT_BODY_LEN: usize = 84;
const AT_BODY: usize = 88;
/// Fixed part, one topic length byte, and the properties length.
const RECORD_BYTES_MIN: usize = AT_BODY + 1 + 2;

/// A message to be written as a record.
#[derive(Clone, Debug)]
pub struct NewRecord<'a> {
    pub topic: &'a str,
    pub queue_id: i32,
    pub flag: i32,
    pub sys_flag: i32,
    pub born_ms: i64,
    pub born_host: SocketAddrV4,
    pub store_ms: i64,
    pub store_host: SocketAddrV4,
    pub reconsume_times: i32,
    pub prepared_transaction_offset: i64,
    pub body: &'a [u8],
    pub properties: &'a [u8],
}

/// Why bytes are not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("record cut short at byte {0}")]
    Short(usize),
    #[error("bad magic {0:#010x}")]
    Magic(u32),
    #[error("field {0} is out of bounds")]
    Field(&'static str),
}

/// A record in place; all accessors are cheap and cannot fail once [`Record::parse`] succeeded.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    bytes: &'a [u8],
    // the variable parts, found by parse
    body: &'a [u8],
    topic: &'a str,
    properties: &'a [u8],
}

impl NewRecord<'_> {
    /// Length of the record that [`NewRecord::encode`] writes.
    pub fn encoded_len(&self) -> usize {
        let topic_len_bytes = if self.is_v1() { 1 } else { 2 };
        AT_BODY + self.body.len() + topic_len_bytes + self.topic.len() + 2 + self.properties.len()
    }

    fn is_v1(&self) -> bool {
        self.topic.len() <= TOPIC_BYTES_MAX_V1
    }

    /// Appends the record (v1, or v2 when the topic is longer than 127 bytes), with body CRC, and queue
    /// offset and physical offset zero. IPv6 flags in `sys_flag` are cleared.
    ///
    /// # Panics
    /// When the topic is longer than [`TOPIC_BYTES_MAX`] or the properties than [`PROPERTIES_BYTES_MAX`]
    /// bytes, or the record than 2 GiB: such a record would be read back as another one. Callers check the
    /// limits first, to answer with RocketMQ's codes.
    pub fn encode(&self, out: &mut BytesMut) {
        assert!(self.topic.len() <= TOPIC_BYTES_MAX, "topic too long");
        assert!(
            self.properties.len() <= PROPERTIES_BYTES_MAX,
            "properties too long"
        );
        let len = self.encoded_len();
        assert!(i32::try_from(len).is_ok(), "record too long");
        let mut head = [0u8; AT_BODY];
        let mut put = |at: usize, field: &[u8]| head[at..at + field.len()].copy_from_slice(field);
        put(0, &(len as u32).to_be_bytes());
        let magic = if self.is_v1() { MAGIC_V1 } else { MAGIC_V2 };
        put(AT_MAGIC, &magic.to_be_bytes());
        put(AT_BODY_CRC, &body_crc(self.body).to_be_bytes());
        put(AT_QUEUE_ID, &self.queue_id.to_be_bytes());
        put(AT_FLAG, &self.flag.to_be_bytes());
        // Queue offset and physical offset stay zero: the reader fills them in.
        let sys_flag = self.sys_flag & !(SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6);
        put(AT_SYS_FLAG, &sys_flag.to_be_bytes());
        put(AT_BORN_MS, &self.born_ms.to_be_bytes());
        put(AT_BORN_HOST, &host_bytes(self.born_host));
        put(AT_STORE_MS, &self.store_ms.to_be_bytes());
        put(AT_STORE_HOST, &host_bytes(self.store_host));
        put(AT_RECONSUME_TIMES, &self.reconsume_times.to_be_bytes());
        put(
            AT_PREPARED_OFFSET,
            &self.prepared_transaction_offset.to_be_bytes(),
        );
        put(AT_BODY_LEN, &(self.body.len() as u32).to_be_bytes());

        out.reserve(len);
        out.put_slice(&head);
        out.put_slice(self.body);
        if self.is_v1() {
            out.put_u8(self.topic.len() as u8);
        } else {
            out.put_u16(self.topic.len() as u16);
        }
        out.put_slice(self.topic.as_bytes());
        out.put_u16(self.properties.len() as u16);
        out.put_slice(self.properties);
    }
}

/// CRC-32 (IEEE) of a body as records carry it: the top bit cleared, as Java's is made non-negative.
pub(super) fn body_crc(body: &[u8]) -> u32 {
    crc32fast::hash(body) & 0x7fff_ffff
}

/// A host field: address, then the port as 32 bits.
fn host_bytes(host: SocketAddrV4) -> [u8; 8] {
    let mut field = [0; 8];
    field[..4].copy_from_slice(&host.ip().octets());
    field[4..].copy_from_slice(&u32::from(host.port()).to_be_bytes());
    field
}

impl<'a> Record<'a> {
    /// Reads the record at the front of `bytes` (which may go on behind it). Checks every bound, and that
    /// the parts add up to the size that the record claims. The body's CRC is not checked here
    /// ([`Record::body_matches_crc`]). Records with IPv6 hosts are refused: ours never have them.
    pub fn parse(bytes: &'a [u8]) -> Result<Record<'a>, RecordError> {
        let head = bytes
            .get(..AT_BODY_CRC)
            .ok_or(RecordError::Short(bytes.len()))?;
        let magic = u32::from_be_bytes(array(head, AT_MAGIC));
        if magic != MAGIC_V1 && magic != MAGIC_V2 {
            return Err(RecordError::Magic(magic));
        }
        let size = length(array(head, 0), "total size")?;
        if size < RECORD_BYTES_MIN {
            return Err(RecordError::Field("total size"));
        }
        let bytes = bytes.get(..size).ok_or(RecordError::Short(bytes.len()))?;
        let v6 = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6;
        if i32::from_be_bytes(array(bytes, AT_SYS_FLAG)) & v6 != 0 {
            return Err(RecordError::Field("host"));
        }
        let body_len = length(array(bytes, AT_BODY_LEN), "body length")?;
        let (body, rest) =
            split(&bytes[AT_BODY..], body_len).ok_or(RecordError::Field("body length"))?;
        let (topic_len, rest) = if magic == MAGIC_V1 {
            let (len, rest) = split(rest, 1).ok_or(RecordError::Field("topic length"))?;
            (usize::from(len[0]), rest)
        } else {
            let (len, rest) = split(rest, 2).ok_or(RecordError::Field("topic length"))?;
            (usize::from(u16::from_be_bytes(array(len, 0))), rest)
        };
        let (topic, rest) = split(rest, topic_len).ok_or(RecordError::Field("topic length"))?;
        let topic = std::str::from_utf8(topic).map_err(|_| RecordError::Field("topic"))?;
        let (len, properties) = split(rest, 2).ok_or(RecordError::Field("properties length"))?;
        let properties_len = usize::from(u16::from_be_bytes(array(len, 0)));
        if properties_len > PROPERTIES_BYTES_MAX || properties_len != properties.len() {
            return Err(RecordError::Field("properties length"));
        }
        Ok(Record {
            bytes,
            body,
            topic,
            properties,
        })
    }

    /// Total size in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    /// The whole record as it lies in memory.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The CRC that the record carries: CRC-32 (IEEE) of the body without its top bit.
    pub fn body_crc(&self) -> u32 {
        u32::from_be_bytes(array(self.bytes, AT_BODY_CRC))
    }

    /// Whether the body is the one that the record's CRC was computed over. Reads the whole body.
    pub fn body_matches_crc(&self) -> bool {
        body_crc(self.body) == self.body_crc()
    }

    pub fn queue_id(&self) -> i32 {
        self.i32_at(AT_QUEUE_ID)
    }

    /// The user's flag.
    pub fn flag(&self) -> i32 {
        self.i32_at(AT_FLAG)
    }

    /// Zero in the log; the index in the queue once [`fill_in`] has been applied.
    pub fn queue_offset(&self) -> i64 {
        self.i64_at(AT_QUEUE_OFFSET)
    }

    /// Zero in the log; the position once [`fill_in`] has been applied.
    pub fn physical_offset(&self) -> i64 {
        self.i64_at(AT_PHYSICAL_OFFSET)
    }

    pub fn sys_flag(&self) -> i32 {
        self.i32_at(AT_SYS_FLAG)
    }

    /// The client's clock, ms since the epoch.
    pub fn born_ms(&self) -> i64 {
        self.i64_at(AT_BORN_MS)
    }

    pub fn born_host(&self) -> SocketAddrV4 {
        self.host_at(AT_BORN_HOST)
    }

    /// The broker's clock, ms since the epoch.
    pub fn store_ms(&self) -> i64 {
        self.i64_at(AT_STORE_MS)
    }

    pub fn store_host(&self) -> SocketAddrV4 {
        self.host_at(AT_STORE_HOST)
    }

    pub fn reconsume_times(&self) -> i32 {
        self.i32_at(AT_RECONSUME_TIMES)
    }

    pub fn prepared_transaction_offset(&self) -> i64 {
        self.i64_at(AT_PREPARED_OFFSET)
    }

    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    pub fn topic(&self) -> &'a str {
        self.topic
    }

    pub fn properties(&self) -> Properties<'a> {
        Properties(self.properties)
    }

    fn i32_at(&self, at: usize) -> i32 {
        i32::from_be_bytes(array(self.bytes, at))
    }

    fn i64_at(&self, at: usize) -> i64 {
        i64::from_be_bytes(array(self.bytes, at))
    }

    fn host_at(&self, at: usize) -> SocketAddrV4 {
        let ip: [u8; 4] = array(self.bytes, at);
        // The field has 32 bits, a port 16: what a foreign writer put above them is dropped.
        let port = u32::from_be_bytes(array(self.bytes, at + 4)) as u16;
        SocketAddrV4::new(Ipv4Addr::from(ip), port)
    }
}

/// `N` bytes at a place that the caller has checked to exist.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

/// A length field of 32 bits: negative ones are out of bounds.
pub(super) fn length(field: [u8; 4], name: &'static str) -> Result<usize, RecordError> {
    usize::try_from(i32::from_be_bytes(field)).map_err(|_| RecordError::Field(name))
}

/// The first `len` bytes and the rest; `None` when there are fewer.
pub(super) fn split(bytes: &[u8], len: usize) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(len)
}

/// Writes what a reader must see into a record copied from the log: queue offset, physical offset
/// (position), and the host that serves it. `record` must start with a whole record.
///
/// # Panics
/// When `record` is shorter than a record's fixed part.
pub fn fill_in(record: &mut [u8], queue_offset: i64, position: i64, store_host: SocketAddrV4) {
    let head = &mut record[..AT_BODY];
    head[AT_QUEUE_OFFSET..AT_PHYSICAL_OFFSET].copy_from_slice(&queue_offset.to_be_bytes());
    head[AT_PHYSICAL_OFFSET..AT_SYS_FLAG].copy_from_slice(&position.to_be_bytes());
    head[AT_STORE_HOST..AT_RECONSUME_TIMES].copy_from_slice(&host_bytes(store_host));
}

/// Bytes that are a concatenation of records (the body of a pull's answer): reads them all. An error is
/// the last element, since nothing behind it can be found.
pub fn records(body: &Bytes) -> Vec<Result<Record<'_>, RecordError>> {
    let mut rest: &[u8] = body;
    let mut found = Vec::new();
    while !rest.is_empty() {
        match Record::parse(rest) {
            Ok(record) => {
                rest = &rest[record.len()..];
                found.push(Ok(record));
            }
            Err(error) => {
                found.push(Err(error));
                break;
            }
        }
    }
    found
}
