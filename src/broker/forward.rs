//! Passing requests to the leader: the follower's half (hold while there is no leader, pass, map failures
//! to refused or unknown) and the leader's half (answer as if the client had come here).

mod wire;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quorumlog_raft::sabotage::{self, Sabotage};
use quorumlog_raft::{CallError, NodeId, PeerService};
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::wire::{Answer, Ask};
use super::place::{Access, Place, access_of, place};
use super::proposer::WriteError;
use super::{Broker, Origin, REPLY_WITHIN, Request, wait_for_change};
use crate::net::connection::ReplyTo;
use crate::protocol::codes::request as code;
use crate::protocol::frame::{Frame, Reply};
use crate::store::{Command, NodeInfo};

/// Requests that one node holds or has passed on at a time, and their bytes.
const PASSED_MAX: usize = 10_000;
const PASSED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long a held request waits before it looks again, if it is not told of a change before.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Kept for the way back: the leader must have answered this long before the one who asks gives up.
const WAY_BACK: Duration = Duration::from_millis(100);

/// How much is being passed on or held.
#[derive(Default)]
pub(super) struct Passing {
    requests: AtomicUsize,
    bytes: AtomicUsize,
    /// The highest applied index behind a read that the leader answered in this node's name.
    shown: AtomicU64,
}

/// A place among the passed requests, given back when dropped.
struct Ticket {
    broker: Arc<Broker>,
    bytes: usize,
}

