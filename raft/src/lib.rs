//! The replicated log of quorumlog, on openraft.
//!
//! It owns the log's files (segments, vote, identity, lock), the connections between the group's nodes,
//! leadership and its lease, and the *gate* in front of every proposal. It knows no broker word: an entry
//! is an opaque payload, applied by the [`StateMachine`] that the caller brings, and a result is opaque
//! bytes.
//!
//! Layers, lower ones never import higher ones:
//!
//! ```text
//! group      one node of a group: start, gate, propose, status, calls between nodes
//! peer       connections: handshake, frames, pipelined AppendEntries, votes, calls
//! storage    openraft's storage traits over the log and the state machine
//! log        segments, log writer, vote file, recovery, positioned reads
//! types      ids, positions, entries, what a state machine is
//! env        files, network and clock behind small traits
//! ```
//!
//! The order that always holds, on every node:
//! `purged <= checkpoint <= applied <= committed <= appended`, and what is committed is durable on a
//! majority.

pub mod env;
pub mod group;
pub mod log;
pub mod peer;
pub mod sabotage;
mod storage;
pub mod types;

pub use group::{CallError, Group, GroupConfig, Proposal, ProposeError, StartError};
pub use log::LogReader;
pub use types::*;
