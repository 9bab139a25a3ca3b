//! What a node says of itself when another node of the group asks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::codec;
use super::frame::Kind;
use super::link::Link;
use crate::types::{EntryId, NodeId};

/// How a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// Of its process: the same number in two answers means that nothing was forgotten in between.
    pub incarnation: u64,
    /// Its directory was made empty, and what it promised before may be missing.
    pub unfilled: bool,
    /// Term and candidate of its last durable vote.
    pub voted: Option<(u64, NodeId)>,
    /// The last entry in its log, maybe not durable.
    pub last: Option<EntryId>,
    /// The term that it leads.
    pub leads: Option<u64>,
    /// Its disk is nearly full.
    pub full: bool,
}

impl Link {
    /// Asks the other node how it stands; `None` without an answer within `bound`.
    pub(crate) async fn standing(&self, bound: Duration) -> Option<Standing> {
        let answer = tokio::time::timeout(bound, self.ask(Kind::Standing, &[])).await;
        codec::decode_standing(&answer.ok()?.ok()?).ok()
    }
}
