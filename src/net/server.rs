//! Listeners: accept loops and the two tasks of each connection, one that reads and one that writes.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use quorumlog_raft::sabotage::{self, Sabotage};
use rustix::process::{Resource, getrlimit};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::connection::{Connection, OneWay, ReplyTo, Taken};
use crate::broker::{Broker, Origin, Request};
use crate::protocol::frame::{FRAME_BYTES_MAX, Frame, FrameError};

/// What one door allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections kept open at a time; more are closed at once.
    pub connections_max: usize,
    /// A connection without reads and writes is closed after this long, and so is one whose frame is not
    /// complete this long after it began: bytes that trickle in keep no connection open.
    pub idle_max: Duration,
    /// Bytes of frames that are not complete yet, all connections together. A connection that would exceed it
    /// is closed: many half-sent frames must not take the memory of everybody else.
    pub unfinished_bytes_max: usize,
}

/// 10,000 connections; RocketMQ's channel idle time; 16 of the longest frames.
const LIMITS: Limits = Limits {
    connections_max: 10_000,
    idle_max: Duration::from_secs(120),
    unfinished_bytes_max: 16 * FRAME_BYTES_MAX,
};

/// The bytes of unfinished frames of all connections of a door.
struct Unfinished {
    bytes: AtomicUsize,
    max: usize,
}

/// One connection's part in [`Unfinished`], given back when dropped.
struct UnfinishedPart {
    of: Arc<Unfinished>,
    bytes: usize,
}

impl UnfinishedPart {
    /// Sets this connection's part. `false`: there is no room for it.
    fn set(&mut self, bytes: usize) -> bool {
        let others = if bytes >= self.bytes {
            let more = bytes - self.bytes;
            self.of.bytes.fetch_add(more, Ordering::Relaxed)
        } else {
            let less = self.bytes - bytes;
            self.of.bytes.fetch_sub(less, Ordering::Relaxed)
        };
        let grew = bytes > self.bytes;
        let total = others + bytes.saturating_sub(self.bytes);
        self.bytes = bytes;
        !grew || total <= self.of.max
    }
}

impl Drop for UnfinishedPart {
    fn drop(&mut self) {
        self.set(0);
    }
}
/// A read asks for this much at first; a connection that fills it is given more.
const READ_BYTES_MIN: usize = 8 * 1024;
const READ_BYTES_MAX: usize = 256 * 1024;
/// Pieces handed to one vectored write.
const SLICES_MAX: usize = 64;
const BACKLOG: u32 = 1024;
/// How long one connection's requests may be handled before other tasks are let in.
const TURN_MAX: Duration = Duration::from_millis(1);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Of the files that this process may have open, clients leave a quarter, or this many, to the node itself: a
/// log that cannot open its next segment ends the node.
const RESERVED_DESCRIPTORS_MAX: u64 = 256;

/// Which door a listener is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// `listenPort`.
    Broker,
    /// `writeFrontPort`.
    WriteFront,
    /// `namesrvListenPort`.
    NameServer,
}

/// What a door does with frames.
pub(super) trait Handler: Send + Sync + 'static {
    /// One request. `reply` must be used exactly once.
    fn request(&self, connection: &Arc<Connection>, frame: Frame, reply: ReplyTo);
    /// The connection is gone; nothing more comes from it.
    fn closed(&self, connection: &Arc<Connection>);
}

struct BrokerDoor {
    door: Door,
    broker: Arc<Broker>,
}

impl Handler for BrokerDoor {
    fn request(&self, connection: &Arc<Connection>, frame: Frame, reply: ReplyTo) {
        if self.door == Door::NameServer {
            reply.send(self.broker.naming.answer(&frame));
            return;
        }
        self.broker.handle(Request {
            frame,
            origin: Origin {
                client: stored_address(connection.peer),
                front: self.door == Door::WriteFront,
                forwarded_by: None,
                connection: Some(connection.clone()),
                arrived: Instant::now(),
            },
            reply,
        });
    }

    fn closed(&self, connection: &Arc<Connection>) {
        if self.door != Door::NameServer {
            self.broker.on_connection_closed(connection.id);
        }
    }
}

