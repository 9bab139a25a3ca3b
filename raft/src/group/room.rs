//! Whether the disks have room: this node's, looked at now and then, and those of the others, asked for while
//! this node leads.
//!
//! A node whose disk is nearly full proposes nothing and, when even what was under way is too much, takes no
//! entries; it goes on voting and answering heartbeats, and learns what is committed. So no write meets a full
//! disk, and the node goes on by itself once there is space. A leader that is full hands over to a node that is
//! not.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use openraft::entry::EntryPayload;
use openraft::raft::AppendEntriesRequest;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::gate::Disk;
use super::{GroupConfig, RaftNode, status};
use crate::env::{Env, WriterMode};
use crate::log::Log;
use crate::peer::Links;
use crate::storage::entry::TypeConfig;
use crate::types::{NodeId, Refusal, Role, View};

/// How often the free space of the disk is looked at, and the others are asked for theirs.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long an answer is waited for, and how old it may be.
const ANSWER_BOUND: Duration = Duration::from_secs(1);
/// Pause between two attempts to hand leadership over.
const HAND_OVER_EVERY: Duration = Duration::from_secs(2);
/// What a leader may have sent this node before it hears that there is no room, and more.
const UNDER_WAY: u64 = 32 << 20;

/// What is known of the disks.
pub(super) struct Room {
    log: Log,
    config: GroupConfig,
    disk: watch::Sender<Disk>,
    /// What the others said last and when; only while leading.
    others: Mutex<BTreeMap<NodeId, (Instant, bool)>>,
    /// The newest term whose leadership this node may have given away.
    given_away: AtomicU64,
}

/// The disks of the voters, as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Disks {
    voters: usize,
    own_full: bool,
    /// Other voters that said lately that they are full, and that they are not.
    full: usize,
    free: usize,
}

/// Is there no majority that can take an entry, because of full disks? A node that says nothing takes nothing,
/// but while no disk is full the lease tells whether there are enough.
fn short_of_room(disks: Disks) -> bool {
    let with_room = disks.free + usize::from(!disks.own_full);
    (disks.own_full || disks.full > 0) && with_room < disks.voters / 2 + 1
}

/// Should a leader whose disk is full make room for another? Not if no other could do better.
fn hands_over(disks: Disks) -> bool {
    disks.own_full && !short_of_room(disks)
}

impl Room {
    pub fn new(log: Log, config: GroupConfig) -> Room {
        Room {
            log,
            config,
            disk: watch::Sender::new(Disk::default()),
            others: Mutex::default(),
            given_away: AtomicU64::new(0),
        }
    }

    /// May something new be proposed here?
    pub fn check(&self, voters: &[NodeId]) -> Result<(), Refusal> {
        let disk = *self.disk.borrow();
        if self.log.last_room().is_some() {
            // A segment more than the reserve is needed.
            let reserve = self.config.disk_reserve / 2 + self.config.segment_bytes;
            return Err(Refusal::DiskFull {
                free: disk.free,
                reserve,
            });
        }
        disk.check(self.config.disk_reserve)?;
        match short_of_room(self.disks(voters)) {
            true => Err(Refusal::ReplicasFull),
            false => Ok(()),
        }
    }

    /// Whether this node may have asked another to take over from it in this term. That one may lead at any moment:
    /// it is elected without regard to the lease.
    pub fn handed_over(&self, term: u64) -> bool {
        term <= self.given_away.load(Ordering::Acquire)
    }

    pub fn is_full(&self) -> bool {
        self.disk.borrow().full || self.log.last_room().is_some()
    }

    /// May openraft see this request to append? What a new leader writes for itself is taken.
    pub fn check_append(&self, request: &AppendEntriesRequest<TypeConfig>) -> Result<(), String> {
        let of_users = |content| matches!(content, &EntryPayload::Normal(_));
        if !request.entries.iter().any(|entry| of_users(&entry.content)) {
            return Ok(());
        }
        let no_segment = self.log.last_room().is_some_and(|left| left < UNDER_WAY);
        match no_segment || self.disk.borrow().cramped {
            true => Err(format!(
                "the disk of node {} is full: it takes no entries until there is space",
                self.config.node
            )),
            false => Ok(()),
        }
    }

    fn disks(&self, voters: &[NodeId]) -> Disks {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let said = |full: bool| {
            let lately = others.iter().filter(|(node, (at, said))| {
                voters.contains(node) && at.elapsed() <= ANSWER_BOUND && *said == full
            });
            lately.count()
        };
        Disks {
            voters: voters.len(),
            own_full: self.is_full(),
            full: said(true),
            free: said(false),
        }
    }

