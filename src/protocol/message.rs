//! The stored message (RocketMQ's commit-log record), properties, batches, ids.
//!
//! A record is kept in the log with its queue offset and physical offset zero; both, and the store host,
//! are filled in when it is read ([`fill_in`]). Records are always written with IPv4 hosts, so their layout
//! has fixed places up to the body.

use std::net::SocketAddrV4;

use bytes::{Bytes, BytesMut};

/// Largest body (`maxMessageSize`): exactly this many bytes are accepted.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Largest properties text, bytes.
pub const PROPERTIES_BYTES_MAX: usize = 32767;

pub const SYS_FLAG_COMPRESSED: i32 = 1;
pub const SYS_FLAG_MULTI_TAGS: i32 = 1 << 1;
pub const SYS_FLAG_TRANSACTION_MASK: i32 = 3 << 2;
pub const SYS_FLAG_BORN_HOST_V6: i32 = 1 << 4;
pub const SYS_FLAG_STORE_HOST_V6: i32 = 1 << 5;

/// Names of properties used by the protocol.
pub mod property {
    pub const KEYS: &str = "KEYS";
    pub const TAGS: &str = "TAGS";
    pub const WAIT: &str = "WAIT";
    pub const DELAY: &str = "DELAY";
    pub const RETRY_TOPIC: &str = "RETRY_TOPIC";
    pub const REAL_TOPIC: &str = "REAL_TOPIC";
    pub const REAL_QID: &str = "REAL_QID";
    pub const UNIQ_KEY: &str = "UNIQ_KEY";
    pub const ORIGIN_MESSAGE_ID: &str = "ORIGIN_MESSAGE_ID";
    pub const MSG_REGION: &str = "MSG_REGION";
    pub const TRACE_ON: &str = "TRACE_ON";
    pub const CLUSTER: &str = "CLUSTER";
    pub const POP_CK: &str = "POP_CK";
    pub const TRAN_MSG: &str = "TRAN_MSG";
    pub const DLQ_ORIGIN_TOPIC: &str = "DLQ_ORIGIN_TOPIC";
    pub const DLQ_ORIGIN_MESSAGE_ID: &str = "DLQ_ORIGIN_MESSAGE_ID";
    pub const TIMER_DELIVER_MS: &str = "TIMER_DELIVER_MS";
    pub const TIMER_DELAY_SEC: &str = "TIMER_DELAY_SEC";
    pub const TIMER_DELAY_MS: &str = "TIMER_DELAY_MS";
}

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
    // offsets of the variable parts, found by parse
    topic: (usize, usize),
    properties: (usize, usize),
    body: (usize, usize),
}

#[allow(clippy::todo, unused_variables)]
impl NewRecord<'_> {
    /// Length of the record that [`NewRecord::encode`] writes.
    pub fn encoded_len(&self) -> usize {
        todo!()
    }

    /// Appends the record (v1, or v2 when the topic is longer than 127 bytes), with body CRC, and queue
    /// offset and physical offset zero. IPv6 flags in `sys_flag` are cleared.
    pub fn encode(&self, out: &mut BytesMut) {
        todo!()
    }
}

#[allow(clippy::todo, unused_variables)]
impl<'a> Record<'a> {
    /// Reads the record at the front of `bytes` (which may go on behind it). Checks every bound.
    pub fn parse(bytes: &'a [u8]) -> Result<Record<'a>, RecordError> {
        todo!()
    }

    /// Total size in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    pub fn body_crc(&self) -> u32 {
        todo!()
    }
    pub fn queue_id(&self) -> i32 {
        todo!()
    }
    pub fn flag(&self) -> i32 {
        todo!()
    }
    pub fn queue_offset(&self) -> i64 {
        todo!()
    }
    pub fn physical_offset(&self) -> i64 {
        todo!()
    }
    pub fn sys_flag(&self) -> i32 {
        todo!()
    }
    pub fn born_ms(&self) -> i64 {
        todo!()
    }
    pub fn born_host(&self) -> SocketAddrV4 {
        todo!()
    }
    pub fn store_ms(&self) -> i64 {
        todo!()
    }
    pub fn reconsume_times(&self) -> i32 {
        todo!()
    }
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[self.body.0..self.body.1]
    }
    pub fn topic(&self) -> &'a str {
        todo!()
    }
    pub fn properties(&self) -> Properties<'a> {
        Properties(&self.bytes[self.properties.0..self.properties.1])
    }
}

/// Writes what a reader must see into a record copied from the log: queue offset, physical offset
/// (position), and the host that serves it. `record` must start with a whole record.
#[allow(clippy::todo, unused_variables)]
pub fn fill_in(record: &mut [u8], queue_offset: i64, position: i64, store_host: SocketAddrV4) {
    todo!()
}

/// A properties text: `name 0x01 value 0x02` repeated; fragments without separator, name or value are
/// skipped; the last one wins.
#[derive(Clone, Copy, Debug)]
pub struct Properties<'a>(pub &'a [u8]);

#[allow(clippy::todo, unused_variables)]
impl<'a> Properties<'a> {
    pub fn value(&self, name: &str) -> Option<&'a str> {
        todo!()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        std::iter::empty()
    }

    /// One pass for the three that the hot path needs: TAGS, UNIQ_KEY, DELAY.
    pub fn hot(&self) -> HotProperties<'a> {
        todo!()
    }
}

/// What [`Properties::hot`] finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotProperties<'a> {
    pub tags: Option<&'a str>,
    pub unique_key: Option<&'a str>,
    pub delay: Option<&'a str>,
}

/// Appends one property.
#[allow(clippy::todo, unused_variables)]
pub fn push_property(out: &mut Vec<u8>, name: &str, value: &str) {
    todo!()
}

/// Java's `String.hashCode` of a tag, sign-extended; 0 for no tag.
#[allow(clippy::todo, unused_variables)]
pub fn tags_code(tags: Option<&str>) -> i64 {
    todo!()
}

/// One message of a batch body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchItem<'a> {
    pub flag: i32,
    pub body: &'a [u8],
    pub properties: &'a [u8],
}

/// Splits the body of a batch send (remoting-protocol 2.4). At least one message.
#[allow(clippy::todo, unused_variables)]
pub fn split_batch(body: &[u8]) -> Result<Vec<BatchItem<'_>>, RecordError> {
    todo!()
}

/// The message id that the server gives: upper-case hex of store host and position, 32 characters.
#[allow(clippy::todo, unused_variables)]
pub fn offset_message_id(store_host: SocketAddrV4, position: u64) -> String {
    todo!()
}

/// Address and position in an offset message id; `None` when it is not one.
#[allow(clippy::todo, unused_variables)]
pub fn parse_offset_message_id(id: &str) -> Option<(SocketAddrV4, u64)> {
    todo!()
}

/// A client-style unique id (UNIQ_KEY) made by the server for a message that came without one.
#[allow(clippy::todo, unused_variables)]
pub fn new_unique_key(host: SocketAddrV4, wall_ms: i64) -> String {
    todo!()
}

/// Bytes that are a concatenation of records: iterates them.
#[allow(clippy::todo, unused_variables)]
pub fn records(body: &Bytes) -> Vec<Result<Record<'_>, RecordError>> {
    todo!()
}
