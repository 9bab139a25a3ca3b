//! Sends at a steady pace to one node, each on a connection of its own, whatever became of the ones before:
//! for how soon a node refuses, which a producer that waits for its last answer cannot see.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::{Node, Probe};
use crate::history::Recorder;

/// A pace to send at.
#[derive(Clone, Debug)]
pub struct Steady {
    pub node: Node,
    pub topic: String,
    pub queues: i32,
    pub every: Duration,
    /// What each client waits for its answer.
    pub timeout: Duration,
    /// Distinguishes the keys of several loads in one history.
    pub prefix: String,
}

/// A steady load that runs.
pub struct Steadily {
    task: tokio::task::JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Steadily {
    /// Sends nothing more, and waits until every send has ended.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

impl Steady {
    pub fn start(&self, recorder: &Arc<Recorder>) -> Steadily {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(self.clone().run(Arc::clone(recorder), stopped));
        Steadily { task, stop }
    }

    async fn run(self, recorder: Arc<Recorder>, mut stopped: watch::Receiver<bool>) {
        let mut sends = JoinSet::new();
        let mut pace = interval(self.every);
        pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
        for number in 0_i32.. {
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => break,
                _ = pace.tick() => {}
            }
            let key = format!("{}-{number}", self.prefix);
            let queue = number % self.queues.max(1);
            let node = self.node.clone();
            let mut probe = Probe::new(&key, node, &self.topic, self.timeout, &recorder);
            sends.spawn(async move {
                // What became of it is in the history.
                let _recorded = probe.send(queue, &key).await;
            });
        }
        while let Some(ended) = sends.join_next().await {
            if let Err(error) = ended
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    }
}
