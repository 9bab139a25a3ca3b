//! Asks every node again and again what it is, so that the report can show who led when.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::lane::Lane;
use super::tape::{Role, Tape, index};
use crate::history::Recorder;
use crate::workload::Node;

const EVERY: Duration = Duration::from_millis(50);
const WITHIN: Duration = Duration::from_millis(200);
/// One answer of so many goes into the history.
const RECORDED: u64 = 4;

/// Running watchers, one for each node. They end when dropped.
pub struct Watching {
    _tasks: JoinSet<()>,
}

/// Watches the roles of all nodes.
pub fn watch_roles(nodes: &[Node], tape: &Arc<Tape>, recorder: &Arc<Recorder>) -> Watching {
    let mut tasks = JoinSet::new();
    for (at, node) in nodes.iter().enumerate() {
        tasks.spawn(watch_one(
            at,
            node.clone(),
            Arc::clone(tape),
            Arc::clone(recorder),
        ));
    }
    Watching { _tasks: tasks }
}

async fn watch_one(at: usize, node: Node, tape: Arc<Tape>, recorder: Arc<Recorder>) {
    let lane = Lane::keep(&node, WITHIN);
    let mut term = 0;
    for turn in 0u64.. {
        sleep(EVERY).await;
        let answer = match lane.connection() {
            Some(connection) => connection.runtime_info().await.ok(),
            None => None,
        };
        let Some(table) = answer else {
            tape.role(index(at), Role::Silent, term);
            continue;
        };
        // Other brokers do not tell: their roles come from the route.
        if let Some(role) = table.get("raftRole") {
            let told = table.get("raftTerm").and_then(|term| term.parse().ok());
            term = told.unwrap_or(term);
            tape.role(index(at), Role::parse(role), term);
        }
        if turn.is_multiple_of(RECORDED) {
            recorder.observe(&node.name, table);
        }
    }
}
