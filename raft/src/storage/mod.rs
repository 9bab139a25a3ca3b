//! openraft's storage traits over the log and the state machine.
//!
//! The only place, with `peer` and `group`, where openraft types are named. Bytes on disk belong to `log`.

pub(crate) mod entry;
mod log_store;
mod machine;
mod reply;
mod runtime;

pub(crate) use log_store::LogStore;
pub(crate) use machine::{AppliedAt, Machine, SnapshotData};
pub(crate) use reply::Reply;

#[cfg(test)]
mod suite_tests;
