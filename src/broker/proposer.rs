//! The proposer: gathers the units of many requests into one entry, and gives each its outcome.
//!
//! It adds no delay when idle: the first unit goes out at once. While entries are in flight the next batch
//! gathers, bounded in bytes, units and entries in flight.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quorumlog_raft::group::MAX_PAYLOAD_BYTES;
use quorumlog_raft::sabotage::{self, Sabotage};
use quorumlog_raft::{Group, NodeId, ProposeError, Refusal};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::protocol::codes::response;
use crate::store::entry::decode_outcomes;
use crate::store::{Command, CommandOutcome, EntryBuilder, UnitOutcome};

/// Entries handed to the log whose outcome is not known yet.
const IN_FLIGHT_MAX: usize = 2;
/// As above, for batches that take no more units: they gain nothing by waiting. Small ones do: what gathers
/// while two are under way shares one sync and one round of messages.
const FULL_IN_FLIGHT_MAX: usize = 8;
/// A batch that has reached one of these takes no more units. A single unit may be larger.
const BATCH_BYTES: usize = 256 * 1024;
const BATCH_UNITS: usize = 1024;
/// Bytes of records that one unit may have. A unit beyond what an entry may hold would take the rest of its
/// batch down with it, so whoever submits checks this first.
pub const UNIT_BYTES_MAX: usize = 5 * 1024 * 1024;
const _: () = assert!(BATCH_BYTES + UNIT_BYTES_MAX < MAX_PAYLOAD_BYTES);
/// Bytes that may wait to be proposed, all batches together. Beyond it writes are refused as busy.
const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Why a write has no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// In no log, never will be.
    #[error("{0}")]
    Refused(String),
    /// As `Refused`: another node leads, or none. Trying again there, or later, can help.
    #[error("this node is not the leader")]
    NotLeader { leader: Option<NodeId> },
    /// As `Refused`: this node's disk is nearly full. An operator must make room.
    #[error(
        "the disk has only {free} bytes left, {reserve} are kept in reserve (diskReserveBytes)"
    )]
    DiskFull { free: u64, reserve: u64 },
    /// As `DiskFull`, of so many other nodes that no majority can take the write.
    #[error("the disks of other nodes are nearly full (diskReserveBytes): no majority can take it")]
    ReplicasFull,
    /// As `Refused`: it is larger than an entry of the log may be. A retry cannot help.
    #[error("it takes {bytes} bytes in the log, of at most {limit}")]
    TooLarge { bytes: u64, limit: u64 },
    /// As `Refused`: too much waits already. Trying again later can help.
    #[error("{0}")]
    Busy(String),
    /// May be applied, now or later, once.
    #[error("{0}")]
    Unknown(String),
}

impl WriteError {
    /// Whether the write is in no log and never will be.
    pub fn is_definite(&self) -> bool {
        !matches!(self, WriteError::Unknown(_))
    }

    /// Response code and remark, as the contract of replies words them (DESIGN, "What a reply means").
    pub fn code_and_remark(&self) -> (i32, String) {
        match self {
            WriteError::Refused(_) | WriteError::NotLeader { .. } => (
                response::SYSTEM_ERROR,
                format!("[REFUSED] in-sync replicas not enough: {self}"),
            ),
            WriteError::DiskFull { .. } | WriteError::ReplicasFull => (
                response::SERVICE_NOT_AVAILABLE,
                format!("[REFUSED] service not available now: {self}"),
            ),
            WriteError::TooLarge { .. } => (
                response::MESSAGE_ILLEGAL,
                format!("[REFUSED] the message is illegal: {self}"),
            ),
            WriteError::Busy(_) => (
                response::SYSTEM_BUSY,
                format!("[REFUSED] broker busy: {self}"),
            ),
            WriteError::Unknown(_) => (
                response::SYSTEM_ERROR,
                format!("[UNKNOWN] in-sync replicas not enough: {self}"),
            ),
        }
    }
}

impl From<Refusal> for WriteError {
    fn from(refusal: Refusal) -> WriteError {
        match refusal {
            Refusal::NotLeader { leader } => WriteError::NotLeader { leader },
            Refusal::DiskFull { free, reserve } => WriteError::DiskFull { free, reserve },
            Refusal::ReplicasFull => WriteError::ReplicasFull,
            Refusal::TooLarge { bytes, limit } => WriteError::TooLarge { bytes, limit },
            other @ (Refusal::NoLease { .. } | Refusal::NotReady | Refusal::Stopping) => {
                WriteError::Refused(other.to_string())
            }
        }
    }
}

impl From<ProposeError> for WriteError {
    fn from(error: ProposeError) -> WriteError {
        match error {
            ProposeError::Refused(refusal) => refusal.into(),
            ProposeError::Unknown(why) => WriteError::Unknown(why),
        }
    }
}

/// What the proposer needs of the replicated log.
trait Log: Send + Sync + 'static {
    fn gate(&self) -> Result<(), Refusal>;
    /// Hands one entry over, in the order of the calls; the inner future waits for its result. Dropped before
    /// it resolves, nothing was proposed.
    fn propose(&self, payload: Bytes) -> BoxFuture<'_, Result<Outcome, ProposeError>>;
}

