//! Seeded load for a running group: producers that try all nodes in turn, readers that follow every
//! node, consumers that commit and ask for offsets, single probes, and drains of every queue from every
//! node. Records everything; judges nothing. Starting and hurting nodes is the caller's business.

mod drain;
mod offsets;
mod payload;
mod probe;
mod produce;
mod read;
mod steady;
#[cfg(test)]
mod tests;

pub use drain::{DrainError, Drainer, got_of};
pub use offsets::{Committing, Offsets};
pub use payload::{PayloadError, body, hash, key_of};
pub use probe::Probe;
pub(crate) use produce::Attempt;
pub use produce::{Produced, Producers};
pub use read::{Readers, Reading};
pub use steady::{Steadily, Steady};

use std::net::SocketAddr;

/// A node that serves clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name in the history.
    pub name: String,
    pub address: SocketAddr,
}
