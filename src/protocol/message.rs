//! The stored message (RocketMQ's commit-log record), properties, batches, ids.
//!
//! A record is kept in the log with its queue offset and physical offset zero; both, and the store host,
//! are filled in when it is read ([`fill_in`]). Records are always written with IPv4 hosts, so their layout
//! has fixed places up to the body.

mod batch;
mod ids;
mod properties;
mod record;

pub use batch::{BatchItem, push_batch_item, split_batch};
pub use ids::{new_unique_key, offset_message_id, parse_offset_message_id};
pub use properties::{HotProperties, Properties, push_property, tags_code};
pub use record::{NewRecord, Record, RecordError, fill_in, records};

/// Largest body (`maxMessageSize`): exactly this many bytes are accepted.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Largest properties text, bytes.
pub const PROPERTIES_BYTES_MAX: usize = 32767;
/// Longest topic name that a record can hold, bytes: a retry or DLQ topic of any length that RocketMQ's
/// validator lets pass.
pub const TOPIC_BYTES_MAX: usize = 255;

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

#[cfg(test)]
mod tests;
