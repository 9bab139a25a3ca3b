//! The broker: one file per request family, over the store and the replicated log.
//!
//! A request comes in decoded, with its origin and where the reply goes; every request gets exactly one
//! reply (unless one-way). Handlers run on the connection's task: they must not block or wait there, and
//! spawn what waits.

pub mod clients;
mod cold;
mod delay;
mod dispatch;
pub mod forward;
pub mod hold;
mod housekeeping;
mod locks;
mod members;
mod offsets;
mod place;
pub mod proposer;
mod pull;
mod pull_rules;
mod runtime;
mod send;
mod send_back;
mod send_rules;
mod subscription;
mod topics;

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use quorumlog_raft::{Group, NodeId, View};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::config::Config;
use crate::naming::Naming;
use crate::net::connection::{Connection, ReplyTo};
use crate::protocol::frame::Frame;
use crate::store::Store;

/// A request on its way through the broker.
pub struct Request {
    pub frame: Frame,
    pub origin: Origin,
    pub reply: ReplyTo,
}

/// Where a request came from.
#[derive(Clone)]
pub struct Origin {
    /// The client's address as stored in messages (IPv4-mapped; 0.0.0.0 for a v6 client).
    pub client: SocketAddrV4,
    /// Came in through the write front: its single queue stands for a fixed queue of the topic.
    pub front: bool,
    /// Passed on by another node: must not be passed on again.
    pub forwarded_by: Option<u64>,
    /// The client's connection, when it is ours.
    pub connection: Option<Arc<Connection>>,
    pub arrived: Instant,
}

impl Origin {
    /// When the reply must have left.
    pub fn deadline(&self) -> Instant {
        self.arrived + REPLY_WITHIN
    }
}

/// Every reply leaves before this long after a request's arrival: below the clients' own 3 s.
pub const REPLY_WITHIN: Duration = Duration::from_millis(2600);

/// The broker of one node.
pub struct Broker {
    pub config: Config,
    pub group: Group,
    pub store: Store,
    pub proposer: proposer::Proposer,
    pub clients: clients::Clients,
    pub holds: Arc<hold::Holds>,
    pub naming: Naming,
    passing: forward::Passing,
    /// When this node started, ms since the epoch.
    boot_ms: i64,
    lock_clock: locks::LockClock,
    /// Counts the sends that leave the choice of the queue to the broker.
    turns: AtomicU32,
}

impl Broker {
    /// Makes the broker over a running group and starts its background tasks, on the current runtime. Set it
    /// in the group's [`forward::ServiceSlot`] next, then open the doors.
    pub fn start(
        config: Config,
        group: Group,
        store: Store,
        holds: Arc<hold::Holds>,
    ) -> Arc<Broker> {
        let broker = Arc::new(Broker {
            proposer: proposer::Proposer::new(group.clone()),
            clients: clients::Clients::default(),
            naming: Naming {
                config: config.clone(),
                group: group.clone(),
                store: store.clone(),
            },
            holds,
            passing: forward::Passing::default(),
            boot_ms: group.env().clock.wall_ms(),
            lock_clock: locks::LockClock::set(group.env().clock.wall_ms()),
            turns: AtomicU32::new(0),
            config,
            group,
            store,
        });
        tokio::spawn(housekeeping::run(broker.clone()));
        tokio::spawn(delay::run(broker.clone()));
        tokio::spawn(broker.clone().forget_silent_clients());
        let changes = broker.group.view();
        tokio::spawn(hold::run(broker.holds.clone(), broker.clone(), changes));
        broker
    }

    /// The address that clients reach this node at; it stands in messages and their ids.
    pub fn address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.config.broker_ip, self.config.listen_port)
    }

    pub fn node(&self) -> NodeId {
        self.config.group.node
    }

    /// Milliseconds since the epoch by this node's clock. For messages' times only, never for safety.
    fn wall_ms(&self) -> i64 {
        self.group.env().clock.wall_ms()
    }

    /// The next of `queues` queues, in turn.
    fn next_queue(&self, queues: u32) -> i32 {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        (turn % queues.max(1)) as i32
    }
}

/// Waits for a change of view, at most `limit`: much that matters (a lease, a peer's connection, the disk)
/// changes without one.
async fn wait_for_change(view: &mut watch::Receiver<View>, limit: Duration) {
    if let Ok(Err(_)) = timeout(limit, view.changed()).await {
        // The group has ended: no change will come, and asking again at once would spin.
        sleep(limit).await;
    }
}

#[cfg(test)]
#[path = "reading_tests.rs"]
mod reading_tests;
