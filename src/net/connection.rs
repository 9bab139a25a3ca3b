//! One client connection: where replies go, and how much of them may wait.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::{Notify, oneshot};

use crate::protocol::frame::Reply;

/// Reading pauses while more bytes of replies than this wait to be written.
pub const QUEUED_BYTES_PAUSE: usize = 1024 * 1024;
/// A connection whose waiting replies exceed this is closed: its client does not read.
pub const QUEUED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Reading pauses while more requests than this wait for their reply.
pub const IN_FLIGHT_MAX: usize = 4096;
/// Bodies up to this are copied behind their header; larger ones are written from where they are.
const COPIED_BODY_BYTES_MAX: usize = 8 * 1024;

const _: () = assert!(QUEUED_BYTES_PAUSE < QUEUED_BYTES_MAX);

/// The sending half of a connection, shared by everything that may answer on it.
pub struct Connection {
    /// Unique in this process.
    pub id: u64,
    pub peer: SocketAddr,
    out: Mutex<Out>,
    closed: AtomicBool,
    /// Wakes the writer: something is queued, or the connection is closed.
    writer: Notify,
    /// Wakes the reader: it may read on, or the connection is closed.
    reader: Notify,
}

/// What waits to be written, and who waits for it.
#[derive(Default)]
struct Out {
    chunks: VecDeque<Bytes>,
    /// Small pieces, gathered until the writer takes them or a large body follows.
    tail: BytesMut,
    /// Bytes queued and not yet written, those that the writer holds included.
    bytes: usize,
    in_flight: usize,
    writer_waits: bool,
    reader_waits: bool,
}

/// What the writer finds.
pub(super) enum Taken {
    Chunks(VecDeque<Bytes>),
    Nothing,
    Closed,
}

impl Connection {
    pub(crate) fn new(id: u64, peer: SocketAddr) -> Connection {
        Connection {
            id,
            peer,
            out: Mutex::new(Out::default()),
            closed: AtomicBool::new(false),
            writer: Notify::new(),
            reader: Notify::new(),
        }
    }

    /// Queues the reply to one request. Never blocks; a connection whose queue is beyond its bound is closed.
    pub fn send(&self, reply: Reply) {
        let mut out = self.lock();
        let before = out.tail.len();
        reply.encode_head(&mut out.tail);
        out.bytes += out.tail.len() - before;
        push(&mut out, reply.body);
        answered(&mut out);
        self.queued(out);
    }

    /// Queues a whole frame that answers nothing (a server-initiated request).
    pub fn send_frame(&self, frame: Bytes) {
        let mut out = self.lock();
        push(&mut out, frame);
        self.queued(out);
    }

    /// Queues the reply to one request that another node has encoded.
    pub(crate) fn send_reply_frame(&self, frame: Bytes) {
        let mut out = self.lock();
        push(&mut out, frame);
        answered(&mut out);
        self.queued(out);
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Closes the connection: what is queued and not yet written is dropped.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        {
            let mut out = self.lock();
            out.chunks.clear();
            out.tail = BytesMut::new();
        }
        self.writer.notify_one();
        self.reader.notify_one();
    }

    /// A request was read.
    pub(super) fn asked(&self) {
        self.lock().in_flight += 1;
    }

    /// Waits until the reader may go on: few enough replies and requests wait. Returns at once when closed.
    pub(super) async fn may_read(&self) {
        loop {
            {
                let mut out = self.lock();
                let paused = out.bytes > QUEUED_BYTES_PAUSE || out.in_flight >= IN_FLIGHT_MAX;
                out.reader_waits = paused;
                if !paused || self.is_closed() {
                    return;
                }
            }
            self.reader.notified().await;
        }
    }

    /// Whether the reader waits for replies to be taken.
    pub(super) fn reading_pauses(&self) -> bool {
        self.lock().reader_waits
    }

    /// Resolves when the connection was closed from this side.
    pub(super) async fn closing(&self) {
        while !self.is_closed() {
            self.reader.notified().await;
        }
    }

