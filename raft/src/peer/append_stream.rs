//! The leader's pipelined stream of AppendEntries to one node.
//!
//! Several requests are under way at a time, bounded in number and bytes; answers come in order. A stream
//! that makes no progress ends with an error, because openraft itself would wait for ever.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use openraft::errors::RPCError;
use openraft::raft::{AppendEntriesRequest, StreamAppendResult};
use tokio::sync::mpsc::OwnedPermit;
use tokio::time::Instant;

use super::codec;
use super::conn::{Answer, Conn, accepted};
use super::frame::Kind;
use super::link::Link;
use super::network::unreachable;
use super::writer::{APPEND_FRAMES, Outgoing};
use crate::sabotage::{self, Sabotage};
use crate::storage::entry::TypeConfig;

/// Bytes of requests without an answer.
const WINDOW_BYTES: usize = 16 << 20;
/// How long a stream waits for a connection before openraft hears that there is none.
const CONNECT_WAIT: Duration = Duration::from_secs(1);
/// Without an answer for this long, and without the socket taking data, a stream is given up.
const STALL: Duration = Duration::from_millis(2500);

type AnswerResult = Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>;

/// A request that was sent.
struct Sent {
    answer: Answer,
    bytes: usize,
}

struct AppendStream<S> {
    conn: Arc<Conn>,
    id: u64,
    input: S,
    input_ended: bool,
    window: VecDeque<Sent>,
    window_bytes: usize,
    /// When the last answer came, or the window was last empty.
    progress: Instant,
}

/// Answers to the requests of `input`, in order. Ends after the first one that is not a success.
pub(super) fn open<S>(link: Arc<Link>, input: S) -> impl Stream<Item = AnswerResult> + Send
where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
{
    enum State<S> {
        Closed(Arc<Link>, S),
        Open(AppendStream<S>),
        Done,
    }
    futures_util::stream::unfold(State::Closed(link, input), |state| async move {
        let mut stream = match state {
            State::Closed(link, input) => match AppendStream::connect(&link, input).await {
                Ok(stream) => stream,
                Err(error) => return Some((Err(error), State::Done)),
            },
            State::Open(stream) => stream,
            State::Done => return None,
        };
        let answer = stream.next().await?;
        let done = !matches!(answer, Ok(Ok(_)));
        let state = if done {
            State::Done
        } else {
            State::Open(stream)
        };
        Some((answer, state))
    })
}

impl<S> AppendStream<S>
where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin,
{
    /// Requests are taken from the input only once there is a connection: what they say is then new.
    async fn connect(link: &Link, input: S) -> Result<AppendStream<S>, RPCError<TypeConfig>> {
        let conn = tokio::time::timeout(CONNECT_WAIT, link.connected())
            .await
            .ok()
            .flatten()
            .ok_or_else(|| unreachable(link.down()))?;
        let id = conn.progress.stream.fetch_add(1, Ordering::AcqRel) + 1;
        Ok(AppendStream {
            conn,
            id,
            input,
            input_ended: false,
            window: VecDeque::new(),
            window_bytes: 0,
            progress: Instant::now(),
        })
    }

    async fn next(&mut self) -> Option<AnswerResult> {
        loop {
            if self.window.is_empty() {
                if self.input_ended {
                    return None;
                }
                self.progress = Instant::now();
            }
            let room = !self.input_ended
                && self.window.len() < APPEND_FRAMES
                && self.window_bytes < WINDOW_BYTES;
            let stalled_at = self.progress + STALL;
            tokio::select! {
                biased;
                answer = front(&mut self.window), if !self.window.is_empty() => {
                    return Some(self.answered(answer));
                }
                request = take(&self.conn, &mut self.input), if room => match request {
                    Some((permit, Some(request))) => {
                        if let Err(error) = self.send(permit, &request) {
                            return Some(Err(error));
                        }
                        // I-17: only what a node says that it has counts as being there.
                        if sabotage::on(Sabotage::AckOnSend) {
                            self.window.clear();
                            let last = request.entries.last().map(|entry| entry.id);
                            return Some(Ok(Ok(last.or(request.prev_log_id))));
                        }
                    }
                    Some((_, None)) => self.input_ended = true,
                    None => return Some(Err(unreachable("the connection ended"))),
                },
                () = self.conn.lost(), if self.window.is_empty() => {
                    return Some(Err(unreachable("the connection ended")));
                }
                _ = tokio::time::sleep_until(stalled_at), if !self.window.is_empty() => {
                    let quiet = self.conn.progress.since_bulk_written();
                    if quiet >= STALL {
                        let text = format!("no answer to an append for {} ms", STALL.as_millis());
                        return Some(Err(unreachable(text)));
                    }
                    self.progress = Instant::now() - quiet;
                }
            }
        }
    }

    fn send(
        &mut self,
        permit: OwnedPermit<Outgoing>,
        request: &AppendEntriesRequest<TypeConfig>,
    ) -> Result<(), RPCError<TypeConfig>> {
        let answer = self.conn.register().map_err(unreachable)?;
        let (head, body) = codec::encode_append(request, self.id);
        let frame = Conn::frame(&answer, Kind::StreamAppend, &head, &body).map_err(unreachable)?;
        let bytes = frame.bytes;
        permit.send(Outgoing {
            frame,
            ticket: None,
            stream: self.id,
        });
        self.window_bytes += bytes;
        self.window.push_back(Sent { answer, bytes });
        Ok(())
    }

    fn answered(&mut self, answer: Result<super::frame::Frame, String>) -> AnswerResult {
        if let Some(sent) = self.window.pop_front() {
            self.window_bytes -= sent.bytes;
        }
        self.progress = Instant::now();
        let frame = answer.map_err(unreachable)?;
        let frame = accepted(frame).map_err(unreachable)?;
        codec::decode_append_answer(&frame.payload).map_err(unreachable)
    }
}

/// The answer to the oldest request.
async fn front(window: &mut VecDeque<Sent>) -> Result<super::frame::Frame, String> {
    match window.front_mut() {
        Some(sent) => sent.answer.receive().await,
        None => std::future::pending().await,
    }
}

/// Room in the lane and a request to put there. May be dropped at any point without losing a request.
async fn take<S>(
    conn: &Conn,
    input: &mut S,
) -> Option<(
    OwnedPermit<Outgoing>,
    Option<AppendEntriesRequest<TypeConfig>>,
)>
where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Unpin,
{
    let permit = conn.append_room().await?;
    let request = input.next().await;
    Some((permit, request))
}