/// A client's address as messages hold it: IPv4, also when it came over a mapped v6 address.
fn stored_address(peer: SocketAddr) -> SocketAddrV4 {
    let ip = match peer {
        SocketAddr::V4(v4) => *v4.ip(),
        SocketAddr::V6(v6) => v6.ip().to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED),
    };
    SocketAddrV4::new(ip, peer.port())
}

/// Accepts connections until the process ends. Returns only when the listener is beyond repair.
pub async fn serve(listener: TcpListener, door: Door, broker: Arc<Broker>) {
    serve_with(listener, Arc::new(BrokerDoor { door, broker }), LIMITS).await;
}

/// Binds a door's port, with an error that names the key to change.
pub async fn bind(address: SocketAddr, key: &str) -> Result<TcpListener, String> {
    let listen = || -> io::Result<TcpListener> {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|error| {
        let fix = match error.kind() {
            io::ErrorKind::AddrInUse => "another process has the port",
            io::ErrorKind::PermissionDenied => "this user may not use the port",
            io::ErrorKind::AddrNotAvailable => "the address is not one of this machine",
            _ => "the port cannot be used",
        };
        format!("cannot listen on {address} ({key}): {error}. Here {fix}; set {key} to another one")
    })
}

pub(super) async fn serve_with(listener: TcpListener, handler: Arc<dyn Handler>, limits: Limits) {
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let unfinished = Arc::new(Unfinished {
        bytes: AtomicUsize::new(0),
        max: limits.unfinished_bytes_max,
    });
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) if is_fatal(&error) => {
                tracing::error!(%error, "this listener cannot accept any more");
                return;
            }
            Err(error) => {
                // Out of file descriptors or memory: the waiting connection stays in the backlog, so an
                // immediate retry would spin.
                if let Some(more) = ACCEPT_LINES.line() {
                    tracing::warn!(%error, more, "cannot accept a connection for now");
                }
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if !may_keep(stream.as_fd().as_raw_fd(), descriptor_limit()) {
            if let Some(more) = ACCEPT_LINES.line() {
                tracing::warn!(%peer, more, "closing a new connection: the files that are left are the node's own; raise the limit of open files (ulimit -n)");
            }
            continue;
        }
        let Ok(place) = places.clone().try_acquire_owned() else {
            if let Some(more) = ACCEPT_LINES.line() {
                let open = limits.connections_max;
                tracing::warn!(%peer, open, more, "closing a new connection: too many are open");
            }
            continue;
        };
        // Replies are written whole; waiting to fill a segment would only delay them.
        if stream.set_nodelay(true).is_err() {
            continue;
        }
        let handler = handler.clone();
        let part = UnfinishedPart {
            of: unfinished.clone(),
            bytes: 0,
        };
        tokio::spawn(async move {
            run_connection(stream, peer, handler, limits.idle_max, part).await;
            drop(place);
        });
    }
}

/// How many files this process may have open; `None`: any number.
fn descriptor_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Whether a client may keep the descriptor that its connection got. The lowest free number is given out, so all
/// below it are taken.
fn may_keep(descriptor: RawFd, limit: Option<u64>) -> bool {
    let Some(limit) = limit else { return true };
    let for_clients = limit - (limit / 4).min(RESERVED_DESCRIPTORS_MAX);
    u64::try_from(descriptor).is_ok_and(|descriptor| descriptor < for_clients)
}

fn is_fatal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
    ) || error.raw_os_error() == Some(rustix::io::Errno::BADF.raw_os_error())
}

async fn run_connection(
    stream: TcpStream,
    peer: SocketAddr,
    handler: Arc<dyn Handler>,
    idle_max: Duration,
    part: UnfinishedPart,
) {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    let connection = Arc::new(Connection::new(
        NEXT_ID.fetch_add(1, Ordering::Relaxed),
        peer,
    ));
    let activity = Arc::new(Activity::new(idle_max));
    let (read, write) = stream.into_split();
    let writer = tokio::spawn(write_replies(write, connection.clone(), activity.clone()));
    read_requests(read, &connection, handler.as_ref(), &activity, part).await;
    connection.close();
    // First, so that who sees the socket's end finds the client gone from its groups.
    handler.closed(&connection);
    // The writer ends by itself now; its end of the socket must be gone before the place is free.
    let _ = writer.await;
}

