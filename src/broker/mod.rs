//! The broker: one file per request family, over the store and the replicated log.
//!
//! A request comes in decoded, with its origin and where the reply goes; every request gets exactly one
//! reply (unless one-way). Handlers run on the connection's task: they must not block or wait there, and
//! spawn what waits.

pub mod clients;
mod dispatch;
pub mod forward;
pub mod hold;
mod locks;
mod members;
mod offsets;
pub mod proposer;
mod pull;
mod runtime;
mod send;
mod send_back;
mod topics;

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

use quorumlog_raft::Group;
use tokio::time::Instant;

use crate::config::Config;
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
    pub naming: crate::naming::Naming,
}
