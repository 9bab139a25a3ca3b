//! Held pulls (long polling): pulls that found nothing wait here for a message or their deadline.
//!
//! Keeps them and says when one must be looked at again; what it then gets is decided by the [`Examine`]
//! that the task was started with (`pull`).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::{Equivalent, HashMap};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::cold::{ColdReads, Customer};
use super::offsets::PullCommits;
use crate::net::connection::ReplyTo;
use crate::protocol::filter::TagFilter;
use crate::protocol::frame::Reply;
use crate::store::{Arrivals, ReadLimits};

/// Pulls held by one node at most; beyond, a pull that finds nothing is answered at once.
pub const HELD_MAX: usize = 100_000;
/// Longest time that a pull is held, whatever it asks for: clients give up after 30 s.
pub const HOLD_MAX: Duration = Duration::from_secs(30);
/// How often the task asks whether this node may still answer, while pulls are held.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The same while it may not.
const CHECK_UNSURE: Duration = Duration::from_millis(20);
/// How much longer a pull waits for such a node than it asked for: most often the next answer of a majority is on
/// its way.
const SURE_WITHIN: Duration = Duration::from_millis(300);
/// Pulls looked at before other tasks get a turn.
const EXAMINED_PER_TURN: usize = 64;

/// A pull that is waited for. Owns no part of its request's frame, whose buffer may be large.
pub struct HeldPull {
    pub topic: Arc<str>,
    pub queue: i32,
    /// Next queue offset to look at: moves on over messages that do not match.
    pub from: i64,
    pub limits: ReadLimits,
    pub filter: TagFilter,
    pub topic_sys_flag: i32,
    pub opaque: i32,
    pub reply: ReplyTo,
    /// On whose behalf; the client's connection, when it is ours.
    pub customer: Customer,
    pub deadline: Instant,
}

/// Why a held pull is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its queue grew.
    Arrival,
    /// Its time is up: it must be answered.
    Deadline,
    /// This node may no longer answer for the group: it must be answered.
    Ended,
}

/// What becomes of a held pull.
pub enum Verdict {
    Answer(Box<Reply>),
    /// Nothing for it yet; it goes on waiting for what comes at `from` or later.
    Keep {
        from: i64,
    },
    /// The bytes must be read from the disk first: the pull leaves this room.
    ReadCold,
}

/// What the held pulls need of the broker.
pub trait Examine: Send + Sync + 'static {
    /// Looks at a held pull. Must not wait. `Keep` and `ReadCold` are for [`Why::Arrival`] only; at
    /// [`Why::Deadline`] `ReadCold` is allowed too.
    fn examine(&self, held: &HeldPull, why: Why) -> Verdict;
    /// Takes over a pull that needs the disk.
    fn read_cold(&self, held: HeldPull, why: Why);
    /// Next queue offset to be assigned; 0 for a queue that never held a message.
    fn end(&self, topic: &str, queue: i32) -> i64;
    /// Can this node tell a client now that there is nothing new?
    fn standing(&self) -> Standing;
}

/// Whether a node knows that there is nothing new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Sure,
    /// It leads, but has not heard from a majority lately, or has just taken over; or it follows, and is behind
    /// what it has shown.
    Unsure,
    /// Others lead now.
    Gone,
}

/// The pulls of this node that wait: for a message, for their turn to read the disk, or to commit.
#[derive(Default)]
pub struct Holds {
    state: Mutex<State>,
    wake: Notify,
    pub(super) cold: ColdReads,
    pub(super) commits: PullCommits,
}

#[derive(Default)]
struct State {
    held: BTreeMap<u64, HeldPull>,
    next_id: u64,
    queues: HashMap<QueueKey, Queue, FixedState>,
    /// Queues that grew since the task last looked.
    grown: Vec<QueueKey>,
    deadlines: BTreeSet<(Instant, u64)>,
    connections: BTreeMap<u64, BTreeSet<u64>>,
}

#[derive(Default)]
struct Queue {
    held: BTreeSet<u64>,
    /// In `grown`.
    marked: bool,
}

