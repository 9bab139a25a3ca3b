//! Ordinary clients beside the probe: producers that send one message after the other, retry under the same key and wait
//! three seconds as the stock clients do; and one consumer group that reads and commits its progress.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::record::recorded_send;
use crate::history::{Call, Recorder, Reply, What};
use crate::rng::Rng;
use crate::wire::{Connection, Consumer, Message, Pull, SendOptions, SendOutcome, WireError};
use crate::workload::{Node, body};

/// The stock clients' own limit.
const SEND_WITHIN: Duration = Duration::from_secs(3);
const CONNECT_WITHIN: Duration = Duration::from_millis(500);
const READ_WITHIN: Duration = Duration::from_secs(3);
const ATTEMPTS: u32 = 3;
const PRODUCERS: usize = 3;
/// Between two messages of a producer.
const PACE: Duration = Duration::from_millis(20);
/// Between two rounds of the consumer.
const CONSUME_EVERY: Duration = Duration::from_millis(100);
/// Before the next node is tried.
const PAUSE: Duration = Duration::from_millis(20);

/// The consumer group of a drill.
pub const GROUP: &str = "drill_consumers";

/// A load to run.
#[derive(Clone, Debug)]
pub struct Load {
    pub nodes: Vec<Node>,
    pub topic: String,
    pub queues: i32,
    pub seed: u64,
    /// Distinguishes keys of several loads in one history.
    pub prefix: String,
    /// Offsets that a node tells may not be older than what was committed before.
    pub linear_offsets: bool,
    /// Index of the node to use, where a group serves clients by its master alone; otherwise all are used in turn.
    pub master: Option<watch::Receiver<usize>>,
}

/// A running load.
pub struct Loading {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Loading {
    /// Lets everybody end what they are at.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    }
}

impl Load {
    pub fn start(&self, recorder: &Arc<Recorder>) -> Loading {
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for id in 0..PRODUCERS {
            let client = self.client(format!("{}{id}", self.prefix), id, recorder, &stopped);
            tasks.spawn(client.produce());
        }
        let actor = format!("{}consumer", self.prefix);
        let client = self.client(actor, PRODUCERS, recorder, &stopped);
        tasks.spawn(client.consume());
        Loading { tasks, stop }
    }

    fn client(
        &self,
        actor: String,
        id: usize,
        recorder: &Arc<Recorder>,
        stopped: &watch::Receiver<bool>,
    ) -> Client {
        Client {
            load: self.clone(),
            at: id % self.nodes.len().max(1),
            rng: Rng::new(self.seed.wrapping_mul(31).wrapping_add(id as u64)),
            connection: None,
            connections: 0,
            actor,
            recorder: Arc::clone(recorder),
            stopped: stopped.clone(),
        }
    }
}

/// A client: one connection at a time, to the next node when one fails.
struct Client {
    load: Load,
    actor: String,
    /// The node in use.
    at: usize,
    connection: Option<Connection>,
    connections: u64,
    rng: Rng,
    recorder: Arc<Recorder>,
    stopped: watch::Receiver<bool>,
}

impl Client {
    fn is_stopped(&self) -> bool {
        *self.stopped.borrow() || self.load.nodes.is_empty()
    }

    fn node(&self) -> &Node {
        &self.load.nodes[self.at]
    }

    async fn connect(&mut self) {
        if let Some(master) = &self.load.master {
            let master = *master.borrow();
            if master != self.at {
                self.at = master;
                self.connection = None;
            }
        }
        if self
            .connection
            .as_ref()
            .is_some_and(|open| open.closed().is_none())
        {
            return;
        }
        self.connections += 1;
        let opened = Connection::open(self.node().address, CONNECT_WITHIN).await;
        self.connection = opened.ok().map(|open| open.with_timeout(READ_WITHIN));
    }

    async fn next_node(&mut self) {
        self.connection = None;
        self.at = (self.at + 1) % self.load.nodes.len();
        sleep(PAUSE).await;
    }

