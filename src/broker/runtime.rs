//! What this node tells of itself: runtime info (28).

use std::sync::Arc;

use super::{Broker, Request};

#[allow(clippy::todo, unused_variables)]
impl Broker {
    pub(super) fn on_runtime_info(self: &Arc<Self>, request: Request) {
        todo!()
    }
}
