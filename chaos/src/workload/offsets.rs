//! Consumers that commit their progress and ask for it, and ask for the ends of queues: through every node in
//! turn, none of it stale. What the answers prove is the checker's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Node, Probe};
use crate::history::Recorder;

/// Between two requests of one consumer.
const PAUSE: Duration = Duration::from_millis(25);

/// One consumer for each node: it commits for a group of its own at its node, and asks at the next one.
#[derive(Clone, Debug)]
pub struct Offsets {
    pub nodes: Vec<Node>,
    pub topic: String,
    pub queues: i32,
    pub timeout: Duration,
}

/// Running consumers.
pub struct Committing {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
    answered: Arc<AtomicU64>,
}

impl Committing {
    /// Requests that had a good answer so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Lets each end its request, and returns how many had a good answer.
    pub async fn stop(mut self) -> u64 {
        self.stop.send_replace(true);
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        self.answered.load(Ordering::Relaxed)
    }
}

impl Offsets {
    pub fn start(&self, recorder: &Arc<Recorder>) -> Committing {
        let (stop, stopped) = watch::channel(false);
        let answered = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for at in 0..self.nodes.len() {
            let probe = |what: &str, node: usize| {
                let node = &self.nodes[node % self.nodes.len()];
                let actor = format!("{what}-{}-{at}", node.name);
                Probe::new(&actor, node.clone(), &self.topic, self.timeout, recorder)
            };
            let consumer = Consumer {
                group: format!("chaos_offsets_{at}"),
                queues: self.queues.max(1),
                commits: probe("commit", at),
                asks: probe("ask", at + 1),
                answered: Arc::clone(&answered),
            };
            tasks.spawn(consumer.run(stopped.clone()));
        }
        Committing {
            tasks,
            stop,
            answered,
        }
    }
}

struct Consumer {
    group: String,
    queues: i32,
    commits: Probe,
    asks: Probe,
    answered: Arc<AtomicU64>,
}

impl Consumer {
    async fn run(mut self, stopped: watch::Receiver<bool>) {
        let mut offset = 0;
        while !*stopped.borrow() {
            offset += 1;
            let queue = (offset % i64::from(self.queues)) as i32;
            let good = [
                self.commits
                    .commit(&self.group, queue, offset)
                    .await
                    .is_ok(),
                self.asks.consumer_offset(&self.group, queue).await.is_ok(),
                self.asks.max_offset(queue).await.is_ok(),
            ];
            let good = good.iter().filter(|good| **good).count();
            self.answered.fetch_add(good as u64, Ordering::Relaxed);
            tokio::time::sleep(PAUSE).await;
        }
    }
}
