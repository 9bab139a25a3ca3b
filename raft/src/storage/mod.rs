//! openraft's storage traits over the log and the state machine.
//!
//! The only place, with `peer` and `group`, where openraft types are named. Bytes on disk belong to `log`.

pub(crate) mod entry;