    /// Looks at the disk.
    pub fn look(&self, env: &Env) {
        // Unknown is not full: a write that fails ends the node anyway.
        let free = env.files.free_bytes(&self.config.dir).unwrap_or(u64::MAX);
        let reserve = self.config.disk_reserve;
        let last = *self.disk.borrow();
        let now = last.look(free, reserve);
        if now.full != last.full {
            match now.full {
                true => tracing::warn!(free, reserve, "writes refused: the disk is nearly full"),
                false => tracing::info!(free, reserve, "writes accepted again: the disk has space"),
            }
        }
        self.disk.send_replace(now);
        if self.log.last_room().is_some() {
            self.log.make_next();
        }
    }

    /// Looks again and again.
    pub async fn watch(self: Arc<Room>, env: Env) {
        loop {
            sleep(LOOK_EVERY).await;
            if env.writer == WriterMode::Task {
                self.look(&env);
                continue;
            }
            let (room, env) = (self.clone(), env.clone());
            // A file system that hangs must not hold up the runtime.
            let look = tokio::task::spawn_blocking(move || room.look(&env));
            let _ = look.await;
        }
    }

    /// Asks the others while this node leads, and hands leadership over when its disk is full and others can
    /// take the writes.
    pub async fn ask(self: Arc<Room>, raft: RaftNode, links: Links, view: watch::Receiver<View>) {
        let mut handed_over = None::<Instant>;
        loop {
            sleep(LOOK_EVERY).await;
            let view = view.borrow().clone();
            if view.role != Role::Leader {
                continue;
            }
            let asked = links.iter().map(|(node, link)| async move {
                Some((*node, link.standing(ANSWER_BOUND / 2).await?))
            });
            for (node, said) in futures_util::future::join_all(asked)
                .await
                .into_iter()
                .flatten()
            {
                let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
                others.insert(node, (Instant::now(), said.full));
            }
            let lately = handed_over.is_some_and(|at| at.elapsed() < HAND_OVER_EVERY);
            if hands_over(self.disks(&view.voters)) && !lately {
                handed_over = Some(Instant::now());
                self.hand_over(&raft, &view).await;
            }
        }
    }

    async fn hand_over(&self, raft: &RaftNode, view: &View) {
        use openraft::async_runtime::watch::WatchReceiver;
        let metrics = raft.metrics().borrow_watched().clone();
        let mut replicas = status::replicas(&metrics, &self.config.peers);
        {
            let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
            replicas.retain(|replica| {
                let said = others.get(&replica.node);
                said.is_some_and(|(at, full)| !full && at.elapsed() <= ANSWER_BOUND)
            });
        }
        let lease = self.config.timers.election_max;
        if let Some(to) = status::successor(&replicas, &view.voters, lease) {
            tracing::info!(
                node = self.config.node,
                to,
                "handing leadership over: the disk is nearly full"
            );
            // From here on openraft sends no heartbeats: if the other never hears of it, whoever has all entries
            // is elected as if this node were gone.
            // Whatever the term is when the core hears of it. It answers the question after it has.
            self.given_away.store(u64::MAX, Ordering::Release);
            // The core is gone, which is noticed elsewhere.
            let _ = raft.trigger().transfer_leader(to).await;
            let term = raft.with_raft_state(|state| state.vote_ref().leader_id.term);
            if let Ok(term) = term.await {
                self.given_away.store(term, Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_refuses_when_full_disks_leave_no_majority_and_hands_over_when_they_do() {
        let disks = |voters, own_full, full, free| Disks {
            voters,
            own_full,
            full,
            free,
        };
        let table = [
            (disks(3, false, 0, 2), false, false),
            (disks(3, false, 1, 1), false, false),
            (disks(3, false, 2, 0), true, false),
            // Nothing full: the lease tells.
            (disks(3, false, 0, 0), false, false),
            (disks(3, false, 1, 0), true, false),
            (disks(3, true, 0, 2), false, true),
            (disks(3, true, 1, 1), true, false),
            (disks(3, true, 0, 1), true, false),
            (disks(1, false, 0, 0), false, false),
            (disks(1, true, 0, 0), true, false),
            (disks(5, false, 2, 2), false, false),
            (disks(5, true, 1, 3), false, true),
            (disks(5, true, 2, 2), true, false),
        ];
        for (disks, short, hands) in table {
            assert_eq!(short_of_room(disks), short, "{disks:?}");
            assert_eq!(hands_over(disks), hands, "{disks:?}");
        }
    }
}
