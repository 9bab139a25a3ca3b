//! The clients, all on one host: producers that retry with the same key, readers that follow each node, and
//! consumers that commit and query offsets. They speak the wire protocol with the checker's own codec.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use quorumlog_chaos::history::{Call, Reply, What};
use quorumlog_chaos::rng::Rng;
use quorumlog_chaos::wire::{
    Connection, Consumer, Message, Pull, SendForm, SendOptions, SendOutcome, Topic, WireError,
    classify,
};
use quorumlog_chaos::workload::{body, got_of, hash};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use turmoil::net::TcpStream;

use crate::host::{CLIENT_PORT, host_name};
use crate::plan::{Node, Plan};
use crate::trace::Trace;

pub const TOPIC: &str = "t";
const GROUP: &str = "sim_consumers";
/// What a client waits for an answer, and for a connection.
const ANSWER: Duration = Duration::from_secs(3);
const CONNECT: Duration = Duration::from_millis(500);

/// What the run and its clients tell each other.
#[derive(Default)]
pub struct Signals {
    pub stop: AtomicBool,
    pub stopped: AtomicBool,
    pub acknowledged: AtomicU64,
    pub pulled: AtomicU64,
}

/// One client.
struct Client {
    plan: Arc<Plan>,
    ips: Arc<Vec<(Node, IpAddr)>>,
    trace: Arc<Trace>,
    signals: Arc<Signals>,
    actor: String,
    rng: Rng,
    /// The node in use, an index into `ips`.
    at: usize,
    connection: Option<Connection>,
    connections: u64,
}

/// Runs all clients until they are told to stop.
pub async fn run(
    plan: Arc<Plan>,
    ips: Arc<Vec<(Node, IpAddr)>>,
    trace: Arc<Trace>,
    signals: Arc<Signals>,
) -> turmoil::Result {
    let client = |actor: String, number: u64| Client {
        rng: Rng::new(plan.seed.wrapping_mul(1_000_003).wrapping_add(number)),
        at: number as usize % ips.len(),
        plan: plan.clone(),
        ips: ips.clone(),
        trace: trace.clone(),
        signals: signals.clone(),
        actor,
        connection: None,
        connections: 0,
    };
    client("admin".to_string(), 0).make_topic().await;
    let mut tasks = JoinSet::new();
    for number in 0..plan.producers as u64 {
        tasks.spawn(client(format!("p{number}"), 100 + number).produce());
    }
    for (index, (node, _)) in ips.iter().enumerate() {
        tasks.spawn(client(format!("r{node}"), index as u64).read());
    }
    for (index, (node, _)) in ips.iter().enumerate() {
        if plan.is_skewed() {
            tasks.spawn(client(format!("w{node}"), index as u64).ask());
        }
    }
    for number in 0..2 {
        tasks.spawn(client(format!("c{number}"), 300 + number).consume(number));
    }
    while tasks.join_next().await.is_some() {}
    signals.stopped.store(true, Ordering::Relaxed);
    Ok(())
}

impl Client {
    fn stops(&self) -> bool {
        self.signals.stop.load(Ordering::Relaxed)
    }

    fn node(&self) -> String {
        host_name(self.ips[self.at].0)
    }

    /// The connection to the node in use.
    async fn connected(&mut self) -> Result<&Connection, WireError> {
        if self
            .connection
            .as_ref()
            .is_some_and(|open| open.closed().is_some())
        {
            self.connection = None;
        }
        if self.connection.is_none() {
            let to = SocketAddr::new(self.ips[self.at].1, CLIENT_PORT);
            let failed = |why: String| WireError::Connect { to, why };
            let stream = timeout(CONNECT, TcpStream::connect(to))
                .await
                .map_err(|_| failed("no answer".to_string()))?
                .map_err(|error| failed(error.to_string()))?;
            let local = stream
                .local_addr()
                .map_err(|error| failed(error.to_string()))?;
            let (read, write) = stream.into_split();
            self.connections += 1;
            self.connection = Some(Connection::over(read, write, (local, to), ANSWER));
        }
        self.connection
            .as_ref()
            .ok_or(WireError::Closed(String::new()))
    }

    /// Goes to another node.
    fn leave(&mut self) {
        self.connection = None;
        self.at = (self.at + 1) % self.ips.len();
    }

    async fn pause(&mut self, longest: Duration) {
        let ms = 1 + self.rng.below(longest.as_millis() as usize);
        sleep(Duration::from_millis(ms as u64)).await;
    }

