//! One accepted connection: reads requests, has them carried out, sends the answers back.
//!
//! Each stream of appends goes through in order; everything else runs side by side, within bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use openraft::raft::{AppendEntriesRequest, StreamAppendResult};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use super::codec::{self, CodecError};
use super::frame::{Frame, FrameError, FrameReader, Kind, MAX_FRAME_BYTES, OutFrame};
use super::inbound::Inbound;
use super::writer::{APPEND_FRAMES, Lanes, Outgoing, Progress, lanes, write_frames};
use crate::env::PeerStream;
use crate::storage::entry::TypeConfig;
use crate::types::NodeId;

/// The other side asks for a sign of life each 500 ms when it has nothing else to say.
const SILENCE: Duration = Duration::from_secs(5);
/// Votes, heartbeats and transfers under way at a time. Far more than a live node asks for.
const REQUESTS: usize = 64;
/// Calls under way at a time; the caller's link keeps to the same number.
const CALLS: usize = 1024;
/// A service that has not answered a call after this long has forgotten it; callers wait seconds.
const CALL_BOUND: Duration = Duration::from_secs(30);
/// Streams still being taken in by the core: the current one, and given-up ones that it is busy with.
const STREAMS: usize = 4;
/// Answers up to this size go with the small frames.
const SMALL_ANSWER_BYTES: usize = 4 << 10;

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Codec(#[from] CodecError),
    #[error("unexpected {0:?} frame")]
    Unexpected(Kind),
    #[error("stream {stream} sent more than {APPEND_FRAMES} requests ahead")]
    Window { stream: u64 },
}

impl SessionError {
    fn is_malformed(&self) -> bool {
        match self {
            SessionError::Frame(error) => error.is_malformed(),
            _ => true,
        }
    }
}

/// Serves a connection whose handshake is done. Returns why it ended.
pub(crate) async fn run(
    mut reader: FrameReader<ReadHalf<Box<dyn PeerStream>>>,
    writer: WriteHalf<Box<dyn PeerStream>>,
    from: NodeId,
    inbound: Arc<dyn Inbound>,
) -> String {
    reader.set_bounds(MAX_FRAME_BYTES, SILENCE);
    let (lanes, ends) = lanes();
    let mut session = Session {
        from,
        inbound,
        lanes,
        tasks: JoinSet::new(),
        requests: Arc::new(Semaphore::new(REQUESTS)),
        calls: Arc::new(Semaphore::new(CALLS)),
        streams: Arc::new(Semaphore::new(STREAMS)),
        stream: None,
    };
    tokio::select! {
        ended = session.read(&mut reader) => match ended {
            Ok(()) => "closed by the other side".into(),
            Err(error) => {
                if error.is_malformed() {
                    tracing::warn!(node = from, reason = %error, "malformed data from a peer, connection closed");
                }
                error.to_string()
            }
        },
        error = write_frames(writer, ends, Arc::new(Progress::new())) => format!("writing: {error}"),
    }
}

struct Session {
    from: NodeId,
    inbound: Arc<dyn Inbound>,
    lanes: Lanes,
    /// Ended with the session.
    tasks: JoinSet<()>,
    requests: Arc<Semaphore>,
    calls: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    stream: Option<Current>,
}

/// The stream that requests are fed to. A newer one replaces it.
struct Current {
    id: u64,
    requests: mpsc::Sender<(u64, AppendEntriesRequest<TypeConfig>)>,
    given_up: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Drop for Current {
    fn drop(&mut self) {
        self.given_up.store(true, Ordering::Release);
        self.task.abort();
    }
}

impl Session {
    async fn read(
        &mut self,
        reader: &mut FrameReader<ReadHalf<Box<dyn PeerStream>>>,
    ) -> Result<(), SessionError> {
        while let Some(frame) = reader.next().await? {
            while self.tasks.try_join_next().is_some() {}
            self.handle(frame)?;
        }
        Ok(())
    }

    fn handle(&mut self, frame: Frame) -> Result<(), SessionError> {
        let Frame { kind, id, payload } = frame;
        match kind {
            Kind::Ping => {
                // A full lane holds other signs of life.
                let _ = self.lanes.control.try_send(small(Kind::Pong, id, &[])?);
            }
            Kind::Vote => {
                let vote = self.inbound.vote(codec::decode_vote(&payload, self.from)?);
                self.answer(id, Kind::VoteAnswer, async move {
                    Ok(codec::encode_vote_answer(&vote.await?))
                })?;
            }
            Kind::PreVote => {
                let vote = self
                    .inbound
                    .pre_vote(codec::decode_vote(&payload, self.from)?);
                self.answer(id, Kind::PreVoteAnswer, async move {
                    Ok(codec::encode_vote_answer(&vote.await?))
                })?;
            }
            Kind::Append => {
                let (request, _) = codec::decode_append(&payload, self.from)?;
                let append = self.inbound.append(request);
                self.answer(id, Kind::AppendAnswer, async move {
                    Ok(codec::encode_append_answer(&append.await?))
                })?;
            }
            Kind::Transfer => {
                let request = codec::decode_transfer(&payload, self.from)?;
                let transfer = self.inbound.transfer(request);
                self.answer(id, Kind::TransferAnswer, async move {
                    Ok(codec::encode_transfer_answer(&transfer.await?))
                })?;
            }
            Kind::Standing => {
                let standing = self.inbound.standing();
                self.answer(id, Kind::StandingAnswer, async move {
                    Ok(codec::encode_standing(&standing))
                })?;
            }
            Kind::StreamAppend => {
                let (request, stream) = codec::decode_append(&payload, self.from)?;
                self.feed(stream, id, request)?;
            }
            Kind::Call => self.call(id, payload)?,
            kind => return Err(SessionError::Unexpected(kind)),
        }
        Ok(())
    }