    /// Takes everything that is queued.
    pub(super) fn take(&self) -> Taken {
        if self.is_closed() {
            return Taken::Closed;
        }
        let mut out = self.lock();
        if !out.tail.is_empty() {
            let tail = std::mem::take(&mut out.tail).freeze();
            out.chunks.push_back(tail);
        }
        out.writer_waits = out.chunks.is_empty();
        if out.writer_waits {
            return Taken::Nothing;
        }
        Taken::Chunks(std::mem::take(&mut out.chunks))
    }

    /// Waits until something is queued or the connection is closed.
    pub(super) async fn something_queued(&self) {
        self.writer.notified().await;
    }

    /// `bytes` of what was taken have reached the socket.
    pub(super) fn written(&self, bytes: usize) {
        let mut out = self.lock();
        out.bytes = out.bytes.saturating_sub(bytes);
        self.wake_reader(&mut out);
    }

    fn queued(&self, mut out: MutexGuard<'_, Out>) {
        if self.is_closed() {
            out.chunks.clear();
            out.tail = BytesMut::new();
            return;
        }
        if out.bytes > QUEUED_BYTES_MAX {
            let bytes = out.bytes;
            drop(out);
            tracing::warn!(peer = %self.peer, bytes, "closing a connection whose client does not read its replies");
            self.close();
            return;
        }
        let wake = std::mem::take(&mut out.writer_waits);
        self.wake_reader(&mut out);
        drop(out);
        if wake {
            self.writer.notify_one();
        }
    }

    fn wake_reader(&self, out: &mut Out) {
        if out.reader_waits && out.bytes <= QUEUED_BYTES_PAUSE && out.in_flight < IN_FLIGHT_MAX {
            out.reader_waits = false;
            self.reader.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn push(out: &mut Out, bytes: Bytes) {
    out.bytes += bytes.len();
    if bytes.len() <= COPIED_BODY_BYTES_MAX {
        out.tail.extend_from_slice(&bytes);
        return;
    }
    if !out.tail.is_empty() {
        let tail = std::mem::take(&mut out.tail).freeze();
        out.chunks.push_back(tail);
    }
    out.chunks.push_back(bytes);
}

fn answered(out: &mut Out) {
    // A reply beyond those that were asked for would be a bug of a handler, not of this client.
    debug_assert!(out.in_flight > 0, "a reply without a request");
    out.in_flight = out.in_flight.saturating_sub(1);
}

/// Where a reply goes.
pub enum ReplyTo {
    Connection(Arc<Connection>),
    /// The request came from a node that passed it on; the encoded reply goes back to it. An empty frame says
    /// that this node does not lead and has done nothing.
    Peer(oneshot::Sender<Bytes>),
    /// One-way: nobody waits. Until this is dropped the request counts as one in flight, so that a client
    /// that wants no replies cannot have more under way than others.
    Nobody(OneWay),
}

/// A one-way request under way.
pub struct OneWay(Arc<Connection>);

impl OneWay {
    /// A one-way request was read.
    pub(super) fn read(connection: &Arc<Connection>) -> OneWay {
        connection.asked();
        OneWay(connection.clone())
    }
}

impl Drop for OneWay {
    fn drop(&mut self) {
        let mut out = self.0.lock();
        answered(&mut out);
        self.0.wake_reader(&mut out);
    }
}

impl ReplyTo {
    pub fn send(self, reply: Reply) {
        match self {
            ReplyTo::Connection(connection) => connection.send(reply),
            ReplyTo::Peer(back) => {
                let mut frame = BytesMut::new();
                reply.encode(&mut frame);
                // A peer that stopped waiting has answered its client already.
                let _ = back.send(frame.freeze());
            }
            ReplyTo::Nobody(_) => {}
        }
    }

    /// Sends a reply that another node has encoded.
    pub fn send_frame(self, frame: Bytes) {
        match self {
            ReplyTo::Connection(connection) => connection.send_reply_frame(frame),
            ReplyTo::Peer(back) => {
                let _ = back.send(frame);
            }
            ReplyTo::Nobody(_) => {}
        }
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
