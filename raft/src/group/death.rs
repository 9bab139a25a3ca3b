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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;
    use futures_util::future::BoxFuture;
    use tokio::time::Instant;

    use super::*;
    use crate::env::Env;
    use crate::group::{FlushMode, Group, GroupConfig, Timers};
    use crate::types::{AppliedMark, Committed, NodeId, PeerService, StateMachine};

    /// A machine that keeps nothing.
    struct Empty;

    impl StateMachine for Empty {
        fn restored(&self) -> Option<AppliedMark> {
            None
        }

        fn apply(&mut self, _: &Committed) -> Bytes {
            Bytes::new()
        }

        fn advance(&mut self, _: &Committed) {}
    }

    impl PeerService for Empty {
        fn call(&self, _: NodeId, _: Bytes) -> BoxFuture<'static, Bytes> {
            Box::pin(async { Bytes::new() })
        }
    }

    /// A group of one, and what it says at its end.
    async fn alone(dir: &std::path::Path) -> (Group, Arc<Mutex<Option<String>>>) {
        // Closed again at once: the node binds it.
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let listen = free.unwrap().to_string();
        let config = GroupConfig {
            group: "g".into(),
            node: 1,
            peers: [(1, listen.clone())].into(),
            listen,
            dir: dir.to_owned(),
            segment_bytes: 1 << 20,
            flush: FlushMode::Sync,
            timers: Timers::default(),
            disk_reserve: 0,
            cache_bytes: 1 << 20,
            accept_empty: false,
        };
        let said = Arc::new(Mutex::new(None));
        let last_words = said.clone();
        let on_fatal: OnFatal = Box::new(move |reason| {
            last_words.lock().unwrap().get_or_insert(reason);
        });
        let group = Group::start_with(config, Env::real(), Empty, Arc::new(Empty), on_fatal);
        (group.await.unwrap(), said)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_panic_inside_the_raft_core_ends_the_node() {
        let dir = tempfile::tempdir().unwrap();
        let (group, said) = alone(dir.path()).await;
        let begun = Instant::now();
        let gone = group.inner.raft.with_raft_state(|_| panic!("on purpose"));
        assert!(gone.await.is_err(), "the core survived its panic");
        while said.lock().unwrap().is_none() {
            assert!(begun.elapsed() < HANGS_AFTER, "nobody noticed");
            sleep(Duration::from_millis(5)).await;
        }
        let said = said.lock().unwrap().clone().unwrap_or_default();
        assert!(said.contains("the Raft core"), "{said}");
    }
}