    /// Carries a small request out beside the others and sends what comes of it.
    fn answer(
        &mut self,
        id: u64,
        kind: Kind,
        work: impl Future<Output = Result<Vec<u8>, String>> + Send + 'static,
    ) -> Result<(), SessionError> {
        let Ok(turn) = self.requests.clone().try_acquire_owned() else {
            let refusal = small(Kind::Refused, id, b"too many requests under way")?;
            let _ = self.lanes.control.try_send(refusal);
            return Ok(());
        };
        let control = self.lanes.control.clone();
        self.tasks.spawn(async move {
            let _turn: OwnedSemaphorePermit = turn;
            let frame = match work.await {
                Ok(payload) => small(kind, id, &payload),
                Err(text) => small(Kind::Failed, id, text.as_bytes()),
            };
            if let Ok(frame) = frame {
                let _ = control.send(frame).await;
            }
        });
        Ok(())
    }

    fn call(&mut self, id: u64, request: Bytes) -> Result<(), SessionError> {
        let Ok(turn) = self.calls.clone().try_acquire_owned() else {
            let refusal = small(Kind::Refused, id, b"too many calls under way")?;
            let _ = self.lanes.control.try_send(refusal);
            return Ok(());
        };
        let lanes = self.lanes.clone();
        let call = self.inbound.call(self.from, request);
        self.tasks.spawn(async move {
            let _turn: OwnedSemaphorePermit = turn;
            let (kind, payload) = match tokio::time::timeout(CALL_BOUND, call).await {
                Ok(payload) => (Kind::CallAnswer, payload),
                Err(_) => (Kind::Failed, Bytes::from_static(b"the service is too slow")),
            };
            let frame = OutFrame::new(kind, id, &[], &[payload]).or_else(|error| {
                OutFrame::new(Kind::Failed, id, error.to_string().as_bytes(), &[])
            });
            let Ok(frame) = frame else { return };
            let lane = if frame.bytes <= SMALL_ANSWER_BYTES {
                lanes.control
            } else {
                lanes.calls
            };
            let _ = lane.send(frame.into()).await;
        });
        Ok(())
    }

    /// Hands a request to its stream. A new stream replaces the one before; requests of older ones are late
    /// and not looked at.
    fn feed(
        &mut self,
        stream: u64,
        id: u64,
        request: AppendEntriesRequest<TypeConfig>,
    ) -> Result<(), SessionError> {
        let current = self.stream.as_ref().map_or(0, |current| current.id);
        if stream < current {
            return Ok(());
        }
        if stream > current {
            self.stream = None;
            let Ok(turn) = self.streams.clone().try_acquire_owned() else {
                let busy = small(Kind::Failed, id, b"busy with earlier streams")?;
                let _ = self.lanes.control.try_send(busy);
                return Ok(());
            };
            self.stream = Some(self.open(stream, turn));
        }
        let Some(current) = &self.stream else {
            return Ok(());
        };
        match current.requests.try_send((id, request)) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => Err(SessionError::Window { stream }),
            // The stream ended with an error, which the other side learns from its last answer.
            Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
        }
    }

    fn open(&mut self, id: u64, turn: OwnedSemaphorePermit) -> Current {
        let (sender, receiver) = mpsc::channel(APPEND_FRAMES);
        let given_up = Arc::new(AtomicBool::new(false));
        // The core takes at most 64 requests ahead of its answers (openraft raft/stream_append.rs:24).
        let (order, ids) = mpsc::channel(2 * APPEND_FRAMES);
        let feed = Feed {
            receiver,
            order,
            given_up: given_up.clone(),
            _turn: turn,
        };
        let requests = stream::unfold(feed, Feed::next).boxed();
        let answers = self.inbound.stream(requests);
        let control = self.lanes.control.clone();
        let task = self.tasks.spawn(pump(answers, ids, control));
        Current {
            id,
            requests: sender,
            given_up,
            task,
        }
    }
}

/// The requests of a stream on their way into the core. The core's own task holds it, and may hold it longer
/// than the session lasts; what has been given up is not fed to it any more.
struct Feed {
    receiver: mpsc::Receiver<(u64, AppendEntriesRequest<TypeConfig>)>,
    /// Ids of the requests taken, for the answers.
    order: mpsc::Sender<u64>,
    given_up: Arc<AtomicBool>,
    _turn: OwnedSemaphorePermit,
}

impl Feed {
    async fn next(mut self) -> Option<(AppendEntriesRequest<TypeConfig>, Feed)> {
        let (id, request) = self.receiver.recv().await?;
        if self.given_up.load(Ordering::Acquire) {
            return None;
        }
        self.order.send(id).await.ok()?;
        Some((request, self))
    }
}

/// Sends the answers of a stream back, each with the id of its request.
async fn pump(
    mut answers: stream::BoxStream<'static, Result<StreamAppendResult<TypeConfig>, String>>,
    mut ids: mpsc::Receiver<u64>,
    control: mpsc::Sender<Outgoing>,
) {
    while let Some(answer) = answers.next().await {
        let Some(id) = ids.recv().await else { return };
        let frame = match answer {
            Ok(result) => small(
                Kind::AppendAnswer,
                id,
                &codec::encode_append_answer(&result),
            ),
            Err(text) => small(Kind::Failed, id, text.as_bytes()),
        };
        let Ok(frame) = frame else { return };
        if control.send(frame).await.is_err() {
            return;
        }
    }
}

fn small(kind: Kind, id: u64, payload: &[u8]) -> Result<Outgoing, FrameError> {
    Ok(OutFrame::new(kind, id, payload, &[])?.into())
}
