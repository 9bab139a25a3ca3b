//! A group of real server processes and the faults that are done to it from outside.
//!
//! `group` is the group's processes and `leading` who of them leads, `member` one node, `site` the place where
//! it runs (loopback or network namespaces), `netns` the namespaces; `switch`, `links` and `nfq` are the faults
//! of the network between them, `proxy` and `greeting` damaged and strange peers; `trace` and `cgroup` hurt a
//! process, `disk`, `liar`, `damage`, `inject` and `clock` what a node stands on; `usage` is what a process
//! takes, `observe` writes into the history what the nodes say of themselves, `pulse` tells whether the clients
//! themselves stood still, `leftover` removes what killed runs left, `doctor` says which faults this machine
//! can do. What is checked is the scenarios' own.

pub mod cgroup;
pub mod clock;
pub mod damage;
pub mod disk;
pub mod doctor;
pub mod greeting;
mod group;
pub mod inject;
mod leading;
mod leftover;
pub mod liar;
mod links;
mod member;
mod netns;
mod nfq;
mod observe;
mod ports;
pub mod proxy;
mod pulse;
mod site;
pub mod switch;
mod tool;
pub mod trace;
pub mod usage;
mod view;

pub use group::{Ended, Rig, Setup};
pub use leftover::remove_leftovers;
pub use member::Launch;
pub use netns::{Handle, Namespace, Network};
pub use nfq::{Queued, Treatment};
pub use observe::{OBSERVE_EVERY, Observer};
pub use pulse::Pulse;
pub use site::{Placement, Site};
pub use tool::{Command, tool};
pub use view::{View, agreed_leader, newest_leader};

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use crate::wire::WireError;

/// The broker name of every group.
pub const BROKER: &str = "broker-a";

/// Why the rig could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum RigError {
    #[error("{what}: {source}")]
    Io {
        what: String,
        source: std::io::Error,
    },
    /// A program of the system refused.
    #[error("`{command}` failed ({status}): {said}. `chaos doctor` says what this machine lacks")]
    Tool {
        command: String,
        status: ExitStatus,
        said: String,
    },
    #[error(
        "there is no server at {path}; build it with `cargo build -p quorumlog` or name another with --server"
    )]
    NoServer { path: PathBuf },
    #[error("no {count} free ports in a row below 32,000; end what occupies them")]
    NoPorts { count: u16 },
    #[error("{node} does not run")]
    NotRunning { node: String },
    #[error("{node} runs already")]
    Running { node: String },
    /// A node ended that nobody asked to.
    #[error("{node} ended with {status}; the end of its log:\n{log}")]
    Ended {
        node: String,
        status: ExitStatus,
        log: String,
    },
    #[error("{node} did not end within {within:?}")]
    Lasting { node: String, within: Duration },
    #[error("the group does not serve after {within:?}: {views}")]
    NotServing { within: Duration, views: String },
    #[error("{what}: {source}")]
    Wire { what: String, source: WireError },
}

impl RigError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> RigError {
        let what = what.into();
        |source| RigError::Io { what, source }
    }

    /// True when it is the group that failed, not the machine or the rig.
    pub fn is_the_groups(&self) -> bool {
        matches!(
            self,
            RigError::Ended { .. }
                | RigError::Lasting { .. }
                | RigError::NotServing { .. }
                | RigError::Wire { .. }
        )
    }
}
