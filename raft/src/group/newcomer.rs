//! A node whose directory was made empty: asks the others how they stand, keeps the node from voting and
//! following without their consent, and notices when it has been filled.
//!
//! What is allowed is decided by `consent`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use openraft::raft::{AppendEntriesRequest, VoteRequest};
use tokio::sync::watch;
use tokio::time::sleep;

use super::consent::{self, Hold, Others};
use crate::log::Log;
use crate::peer::{Links, PeersTag, Standing};
use crate::sabotage::{self, Sabotage};
use crate::storage::entry::{TypeConfig, entry_id};
use crate::types::{EntryId, NodeId};

/// Pause between two rounds of questions.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// How long one round waits for answers.
const ANSWER_BOUND: Duration = Duration::from_millis(500);
/// How long the others may be silent before an operator is told; nodes are not started all at once.
const TELL_AFTER: Duration = Duration::from_secs(3);

/// The node's own view of whether it is one.
pub(super) struct Newcomer {
    node: NodeId,
    log: Log,
    links: Links,
    peers: PeersTag,
    /// What the others said last to this process.
    others: Mutex<Others>,
    unfilled: watch::Sender<bool>,
}

impl Newcomer {
    pub fn new(node: NodeId, log: Log, links: Links, peers: PeersTag) -> Newcomer {
        let others = links.keys().map(|node| (*node, None)).collect();
        let (unfilled, _) = watch::channel(log.unfilled());
        Newcomer {
            node,
            log,
            links,
            peers,
            others: Mutex::new(others),
            unfilled,
        }
    }

    /// May this node vote, follow and stand for election like any other?
    pub fn is_free(&self) -> bool {
        // D14: what it has forgotten, it may have promised.
        self.is_filled() || sabotage::on(Sabotage::EmptiedVotes)
    }

    fn is_filled(&self) -> bool {
        !*self.unfilled.borrow()
    }

    /// Waits until [`Newcomer::is_free`].
    pub async fn free(&self) {
        if !self.is_free() {
            self.filled().await;
        }
    }

    /// Waits until the node is filled, or the group may be founded.
    pub async fn filled(&self) {
        let mut unfilled = self.unfilled.subscribe();
        if unfilled.wait_for(|unfilled| !unfilled).await.is_err() {
            std::future::pending().await
        }
    }

    /// May openraft see this request for a vote? The text is for the candidate.
    pub fn check_vote(&self, request: &VoteRequest<TypeConfig>) -> Result<(), String> {
        if self.is_free() {
            return Ok(());
        }
        let vote = request.vote.leader_id;
        let last = request.last_log_id.as_ref().map(entry_id);
        let others = self.others();
        consent::vote(&others, vote.voted_for, vote.term, last).map_err(|why| self.holds(&why))
    }

    /// May openraft see this request to append?
    pub fn check_append(&self, request: &AppendEntriesRequest<TypeConfig>) -> Result<(), String> {
        if self.is_free() {
            return Ok(());
        }
        let leader = request.vote.leader_id;
        let others = self.others();
        consent::follow(&others, leader.voted_for, leader.term).map_err(|why| self.holds(&why))
    }

    fn holds(&self, why: &Hold) -> String {
        format!("node {} was emptied and not filled since: {why}", self.node)
    }

    fn others(&self) -> Others {
        self.others
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Asks until the node is filled. Ends early only when the disk fails: the node then stays as careful as it is.
    pub async fn run(&self) {
        let mut target = None;
        let mut before: Option<Others> = None;
        let mut said = String::new();
        let begun = tokio::time::Instant::now();
        while !self.is_filled() {
            let round = self.ask().await;
            let may_found = consent::without_data(self.log.appended())
                && before.as_ref().is_some_and(|before| {
                    consent::nothing_was_promised(before, &round, self.peers)
                });
            if may_found || self.has_caught_up(&mut target) {
                match self.log.set_filled().await {
                    Ok(()) => self.tell_filled(may_found),
                    Err(error) => {
                        tracing::error!(node = self.node, %error, "the mark of an emptied directory cannot be removed");
                        return;
                    }
                }
                return;
            }
            if begun.elapsed() >= TELL_AFTER {
                self.tell_waiting(&round, &mut said);
            }
            before = Some(round);
            sleep(ASK_EVERY).await;
        }
    }

    /// Waits until every other node says that it has forgotten nothing. No node asks for votes before, so
    /// that none has voted while another still finds out that nothing was promised.
    pub async fn all_filled(&self) {
        loop {
            let round = self.ask().await;
            let filled = |said: &Option<Standing>| said.is_some_and(|said| !said.unfilled);
            if round.values().all(filled) {
                return;
            }
            sleep(ASK_EVERY).await;
        }
    }

    /// One round: the answers of this round only. What they say is remembered as well.
    async fn ask(&self) -> Others {
        let asked = self.links.iter().map(|(node, link)| async move {
            let standing = link.standing(ANSWER_BOUND).await;
            (*node, standing)
        });
        let round: BTreeMap<_, _> = join_all(asked).await.into_iter().collect();
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        for (node, standing) in &round {
            if standing.is_some() {
                others.insert(*node, *standing);
            }
        }
        round
    }

    fn has_caught_up(&self, target: &mut Option<EntryId>) -> bool {
        let Some(vote) = self.log.vote() else {
            return false;
        };
        let others = self.others();
        let of_this_term = target.is_some_and(|target: EntryId| target.term == vote.term);
        if !of_this_term {
            *target = consent::target(&others, vote.term);
        }
        consent::filled(&others, *target, self.log.durable(), vote.term)
    }

    fn tell_filled(&self, founding: bool) {
        match founding {
            true => tracing::info!(
                node = self.node,
                "no node of the group has data: it can be founded"
            ),
            false => tracing::info!(
                node = self.node,
                "filled: this node votes and stands for election again"
            ),
        }
        self.unfilled.send_replace(false);
    }

    /// Names who is missing and what an operator can do, once for each set of missing nodes.
    fn tell_waiting(&self, round: &Others, said: &mut String) {
        let silent: Vec<String> = round
            .iter()
            .filter(|(_, standing)| standing.is_none())
            .filter_map(|(node, _)| {
                let address = &self.links.get(node)?.address;
                Some(format!("node {node} at {address}"))
            })
            .collect();
        let silent = silent.join(", ");
        if silent.is_empty() || silent == *said {
            said.clone_from(&silent);
            return;
        }
        tracing::warn!(
            node = self.node,
            "this node's data directory was made empty, and {silent} does not answer. Until all others have \
             answered it neither votes nor founds the group nor takes entries: what is acknowledged may be \
             there only. Start the silent node. Only if its data is lost for good, or if no node of the group \
             ever had data, start this one once with --accept-empty"
        );
        *said = silent;
    }
}
