//! Notices when this node cannot go on: a failed log, a dead Raft core, a dead state machine.
//!
//! A node that cannot write must not look alive, so the process ends. openraft leaves its metrics stale
//! when its core panics; the core is therefore asked for a sign of life as well.

use std::io::Write;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::RaftNode;

/// What to do with the last words of a node. Production ends the process; tests look at the text.
pub type OnFatal = Box<dyn Fn(String) + Send + Sync>;

/// Exit status of a process whose node died.
const EXIT_STATUS: i32 = 70;
/// Pause between two signs of life.
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// A core that has not answered for this long hangs. It waits for the disk in between (a saved vote), so
/// this is longer than any stall from which a disk comes back.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// Says why, and ends the process.
pub(crate) fn end_process() -> OnFatal {
    Box::new(|reason| {
        let text = format!("quorumlog stops: {reason}");
        tracing::error!("{text}");
        // Standard error may be a file on the full disk that ends this node: then the status says it alone.
        let said = writeln!(std::io::stderr(), "{text}");
        drop(said);
        std::process::exit(EXIT_STATUS);
    })
}

/// Waits until the node cannot go on, and says why.
pub(crate) async fn wait(raft: RaftNode, log: watch::Receiver<Option<String>>) -> String {
    tokio::select! {
        reason = log_failed(log) => reason,
        reason = core_ended(&raft) => reason,
        reason = core_silent(&raft) => reason,
        reason = machine_dead(&raft) => reason,
    }
}

async fn log_failed(mut log: watch::Receiver<Option<String>>) -> String {
    let failed = log.wait_for(Option::is_some).await;
    match failed.ok().and_then(|reason| reason.clone()) {
        Some(reason) => format!("the log failed: {reason}"),
        // Closed in good order.
        None => std::future::pending().await,
    }
}

/// The core's channels close when its task ends, however it ends.
async fn core_ended(raft: &RaftNode) -> String {
    use openraft::async_runtime::watch::WatchReceiver;
    let mut server = raft.server_metrics();
    while server.changed().await.is_ok() {}
    match &raft.metrics().borrow_watched().running_state {
        Err(fatal) => format!("the Raft core stopped: {fatal}"),
        Ok(()) => "the Raft core panicked".into(),
    }
}

async fn core_silent(raft: &RaftNode) -> String {
    loop {
        sleep(PROBE_EVERY).await;
        match timeout(HANGS_AFTER, raft.with_raft_state(|_| ())).await {
            Ok(Ok(())) => {}
            Ok(Err(fatal)) => return format!("the Raft core is dead: {fatal}"),
            Err(_) => return format!("the Raft core has not answered for {HANGS_AFTER:?}"),
        }
    }
}

/// The state machine's worker can die while the core goes on. It may take long (a replay), but not die.
async fn machine_dead(raft: &RaftNode) -> String {
    loop {
        sleep(PROBE_EVERY).await;
        let answer = raft.with_state_machine(|_| Box::pin(async {})).await;
        if let Err(fatal) = answer {
            return format!("the state machine is dead: {fatal}");
        }
    }
}
