//! Readers that follow every queue on every node while things go wrong. What they were shown must stay, and
//! one connection must never be shown an older state than before.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Node;
use super::drain::got_of;
use crate::history::{Call, Recorder, Reply, What};
use crate::wire::{Connection, Pull, Pulled, WireError};

/// Between two rounds over the queues, and before a node that did not answer is asked again.
const PAUSE: Duration = Duration::from_millis(20);

/// Readers of one topic, one for each node.
#[derive(Clone, Debug)]
pub struct Readers {
    pub nodes: Vec<Node>,
    pub topic: String,
    pub queues: i32,
    pub timeout: Duration,
}

/// Running readers.
pub struct Reading {
    tasks: JoinSet<u64>,
    stop: watch::Sender<bool>,
}

impl Reading {
    /// Stops the readers; returns how many records they were shown.
    pub async fn stop(mut self) -> u64 {
        self.stop.send_replace(true);
        let mut records = 0;
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok(read) => records += read,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => {}
            }
        }
        records
    }
}

impl Readers {
    pub fn start(&self, recorder: &Arc<Recorder>) -> Reading {
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for node in &self.nodes {
            let reader = Reader {
                all: self.clone(),
                node: node.clone(),
                next: vec![0; usize::try_from(self.queues).unwrap_or(0)],
                records: 0,
                recorder: Arc::clone(recorder),
                stopped: stopped.clone(),
            };
            tasks.spawn(reader.run());
        }
        Reading { tasks, stop }
    }
}

struct Reader {
    all: Readers,
    node: Node,
    /// Where each queue goes on.
    next: Vec<i64>,
    records: u64,
    recorder: Arc<Recorder>,
    stopped: watch::Receiver<bool>,
}

impl Reader {
    async fn run(mut self) -> u64 {
        let mut connections = 0;
        while !self.is_stopped() {
            if let Ok(connection) = Connection::open(self.node.address, self.all.timeout).await {
                connections += 1;
                // One actor is one connection: a node that comes back may have less to show at first.
                let actor = format!("tail-{}-{connections}", self.node.name);
                self.follow(&connection, &actor).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.records
    }

    /// Reads until the connection fails or the reader is stopped.
    async fn follow(&mut self, connection: &Connection, actor: &str) {
        while !self.is_stopped() {
            for queue in 0..self.next.len() {
                if self.pull(connection, actor, queue).await.is_err() {
                    return;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn pull(
        &mut self,
        connection: &Connection,
        actor: &str,
        at: usize,
    ) -> Result<(), WireError> {
        let queue = i32::try_from(at).unwrap_or(i32::MAX);
        let pull = Pull::new("chaos_tail", &self.all.topic, queue, self.next[at]);
        let call = Call::Pull {
            topic: self.all.topic.clone(),
            q: queue,
            from_off: pull.offset,
            node: self.node.name.clone(),
            linear: false,
            filtered: false,
        };
        let op = self.recorder.invoke(actor, call);
        let pulled = connection.pull(&pull).await;
        let end = match &pulled {
            Ok(pulled) => What::Ok(self.reply(pulled, queue)),
            Err(error) => What::Info {
                code: None,
                why: error.to_string(),
            },
        };
        self.recorder.complete(actor, op, end);
        let pulled = pulled?;
        self.records += pulled.records.len() as u64;
        // A node that is behind sends back; it will catch up.
        self.next[at] = self.next[at].max(pulled.next);
        Ok(())
    }

    fn reply(&self, pulled: &Pulled, queue: i32) -> Reply {
        let got = pulled.records.iter();
        Reply::Pull {
            code: pulled.code,
            got: got
                .map(|record| got_of(record, &self.all.topic, queue))
                .collect(),
            next: pulled.next,
            min: pulled.min,
            max: pulled.max,
        }
    }

    fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }
}
