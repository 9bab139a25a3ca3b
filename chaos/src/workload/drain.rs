//! Reads everything that each node has of a topic, into the history. First one more message is sent to each
//! queue, and all nodes must show the same ends behind it: a group that has not applied its log yet after a
//! restart, and a follower that is only behind, must not be taken for ones that lost something.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::produce::Attempt;
use super::{Node, payload};
use crate::history::{Call, Got, Recorder, Reply, What};
use crate::wire::{Connection, Message, Pull, Record, SendOptions, SendOutcome, WireError, code};

/// Why a drain did not come to its end. A run with such an error proves nothing.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    #[error("node {node}, queue {queue}: {source}")]
    Wire {
        node: String,
        queue: i32,
        source: WireError,
    },
    #[error(
        "node {node}, queue {queue}: a pull at {offset} of {min}..{max} was answered with {code}"
    )]
    Stuck {
        node: String,
        queue: i32,
        offset: i64,
        min: i64,
        max: i64,
        code: i32,
    },
    #[error("there is no node to read from")]
    NoNodes,
    #[error("no node takes a message for queue {queue}: {outcome:?}")]
    Barrier { queue: i32, outcome: SendOutcome },
    #[error("after {after:?} the nodes still differ: {ends}")]
    Apart { after: Duration, ends: String },
}

/// Between two looks at a group that is not ready.
const PAUSE: Duration = Duration::from_millis(50);

/// Reads a topic from all nodes.
#[derive(Clone, Debug)]
pub struct Drainer {
    pub nodes: Vec<Node>,
    pub topic: String,
    pub queues: i32,
    /// For one request.
    pub timeout: Duration,
    /// For the nodes to show the same ends, and for each to answer.
    pub settle: Duration,
}

impl Drainer {
    pub fn new(nodes: Vec<Node>, topic: &str, queues: i32) -> Drainer {
        Drainer {
            nodes,
            topic: topic.to_owned(),
            queues,
            timeout: Duration::from_secs(5),
            settle: Duration::from_secs(40),
        }
    }

    /// The last drain of a run: sends are over, all nodes are up. Returns the number of records in the queues.
    pub async fn drain_all(&self, recorder: &Recorder) -> Result<u64, DrainError> {
        let ends = self.send_barriers(recorder).await?;
        self.wait_level(&ends).await?;
        let mut records = 0;
        for (at, node) in self.nodes.iter().enumerate() {
            for queue in 0..self.queues {
                let read = self.drain(recorder, node, queue).await?;
                if at == 0 {
                    records += read;
                }
            }
        }
        Ok(records)
    }

    /// One acknowledged message at the end of each queue; returns the offsets behind them.
    async fn send_barriers(&self, recorder: &Recorder) -> Result<Vec<i64>, DrainError> {
        let begun = Instant::now();
        let mut ends = Vec::new();
        for queue in 0..self.queues {
            let key = format!("barrier-{}-{queue}", recorder.now());
            let message = Message::new(&self.topic, queue, &key, payload::body(&key, 0));
            let mut number = 0;
            let stored = loop {
                let at = number as usize % self.nodes.len().max(1);
                let Some(node) = self.nodes.get(at) else {
                    return Err(DrainError::NoNodes);
                };
                number += 1;
                let attempt = Attempt {
                    actor: "barrier",
                    node,
                    message: &message,
                    number,
                    options: &SendOptions::default(),
                };
                match attempt.send(recorder, &mut None).await {
                    SendOutcome::Ok(stored) => break stored,
                    outcome if begun.elapsed() > self.settle => {
                        return Err(DrainError::Barrier { queue, outcome });
                    }
                    _ => tokio::time::sleep(PAUSE).await,
                }
            };
            ends.push(stored.offset + 1);
        }
        Ok(ends)
    }