type Outcome = BoxFuture<'static, Result<Bytes, ProposeError>>;
type Done = Box<dyn FnOnce(Result<UnitOutcome, WriteError>) + Send>;

impl Log for Group {
    fn gate(&self) -> Result<(), Refusal> {
        Group::gate(self)
    }

    fn propose(&self, payload: Bytes) -> BoxFuture<'_, Result<Outcome, ProposeError>> {
        Box::pin(async move {
            let proposal = Group::propose(self, payload).await?;
            Ok(Box::pin(proposal.result()) as Outcome)
        })
    }
}

/// Hands units to the log. Shared by all connections.
pub struct Proposer {
    shared: Arc<Shared>,
}

struct Shared {
    log: Arc<dyn Log>,
    queue: Mutex<Queue>,
    /// Wakes the driver: a batch began, or a place in flight is free.
    driver: Notify,
}

/// What waits to be proposed. Units are appended to the last batch; the driver takes the first.
#[derive(Default)]
struct Queue {
    /// Batches that take no more units.
    full: VecDeque<Batch>,
    /// The batch that gathers.
    builder: EntryBuilder,
    units: Vec<Unit>,
    waiting_bytes: usize,
    in_flight: usize,
    /// The deadline that the waiting driver watches.
    watched: Option<Instant>,
    closed: bool,
}

struct Batch {
    payload: Bytes,
    units: Vec<Unit>,
}

struct Unit {
    deadline: Instant,
    done: Done,
}

impl Queue {
    /// Ends the gathering batch.
    fn seal(&mut self) {
        if !self.units.is_empty() {
            let payload = self.builder.take();
            let units = std::mem::take(&mut self.units);
            self.full.push_back(Batch { payload, units });
        }
    }

    /// Is there a place in flight for the batch to propose next?
    fn may_propose(&self) -> bool {
        let places = match self.full.is_empty() {
            true => IN_FLIGHT_MAX,
            false => FULL_IN_FLIGHT_MAX,
        };
        self.in_flight < places
    }

    /// Takes the batch to propose next.
    fn next(&mut self) -> Option<Batch> {
        if self.full.is_empty() {
            self.seal();
        }
        let batch = self.full.pop_front()?;
        self.waiting_bytes -= batch.payload.len();
        Some(batch)
    }

    /// The earliest deadline of what is to be proposed next.
    fn first_deadline(&self) -> Option<Instant> {
        let units = self.full.front().map_or(&self.units, |batch| &batch.units);
        units.iter().map(|unit| unit.deadline).min()
    }
}

impl Batch {
    fn first_deadline(&self) -> Instant {
        let deadlines = self.units.iter().map(|unit| unit.deadline);
        deadlines.min().expect("a batch has at least one unit")
    }
}

impl Proposer {
    /// Starts the driver on the current runtime; it ends when the proposer is dropped.
    pub fn new(group: Group) -> Proposer {
        Proposer::over(Arc::new(group))
    }

    fn over(log: Arc<dyn Log>) -> Proposer {
        let shared = Arc::new(Shared {
            log,
            queue: Mutex::new(Queue::default()),
            driver: Notify::new(),
        });
        tokio::spawn(drive(shared.clone()));
        Proposer { shared }
    }

    /// Passes the gate, encodes one unit into the gathering entry, and calls `done` exactly once: with the
    /// outcome, or with why there is none. A unit whose deadline passes while it gathers is refused, together
    /// with the batch it is in; one already proposed is unknown. `done` is called from the caller or from a
    /// runtime task and must not block.
    pub fn submit(
        &self,
        deadline: Instant,
        encode: impl FnOnce(&mut EntryBuilder),
        done: impl FnOnce(Result<UnitOutcome, WriteError>) + Send + 'static,
    ) {
        if deadline <= Instant::now() {
            return done(Err(WriteError::Refused(
                "no time was left to replicate it".to_string(),
            )));
        }
        if let Err(refusal) = self.shared.log.gate() {
            return done(Err(refusal.into()));
        }
        let mut queue = self.shared.lock();
        if queue.waiting_bytes > WAITING_BYTES_MAX {
            drop(queue);
            return done(Err(WriteError::Busy(format!(
                "the write queue is full: more than {WAITING_BYTES_MAX} bytes wait to be replicated"
            ))));
        }
        let before = queue.builder.len();
        let units = queue.builder.units();
        encode(&mut queue.builder);
        assert_eq!(
            queue.builder.units(),
            units + 1,
            "one submission is one unit"
        );
        queue.waiting_bytes += queue.builder.len() - before;
        queue.units.push(Unit {
            deadline,
            done: Box::new(done),
        });
        if queue.builder.len() >= BATCH_BYTES || queue.builder.units() >= BATCH_UNITS {
            queue.seal();
        }
        let unwatched = queue.watched.is_none_or(|watched| deadline < watched);
        let wake = queue.may_propose() || unwatched;
        drop(queue);
        if wake {
            self.shared.driver.notify_one();
        }
    }

