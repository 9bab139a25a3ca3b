//! Checks quorumlog from outside: an independent client of the RocketMQ wire protocol, recorded histories,
//! and the checker that says which promise a history breaks. Shares no code with the broker or the log,
//! so that a mistake in their codec cannot hide itself.

pub mod checker;
pub mod history;
pub mod rng;
pub mod wire;
pub mod workload;