    async fn wait_level(&self, at_least: &[i64]) -> Result<(), DrainError> {
        let begun = Instant::now();
        loop {
            let mut ends = Vec::new();
            for node in &self.nodes {
                ends.push(self.ends(node).await);
            }
            let level = ends.first().is_some_and(|first| {
                reached(first, at_least) && ends.iter().all(|ends| ends == first)
            });
            if level {
                return Ok(());
            }
            if begun.elapsed() > self.settle {
                return Err(DrainError::Apart {
                    after: self.settle,
                    ends: format!("{ends:?}"),
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Max offsets of all queues, as the node itself can serve them.
    async fn ends(&self, node: &Node) -> Result<Vec<i64>, WireError> {
        let connection = self.open(node.address).await?;
        let mut ends = Vec::new();
        for queue in 0..self.queues {
            let pull = Pull::new("chaos_drain", &self.topic, queue, i64::from(i32::MAX));
            ends.push(connection.pull(&pull).await?.max);
        }
        Ok(ends)
    }

    async fn open(&self, address: SocketAddr) -> Result<Connection, WireError> {
        Connection::open(address, self.timeout).await
    }

    async fn drain(&self, recorder: &Recorder, node: &Node, queue: i32) -> Result<u64, DrainError> {
        let actor = format!("drain-{}", node.name);
        let call = Call::Drain {
            topic: self.topic.clone(),
            q: queue,
            node: node.name.clone(),
            last: true,
        };
        let op = recorder.invoke(&actor, call);
        let begun = Instant::now();
        let (got, min, max) = loop {
            match self.read(node, queue).await {
                // An election or a busy machine; what was read so far is read again.
                Err(DrainError::Wire { .. }) if begun.elapsed() < self.settle => {
                    tokio::time::sleep(PAUSE).await;
                }
                read => break read?,
            }
        };
        let records = got.len() as u64;
        recorder.complete(&actor, op, What::Ok(Reply::Drain { got, min, max }));
        Ok(records)
    }

    async fn read(&self, node: &Node, queue: i32) -> Result<(Vec<Got>, i64, i64), DrainError> {
        let wire = |source| DrainError::Wire {
            node: node.name.clone(),
            queue,
            source,
        };
        let connection = self.open(node.address).await.map_err(wire)?;
        let mut got = Vec::new();
        let mut pull = Pull::new("chaos_drain", &self.topic, queue, i64::from(i32::MAX));
        let ends = connection.pull(&pull).await.map_err(wire)?;
        pull.offset = ends.min;
        while pull.offset < ends.max {
            let pulled = connection.pull(&pull).await.map_err(wire)?;
            if pulled.code != code::SUCCESS || pulled.next <= pull.offset {
                return Err(DrainError::Stuck {
                    node: node.name.clone(),
                    queue,
                    offset: pull.offset,
                    min: pulled.min,
                    max: pulled.max,
                    code: pulled.code,
                });
            }
            got.extend(
                pulled
                    .records
                    .iter()
                    .map(|record| got_of(record, &self.topic, queue)),
            );
            pull.offset = pulled.next;
        }
        // Sends are over, but a record of an unknown send may have arrived since the ends were asked for.
        let max = got
            .last()
            .map_or(ends.max, |last| last.off + 1)
            .max(ends.max);
        Ok((got, ends.min, max))
    }
}

fn reached(ends: &Result<Vec<i64>, WireError>, at_least: &[i64]) -> bool {
    ends.as_ref()
        .is_ok_and(|ends| ends.iter().zip(at_least).all(|(end, least)| end >= least))
}

/// What the history keeps of a record. One that is not what it says gets a key that nobody sent.
pub fn got_of(record: &Record, topic: &str, queue: i32) -> Got {
    let key = match payload::key_of(&record.body) {
        Err(error) => format!("damaged ({error}): {:?}", record.key()),
        Ok(key) if record.key() != Some(&key) => {
            format!("body of {key} under the key {:?}", record.key())
        }
        Ok(key) if record.topic != topic || record.queue != queue => {
            format!("{key} of {} {}", record.topic, record.queue)
        }
        Ok(key) => key,
    };
    Got {
        off: record.offset,
        key,
        hash: payload::hash(&record.body),
        pos: record.position,
    }
}