    async fn produce(mut self) {
        let mut sequence = 0u64;
        while !self.is_stopped() {
            let key = format!("{}-{sequence}", self.actor);
            sequence += 1;
            let queue = self.rng.below(self.load.queues.max(1) as usize) as i32;
            let len = 32 + self.rng.below(992);
            let message = Message::new(&self.load.topic, queue, &key, body(&key, len));
            self.send(&message).await;
            sleep(PACE).await;
        }
    }

    async fn send(&mut self, message: &Message) {
        let options = SendOptions {
            group: "drill_producers".to_owned(),
            timeout: Some(SEND_WITHIN),
            ..SendOptions::default()
        };
        for attempt in 1..=ATTEMPTS {
            self.connect().await;
            let outcome = recorded_send(
                &self.recorder,
                &self.actor,
                self.node(),
                self.connection.as_ref(),
                attempt,
                message,
                &options,
            )
            .await;
            if matches!(outcome, SendOutcome::Ok(_)) || self.is_stopped() {
                return;
            }
            self.next_node().await;
        }
    }

    async fn consume(mut self) {
        let mut next = vec![0i64; usize::try_from(self.load.queues).unwrap_or(0)];
        while !self.is_stopped() {
            self.connect().await;
            if self.consume_round(&mut next).await.is_err() {
                self.next_node().await;
            }
            sleep(CONSUME_EVERY).await;
        }
    }

    /// Each queue once: reads what is new, commits where it is, asks what is committed.
    async fn consume_round(&self, next: &mut [i64]) -> Result<(), WireError> {
        let Some(connection) = &self.connection else {
            let why = "no connection".to_owned();
            return Err(WireError::Closed(why));
        };
        let topic = &self.load.topic;
        let consumer = Consumer::new(GROUP, topic, "*", 1);
        // RocketMQ commits for groups that it knows only.
        connection.heartbeat(&self.actor, &[], &[consumer]).await?;
        for (queue, next) in (0i32..).zip(next) {
            let pulled = connection
                .pull(&Pull::new(GROUP, topic, queue, *next))
                .await?;
            if pulled.next > *next {
                *next = pulled.next;
                self.commit(connection, queue, *next).await?;
            }
            self.query(connection, queue).await?;
        }
        Ok(())
    }

    async fn commit(&self, connection: &Connection, queue: i32, off: i64) -> Result<(), WireError> {
        let call = Call::CommitOffset {
            group: GROUP.to_owned(),
            topic: self.load.topic.clone(),
            q: queue,
            off,
            node: self.node().name.clone(),
        };
        let op = self.recorder.invoke(&self.actor, call);
        let topic = &self.load.topic;
        let done = connection.commit_offset(GROUP, topic, queue, off).await;
        let end = done.clone().map(|()| Reply::CommitOffset);
        self.recorder.complete(&self.actor, op, end_of(end));
        done
    }

    async fn query(&self, connection: &Connection, queue: i32) -> Result<(), WireError> {
        let linear = self.load.linear_offsets;
        let (node, topic) = (self.node(), &self.load.topic);
        query_offset(
            &self.recorder,
            &self.actor,
            node,
            connection,
            topic,
            queue,
            linear,
        )
        .await
        .map(drop)
    }
}

/// Asks for the group's offset, recorded.
pub(super) async fn query_offset(
    recorder: &Recorder,
    actor: &str,
    node: &Node,
    connection: &Connection,
    topic: &str,
    queue: i32,
    linear: bool,
) -> Result<Option<i64>, WireError> {
    let call = Call::QueryOffset {
        group: GROUP.to_owned(),
        topic: topic.to_owned(),
        q: queue,
        node: node.name.clone(),
        linear,
    };
    let op = recorder.invoke(actor, call);
    let asked = connection.consumer_offset(GROUP, topic, queue).await;
    let end = asked.clone().map(|off| Reply::Offset { off });
    recorder.complete(actor, op, end_of(end));
    asked
}

fn end_of(result: Result<Reply, WireError>) -> What {
    match result {
        Ok(reply) => What::Ok(reply),
        Err(error) => What::Info {
            code: None,
            why: error.to_string(),
        },
    }
}