/// When a connection last moved bytes, in ms since it was opened.
struct Activity {
    idle_max: Duration,
    opened: Instant,
    last_ms: AtomicU64,
}

impl Activity {
    fn new(idle_max: Duration) -> Activity {
        Activity {
            idle_max,
            opened: Instant::now(),
            last_ms: AtomicU64::new(0),
        }
    }

    fn moved(&self) {
        let now_ms = self.opened.elapsed().as_millis() as u64;
        self.last_ms.store(now_ms, Ordering::Relaxed);
    }

    /// When the connection is to be closed if nothing moves until then.
    fn idle_at(&self) -> Instant {
        self.opened + Duration::from_millis(self.last_ms.load(Ordering::Relaxed)) + self.idle_max
    }
}

/// Reads and dispatches frames until the connection ends, from whichever side.
async fn read_requests(
    read: OwnedReadHalf,
    connection: &Arc<Connection>,
    handler: &dyn Handler,
    activity: &Activity,
    mut part: UnfinishedPart,
) {
    // Empty while idle: an open connection without traffic holds no buffer.
    let mut buffer = BytesMut::new();
    let mut ask = READ_BYTES_MIN;
    // When the frame began that is not complete yet.
    let mut begun: Option<Instant> = None;
    let mut announced: Vec<u8> = Vec::new();
    let idle = sleep_until(activity.idle_at());
    tokio::pin!(idle);
    loop {
        let wait = async {
            connection.may_read().await;
            tokio::select! {
                ready = read.readable() => ready.is_ok() && !connection.is_closed(),
                () = connection.closing() => false,
            }
        };
        tokio::select! {
            goes_on = wait => if !goes_on { return },
            () = &mut idle => {
                let now = Instant::now();
                if connection.reading_pauses() {
                    // The rest of the frame may have come and waits for this side.
                    begun = begun.map(|_| now);
                }
                let due = begun.map(|begun| begun + activity.idle_max);
                let due = due.map_or(activity.idle_at(), |due| due.min(activity.idle_at()));
                if due <= now {
                    return;
                }
                idle.as_mut().reset(due);
                continue;
            }
        }
        // Grows with what has arrived, never with what was announced.
        buffer.reserve(ask.max(buffer.len().min(READ_BYTES_MAX)));
        match read.try_read_buf(&mut buffer) {
            Ok(0) => return,
            Ok(n) => {
                ask = if n >= ask {
                    (ask * 2).min(READ_BYTES_MAX)
                } else {
                    (ask / 2).max(READ_BYTES_MIN)
                };
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if buffer.is_empty() {
                    buffer = BytesMut::new();
                }
                continue;
            }
            Err(_) => return,
        }
        activity.moved();
        match dispatch_frames(&mut buffer, connection, handler).await {
            Ok(0) => {}
            Ok(_) => begun = None,
            Err((error, first)) => {
                log_bad_frame(connection.peer, &error, &first);
                return;
            }
        }
        if buffer.is_empty() {
            buffer = BytesMut::new();
        } else {
            begun.get_or_insert_with(Instant::now);
        }
        // R3: memory grows with what has arrived.
        if sabotage::on(Sabotage::AnnouncedLength)
            && let Some(length) = buffer.first_chunk()
        {
            // At most an eighth of the longest frame: the machine has to survive this.
            let length = u32::from_be_bytes(*length) as usize;
            announced.resize(length.min(FRAME_BYTES_MAX / 8), 0);
        }
        if !part.set(buffer.len()) {
            if let Some(more) = FRAME_LINES.line() {
                let peer = connection.peer;
                tracing::warn!(%peer, more, "closing a connection: too many frames are half sent");
            }
            return;
        }
    }
}

