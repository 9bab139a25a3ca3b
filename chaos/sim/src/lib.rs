//! Deterministic simulation of quorumlog: one seed is one run, and the same run every time.
//!
//! The real log, Raft, state machine and broker run on simulated disks, network and time, in one thread.
//! `plan` says what a seed means, `world` runs it, `host` is one node and `clients` its users, `disk` and
//! `net` what they live on, `watch` looks after every step and `judge` at the end, `trace` keeps what
//! happened, `sweep` runs many seeds and `report` says what they saw. Checks shared with real processes are the checker's of `quorumlog-chaos`.

pub mod clients;
pub mod clocks;
pub mod counts;
pub mod disk;
pub mod held;
pub mod host;
pub mod judge;
pub mod net;
pub mod panics;
pub mod plan;
pub mod report;
pub mod sweep;
pub mod trace;
pub mod watch;
pub mod world;

/// Built with the flag that makes a seed mean one run (`--cfg tokio_unstable`)?
pub const fn is_deterministic() -> bool {
    cfg!(tokio_unstable)
}
