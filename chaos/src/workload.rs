//! Seeded load for a running group: producers that try all nodes in turn, readers that follow every
//! node, and drains of every queue from every node. Records everything; judges nothing. Starting and hurting nodes is the caller's business.

mod drain;
mod payload;
mod produce;
mod read;
#[cfg(test)]
mod tests;

pub use drain::{DrainError, Drainer, got_of};
pub use payload::{PayloadError, body, hash, key_of};
pub(crate) use produce::Attempt;
pub use produce::{Produced, Producers};
pub use read::{Readers, Reading};

use std::net::SocketAddr;

/// A node that serves clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name in the history.
    pub name: String,
    pub address: SocketAddr,
}
