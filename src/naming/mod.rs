//! The built-in name server: routes from what Raft knows, with write fronts, so that they are right the
//! moment a leader is elected.

use quorumlog_raft::Group;

use crate::config::Config;
use crate::protocol::frame::{Frame, Reply};
use crate::store::Store;

/// Answers name-server requests of one node.
pub struct Naming {
    pub(crate) config: Config,
    pub(crate) group: Group,
    pub(crate) store: Store,
}

#[allow(clippy::todo, unused_variables)]
impl Naming {
    /// Answers one request; unknown codes get REQUEST_CODE_NOT_SUPPORTED.
    pub fn answer(&self, frame: &Frame) -> Reply {
        todo!()
    }
}