    /// Makes the topic, however long that takes.
    async fn make_topic(mut self) {
        let topic = Topic::new(TOPIC, self.plan.queues);
        while !self.stops() {
            let made = match self.connected().await {
                Ok(connection) => connection.create_topic(&topic).await,
                Err(error) => Err(error),
            };
            match made {
                Ok(()) => return self.trace.note("the topic is there"),
                Err(error) => self.trace.note(format_args!("no topic yet: {error}")),
            }
            self.leave();
            self.pause(Duration::from_millis(50)).await;
        }
    }

    async fn produce(mut self) {
        for sequence in 0_u64.. {
            if self.stops() {
                return;
            }
            self.one_message(sequence).await;
            self.pause(self.plan.think).await;
        }
    }

    async fn one_message(&mut self, sequence: u64) {
        let key = format!("{}-{sequence}", self.actor);
        let (from, below) = self.plan.body;
        let len = from + self.rng.below(below - from);
        let queue = self.rng.below(self.plan.queues as usize) as i32;
        let message = Message::new(TOPIC, queue, &key, body(&key, len));
        for attempt in 1..=self.plan.attempts {
            if self.attempt(&message, attempt).await {
                self.signals.acknowledged.fetch_add(1, Ordering::Relaxed);
                return;
            }
            if self.stops() {
                return;
            }
            self.leave();
            self.pause(Duration::from_millis(20)).await;
        }
    }

    /// One attempt at the node in use; true when it was acknowledged.
    async fn attempt(&mut self, message: &Message, attempt: u32) -> bool {
        let form = match self.rng.percent(30) {
            true => SendForm::V1,
            false => SendForm::V2,
        };
        let options = SendOptions {
            form,
            ..SendOptions::default()
        };
        // Born at no time: the real one would differ with every run.
        let born = if form == SendForm::V1 {
            "bornTimestamp"
        } else {
            "g"
        };
        let request = options.request(message).with(born, 0);
        let call = Call::Send {
            topic: message.topic.clone(),
            q: message.queue,
            key: message.key.clone(),
            attempt,
            hash: hash(&message.body),
            len: message.body.len(),
            to: self.node(),
            timeout_ms: (ANSWER + CONNECT).as_millis() as u64,
        };
        let op = self.trace.invoke(&self.actor, call);
        let reply = match self.connected().await {
            Ok(connection) => connection.request(request).await,
            Err(error) => Err(error),
        };
        let outcome = classify(reply);
        let acknowledged = outcome.stored().is_some();
        let end = match outcome {
            SendOutcome::Ok(stored) => What::Ok(Reply::Send {
                q: stored.queue,
                off: stored.offset,
                pos: stored.position,
                code: stored.code,
            }),
            SendOutcome::Fail { code, remark } => What::Fail { code, remark },
            SendOutcome::Info { code, why } => What::Info { code, why },
        };
        self.trace.complete(&self.actor, op, end);
        acknowledged
    }

    /// Follows one node.
    async fn read(mut self) {
        let mut next = vec![0; self.plan.queues as usize];
        while !self.stops() {
            for queue in 0..next.len() {
                if !self.pull(queue, &mut next).await {
                    self.connection = None;
                }
            }
            self.pause(Duration::from_millis(60)).await;
        }
    }

    async fn pull(&mut self, queue: usize, next: &mut [i64]) -> bool {
        let mut pull = Pull::new("sim_tail", TOPIC, queue as i32, next[queue]);
        pull.suspend = self.rng.percent(20).then_some(Duration::from_millis(300));
        let connected = self.connected().await.is_ok();
        if !connected {
            return false;
        }
        // One actor is one connection: a node that comes back may have less to show at first.
        let actor = format!("{}-{}", self.actor, self.connections);
        let call = Call::Pull {
            topic: TOPIC.to_owned(),
            q: queue as i32,
            from_off: pull.offset,
            node: self.node(),
            // Without reads from followers the leader answers.
            linear: !self.plan.follower_reads,
            filtered: false,
        };
        let op = self.trace.invoke(&actor, call);
        let pulled = match self.connected().await {
            Ok(connection) => connection.pull(&pull).await,
            Err(error) => Err(error),
        };
        let (end, good) = match pulled {
            Ok(pulled) => {
                next[queue] = next[queue].max(pulled.next);
                let count = pulled.records.len() as u64;
                self.signals.pulled.fetch_add(count, Ordering::Relaxed);
                let records = pulled.records.iter();
                let reply = Reply::Pull {
                    code: pulled.code,
                    got: records
                        .map(|record| got_of(record, TOPIC, queue as i32))
                        .collect(),
                    next: pulled.next,
                    min: pulled.min,
                    max: pulled.max,
                };
                (What::Ok(reply), true)
            }
            Err(error) => (no_answer(&error), false),
        };
        self.trace.complete(&actor, op, end);
        good
    }

