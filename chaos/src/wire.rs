//! A small client of the RocketMQ remoting protocol, written from the protocol's description alone.
//!
//! `frame` and `record` are the codec, `connection` one socket with many requests in flight, `calls` the
//! request codes, `outcome` what a reply to a send means. Retries and choice of a node belong to callers.

mod calls;
mod connection;
mod frame;
mod outcome;
mod raw;
mod record;
mod route;
mod send;

pub use calls::{Consumer, Pull, Pulled, QueueRef, SendBack, Subscription, Topic};
pub use connection::{Connection, WireError};
pub use frame::{
    FLAG_ONE_WAY, FLAG_RESPONSE, FRAME_BYTES_MAX, Frame, FrameError, HeaderKind, split,
};
pub use outcome::{SendOutcome, Stored, classify};
pub use raw::{Reaction, frame_bytes, poke};
pub use record::{Record, RecordError, decode_records, properties_text};
pub use route::{BrokerData, QueueData, Route};
pub use send::{Message, SendForm, SendOptions, batch_body, crc32};

/// Request and response codes used here.
pub mod code {
    pub const SEND: i32 = 10;
    pub const PULL: i32 = 11;
    pub const QUERY_OFFSET: i32 = 14;
    pub const UPDATE_OFFSET: i32 = 15;
    pub const CREATE_TOPIC: i32 = 17;
    pub const RUNTIME_INFO: i32 = 28;
    pub const SEARCH_OFFSET: i32 = 29;
    pub const MAX_OFFSET: i32 = 30;
    pub const MIN_OFFSET: i32 = 31;
    pub const HEARTBEAT: i32 = 34;
    pub const UNREGISTER: i32 = 35;
    pub const SEND_BACK: i32 = 36;
    pub const CONSUMER_LIST: i32 = 38;
    pub const NOTIFY_CONSUMERS_CHANGED: i32 = 40;
    pub const LOCK: i32 = 41;
    pub const UNLOCK: i32 = 42;
    pub const ROUTE: i32 = 105;
    pub const DELETE_TOPIC: i32 = 215;
    pub const SEND_V2: i32 = 310;
    pub const SEND_BATCH: i32 = 320;

    pub const SUCCESS: i32 = 0;
    pub const SYSTEM_ERROR: i32 = 1;
    pub const SYSTEM_BUSY: i32 = 2;
    pub const NOT_SUPPORTED: i32 = 3;
    pub const FLUSH_DISK_TIMEOUT: i32 = 10;
    pub const SLAVE_NOT_AVAILABLE: i32 = 11;
    pub const FLUSH_SLAVE_TIMEOUT: i32 = 12;
    pub const MESSAGE_ILLEGAL: i32 = 13;
    pub const SERVICE_NOT_AVAILABLE: i32 = 14;
    pub const NO_PERMISSION: i32 = 16;
    pub const TOPIC_NOT_EXIST: i32 = 17;
    pub const PULL_NOT_FOUND: i32 = 19;
    pub const PULL_RETRY: i32 = 20;
    pub const PULL_OFFSET_MOVED: i32 = 21;
    pub const QUERY_NOT_FOUND: i32 = 22;
    pub const GROUP_NOT_EXIST: i32 = 26;
    pub const INVALID_PARAMETER: i32 = 29;
}