    /// Proposes one command and waits for its outcome.
    pub async fn command(
        &self,
        deadline: Instant,
        command: &Command,
    ) -> Result<CommandOutcome, WriteError> {
        let (tell, told) = oneshot::channel();
        self.submit(
            deadline,
            |entry| entry.push_command(command),
            move |outcome| {
                // Whoever asked may have stopped waiting.
                let _ = tell.send(outcome);
            },
        );
        match told.await {
            Ok(Ok(UnitOutcome::Command(outcome))) => Ok(outcome),
            Ok(Ok(other)) => Err(WriteError::Unknown(format!(
                "a command had the outcome of something else: {other:?}"
            ))),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(WriteError::Unknown("this node is stopping".to_string())),
        }
    }
}

impl Drop for Proposer {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.driver.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Proposes batch after batch, in order, as long as there are places in flight.
async fn drive(shared: Arc<Shared>) {
    loop {
        let (batch, deadline) = {
            let mut queue = shared.lock();
            if queue.closed {
                return;
            }
            let batch = match queue.may_propose() {
                true => queue.next(),
                false => None,
            };
            queue.in_flight += usize::from(batch.is_some());
            queue.watched = queue.first_deadline();
            (batch, queue.watched)
        };
        let Some(batch) = batch else {
            match deadline {
                None => shared.driver.notified().await,
                Some(deadline) => tokio::select! {
                    () = shared.driver.notified() => {}
                    () = sleep_until(deadline) => refuse_late(&shared),
                },
            }
            continue;
        };
        let deadline = batch.first_deadline();
        let proposed = match deadline <= Instant::now() {
            true => None,
            false => timeout_at(deadline, shared.log.propose(batch.payload))
                .await
                .ok(),
        };
        match proposed {
            Some(Ok(outcome)) => {
                tokio::spawn(settle(shared.clone(), outcome, batch.units));
            }
            Some(Err(error)) => {
                shared.lock().in_flight -= 1;
                fail(batch.units, &error.into());
            }
            None => {
                shared.lock().in_flight -= 1;
                refuse_as_late(batch.units);
            }
        }
    }
}

/// Refuses the next batch if a deadline in it has passed without its being proposed. The whole batch: its
/// units stand in one payload, and a log that takes no entry for so long would not take the others in time.
fn refuse_late(shared: &Shared) {
    let batch = {
        let mut queue = shared.lock();
        match queue.first_deadline() {
            Some(deadline) if deadline <= Instant::now() => queue.next(),
            _ => None,
        }
    };
    if let Some(batch) = batch {
        refuse_as_late(batch.units);
    }
}

fn refuse_as_late(units: Vec<Unit>) {
    let why = "it waited too long behind entries that are not committed";
    fail(units, &WriteError::Refused(why.to_string()));
}

fn fail(units: Vec<Unit>, error: &WriteError) {
    for unit in units {
        (unit.done)(Err(error.clone()));
    }
}

/// Waits for the result of one entry and hands out the outcomes of its units. A unit whose deadline passes
/// before is told that its outcome is unknown; the entry keeps its place in flight until it is settled.
async fn settle(shared: Arc<Shared>, mut outcome: Outcome, units: Vec<Unit>) {
    let mut units: Vec<Option<Unit>> = units.into_iter().map(Some).collect();
    let result = loop {
        let deadline = units.iter().flatten().map(|unit| unit.deadline).min();
        let Some(deadline) = deadline else {
            break outcome.await;
        };
        tokio::select! {
            result = &mut outcome => break result,
            () = sleep_until(deadline) => {
                let now = Instant::now();
                for unit in units.iter_mut() {
                    if let Some(unit) = unit.take_if(|unit| unit.deadline <= now) {
                        let why = "no majority confirmed it in time".to_string();
                        (unit.done)(Err(match sabotage::on(Sabotage::LateRefused) {
                            true => WriteError::Refused(why), // I-3: it may appear yet.
                            false => WriteError::Unknown(why),
                        }));
                    }
                }
            }
        }
    };
    shared.lock().in_flight -= 1;
    shared.driver.notify_one();
    match result.map_err(WriteError::from) {
        Ok(result) => deliver(&result, units),
        Err(error) => fail(units.into_iter().flatten().collect(), &error),
    }
}

fn deliver(result: &Bytes, units: Vec<Option<Unit>>) {
    let outcomes = match decode_outcomes(result) {
        Ok(outcomes) => outcomes,
        Err(error) => {
            tracing::error!(%error, "an entry was applied but its outcomes cannot be read");
            let error = WriteError::Unknown(error.to_string());
            return fail(units.into_iter().flatten().collect(), &error);
        }
    };
    assert_eq!(
        outcomes.len(),
        units.len(),
        "every unit of an entry has one outcome"
    );
    for (unit, outcome) in units.into_iter().zip(outcomes) {
        if let Some(unit) = unit {
            (unit.done)(Ok(outcome));
        }
    }
}

#[cfg(test)]
#[path = "proposer_tests.rs"]
mod tests;
