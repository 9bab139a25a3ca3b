//! One outgoing connection: requests are matched with their answers by id.
//!
//! When it ends, every request that waits on it fails at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};

use super::frame::{Frame, FrameError, FrameReader, Kind, MAX_FRAME_BYTES, OutFrame};
use super::writer::{Lanes, Outgoing, Progress, Ticket, lanes, write_frames};
use crate::env::PeerStream;

/// A connection on which nothing arrived for this long is asked for a sign of life.
const PING_EVERY: Duration = Duration::from_millis(500);
/// Without any answer for this long, and without the socket taking bulk data, the connection is dead.
pub(crate) const DEAD_AFTER: Duration = Duration::from_millis(2500);
/// Without any answer for this long it is dead, however much the socket still takes.
const DEAD_AT_LAST: Duration = Duration::from_secs(30);

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    /// No byte of it was handed to the socket.
    #[error("not sent: {0}")]
    NotSent(String),
    /// The other node says that it did not carry it out.
    #[error("refused by the other node: {0}")]
    Refused(String),
    /// It may have been carried out.
    #[error("no answer: {0}")]
    NoAnswer(String),
}

/// Requests without an answer so far; closed when the connection ends.
#[derive(Debug, Default)]
struct Waiting {
    ended: Option<String>,
    by_id: BTreeMap<u64, oneshot::Sender<Frame>>,
}

/// The requesting end of a connection. The connection ends when the last handle is dropped.
pub(crate) struct Conn {
    lanes: Lanes,
    waiting: Arc<Mutex<Waiting>>,
    next_id: AtomicU64,
    pub progress: Arc<Progress>,
}

/// An answer that is waited for. Dropping it forgets the request.
pub(crate) struct Answer {
    id: u64,
    receiver: oneshot::Receiver<Frame>,
    waiting: Arc<Mutex<Waiting>>,
}

fn lock(waiting: &Mutex<Waiting>) -> std::sync::MutexGuard<'_, Waiting> {
    // The map is consistent between any two statements that could panic.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Answer {
    /// Waits for the answer. `Err` with the reason when the connection ended. May be dropped and called
    /// again.
    pub(crate) async fn receive(&mut self) -> Result<Frame, String> {
        match (&mut self.receiver).await {
            Ok(frame) => Ok(frame),
            Err(_) => Err(lock(&self.waiting)
                .ended
                .clone()
                .unwrap_or_else(|| "the connection ended".into())),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        lock(&self.waiting).by_id.remove(&self.id);
    }
}

impl Conn {
    /// Starts a connection whose handshake is done. The future does its work; it returns why it ended.
    pub(crate) fn start(
        mut reader: FrameReader<ReadHalf<Box<dyn PeerStream>>>,
        writer: WriteHalf<Box<dyn PeerStream>>,
    ) -> (Arc<Conn>, impl Future<Output = String> + Send) {
        let (lanes, ends) = lanes();
        let progress = Arc::new(Progress::new());
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let conn = Arc::new(Conn {
            lanes: lanes.clone(),
            waiting: waiting.clone(),
            next_id: AtomicU64::new(1),
            progress: progress.clone(),
        });
        reader.set_bounds(MAX_FRAME_BYTES, DEAD_AT_LAST);
        let work = async move {
            let guard = EndGuard(waiting.clone());
            let reason = tokio::select! {
                reason = read_answers(&mut reader, &waiting, &progress) => reason,
                error = write_frames(writer, ends, progress.clone()) => format!("writing: {error}"),
                reason = watch(&lanes.control, &progress) => reason,
            };
            guard.end(&reason);
            reason
        };
        (conn, work)
    }

