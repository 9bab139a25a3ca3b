//! An open connection to one node, made again in the background whenever it is gone or mute, so that a schedule of
//! requests never waits for a dead node.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::wire::Connection;
use crate::workload::Node;

/// Between two attempts to connect, and between two looks at a connection.
const LOOK: Duration = Duration::from_millis(10);
const CONNECT_WITHIN: Duration = Duration::from_millis(250);
/// A connection that has answered nothing for so long, though it was asked, is replaced: behind a healed
/// partition TCP may wait for seconds before it tries again.
const MUTE: Duration = Duration::from_millis(400);

/// A connection that is kept open.
pub struct Lane {
    pub node: Node,
    open: Arc<Open>,
    keeper: JoinHandle<()>,
}

#[derive(Default)]
struct Open {
    connection: Mutex<Option<Arc<Connection>>>,
    asked: AtomicU64,
    answered: AtomicU64,
}

impl Open {
    fn get(&self) -> Option<Arc<Connection>> {
        let slot = self.connection.lock();
        slot.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, connection: Option<Arc<Connection>>) {
        let slot = self.connection.lock();
        *slot.unwrap_or_else(PoisonError::into_inner) = connection;
    }
}

impl Lane {
    /// Begins to connect.
    pub fn keep(node: &Node, timeout: Duration) -> Lane {
        let open = Arc::new(Open::default());
        let keeper = tokio::spawn(keep(node.clone(), timeout, Arc::clone(&open)));
        Lane {
            node: node.clone(),
            open,
            keeper,
        }
    }

    /// The connection, if one is open now.
    pub fn connection(&self) -> Option<Arc<Connection>> {
        self.open.get().filter(|open| open.closed().is_none())
    }

    /// Something was asked at `now`.
    pub fn asked(&self, now: Millis) {
        // The first question since the last answer is what counts.
        let Open {
            asked, answered, ..
        } = &*self.open;
        if asked.load(Ordering::Relaxed) <= answered.load(Ordering::Relaxed) {
            asked.store(now.0, Ordering::Relaxed);
        }
    }

    /// Something was answered at `now`.
    pub fn answered(&self, now: Millis) {
        self.open.answered.store(now.0, Ordering::Relaxed);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Milliseconds of the process's own clock.
#[derive(Clone, Copy, Debug)]
pub struct Millis(u64);

impl Millis {
    pub fn now() -> Millis {
        static BEGUN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        let since = BEGUN.get_or_init(Instant::now).elapsed().as_millis();
        // From 1 on: 0 stands for never.
        Millis(u64::try_from(since).unwrap_or(u64::MAX - 1) + 1)
    }
}

async fn keep(node: Node, timeout: Duration, open: Arc<Open>) {
    loop {
        match open.get() {
            Some(connection) if connection.closed().is_none() && !mute(&open) => {}
            _ => {
                open.set(None);
                if let Ok(made) = Connection::open(node.address, CONNECT_WITHIN).await {
                    let now = Millis::now().0;
                    open.answered.store(now, Ordering::Relaxed);
                    open.asked.store(0, Ordering::Relaxed);
                    open.set(Some(Arc::new(made.with_timeout(timeout))));
                }
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Asked, and not answered for too long.
fn mute(open: &Open) -> bool {
    let [asked, answered] =
        [&open.asked, &open.answered].map(|millis| millis.load(Ordering::Relaxed));
    let waited = Millis::now().0.saturating_sub(asked.max(answered));
    asked > answered && waited > MUTE.as_millis() as u64
}
