//! Connections between the nodes of a group.
//!
//! One lasting TCP connection per direction: the node that asks dials, answers come back on the same
//! connection. Frames are checked, requests are matched by id, and nothing waits without a bound.
//!
//! `frame` bytes, `codec` payloads, `handshake` who is there, `writer` lanes; `conn`, `link`, `append_stream`
//! and `network` ask, `listener` and `session` answer through `inbound`;
//! `standing` what a node says of itself.

mod append_stream;
mod codec;
mod conn;
mod frame;
mod handshake;
mod inbound;
mod link;
mod listener;
mod network;
mod session;
mod standing;
mod writer;

pub(crate) use conn::RequestError;
pub(crate) use handshake::Identity;
pub(crate) use inbound::Inbound;
pub(crate) use link::Link;
pub(crate) use listener::serve;
pub(crate) use network::{Links, Network};
pub(crate) use standing::{PeersTag, Standing};

#[cfg(test)]
mod tests;
