//! The proposer: gathers the units of many requests into one entry, and gives each its outcome.
//!
//! It adds no delay when idle: the first unit goes out at once. While entries are in flight the next batch
//! gathers, bounded in bytes, units and entries in flight.

use crate::store::{Command, CommandOutcome, EntryBuilder, UnitOutcome};

/// Why a write has no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// In no log, never will be.
    #[error("{0}")]
    Refused(String),
    /// May be applied, now or later, once.
    #[error("{0}")]
    Unknown(String),
}

/// Hands units to the log. Shared by all connections.
pub struct Proposer {
    // TO BE FILLED by the owner of this module.
}

#[allow(clippy::todo, unused_variables)]
impl Proposer {
    /// Passes the gate, encodes one unit into the gathering entry, and calls `done` exactly once: with the
    /// outcome, or with why there is none. A unit still gathering at its deadline is refused, one already
    /// proposed is unknown. `done` is called from a runtime task and must not block.
    pub fn submit(
        &self,
        deadline: tokio::time::Instant,
        encode: impl FnOnce(&mut EntryBuilder),
        done: impl FnOnce(Result<UnitOutcome, WriteError>) + Send + 'static,
    ) {
        todo!()
    }

    /// Proposes one command and waits for its outcome.
    pub async fn command(
        &self,
        deadline: tokio::time::Instant,
        command: &Command,
    ) -> Result<CommandOutcome, WriteError> {
        todo!()
    }
}
