//! Asks every node for its own view of itself, again and again, and writes the answers into the history:
//! roles, terms and log positions over time are checked from these lines.

use std::collections::BTreeMap;
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
    let mut group = None;
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
        if let Some(table) = asked.filter(|table| is_of(&mut group, table)) {
            recorder.observe(&node.name, table);
            answers += 1;
        }
    }
}

/// Whether who answers is in the group that answered there first. A scenario may put a node of another group in
/// a node's place: what that one says is nothing that the node said.
fn is_of(group: &mut Option<String>, table: &BTreeMap<String, String>) -> bool {
    match table.get("raftGroup") {
        Some(said) => group.get_or_insert_with(|| said.clone()) == said,
        None => true,
    }
}

/// One answer; without one the connection is given up.
async fn ask(node: &Node, connection: &mut Option<Connection>) -> Option<BTreeMap<String, String>> {
    let open = match connection.take() {
        Some(open) => open,
        None => Connection::open(node.address, ANSWER_WITHIN).await.ok()?,
    };
    let table = open.runtime_info().await.ok()?;
    *connection = Some(open);
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_of_another_group_says_in_a_nodes_place_is_not_the_nodes() {
        let says = |group: &str| BTreeMap::from([("raftGroup".to_string(), group.to_string())]);
        let mut group = None;
        for (said, counts) in [("g", true), ("g", true), ("foreign", false), ("g", true)] {
            assert_eq!(is_of(&mut group, &says(said)), counts, "{said}");
        }
        assert!(is_of(&mut group, &BTreeMap::new()));
    }
}