#[derive(Clone, PartialEq, Eq)]
struct QueueKey {
    topic: Arc<str>,
    queue: i32,
}

impl Hash for QueueKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&*self.topic, self.queue).hash(state);
    }
}

/// A key to look a queue up by, without owning its name.
#[derive(Hash)]
struct QueueRef<'a>(&'a str, i32);

impl Equivalent<QueueKey> for QueueRef<'_> {
    fn equivalent(&self, key: &QueueKey) -> bool {
        self.1 == key.queue && self.0 == &*key.topic
    }
}

impl Arrivals for Holds {
    /// Marks the queue and wakes the task, if a pull waits for it. `end` is not needed: the task reads.
    fn arrived(&self, topic: &str, queue: i32, _end: i64) {
        let mut state = self.lock();
        let first = state.grown.is_empty();
        if state.mark(QueueRef(topic, queue)) && first {
            drop(state);
            self.wake.notify_one();
        }
    }
}

impl Holds {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds this lock: a poisoned one is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of pulls held.
    pub fn len(&self) -> usize {
        self.lock().held.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Holds a pull. Gives it back when there are [`HELD_MAX`] already. The caller must look at the queue's
    /// end once more afterwards, and call [`Arrivals::arrived`] if it lies behind `from`: a message that
    /// came between the read and this call woke nobody.
    pub fn keep(&self, held: HeldPull) -> Result<(), Box<HeldPull>> {
        let mut state = self.lock();
        if state.held.len() >= HELD_MAX {
            return Err(Box::new(held));
        }
        let earliest = state.deadlines.first().map(|&(at, _)| at);
        let sooner = earliest.is_none_or(|at| held.deadline < at);
        state.insert(held);
        drop(state);
        if sooner {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// A connection is gone: its pulls are dropped, nobody waits for their answers.
    pub fn drop_connection(&self, connection_id: u64) {
        let mut state = self.lock();
        let ids = state.connections.remove(&connection_id);
        let dropped: Vec<_> = ids.iter().flatten().map(|&id| state.remove(id)).collect();
        drop(state);
        drop(dropped);
    }

    fn take_grown(&self) -> Vec<HeldPull> {
        let mut state = self.lock();
        let mut ids = Vec::new();
        for key in std::mem::take(&mut state.grown) {
            if let Some(queue) = state.queues.get_mut(&key) {
                queue.marked = false;
                ids.extend(queue.held.iter().copied());
            }
        }
        ids.into_iter().filter_map(|id| state.remove(id)).collect()
    }

    fn take_due(&self, now: Instant) -> Vec<HeldPull> {
        let mut state = self.lock();
        let due = state.deadlines.range(..=(now, u64::MAX));
        let ids: Vec<u64> = due.map(|&(_, id)| id).collect();
        ids.into_iter().filter_map(|id| state.remove(id)).collect()
    }

    fn take_all(&self) -> Vec<HeldPull> {
        let mut state = self.lock();
        let ids: Vec<u64> = state.held.keys().copied().collect();
        ids.into_iter().filter_map(|id| state.remove(id)).collect()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.lock().deadlines.first().map(|&(at, _)| at)
    }
}

impl State {
    fn mark(&mut self, key: QueueRef<'_>) -> bool {
        let Some((key, queue)) = self.queues.get_key_value_mut(&key) else {
            return false;
        };
        if queue.marked {
            return false;
        }
        queue.marked = true;
        self.grown.push(key.clone());
        true
    }

    fn insert(&mut self, held: HeldPull) {
        let id = self.next_id;
        self.next_id += 1;
        let key = QueueKey {
            topic: held.topic.clone(),
            queue: held.queue,
        };
        self.queues.entry(key).or_default().held.insert(id);
        self.deadlines.insert((held.deadline, id));
        if let Customer::Connection(connection_id) = held.customer {
            let of_connection = self.connections.entry(connection_id).or_default();
            of_connection.insert(id);
        }
        self.held.insert(id, held);
    }

    fn remove(&mut self, id: u64) -> Option<HeldPull> {
        let held = self.held.remove(&id)?;
        self.deadlines.remove(&(held.deadline, id));
        let key = QueueRef(&held.topic, held.queue);
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.held.remove(&id);
            if queue.held.is_empty() {
                // A mark that is left in `grown` finds nothing later.
                self.queues.remove(&key);
            }
        }
        if let Customer::Connection(connection_id) = held.customer
            && let Some(of_connection) = self.connections.get_mut(&connection_id)
        {
            of_connection.remove(&id);
            if of_connection.is_empty() {
                self.connections.remove(&connection_id);
            }
        }
        Some(held)
    }
}

/// Changes for which the held pulls must be looked at: role, term or leader.
pub type Changes = watch::Receiver<quorumlog_raft::View>;

/// The task of held pulls: sleeps until a queue grew, a deadline is reached, or the group changed.
pub(super) async fn run<E: Examine>(holds: Arc<Holds>, examine: E, mut changes: Changes) {
    let mut unsure_since: Option<Instant> = None;
    loop {
        let now = Instant::now();
        look_at(&holds, &examine, holds.take_grown(), Why::Arrival).await;
        let standing = examine.standing();
        let due_by = now.checked_sub(patience(standing)).unwrap_or(now);
        let due = holds.take_due(due_by);
        look_at(&holds, &examine, due, Why::Deadline).await;
        let Some(deadline) = holds.next_deadline() else {
            unsure_since = None;
            holds.wake.notified().await;
            continue;
        };
        let over = match standing {
            Standing::Sure => {
                unsure_since = None;
                false
            }
            // A lease that is missed for a moment comes back; clients that are refused wait for 3 s.
            Standing::Unsure => now - *unsure_since.get_or_insert(now) >= CHECK_INTERVAL,
            Standing::Gone => true,
        };
        if over {
            look_at(&holds, &examine, holds.take_all(), Why::Ended).await;
            continue;
        }
        let check = match unsure_since {
            None => deadline.min(now + CHECK_INTERVAL),
            Some(_) => now + CHECK_UNSURE,
        };
        tokio::select! {
            () = holds.wake.notified() => {}
            () = tokio::time::sleep_until(check) => {}
            // The group is gone when its node stops; the deadlines still count.
            Ok(()) = changes.changed() => {}
        }
    }
}

/// How long after its time a pull that got nothing is still kept.
fn patience(standing: Standing) -> Duration {
    match standing {
        Standing::Unsure => SURE_WITHIN,
        Standing::Sure | Standing::Gone => Duration::ZERO,
    }
}

async fn look_at<E: Examine>(holds: &Holds, examine: &E, pulls: Vec<HeldPull>, why: Why) {
    for (count, held) in pulls.into_iter().enumerate() {
        if count % EXAMINED_PER_TURN == EXAMINED_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
        match examine.examine(&held, why) {
            Verdict::Answer(reply) => held.reply.send(*reply),
            Verdict::Keep { from } => keep_on(holds, examine, HeldPull { from, ..held }),
            Verdict::ReadCold => examine.read_cold(held, why),
        }
    }
}

/// Holds a pull (again), and makes sure that no message that came meanwhile is missed. Gives the pull back
/// when there is no room.
pub(super) fn hold<E: Examine>(
    holds: &Holds,
    examine: &E,
    held: HeldPull,
) -> Result<(), Box<HeldPull>> {
    let (topic, queue, from) = (held.topic.clone(), held.queue, held.from);
    holds.keep(held)?;
    let end = examine.end(&topic, queue);
    if end > from {
        holds.arrived(&topic, queue, end);
    }
    Ok(())
}

pub(super) fn keep_on<E: Examine>(holds: &Holds, examine: &E, held: HeldPull) {
    if let Err(held) = hold(holds, examine, held) {
        // Others took its place; as if its time were up.
        match examine.examine(&held, Why::Deadline) {
            Verdict::Answer(reply) => held.reply.send(*reply),
            Verdict::Keep { .. } | Verdict::ReadCold => examine.read_cold(*held, Why::Deadline),
        }
    }
}

#[cfg(test)]
#[path = "hold_tests.rs"]
mod tests;