    /// Hands a request to a lane. `NotSent` when the connection has ended.
    pub(crate) fn register(&self) -> Result<Answer, RequestError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        let mut waiting = lock(&self.waiting);
        if let Some(reason) = &waiting.ended {
            return Err(RequestError::NotSent(reason.clone()));
        }
        waiting.by_id.insert(id, sender);
        Ok(Answer {
            id,
            receiver,
            waiting: self.waiting.clone(),
        })
    }

    pub(crate) fn ended(&self) -> bool {
        lock(&self.waiting).ended.is_some()
    }

    /// Waits until the connection has ended.
    pub(crate) async fn lost(&self) {
        self.lanes.appends.closed().await;
    }

    /// Room in the append lane, to be had before a request is taken from its stream.
    pub(crate) async fn append_room(&self) -> Option<mpsc::OwnedPermit<Outgoing>> {
        self.lanes.appends.clone().reserve_owned().await.ok()
    }

    pub(crate) fn frame(
        answer: &Answer,
        kind: Kind,
        head: &[u8],
        body: &[Bytes],
    ) -> Result<OutFrame, FrameError> {
        OutFrame::new(kind, answer.id, head, body)
    }

    /// A small request on the control lane. The caller bounds the wait by dropping the future.
    pub(crate) async fn ask(&self, kind: Kind, head: &[u8]) -> Result<Frame, RequestError> {
        let mut answer = self.register()?;
        let frame = Conn::frame(&answer, kind, head, &[])
            .map_err(|error| RequestError::NotSent(error.to_string()))?;
        self.lanes
            .control
            .try_send(frame.into())
            .map_err(|_| RequestError::NotSent("the control lane is full or closed".into()))?;
        let frame = answer.receive().await.map_err(RequestError::NoAnswer)?;
        accepted(frame)
    }

    /// A call, on the call lane. `withdrawn` tells a request that never left from one that may have.
    pub(crate) async fn call(
        &self,
        request: Bytes,
        ticket: &Arc<Ticket>,
    ) -> Result<Frame, RequestError> {
        let mut answer = self.register()?;
        let frame = Conn::frame(&answer, Kind::Call, &[], &[request])
            .map_err(|error| RequestError::NotSent(error.to_string()))?;
        let outgoing = Outgoing {
            frame,
            ticket: Some(ticket.clone()),
            stream: 0,
        };
        if self.lanes.calls.send(outgoing).await.is_err() {
            return Err(RequestError::NotSent("the connection ended".into()));
        }
        match answer.receive().await {
            Ok(frame) => accepted(frame),
            Err(reason) if ticket.withdraw() => Err(RequestError::NotSent(reason)),
            Err(reason) => Err(RequestError::NoAnswer(reason)),
        }
    }
}

/// Turns the two kinds of refusal into errors.
pub(crate) fn accepted(frame: Frame) -> Result<Frame, RequestError> {
    let text = || String::from_utf8_lossy(&frame.payload).into_owned();
    match frame.kind {
        Kind::Refused => Err(RequestError::Refused(text())),
        Kind::Failed => Err(RequestError::NoAnswer(text())),
        _ => Ok(frame),
    }
}

/// Fails all waiting requests, also when the connection's task is dropped.
struct EndGuard(Arc<Mutex<Waiting>>);

impl EndGuard {
    fn end(&self, reason: &str) {
        let mut waiting = lock(&self.0);
        if waiting.ended.is_none() {
            waiting.ended = Some(reason.to_string());
        }
        waiting.by_id.clear();
    }
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.end("the connection was given up");
    }
}

async fn read_answers(
    reader: &mut FrameReader<ReadHalf<Box<dyn PeerStream>>>,
    waiting: &Mutex<Waiting>,
    progress: &Progress,
) -> String {
    loop {
        let frame = match reader.next().await {
            Ok(Some(frame)) => frame,
            Ok(None) => return "the other side closed the connection".into(),
            Err(error) => return error.to_string(),
        };
        progress.received();
        match frame.kind {
            Kind::Pong => {}
            Kind::VoteAnswer
            | Kind::PreVoteAnswer
            | Kind::AppendAnswer
            | Kind::TransferAnswer
            | Kind::StandingAnswer
            | Kind::CallAnswer
            | Kind::Refused
            | Kind::Failed => {
                // Nobody waits any more when the request was given up.
                if let Some(waiter) = lock(waiting).by_id.remove(&frame.id) {
                    let _ = waiter.send(frame);
                }
            }
            kind => return format!("unexpected {kind:?} frame"),
        }
    }
}

/// Asks for signs of life and ends the connection when there are none.
async fn watch(control: &mpsc::Sender<Outgoing>, progress: &Progress) -> String {
    loop {
        tokio::time::sleep(PING_EVERY / 2).await;
        let silent = progress.since_received();
        if is_dead(silent, progress.since_bulk_written()) {
            return format!("no sign of life for {} ms", silent.as_millis());
        }
        if silent >= PING_EVERY
            && let Ok(ping) = OutFrame::new(Kind::Ping, 0, &[], &[])
        {
            // A full lane has more urgent frames in it, which are signs of life as well.
            let _ = control.try_send(ping.into());
        }
    }
}

/// Whether a connection is given up: silent, and not even taking bulk data (a slow link does).
fn is_dead(silent: Duration, since_bulk_written: Duration) -> bool {
    silent >= DEAD_AT_LAST || (silent >= DEAD_AFTER && since_bulk_written >= DEAD_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_dead_when_silent_and_not_taking_data() {
        let ms = Duration::from_millis;
        let table = [
            (0, 0, false),
            (2499, 60_000, false),
            (2500, 2499, false),
            (2500, 2500, true),
            (29_999, 100, false),
            (30_000, 0, true),
        ];
        for (silent, bulk, dead) in table {
            assert_eq!(is_dead(ms(silent), ms(bulk)), dead, "{silent} {bulk}");
        }
    }
}
