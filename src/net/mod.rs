//! Client sockets: accepting, cutting frames, writing replies, and their limits. The only place with
//! client sockets.
//!
//! Reads are paused while a connection's replies pile up; a connection that is idle for 120 s, sends what
//! is no frame, or lets its replies grow beyond the bound is closed with one log line.

pub mod connection;
pub mod server;
