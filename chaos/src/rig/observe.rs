//! Asks every node for its own view of itself, again and again, and writes the answers into the history:
//! roles, terms and log positions over time are checked from these lines.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::history::Recorder;
use crate::wire::Connection;
use crate::workload::Node;

/// Between two looks at a node.
pub const OBSERVE_EVERY: Duration = Duration::from_millis(50);
/// A node that does not answer for this long is asked over a new connection.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Running observation; ends when told to.
pub struct Observer {
    tasks: JoinSet<u64>,
    stop: watch::Sender<bool>,
}

impl Observer {
    /// Begins to observe all `nodes`.
    pub fn start(nodes: Vec<Node>, recorder: &Arc<Recorder>) -> Observer {
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for node in nodes {
            tasks.spawn(observe(node, Arc::clone(recorder), stopped.clone()));
        }
        Observer { tasks, stop }
    }

    /// Ends it; returns how many answers were recorded.
    pub async fn stop(mut self) -> u64 {
        self.stop.send_replace(true);
        let mut answers = 0;
        while let Some(ended) = self.tasks.join_next().await {
            answers += ended.unwrap_or(0);
        }
        answers
    }
}

async fn observe(node: Node, recorder: Arc<Recorder>, mut stopped: watch::Receiver<bool>) -> u64 {
    let mut connection = None;
    let mut answers = 0;
    let mut next = Instant::now();
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return answers,
            () = sleep_until(next) => {}
        }
        next = Instant::now() + OBSERVE_EVERY;
        let asked = tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return answers,
            asked = ask(&node, &mut connection) => asked,
        };
        if let Some(table) = asked {
            recorder.observe(&node.name, table);
            answers += 1;
        }
    }
}

/// One answer; without one the connection is given up.
async fn ask(
    node: &Node,
    connection: &mut Option<Connection>,
) -> Option<std::collections::BTreeMap<String, String>> {
    let open = match connection.take() {
        Some(open) => open,
        None => Connection::open(node.address, ANSWER_WITHIN).await.ok()?,
    };
    let table = open.runtime_info().await.ok()?;
    *connection = Some(open);
    Some(table)
}
