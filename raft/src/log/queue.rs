//! The one queue of everything that is to be written: appends, votes, truncations and purges, in order.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::codec::Record;
use super::lock;
use super::purged::Purged;
use super::segment::Segment;
use super::table::Table;
use super::vote::Vote;
use crate::types::{EntryId, Position};

/// Called once with the outcome, from the log writer: must be quick.
pub(crate) type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

/// A full segment, and the table of its entries.
pub(crate) type Sealed = (Arc<Segment>, Arc<Table>);

/// What the log writer does. `generation` counts truncations: a write planned before one says nothing
/// about entries appended after it.
pub(crate) enum Job {
    /// Entries of one segment.
    Append {
        records: Vec<Record>,
        generation: u64,
        done: Option<Done>,
    },
    /// The next entries go into a new segment.
    Roll {
        segment: Arc<Segment>,
        sealed: Option<Sealed>,
    },
    Vote {
        vote: Vote,
        done: Done,
    },
    /// `keep` becomes the active segment and ends at `end`; `dropped` go, oldest first.
    Truncate {
        keep: Option<Arc<Segment>>,
        dropped: Vec<Arc<Segment>>,
        end: Position,
        last: Option<EntryId>,
        generation: u64,
        done: Done,
    },
    /// `dropped` go, oldest first. With `all`, no segment is left.
    Purge {
        purged: Purged,
        dropped: Vec<Arc<Segment>>,
        all: bool,
        generation: u64,
        done: Done,
    },
    /// Tries again to make the next segment's file, if there was no space for it.
    Prepare,
    /// Answers when everything before it is done.
    Barrier {
        done: Done,
    },
    /// Ends the writer after everything before it.
    Close {
        done: Done,
    },
}

impl Job {
    fn bytes(&self) -> u64 {
        match self {
            Job::Append { records, .. } => records.iter().map(Record::framed).sum(),
            _ => 0,
        }
    }

    /// Answers without doing anything.
    pub fn fail(self, error: impl Fn() -> io::Error) {
        match self {
            Job::Append { done, .. } => {
                if let Some(done) = done {
                    done(Err(error()));
                }
            }
            Job::Roll { .. } | Job::Prepare => {}
            Job::Vote { done, .. }
            | Job::Truncate { done, .. }
            | Job::Purge { done, .. }
            | Job::Barrier { done } => done(Err(error())),
            Job::Close { done } => done(Ok(())),
        }
    }
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    bytes: u64,
    closed: bool,
}

/// The queue between the log's callers and its writer.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    filled: Condvar,
    filled_task: Notify,
    drained: Notify,
}

impl Queue {
    /// Queues a job; hands it back when the writer has ended.
    pub fn push(&self, job: Job) -> Result<(), Job> {
        let mut waiting = lock(&self.waiting);
        if waiting.closed {
            return Err(job);
        }
        waiting.bytes += job.bytes();
        waiting.closed = matches!(job, Job::Close { .. });
        waiting.jobs.push_back(job);
        drop(waiting);
        self.filled.notify_one();
        self.filled_task.notify_one();
        Ok(())
    }

    /// Takes jobs of up to about `limit` bytes, at least one when there is any.
    pub fn take(&self, limit: u64) -> Vec<Job> {
        let mut waiting = lock(&self.waiting);
        let jobs = drain(&mut waiting, limit);
        drop(waiting);
        self.drained.notify_waiters();
        jobs
    }

    /// As [`Queue::take`], but waits for the first job, at most `timeout`.
    pub fn take_blocking(&self, limit: u64, timeout: Option<Duration>) -> Vec<Job> {
        let mut waiting = lock(&self.waiting);
        while waiting.jobs.is_empty() {
            let Some(timeout) = timeout else {
                waiting = match self.filled.wait(waiting) {
                    Ok(waiting) => waiting,
                    Err(poisoned) => poisoned.into_inner(),
                };
                continue;
            };
            let (guard, result) = match self.filled.wait_timeout(waiting, timeout) {
                Ok(pair) => pair,
                Err(poisoned) => poisoned.into_inner(),
            };
            waiting = guard;
            if result.timed_out() {
                break;
            }
        }
        let jobs = drain(&mut waiting, limit);
        drop(waiting);
        self.drained.notify_waiters();
        jobs
    }

    /// Resolves when a job may have come since the last take.
    pub async fn filled(&self) {
        self.filled_task.notified().await;
    }

    /// Waits until fewer than `limit` bytes of entries wait.
    pub async fn room(&self, limit: u64) {
        loop {
            let drained = self.drained.notified();
            tokio::pin!(drained);
            drained.as_mut().enable();
            {
                let waiting = lock(&self.waiting);
                if waiting.bytes < limit || waiting.closed {
                    return;
                }
            }
            drained.await;
        }
    }

    /// Refuses everything from now on and returns what is left.
    pub fn close(&self) -> Vec<Job> {
        let mut waiting = lock(&self.waiting);
        waiting.closed = true;
        let jobs = drain(&mut waiting, u64::MAX);
        drop(waiting);
        self.drained.notify_waiters();
        jobs
    }
}

fn drain(waiting: &mut Waiting, limit: u64) -> Vec<Job> {
    let mut taken = Vec::new();
    let mut bytes = 0;
    while let Some(job) = waiting.jobs.front() {
        let size = job.bytes();
        if !taken.is_empty() && bytes + size > limit {
            break;
        }
        bytes += size;
        taken.extend(waiting.jobs.pop_front());
    }
    waiting.bytes -= bytes;
    taken
}
