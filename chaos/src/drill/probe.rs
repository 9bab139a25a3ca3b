//! The raw probe: small sends on a fixed schedule, to every node in turn, each with a short time limit. The schedule does
//! not wait for answers, so a node that is dead costs its own attempts and nothing else. A probe of reads goes beside it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::lane::{Lane, Millis};
use super::record::recorded_send;
use super::tape::{Class, Tape, index};
use crate::history::{Call, Recorder, Reply, What};
use crate::wire::{Message, SendOptions, SendOutcome};
use crate::workload::{Node, body};

/// Connections to each node, used in turn.
const CONNECTIONS: usize = 2;
/// One read for so many writes.
const WRITES_PER_READ: u64 = 5;

/// What to probe, and how.
#[derive(Clone, Debug)]
pub struct Probe {
    pub nodes: Vec<Node>,
    pub topic: String,
    pub queues: i32,
    /// Sends a second, over all nodes.
    pub rate: u32,
    /// What one attempt waits for its answer.
    pub timeout: Duration,
    /// Distinguishes the keys of several probes in one history.
    pub prefix: String,
    /// The group promises that every node's newest state is the newest there is.
    pub linear_reads: bool,
}

/// A running probe.
pub struct Probing {
    task: tokio::task::JoinHandle<u64>,
    stop: watch::Sender<bool>,
}

impl Probing {
    /// Stops the schedule, waits for the attempts under way; gives the number that the next probe's attempts begin at.
    pub async fn stop(self) -> u64 {
        self.stop.send_replace(true);
        match self.task.await {
            Ok(next) => next,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => 0,
        }
    }
}

impl Probe {
    /// Starts. `first` numbers the first attempt; it is rounded up so that it is the first node's.
    pub fn start(&self, first: u64, tape: &Arc<Tape>, recorder: &Arc<Recorder>) -> Probing {
        let (stop, stopped) = watch::channel(false);
        let running = Running {
            lanes: self.lanes(),
            probe: self.clone(),
            tape: Arc::clone(tape),
            recorder: Arc::clone(recorder),
        };
        let first = first.next_multiple_of(self.nodes.len().max(1) as u64);
        let task = tokio::spawn(Arc::new(running).run(first, stopped));
        Probing { task, stop }
    }

    /// For each node its connections.
    fn lanes(&self) -> Vec<Vec<Lane>> {
        let open = |node| {
            (0..CONNECTIONS)
                .map(|_| Lane::keep(node, self.timeout))
                .collect()
        };
        self.nodes.iter().map(open).collect()
    }
}

struct Running {
    probe: Probe,
    lanes: Vec<Vec<Lane>>,
    tape: Arc<Tape>,
    recorder: Arc<Recorder>,
}

impl Running {
    async fn run(self: Arc<Self>, first: u64, stopped: watch::Receiver<bool>) -> u64 {
        let period = Duration::from_secs(1) / self.probe.rate.max(1);
        let mut ticks = interval_at(Instant::now() + period, period);
        // After a standstill of this process the schedule goes on, it is not made up for.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut attempts = JoinSet::new();
        let mut seq = first;
        while !*stopped.borrow() && !self.lanes.is_empty() {
            ticks.tick().await;
            attempts.spawn(Arc::clone(&self).write(seq));
            if seq.is_multiple_of(WRITES_PER_READ) {
                attempts.spawn(Arc::clone(&self).read(seq / WRITES_PER_READ));
            }
            seq += 1;
            while let Some(ended) = attempts.try_join_next() {
                resume_panic(ended);
            }
        }
        while let Some(ended) = attempts.join_next().await {
            resume_panic(ended);
        }
        seq
    }

    fn lane(&self, seq: u64) -> (usize, &Lane) {
        let node = (seq % self.lanes.len() as u64) as usize;
        let of_node = &self.lanes[node];
        let turn = (seq / self.lanes.len() as u64) as usize;
        (node, &of_node[turn % of_node.len()])
    }

    async fn write(self: Arc<Self>, seq: u64) {
        let (node, lane) = self.lane(seq);
        let key = format!("{}-{seq}", self.probe.prefix);
        let queue = (seq / self.lanes.len() as u64 % self.probe.queues.max(1) as u64) as i32;
        let message = Message::new(&self.probe.topic, queue, &key, body(&key, 0));
        let options = SendOptions {
            group: "drill_probe".to_owned(),
            timeout: Some(self.probe.timeout),
            ..SendOptions::default()
        };
        let connection = lane.connection();
        lane.asked(Millis::now());
        let invoke = self.tape.now();
        let actor = format!("{}-{}", self.probe.prefix, lane.node.name);
        let outcome = recorded_send(
            &self.recorder,
            &actor,
            &lane.node,
            connection.as_deref(),
            1,
            &message,
            &options,
        )
        .await;
        if was_answered(&outcome) {
            lane.answered(Millis::now());
        }
        self.tape.wrote(seq, index(node), invoke, &outcome);
    }

    /// Asks for the end of a queue: the newest state, which only a leader that is sure of itself may tell.
    async fn read(self: Arc<Self>, seq: u64) {
        let (node, lane) = self.lane(seq);
        let queue = (seq % self.probe.queues.max(1) as u64) as i32;
        let Some(connection) = lane.connection() else {
            self.tape
                .read(seq, index(node), self.tape.now(), Class::Unreachable);
            return;
        };
        let actor = format!("{}-read-{seq}", self.probe.prefix);
        let call = Call::MaxOffset {
            topic: self.probe.topic.clone(),
            q: queue,
            node: lane.node.name.clone(),
            linear: self.probe.linear_reads,
        };
        let invoke = self.tape.now();
        let op = self.recorder.invoke(&actor, call);
        let (class, end) = match connection.max_offset(&self.probe.topic, queue).await {
            Ok(off) => (Class::Ok, What::Ok(Reply::Offset { off: Some(off) })),
            Err(error) => {
                let why = error.to_string();
                (Class::Unknown, What::Info { code: None, why })
            }
        };
        self.recorder.complete(&actor, op, end);
        self.tape.read(seq, index(node), invoke, class);
    }
}

fn was_answered(outcome: &SendOutcome) -> bool {
    match outcome {
        SendOutcome::Ok(_) => true,
        SendOutcome::Fail { code, .. } => *code != -1,
        SendOutcome::Info { code, .. } => code.is_some(),
    }
}

fn resume_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}
