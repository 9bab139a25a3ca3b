//! Requests of other nodes, handed to this node's Raft core and service.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream;
use futures_util::stream::BoxStream;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, StreamAppendError, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::RaftNode;
use super::newcomer::Newcomer;
use super::room::Room;
use super::view::Heard;
use crate::log::Log;
use crate::peer::{Inbound, PeersTag, Standing};
use crate::sabotage::{self, Sabotage};
use crate::storage::entry::TypeConfig;
use crate::types::{NodeId, PeerService, Role, View};

/// Pause between the nodes that may campaign when their leader's connection broke, so that the first one has
/// the votes (durably) before the next one asks.
const CAMPAIGN_STEP: Duration = Duration::from_millis(60);

/// This node as other nodes see it.
pub(crate) struct RaftInbound {
    pub raft: RaftNode,
    pub service: Arc<dyn PeerService>,
    pub ear: Arc<Ear>,
    pub view: watch::Receiver<View>,
    pub newcomer: Arc<Newcomer>,
    pub room: Arc<Room>,
    pub log: Log,
    /// Of this process.
    pub incarnation: u64,
    /// As configured here.
    pub peers: PeersTag,
    /// How long a leader's silence is respected.
    pub lease: Duration,
}

/// What leaders say, as far as it is remembered.
pub(crate) struct Ear {
    /// What each term's leader said first.
    pub heard: watch::Sender<Option<Heard>>,
    start: Instant,
    /// Milliseconds after `start` at which a leader last said something.
    last_ms: AtomicU64,
    /// A campaign is waiting for its time.
    campaigning: AtomicBool,
}

impl Ear {
    pub(crate) fn new(heard: watch::Sender<Option<Heard>>) -> Ear {
        Ear {
            heard,
            start: Instant::now(),
            last_ms: AtomicU64::new(0),
            campaigning: AtomicBool::new(false),
        }
    }

    fn hear(&self, request: &AppendEntriesRequest<TypeConfig>) {
        let now_ms = self.start.elapsed().as_millis() as u64;
        self.last_ms.store(now_ms, Ordering::Relaxed);
        hear(&self.heard, request);
    }

    /// Whether this process is so young that the one before may have answered a leader within its lease. Such
    /// an answer binds the node, restarted or not; openraft forgets it with the process.
    fn bound_by_before(&self, lease: Duration) -> bool {
        // I-8: that leader may still answer reads of the newest state.
        !sabotage::on(Sabotage::NoRestartLease) && is_bound_by_before(self.start.elapsed(), lease)
    }

    fn silence(&self) -> Duration {
        let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(last)
    }
}

/// See [`Ear::bound_by_before`]. As openraft counts a lease: its last moment still belongs to it.
fn is_bound_by_before(age: Duration, lease: Duration) -> bool {
    age <= lease
}

/// What a node that is bound by its former self tells whoever asks for its vote.
const BOUND: &str =
    "just started: a leader that the process before answered may still have its lease";

/// When to campaign after the connection of the leader `lost` ended: after the lease, which the others
/// respect as well, and one after the other. openraft would wait 150 to 300 ms more. `None`: not this node.
fn campaign_after(view: &View, lost: NodeId, lease: Duration) -> Option<Duration> {
    if view.role != Role::Follower || view.leader != Some(lost) {
        return None;
    }
    let others = view.voters.iter().filter(|voter| **voter != lost);
    let place = others.take_while(|voter| **voter != view.node).count();
    let in_voters = view.voters.contains(&view.node);
    in_voters.then(|| lease + CAMPAIGN_STEP * (place as u32 + 1))
}

/// Whether the leader is still gone when that time has come.
fn still_gone(view: &View, lost: NodeId, silence: Duration, lease: Duration) -> bool {
    view.role == Role::Follower && view.leader == Some(lost) && silence >= lease
}

/// Remembers the first thing that the leader of a new term says. A term has one leader, and requests of
/// older terms that are still under way do not count.
fn hear(heard: &watch::Sender<Option<Heard>>, request: &AppendEntriesRequest<TypeConfig>) {
    let term = request.vote.leader_id.term;
    // A read lock for the common case.
    if heard.borrow().is_some_and(|heard| heard.term >= term) {
        return;
    }
    heard.send_if_modified(|heard| {
        let new = heard.is_none_or(|heard| heard.term < term);
        if new {
            let committed = request.leader_commit.as_ref().map(|id| id.index());
            *heard = Some(Heard { term, committed });
        }
        new
    });
}