impl Ticket {
    fn take(broker: &Arc<Broker>, bytes: usize) -> Option<Ticket> {
        let passing = &broker.passing;
        let requests = passing.requests.fetch_add(1, Ordering::Relaxed);
        let held = passing.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Made first, so that a refusal gives back what was just counted.
        let ticket = Ticket {
            broker: broker.clone(),
            bytes,
        };
        (requests < PASSED_MAX && held < PASSED_BYTES_MAX).then_some(ticket)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let passing = &self.broker.passing;
        passing.requests.fetch_sub(1, Ordering::Relaxed);
        passing.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Broker {
    /// Whether this node is the leader and may propose now.
    pub fn leads(&self) -> bool {
        self.group.gate().is_ok()
    }

    /// Where a request with this origin is to be served.
    pub(super) fn place(&self, origin: &Origin, access: Access) -> Place {
        let gate = match access {
            Access::Write => self.group.gate(),
            // I-8: a follower does not know what is newest.
            Access::Read if sabotage::on(Sabotage::FollowerReads) => Ok(()),
            Access::Read => self.group.lease_read(),
        };
        place(self.node(), access, gate, origin.forwarded_by.is_some())
    }

    /// Gives the request back if it is to be served here and now. Otherwise it has been taken care of: passed
    /// to the leader, held, or refused. Reads wait for the lease.
    pub(super) fn claim(self: &Arc<Self>, request: Request) -> Option<Request> {
        let access = access_of(request.frame.header.code);
        match self.place(&request.origin, access) {
            Place::Here => return Some(request),
            Place::HandBack => request.hand_back(),
            Place::Wait(_) => self.wait_for_lease(request),
            Place::Refuse(refusal) => request.fail(&refusal.into()),
            Place::Pass(_) | Place::Hold => self.pass_to_leader(request, REPLY_WITHIN),
        }
        None
    }

    /// Passes a request to the leader and its answer back, holding it while there is no leader. When this
    /// node turns out to lead, the request is handled here. `budget` counts from the request's arrival.
    pub(super) fn pass_to_leader(self: &Arc<Self>, request: Request, budget: Duration) {
        if request.origin.forwarded_by.is_some() {
            return request.hand_back();
        }
        let Some(ticket) = Ticket::take(self, request.frame.raw.len()) else {
            let why = "too many requests wait for the leader";
            return request.fail(&WriteError::Busy(why.to_string()));
        };
        let broker = self.clone();
        tokio::spawn(async move {
            broker.pass(request, budget).await;
            drop(ticket);
        });
    }

    async fn pass(self: &Arc<Self>, request: Request, budget: Duration) {
        let access = access_of(request.frame.header.code);
        let give_up = request.origin.arrived + budget;
        let hold_until = (request.origin.arrived + self.config.write_hold).min(give_up);
        let mut view = self.group.view();
        let mut waited = false;
        loop {
            view.borrow_and_update();
            let why = match self.place(&request.origin, access) {
                // Its log may have turned the request away a moment ago, as that of a leader does that is
                // handing over: to try again at once would go round without an end.
                Place::Here if !waited => "the leader takes no writes".to_string(),
                Place::Here => return self.handle(request),
                Place::HandBack => return request.hand_back(),
                Place::Wait(_) => return self.wait_for_lease(request),
                Place::Refuse(refusal) => return request.fail(&refusal.into()),
                Place::Hold => "no leader was elected in time".to_string(),
                Place::Pass(leader) => match self.ask(leader, &request, give_up).await {
                    Ok(Some((frame, applied))) => {
                        if access == Access::Read {
                            // Before the reply leaves: its client's next read may be served here.
                            self.passing.shown.fetch_max(applied, Ordering::AcqRel);
                        }
                        return request.reply.send_frame(frame);
                    }
                    Ok(None) => format!("node {leader} is not ready to lead"),
                    Err(CallError::NotSent(why)) => format!("node {leader}: {why}"),
                    Err(CallError::NoAnswer(why)) => {
                        return request.fail(&unanswered(access, leader, &why));
                    }
                },
            };
            if Instant::now() >= hold_until {
                return request.fail(&WriteError::Refused(why));
            }
            wait_for_change(&mut view, LOOK_AGAIN).await;
            waited = true;
        }
    }

    /// One attempt: the reply, and what its node had applied. `Ok(None)`: the other node could not serve it and has done nothing.
    async fn ask(
        &self,
        leader: NodeId,
        request: &Request,
        give_up: Instant,
    ) -> Result<Option<(Bytes, u64)>, CallError> {
        let left = give_up.saturating_duration_since(Instant::now());
        if left <= WAY_BACK {
            return Err(CallError::NotSent("no time was left".to_string()));
        }
        let ask = Ask::Client {
            client: request.origin.client,
            front: request.origin.front,
            budget_ms: (left - WAY_BACK).as_millis() as u32,
        };
        let answer = self
            .group
            .call(leader, ask.encode(&request.frame.raw), left)
            .await?;
        match Answer::decode(answer) {
            Ok(Answer::Frame { applied, frame }) => Ok(Some((frame, applied))),
            Ok(Answer::NotLeading | Answer::Done) => Ok(None),
            Err(why) => Err(CallError::NoAnswer(why.to_string())),
        }
    }

    /// Tells the group what this node says of itself, through whoever leads. `false`: try again later.
    pub(super) async fn announce(&self, info: &NodeInfo) -> bool {
        let deadline = Instant::now() + REPLY_WITHIN;
        if self.leads() {
            let command = Command::AnnounceNode(info.clone());
            return self.proposer.command(deadline, &command).await.is_ok();
        }
        let Some(leader) = self.group.view().borrow().leader else {
            return false;
        };
        if leader == self.node() {
            return false;
        }
        let ask = Ask::Announce(info.clone()).encode(&[]);
        let answer = self.group.call(leader, ask, REPLY_WITHIN).await;
        matches!(answer.map(Answer::decode), Ok(Ok(Answer::Done)))
    }

    /// The leader's half: answers what node `from` has passed on.
    async fn serve_peer(self: &Arc<Self>, from: NodeId, request: Bytes) -> Answer {
        match Ask::decode(request) {
            Ok((
                Ask::Client {
                    client,
                    front,
                    budget_ms,
                },
                frame,
            )) => {
                let origin = Origin {
                    client,
                    front,
                    forwarded_by: Some(from),
                    connection: None,
                    arrived: arrived_with(Duration::from_millis(u64::from(budget_ms))),
                };
                self.serve_passed(origin, frame).await
            }
            Ok((Ask::Announce(info), _)) if info.node == from => {
                let deadline = Instant::now() + REPLY_WITHIN - WAY_BACK;
                let command = Command::AnnounceNode(info);
                match self.proposer.command(deadline, &command).await {
                    Ok(_) => Answer::Done,
                    Err(_) => Answer::NotLeading,
                }
            }
            Ok((Ask::Announce(info), _)) => {
                tracing::warn!(from, says = info.node, "a node announced another one");
                Answer::NotLeading
            }
            Err(error) => {
                tracing::warn!(from, %error, "a peer passed on what cannot be read");
                Answer::NotLeading
            }
        }
    }

    async fn serve_passed(self: &Arc<Self>, origin: Origin, raw: Bytes) -> Answer {
        let frame = match Frame::decode_whole(raw) {
            Ok(frame) => frame,
            Err(error) => {
                tracing::warn!(%error, "a peer passed on what is no frame");
                return Answer::NotLeading;
            }
        };
        let opaque = frame.header.opaque;
        let (back, answered) = oneshot::channel();
        self.handle(Request {
            frame,
            origin,
            reply: ReplyTo::Peer(back),
        });
        match answered.await {
            Ok(frame) if frame.is_empty() => Answer::NotLeading,
            Ok(frame) => self.passed_reply(frame),
            // A handler dropped the request without a word: what it did is not known.
            Err(_) => {
                let error = WriteError::Unknown("the leader did not answer".to_string());
                let mut frame = bytes::BytesMut::new();
                failure(opaque, &error).encode(&mut frame);
                self.passed_reply(frame.freeze())
            }
        }
    }

    /// The index is read after the reply was made, and from the state that made it, so that the reply shows
    /// nothing newer: the log tells only after some more entries that they are applied.
    fn passed_reply(&self, frame: Bytes) -> Answer {
        let applied = self.store.applied_index();
        Answer::Frame { applied, frame }
    }

    /// What a read served here must include: a client that was shown the leader's state through this node is not
    /// shown an older one by it afterwards.
    pub(super) fn shown(&self) -> u64 {
        self.passing.shown.load(Ordering::Acquire)
    }

    /// Whether this node has applied all that it showed.
    pub(super) fn is_level_with_shown(&self) -> bool {
        self.group.applied_index() >= self.shown()
    }
}

/// When a request that has `budget` left must be taken to have arrived.
fn arrived_with(budget: Duration) -> Instant {
    let gone = REPLY_WITHIN.saturating_sub(budget);
    let now = Instant::now();
    now.checked_sub(gone).unwrap_or(now)
}

/// What a request is told that went to the leader and got no answer.
fn unanswered(access: Access, leader: NodeId, why: &str) -> WriteError {
    let why = format!("node {leader} did not answer: {why}");
    match access {
        // I-3: the leader may have taken it.
        Access::Write if sabotage::on(Sabotage::UnansweredRefused) => WriteError::Refused(why),
        Access::Write => WriteError::Unknown(why),
        // A read that was not answered has changed nothing.
        Access::Read => WriteError::Refused(why),
    }
}

/// The reply to a request that failed for `error`.
pub(super) fn failure(opaque: i32, error: &WriteError) -> Reply {
    let (code, remark) = error.code_and_remark();
    Reply::new(code, opaque).with_remark(remark)
}

impl Request {
    /// Answers with why the request was not carried out, or may not have been.
    pub(super) fn fail(self, error: &WriteError) {
        let header = &self.frame.header;
        let mut reply = failure(header.opaque, error);
        if matches!(
            header.code,
            code::SEND_MESSAGE | code::SEND_MESSAGE_V2 | code::SEND_BATCH_MESSAGE
        ) {
            reply = super::send::with_region(reply);
        }
        self.reply.send(reply);
    }

    /// Tells the node that passed this on that nothing was done here.
    pub(super) fn hand_back(self) {
        match self.reply {
            ReplyTo::Peer(back) => {
                let _ = back.send(Bytes::new());
            }
            ReplyTo::Connection(_) | ReplyTo::Nobody(_) => {
                self.fail(&WriteError::NotLeader { leader: None })
            }
        }
    }
}

/// Stands for the broker towards the group until there is one: a group starts before its broker.
#[derive(Clone, Default)]
pub struct ServiceSlot(Arc<OnceLock<Weak<Broker>>>);

impl ServiceSlot {
    /// From now on the broker answers. Only the first one counts.
    pub fn set(&self, broker: &Arc<Broker>) {
        let _ = self.0.set(Arc::downgrade(broker));
    }
}

impl PeerService for ServiceSlot {
    fn call(&self, from: NodeId, request: Bytes) -> BoxFuture<'static, Bytes> {
        let broker = self.0.get().and_then(Weak::upgrade);
        Box::pin(async move {
            let answer = match broker {
                Some(broker) => broker.serve_peer(from, request).await,
                None => Answer::NotLeading,
            };
            answer.encode()
        })
    }
}
