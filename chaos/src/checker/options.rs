//! What a run was to promise, and how much must have happened in it for the verdict to mean anything.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What the broker was configured to promise, and what the run is to be held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Retries with the same key are recognised (`brokerDeduplication`).
    pub deduplication: bool,
    /// How long a leader may go on acknowledging after the majority is gone.
    pub lease: Duration,
    /// Old messages may be deleted during the run, so a queue need not begin at 0.
    pub retention: bool,
    /// With `retention`: nothing younger is deleted. `None`: no age is promised (space decides, or the wall
    /// clock is moved about).
    pub kept_for: Option<Duration>,
    /// How much later than what was applied the committed index may be told.
    pub committed_lag: Duration,
    /// After healing: how long until there is one leader and all nodes are level.
    pub recovers_within: Duration,
    /// After healing: sends that must be acknowledged within that time.
    pub recovers_acks: usize,
    /// How long a fault that leaves a majority may stop writing.
    pub takeover: Duration,
    /// Acknowledgements wanted in the rest of such a fault.
    pub goes_on_acks: usize,
    pub limits: Limits,
    pub floor: Floor,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            deduplication: true,
            lease: Duration::from_millis(400),
            retention: false,
            kept_for: None,
            committed_lag: Duration::from_secs(10),
            recovers_within: Duration::from_secs(30),
            recovers_acks: 1,
            takeover: Duration::from_secs(5),
            goes_on_acks: 100,
            limits: Limits::default(),
            floor: Floor::default(),
        }
    }
}

/// Bounds on what a node's process may use; `None`: not judged. The figures are those of observations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// `procRssBytes`
    pub rss_bytes: Option<u64>,
    /// `procFds`
    pub fds: Option<u64>,
    /// `procThreads`
    pub threads: Option<u64>,
    /// New terms of the group in any minute.
    pub terms_per_minute: Option<u64>,
}

/// What must have happened for a run to prove anything (I-23). The default asks for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Floor {
    pub acknowledged: usize,
    pub refused: usize,
    pub unknown: usize,
    pub last_drains: usize,
    pub leader_changes: usize,
    pub boots: usize,
    pub dumps: usize,
    /// Faults that were brought on, of any kind.
    pub faults: usize,
    /// Every kind of fault that was tried must have been brought on at least once.
    pub all_faults: bool,
}
