//! Checks quorumlog from outside: an independent client of the RocketMQ wire protocol, recorded histories,
//! the checker that says which promise a history breaks, a reader of the nodes' files, and the rig of real
//! processes that the scenarios hurt meanwhile. Shares no code with the broker or the log, so that a
//! mistake in their codec cannot hide itself.

pub mod checker;
pub mod drill;
pub mod history;
pub mod offline;
pub mod rig;
pub mod rng;
pub mod scenario;
pub mod wire;
pub mod workload;
