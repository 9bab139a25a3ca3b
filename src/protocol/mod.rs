//! RocketMQ's remoting protocol: frames, headers, codes, message layout, and the fields of each request.
//!
//! Bytes and names only: no I/O, no state, nothing of the broker. Wire names keep RocketMQ's spelling here
//! and nowhere else. Every length, count and offset that comes in is untrusted.

pub mod body;
pub mod codes;
pub mod filter;
pub mod frame;
pub mod header;
pub mod message;
pub mod names;
pub mod request;
