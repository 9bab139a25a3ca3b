//! The sending half of a connection: bounded lanes, and the task that writes what is in them.
//!
//! Heartbeats and votes have a lane of their own, so that inside this process they never wait behind
//! more than the batch that is being written.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::frame::OutFrame;

/// Frames waiting in a lane. Requests are bounded by their senders' windows before that.
const CONTROL_FRAMES: usize = 256;
pub(crate) const APPEND_FRAMES: usize = 64;
const CALL_FRAMES: usize = 256;
/// A batch is closed at this many bytes: the longest a heartbeat waits in our own queues is the write of
/// one batch (which holds at least one frame, however large).
const BATCH_BYTES: usize = 256 << 10;
/// Buffers per write call; the kernel takes at most 1024.
const WRITE_PIECES: usize = 64;
/// A write of which the other side takes nothing for this long ends the connection.
const WRITE_STALL: Duration = Duration::from_secs(10);

const WAITING: u8 = 0;
const TAKEN: u8 = 1;
const WITHDRAWN: u8 = 2;

/// Who gets a request first: the writer, or a caller who gives up. Decides *not sent* exactly.
#[derive(Debug, Default)]
pub(crate) struct Ticket(AtomicU8);

impl Ticket {
    /// The writer is about to hand bytes to the socket. False when the request was withdrawn.
    fn take(&self) -> bool {
        let taken = self
            .0
            .compare_exchange(WAITING, TAKEN, Ordering::AcqRel, Ordering::Acquire);
        taken.is_ok()
    }

    /// The caller gives up. True when no byte was, or ever will be, handed to the socket.
    pub(crate) fn withdraw(&self) -> bool {
        let withdrawn =
            self.0
                .compare_exchange(WAITING, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire);
        withdrawn.is_ok() || self.0.load(Ordering::Acquire) == WITHDRAWN
    }
}

/// A frame in a lane, and whether it still needs to be sent when its turn comes.
pub(crate) struct Outgoing {
    pub frame: OutFrame,
    pub ticket: Option<Arc<Ticket>>,
    /// The stream the frame belongs to; frames of a stream that was given up are skipped.
    pub stream: u64,
}

impl From<OutFrame> for Outgoing {
    fn from(frame: OutFrame) -> Outgoing {
        Outgoing {
            frame,
            ticket: None,
            stream: 0,
        }
    }
}

/// What the two halves of a connection know of each other.
#[derive(Debug)]
pub(crate) struct Progress {
    start: Instant,
    /// Milliseconds after `start` at which bytes of an append or a call were last taken by the socket.
    bulk_written_ms: AtomicU64,
    /// Milliseconds after `start` at which something was last received.
    received_ms: AtomicU64,
    /// The newest stream; frames of older ones are not worth sending.
    pub stream: AtomicU64,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress {
            start: Instant::now(),
            bulk_written_ms: AtomicU64::new(0),
            received_ms: AtomicU64::new(0),
            stream: AtomicU64::new(0),
        }
    }

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    pub(crate) fn received(&self) {
        self.received_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    pub(crate) fn since_received(&self) -> Duration {
        let since = self.now_ms() - self.received_ms.load(Ordering::Relaxed).min(self.now_ms());
        Duration::from_millis(since)
    }

    pub(crate) fn since_bulk_written(&self) -> Duration {
        let since = self.now_ms()
            - self
                .bulk_written_ms
                .load(Ordering::Relaxed)
                .min(self.now_ms());
        Duration::from_millis(since)
    }
}

/// The sending ends of a connection's lanes.
#[derive(Clone)]
pub(crate) struct Lanes {
    pub control: mpsc::Sender<Outgoing>,
    pub appends: mpsc::Sender<Outgoing>,
    pub calls: mpsc::Sender<Outgoing>,
}

/// The receiving ends, owned by the writer.
pub(crate) struct LaneEnds {
    control: mpsc::Receiver<Outgoing>,
    appends: mpsc::Receiver<Outgoing>,
    calls: mpsc::Receiver<Outgoing>,
}

pub(crate) fn lanes() -> (Lanes, LaneEnds) {
    let (control, control_end) = mpsc::channel(CONTROL_FRAMES);
    let (appends, appends_end) = mpsc::channel(APPEND_FRAMES);
    let (calls, calls_end) = mpsc::channel(CALL_FRAMES);
    (
        Lanes {
            control,
            appends,
            calls,
        },
        LaneEnds {
            control: control_end,
            appends: appends_end,
            calls: calls_end,
        },
    )
}

/// Frames that are written together.
#[derive(Default)]
struct Batch {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    bulk: bool,
}

impl Batch {
    fn add(&mut self, outgoing: Outgoing, bulk: bool, progress: &Progress) {
        let outdated =
            outgoing.stream != 0 && outgoing.stream < progress.stream.load(Ordering::Acquire);
        if outdated || outgoing.ticket.is_some_and(|ticket| !ticket.take()) {
            return;
        }
        self.bytes += outgoing.frame.bytes;
        self.bulk |= bulk;
        self.pieces.extend(outgoing.frame.pieces);
    }
}

/// Writes what comes down the lanes until the connection breaks or nobody can send any more. Returns why.
pub(crate) async fn write_frames<W: AsyncWrite + Unpin>(
    mut to: W,
    mut lanes: LaneEnds,
    progress: Arc<Progress>,
) -> io::Error {
    let mut batch = Batch::default();
    loop {
        let (first, bulk) = tokio::select! {
            biased;
            Some(frame) = lanes.control.recv() => (frame, false),
            Some(frame) = lanes.appends.recv() => (frame, true),
            Some(frame) = lanes.calls.recv() => (frame, true),
            else => return io::Error::new(io::ErrorKind::NotConnected, "nobody sends any more"),
        };
        batch.add(first, bulk, &progress);
        gather(&mut batch, &mut lanes, &progress);
        if let Err(error) = write_batch(&mut to, &mut batch, &progress).await {
            return error;
        }
    }
}

/// Adds what waits: all of the control lane first, then appends and calls in turn.
fn gather(batch: &mut Batch, lanes: &mut LaneEnds, progress: &Progress) {
    while batch.bytes < BATCH_BYTES
        && let Ok(frame) = lanes.control.try_recv()
    {
        batch.add(frame, false, progress);
    }
    let mut found = true;
    while found {
        found = false;
        for lane in [&mut lanes.appends, &mut lanes.calls] {
            if batch.bytes < BATCH_BYTES
                && let Ok(frame) = lane.try_recv()
            {
                batch.add(frame, true, progress);
                found = true;
            }
        }
    }
}

async fn write_batch<W: AsyncWrite + Unpin>(
    to: &mut W,
    batch: &mut Batch,
    progress: &Progress,
) -> io::Result<()> {
    while !batch.pieces.is_empty() {
        let mut slices = [IoSlice::new(&[]); WRITE_PIECES];
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&batch.pieces) {
            *slice = IoSlice::new(piece);
            count += 1;
        }
        let write = to.write_vectored(&slices[..count]);
        let written = tokio::time::timeout(WRITE_STALL, write)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        if batch.bulk {
            progress
                .bulk_written_ms
                .store(progress.now_ms(), Ordering::Relaxed);
        }
        advance(&mut batch.pieces, written);
    }
    batch.bytes = 0;
    batch.bulk = false;
    to.flush().await
}

fn advance(pieces: &mut VecDeque<Bytes>, mut written: usize) {
    while let Some(piece) = pieces.front_mut() {
        if piece.len() > written {
            piece.advance(written);
            return;
        }
        written -= piece.len();
        pieces.pop_front();
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