/// The answer in the form that streams give it.
fn append_result(
    answer: AppendEntriesResponse<TypeConfig>,
    request: &Range,
) -> Result<StreamAppendResult<TypeConfig>, String> {
    match (&answer, request.previous) {
        (AppendEntriesResponse::Conflict, None) => {
            Err("a request that follows nothing cannot conflict".into())
        }
        _ => Ok(answer.into_stream_result(request.previous, request.last)),
    }
}

/// The requests before the first that `check` turns away, and the text for that one, which comes when all
/// requests before it have been answered.
fn admit<R: Send + 'static, T: Send + 'static>(
    requests: BoxStream<'static, R>,
    check: impl Fn(&R) -> Result<(), String> + Send + 'static,
) -> (BoxStream<'static, R>, BoxStream<'static, Result<T, String>>) {
    let why = Arc::new(Mutex::new(None));
    let said = why.clone();
    let admitted = requests.take_while(move |request| {
        let admitted = check(request);
        let goes_on = admitted.is_ok();
        *said.lock().unwrap_or_else(PoisonError::into_inner) = admitted.err();
        std::future::ready(goes_on)
    });
    let turned_away = stream::once(async move {
        let mut why = why.lock().unwrap_or_else(PoisonError::into_inner);
        why.take().map(Err)
    });
    let turned_away = turned_away.filter_map(std::future::ready);
    (admitted.boxed(), turned_away.boxed())
}

/// What a request covers.
struct Range {
    previous: Option<crate::storage::entry::RaftLogId>,
    last: Option<crate::storage::entry::RaftLogId>,
}