    /// Asks one node for the ends of queues, all the time.
    async fn ask(mut self) {
        while !self.stops() {
            let queue = self.rng.below(self.plan.queues as usize) as i32;
            if !self.max_offset(queue).await {
                self.connection = None;
            }
            self.pause(Duration::from_millis(10)).await;
        }
    }

    /// Commits and queries the offsets of one group, and asks for the ends of queues.
    async fn consume(mut self, number: u64) {
        let group = format!("{GROUP}{number}");
        let mut offset = 0;
        let mut known = false;
        while !self.stops() {
            if !known {
                self.join(&group).await;
            }
            let queue = self.rng.below(self.plan.queues as usize) as i32;
            let good = match self.rng.below(4) {
                0 | 1 => {
                    offset += 1 + self.rng.below(5) as i64;
                    let committed = self.commit(&group, queue, offset).await;
                    known |= committed;
                    committed
                }
                2 => self.query(&group, queue).await,
                _ => self.max_offset(queue).await,
            };
            if !good {
                self.leave();
            }
            self.pause(self.plan.think * 2).await;
        }
    }

    /// Says that the group is there: a broker makes it then, and takes its offsets once it has.
    async fn join(&mut self, group: &str) {
        let actor = self.actor.clone();
        if let Ok(connection) = self.connected().await {
            let consumer = Consumer::new(group, TOPIC, "*", 1);
            // Sent again until the group takes an offset.
            let _told = connection.heartbeat(&actor, &[], &[consumer]).await;
        }
    }

    async fn commit(&mut self, group: &str, queue: i32, off: i64) -> bool {
        let call = Call::CommitOffset {
            group: group.to_owned(),
            topic: TOPIC.to_owned(),
            q: queue,
            off,
            node: self.node(),
        };
        let op = self.trace.invoke(&self.actor, call);
        let done = match self.connected().await {
            Ok(connection) => connection.commit_offset(group, TOPIC, queue, off).await,
            Err(error) => Err(error),
        };
        let end = done
            .as_ref()
            .map_or_else(no_answer, |()| What::Ok(Reply::CommitOffset));
        self.trace.complete(&self.actor, op, end);
        done.is_ok()
    }

    async fn query(&mut self, group: &str, queue: i32) -> bool {
        let call = Call::QueryOffset {
            group: group.to_owned(),
            topic: TOPIC.to_owned(),
            q: queue,
            node: self.node(),
            linear: true,
        };
        let op = self.trace.invoke(&self.actor, call);
        let found = match self.connected().await {
            Ok(connection) => connection.consumer_offset(group, TOPIC, queue).await,
            Err(error) => Err(error),
        };
        let good = found.is_ok();
        let end = found.map_or_else(
            |error| no_answer(&error),
            |off| What::Ok(Reply::Offset { off }),
        );
        self.trace.complete(&self.actor, op, end);
        good
    }

    async fn max_offset(&mut self, queue: i32) -> bool {
        let call = Call::MaxOffset {
            topic: TOPIC.to_owned(),
            q: queue,
            node: self.node(),
            linear: true,
        };
        let op = self.trace.invoke(&self.actor, call);
        let found = match self.connected().await {
            Ok(connection) => connection.max_offset(TOPIC, queue).await,
            Err(error) => Err(error),
        };
        let good = found.is_ok();
        let end = found.map_or_else(
            |error| no_answer(&error),
            |off| What::Ok(Reply::Offset { off: Some(off) }),
        );
        self.trace.complete(&self.actor, op, end);
        good
    }
}

/// How an operation ended that was not carried out, or may not have been.
fn no_answer(error: &WireError) -> What {
    match error {
        WireError::Connect { .. } => What::Fail {
            code: -1,
            remark: error.to_string(),
        },
        WireError::Code { code, remark } if remark.starts_with("[REFUSED]") => What::Fail {
            code: *code,
            remark: remark.clone(),
        },
        WireError::Code { code, remark } => What::Info {
            code: Some(*code),
            why: remark.clone(),
        },
        other => What::Info {
            code: None,
            why: other.to_string(),
        },
    }
}
