//! Reads that must wait for the disk: a few at a time, and each client in turn, so that one that reads an
//! old backlog holds up neither the others nor the connections' tasks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quorumlog_raft::env::WriterMode;

/// Reads that wait for the disk at one time.
const RUNNING_MAX: usize = 8;
/// Reads that wait for their turn; further ones are refused.
const WAITING_MAX: usize = 10_000;

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Customer {
    Connection(u64),
    /// Another node, for the clients whose requests it passed on.
    Node(u64),
}

type Job = Box<dyn FnOnce() + Send>;

/// The queue in front of the disk.
#[derive(Clone, Default)]
pub struct ColdReads {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    running: usize,
    waiting: usize,
    jobs: BTreeMap<Customer, VecDeque<Job>>,
    /// Each customer with a waiting job once, the next one first.
    turns: VecDeque<Customer>,
}

/// Too many reads wait already; a later try may find room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{WAITING_MAX} reads wait for the disk")]
pub struct TooManyReads;

impl ColdReads {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds this lock: a poisoned one is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is there room for one more?
    pub fn check(&self) -> Result<(), TooManyReads> {
        if self.lock().waiting < WAITING_MAX {
            Ok(())
        } else {
            Err(TooManyReads)
        }
    }

    /// Runs `job` on a thread that may block, when it is its customer's turn. The bound is [`check`]'s,
    /// which callers ask first; a job handed over is always run.
    ///
    /// [`check`]: ColdReads::check
    pub fn run(&self, mode: WriterMode, customer: Customer, job: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        let jobs = state.jobs.entry(customer).or_default();
        jobs.push_back(Box::new(job));
        if jobs.len() == 1 {
            state.turns.push_back(customer);
        }
        state.waiting += 1;
        if state.running < RUNNING_MAX {
            state.running += 1;
            drop(state);
            let worker = Worker(self.clone());
            mode.spawn_blocking(move || worker.work());
        }
    }

    /// The next job, or the end of a worker: decided in one step, so that a job that comes later starts a
    /// new one.
    fn next_or_stop(&self) -> Option<Job> {
        let mut state = self.lock();
        let Some(customer) = state.turns.pop_front() else {
            state.running -= 1;
            return None;
        };
        let jobs = state.jobs.entry(customer).or_default();
        let job = jobs.pop_front();
        if jobs.is_empty() {
            state.jobs.remove(&customer);
        } else {
            state.turns.push_back(customer);
        }
        state.waiting -= 1;
        Some(job.expect("a customer with a turn has a waiting job"))
    }
}

/// One of the threads at the disk.
struct Worker(ColdReads);

impl Worker {
    fn work(self) {
        while let Some(job) = self.0.next_or_stop() {
            job();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Keeps all threads busy until something is sent to each gate.
    async fn occupy(cold: &ColdReads) -> Vec<mpsc::Sender<()>> {
        let (taken, started) = mpsc::channel();
        let mut gates = Vec::new();
        for _ in 0..RUNNING_MAX {
            let taken = taken.clone();
            let (gate, opened) = mpsc::channel();
            cold.run(WriterMode::Thread, Customer::Node(9), move || {
                taken.send(()).unwrap();
                opened.recv().unwrap();
            });
            gates.push(gate);
        }
        let all = move || (0..RUNNING_MAX).for_each(|_| started.recv().unwrap());
        tokio::task::spawn_blocking(all).await.unwrap();
        gates
    }

    #[tokio::test]
    async fn each_customer_gets_its_turn() {
        let cold = ColdReads::default();
        let gates = occupy(&cold).await;
        let (order, seen) = mpsc::channel();
        let (hog, other) = (Customer::Connection(1), Customer::Connection(2));
        for customer in [hog, hog, hog, hog, hog, hog, other, other, other] {
            let order = order.clone();
            cold.run(WriterMode::Thread, customer, move || {
                order.send(customer).unwrap()
            });
        }
        // One thread goes on alone: the order is then that of the turns.
        gates[0].send(()).unwrap();
        let all = move || (0..9).map(|_| seen.recv().unwrap()).collect::<Vec<_>>();
        let got = tokio::task::spawn_blocking(all).await.unwrap();
        assert_eq!(
            got,
            [hog, other, hog, other, hog, other, hog, hog, hog],
            "in turns"
        );
        gates[1..].iter().for_each(|gate| gate.send(()).unwrap());
    }

    #[tokio::test]
    async fn a_full_queue_is_told() {
        let cold = ColdReads::default();
        let gates = occupy(&cold).await;
        for n in 0..WAITING_MAX as u64 {
            assert_eq!(cold.check(), Ok(()));
            cold.run(WriterMode::Thread, Customer::Connection(n), || {});
        }
        assert_eq!(cold.check(), Err(TooManyReads));
        gates.iter().for_each(|gate| gate.send(()).unwrap());
    }
}
