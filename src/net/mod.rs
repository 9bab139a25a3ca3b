//! Client sockets: accepting, cutting frames, writing replies, and their limits. The only place with
//! client sockets.
//!
//! Reads are paused while a connection's replies pile up. A connection is closed when it is idle for 120 s or
//! does not complete a frame in that time, and, with a log line, when it sends what is no frame, lets its replies
//! grow beyond the bound, or takes a descriptor that the node keeps for itself.

pub mod connection;
pub mod server;
