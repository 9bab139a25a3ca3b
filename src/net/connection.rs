//! One client connection: where replies go.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

use crate::protocol::frame::Reply;

/// The sending half of a connection, shared by everything that may answer on it.
pub struct Connection {
    // TO BE FILLED by the owner of this module.
    pub id: u64,
    pub peer: SocketAddr,
}

#[allow(clippy::todo, unused_variables)]
impl Connection {
    /// Queues a reply. Never blocks; a connection whose queue is beyond its bound is closed.
    pub fn send(&self, reply: Reply) {
        todo!()
    }

    /// Queues a whole frame (a server-initiated request, or a reply that a peer encoded).
    pub fn send_frame(&self, frame: Bytes) {
        todo!()
    }

    pub fn is_closed(&self) -> bool {
        todo!()
    }
}

/// Where a reply goes.
pub enum ReplyTo {
    Connection(Arc<Connection>),
    /// The request came from a node that passed it on; the encoded reply goes back to it.
    Peer(tokio::sync::oneshot::Sender<Bytes>),
    /// One-way: nobody waits.
    Nobody,
}

impl ReplyTo {
    pub fn send(self, reply: Reply) {
        match self {
            ReplyTo::Connection(connection) => connection.send(reply),
            ReplyTo::Peer(back) => {
                let mut frame = bytes::BytesMut::new();
                reply.encode(&mut frame);
                // A peer that stopped waiting has answered its client already.
                let _ = back.send(frame.freeze());
            }
            ReplyTo::Nobody => {}
        }
    }
}