/// Hands on every whole frame of the buffer; returns how many. On an error also gives the first bytes of what was no frame.
///
/// A connection that sends costly requests without a pause always finds the next one in its socket, and would
/// keep the worker from everything else, the group's heartbeats included: past [`TURN_MAX`] the others get theirs.
async fn dispatch_frames(
    buffer: &mut BytesMut,
    connection: &Arc<Connection>,
    handler: &dyn Handler,
) -> Result<usize, (FrameError, Vec<u8>)> {
    let mut turn = Instant::now();
    let mut frames = 0;
    loop {
        if turn.elapsed() >= TURN_MAX {
            yield_now().await;
            turn = Instant::now();
        }
        let mut first = [0_u8; 16];
        let shown = buffer.len().min(first.len());
        first[..shown].copy_from_slice(&buffer[..shown]);
        match Frame::decode(buffer) {
            Ok(None) => return Ok(frames),
            // An answer to nothing: what this server asks its clients is one-way.
            Ok(Some(frame)) if frame.header.is_response() => {}
            Ok(Some(frame)) if frame.header.is_oneway() => {
                handler.request(connection, frame, ReplyTo::Nobody(OneWay::read(connection)));
            }
            Ok(Some(frame)) => {
                connection.asked();
                handler.request(connection, frame, ReplyTo::Connection(connection.clone()));
            }
            Err(error) => return Err((error, first[..shown].to_vec())),
        }
        frames += 1;
    }
}

/// Writes what is queued, everything at once, until the connection ends.
async fn write_replies(
    mut write: OwnedWriteHalf,
    connection: Arc<Connection>,
    activity: Arc<Activity>,
) {
    loop {
        match connection.take() {
            Taken::Closed => return,
            Taken::Nothing => connection.something_queued().await,
            Taken::Chunks(chunks) => {
                if write_chunks(&mut write, chunks, &connection, &activity)
                    .await
                    .is_err()
                {
                    connection.close();
                    return;
                }
            }
        }
    }
}

async fn write_chunks(
    write: &mut OwnedWriteHalf,
    mut chunks: VecDeque<Bytes>,
    connection: &Connection,
    activity: &Activity,
) -> io::Result<()> {
    while !chunks.is_empty() {
        if connection.is_closed() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let n = {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = chunks.len().min(SLICES_MAX);
            for (slice, chunk) in slices.iter_mut().zip(&chunks) {
                *slice = IoSlice::new(chunk);
            }
            timeout(activity.idle_max, write.write_vectored(&slices[..count])).await??
        };
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        activity.moved();
        connection.written(n);
        advance(&mut chunks, n);
    }
    Ok(())
}

/// Drops the first `n` bytes of the chunks.
fn advance(chunks: &mut VecDeque<Bytes>, mut n: usize) {
    while let Some(first) = chunks.front_mut() {
        if n < first.len() {
            first.advance(n);
            return;
        }
        n -= first.len();
        chunks.pop_front();
    }
    assert_eq!(n, 0, "more bytes were written than there were");
}

fn log_bad_frame(peer: SocketAddr, error: &FrameError, first: &[u8]) {
    if let Some(more) = FRAME_LINES.line() {
        let what = match first.first() {
            Some(0x16) => "a TLS handshake; this port speaks the plain protocol",
            Some(byte) if byte.is_ascii_graphic() => "text, maybe HTTP",
            _ => "no frame",
        };
        let first = first.escape_ascii().to_string();
        tracing::warn!(%peer, %error, first, more, "closing a connection that sent {what}");
    }
}

/// Lets one line through per second and counts the others.
pub(super) struct LineLimit(Mutex<Option<(Instant, u64)>>);

static ACCEPT_LINES: LineLimit = LineLimit::new();
static FRAME_LINES: LineLimit = LineLimit::new();

impl LineLimit {
    pub(super) const fn new() -> LineLimit {
        LineLimit(Mutex::new(None))
    }

    /// `Some(n)`: log now, and say that n were left out since the last line.
    pub(super) fn line(&self) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match &mut *state {
            Some((last, left_out)) if now.duration_since(*last) < Duration::from_secs(1) => {
                *left_out += 1;
                None
            }
            other => {
                let left_out = other.map_or(0, |(_, n)| n);
                *other = Some((now, 0));
                Some(left_out)
            }
        }
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
