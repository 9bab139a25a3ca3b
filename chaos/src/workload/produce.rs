//! Producers: each with its own connection and keys, one send at a time, trying the nodes in turn and
//! retrying an attempt that was not acknowledged with the same key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Node, payload};
use crate::history::{Call, Recorder, Reply, What};
use crate::rng::Rng;
use crate::wire::{Connection, Message, SendForm, SendOptions, SendOutcome, classify};

/// How often the next node is tried when one turned a send away: an election takes a few of these.
const PAUSE: Duration = Duration::from_millis(10);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3);

/// A load to run.
#[derive(Clone, Debug)]
pub struct Producers {
    pub nodes: Vec<Node>,
    pub topic: String,
    /// Queues of the topic; each message names one.
    pub queues: i32,
    pub connections: usize,
    pub seed: u64,
    /// Body lengths, bytes: from the first to below the second.
    pub body: (usize, usize),
    /// What the client waits for an answer.
    pub timeout: Duration,
    /// Attempts of one message in all. 1: never retry.
    pub attempts: u32,
    /// Messages of each connection after which it stops by itself.
    pub messages: u64,
    /// Distinguishes the keys of several loads in one history.
    pub prefix: String,
}

/// Running producers; they stop when told to or when they have sent everything.
pub struct Produced {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
    acknowledged: Arc<AtomicU64>,
}

impl Produced {
    /// Acknowledged messages so far.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits until `more` messages are acknowledged on top of now; false when `within` passes first.
    pub async fn progress(&self, more: u64, within: Duration) -> bool {
        let goal = self.acknowledged() + more;
        let reached = async {
            while self.acknowledged() < goal {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(within, reached).await.is_ok()
    }

    /// Lets every producer end the attempt it is in, then returns the acknowledged messages.
    pub async fn stop(self) -> u64 {
        self.stop.send_replace(true);
        self.finish().await
    }

    /// Waits until everything is sent.
    pub async fn finish(mut self) -> u64 {
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        self.acknowledged.load(Ordering::Relaxed)
    }
}

impl Producers {
    /// Four connections, 1 KiB or less, three attempts within 3 s each, until stopped.
    pub fn new(nodes: Vec<Node>, topic: &str, queues: i32) -> Producers {
        Producers {
            nodes,
            topic: topic.to_owned(),
            queues,
            connections: 4,
            seed: 1,
            body: (32, 1024),
            timeout: DEFAULT_TIMEOUT,
            attempts: 3,
            messages: u64::MAX,
            prefix: "p".to_owned(),
        }
    }

    /// Starts all connections.
    pub fn start(&self, recorder: &Arc<Recorder>) -> Produced {
        let (stop, stopped) = watch::channel(false);
        let acknowledged = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for id in 0..self.connections {
            let producer = Producer {
                load: self.clone(),
                actor: format!("{}{id}", self.prefix),
                rng: Rng::new(self.seed.wrapping_mul(1_000_003).wrapping_add(id as u64)),
                at: id % self.nodes.len().max(1),
                connection: None,
                recorder: Arc::clone(recorder),
                acknowledged: Arc::clone(&acknowledged),
                stopped: stopped.clone(),
            };
            tasks.spawn(producer.run());
        }
        Produced {
            tasks,
            stop,
            acknowledged,
        }
    }
}

struct Producer {
    load: Producers,
    actor: String,
    rng: Rng,
    /// The node being used.
    at: usize,
    connection: Option<Connection>,
    recorder: Arc<Recorder>,
    acknowledged: Arc<AtomicU64>,
    stopped: watch::Receiver<bool>,
}

impl Producer {
    async fn run(mut self) {
        if self.load.nodes.is_empty() {
            return;
        }
        for sequence in 0..self.load.messages {
            if *self.stopped.borrow() {
                return;
            }
            self.one_message(sequence).await;
        }
    }

    async fn one_message(&mut self, sequence: u64) {
        let key = format!("{}-{sequence}", self.actor);
        let (low, high) = self.load.body;
        let len = low + self.rng.below(high.saturating_sub(low));
        let queue = self.rng.below(self.load.queues.max(1) as usize) as i32;
        let message = Message::new(&self.load.topic, queue, &key, payload::body(&key, len));
        for attempt in 1..=self.load.attempts {
            if self.attempt(&message, attempt).await {
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
                return;
            }
            if *self.stopped.borrow() {
                return;
            }
            self.at = (self.at + 1) % self.load.nodes.len();
            self.connection = None;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// One attempt at the current node; true when it was acknowledged.
    async fn attempt(&mut self, message: &Message, attempt: u32) -> bool {
        // Both spellings of the fields take part.
        let form = if self.rng.percent(20) {
            SendForm::V1
        } else {
            SendForm::V2
        };
        let options = SendOptions {
            form,
            group: format!("group_{}", self.load.prefix),
            timeout: Some(self.load.timeout),
            ..SendOptions::default()
        };
        let attempt = Attempt {
            actor: &self.actor,
            node: &self.load.nodes[self.at],
            message,
            number: attempt,
            options: &options,
        };
        let outcome = attempt.send(&self.recorder, &mut self.connection).await;
        matches!(outcome, SendOutcome::Ok(_))
    }
}

/// One attempt to send one message to one node, recorded.
pub(crate) struct Attempt<'a> {
    pub actor: &'a str,
    pub node: &'a Node,
    pub message: &'a Message,
    pub number: u32,
    pub options: &'a SendOptions,
}

impl Attempt<'_> {
    /// Sends over `connection`, opening it when there is none.
    pub async fn send(
        &self,
        recorder: &Recorder,
        connection: &mut Option<Connection>,
    ) -> SendOutcome {
        let timeout = self.options.timeout.unwrap_or(DEFAULT_TIMEOUT);
        let call = Call::Send {
            topic: self.message.topic.clone(),
            q: self.message.queue,
            key: self.message.key.clone(),
            attempt: self.number,
            hash: payload::hash(&self.message.body),
            len: self.message.body.len(),
            to: self.node.name.clone(),
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        };
        let op = recorder.invoke(self.actor, call);
        let outcome = match connection.take() {
            Some(open) => {
                connection
                    .insert(open)
                    .send(self.message, self.options)
                    .await
            }
            None => match Connection::open(self.node.address, timeout).await {
                Ok(open) => {
                    connection
                        .insert(open)
                        .send(self.message, self.options)
                        .await
                }
                Err(error) => classify(Err(error)),
            },
        };
        recorder.complete(self.actor, op, end_of(outcome.clone()));
        outcome
    }
}

fn end_of(outcome: SendOutcome) -> What {
    match outcome {
        SendOutcome::Ok(stored) => What::Ok(Reply::Send {
            q: stored.queue,
            off: stored.offset,
            pos: stored.position,
            code: stored.code,
        }),
        SendOutcome::Fail { code, remark } => What::Fail { code, remark },
        SendOutcome::Info { code, why } => What::Info { code, why },
    }
}