impl Inbound for RaftInbound {
    fn vote(
        &self,
        request: VoteRequest<TypeConfig>,
    ) -> BoxFuture<'static, Result<VoteResponse<TypeConfig>, String>> {
        // The leader itself asks for a transfer, and ends its lease with it.
        if !request.leadership_transfer && self.ear.bound_by_before(self.lease) {
            return Box::pin(async { Err(BOUND.to_string()) });
        }
        if let Err(why) = self.newcomer.check_vote(&request) {
            return Box::pin(async { Err(why) });
        }
        let raft = self.raft.clone();
        Box::pin(async move { raft.vote(request).await.map_err(|error| error.to_string()) })
    }

    fn pre_vote(
        &self,
        request: VoteRequest<TypeConfig>,
    ) -> BoxFuture<'static, Result<VoteResponse<TypeConfig>, String>> {
        if self.ear.bound_by_before(self.lease) {
            return Box::pin(async { Err(BOUND.to_string()) });
        }
        if let Err(why) = self.newcomer.check_vote(&request) {
            return Box::pin(async { Err(why) });
        }
        let raft = self.raft.clone();
        Box::pin(async move {
            raft.pre_vote(request)
                .await
                .map_err(|error| error.to_string())
        })
    }

    fn append(
        &self,
        request: AppendEntriesRequest<TypeConfig>,
    ) -> BoxFuture<'static, Result<StreamAppendResult<TypeConfig>, String>> {
        let checked = self.newcomer.check_append(&request);
        if let Err(why) = checked.and_then(|()| self.room.check_append(&request)) {
            return Box::pin(async { Err(why) });
        }
        self.ear.hear(&request);
        let raft = self.raft.clone();
        let range = Range {
            previous: request.prev_log_id,
            last: request
                .entries
                .last()
                .map(|entry| entry.id)
                .or(request.prev_log_id),
        };
        Box::pin(async move {
            let answer = raft
                .append_entries(request)
                .await
                .map_err(|error| error.to_string())?;
            append_result(answer, &range)
        })
    }

    fn stream(
        &self,
        requests: BoxStream<'static, AppendEntriesRequest<TypeConfig>>,
    ) -> BoxStream<'static, Result<StreamAppendResult<TypeConfig>, String>> {
        let (ear, newcomer) = (self.ear.clone(), self.newcomer.clone());
        let room = self.room.clone();
        let (admitted, turned_away) = admit(requests, move |request| {
            newcomer.check_append(request)?;
            room.check_append(request)?;
            ear.hear(request);
            Ok(())
        });
        self.raft
            .stream_append(admitted)
            .map(|answer| match answer {
                // I-17: what conflicts is not there.
                Ok(Err(StreamAppendError::Conflict(at)))
                    if sabotage::on(Sabotage::ConflictMatched) =>
                {
                    Ok(Ok(Some(at)))
                }
                answer => answer.map_err(|error| error.to_string()),
            })
            .chain(turned_away)
            .boxed()
    }

    fn transfer(
        &self,
        request: TransferLeaderRequest<TypeConfig>,
    ) -> BoxFuture<'static, Result<TransferLeaderResponse<TypeConfig>, String>> {
        if !self.newcomer.is_free() {
            return Box::pin(async {
                Err("emptied and not filled since: cannot lead".to_string())
            });
        }
        let raft = self.raft.clone();
        Box::pin(async move {
            raft.handle_transfer_leader(request)
                .await
                .map_err(|error| error.to_string())
        })
    }

    fn standing(&self) -> Standing {
        let leads = {
            let view = self.view.borrow();
            (view.role == Role::Leader).then_some(view.term)
        };
        Standing {
            incarnation: self.incarnation,
            unfilled: self.log.unfilled(),
            voted: self
                .log
                .vote()
                .filter(|vote| vote.term > 0)
                .map(|vote| (vote.term, vote.voted_for)),
            last: self.log.appended(),
            leads,
            full: self.room.is_full(),
            peers: self.peers,
        }
    }

    fn call(&self, from: NodeId, request: Bytes) -> BoxFuture<'static, Bytes> {
        self.service.call(from, request)
    }

    fn lost(&self, from: NodeId) {
        let after = campaign_after(&self.view.borrow(), from, self.lease);
        let Some(after) = after.filter(|_| self.newcomer.is_free()) else {
            return;
        };
        if self.ear.campaigning.swap(true, Ordering::AcqRel) {
            return;
        }
        let (raft, ear) = (self.raft.clone(), self.ear.clone());
        let (view, lease) = (self.view.clone(), self.lease);
        tokio::spawn(async move {
            sleep(after).await;
            ear.campaigning.store(false, Ordering::Release);
            let gone = still_gone(&view.borrow(), from, ear.silence(), lease);
            if gone {
                // With a pre-vote: if the others still hear the leader, nothing happens.
                let _ = raft.trigger().elect(true).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_young_process_is_bound_by_what_the_one_before_may_have_answered() {
        let lease = Duration::from_millis(300);
        for (age_ms, bound) in [(0, true), (299, true), (300, true), (301, false)] {
            let age = Duration::from_millis(age_ms);
            assert_eq!(is_bound_by_before(age, lease), bound, "{age_ms}");
        }
    }

    #[test]
    fn followers_of_a_lost_leader_campaign_one_after_the_other_and_nobody_else_does() {
        let lease = Duration::from_millis(300);
        let view = |node, role, leader| View {
            node,
            role,
            term: 3,
            leader,
            last_leader: leader,
            ready: true,
            voters: vec![1, 2, 3],
        };
        let ms = |ms| Some(Duration::from_millis(ms));
        let table = [
            (view(1, Role::Follower, Some(2)), 2, ms(360)),
            (view(3, Role::Follower, Some(2)), 2, ms(420)),
            (view(1, Role::Follower, Some(2)), 3, None),
            (view(1, Role::Follower, None), 2, None),
            (view(1, Role::Leader, Some(1)), 2, None),
            (view(1, Role::Candidate, None), 2, None),
            (view(4, Role::Follower, Some(2)), 2, None),
        ];
        for (view, lost, expected) in table {
            assert_eq!(campaign_after(&view, lost, lease), expected, "{view:?}");
        }
        let follower = view(1, Role::Follower, Some(2));
        assert!(still_gone(&follower, 2, lease, lease));
        assert!(!still_gone(&follower, 2, Duration::from_millis(299), lease));
        assert!(!still_gone(&follower, 3, lease, lease));
    }
}
