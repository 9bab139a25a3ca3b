//! Queue locks of orderly consumers.

use std::sync::Arc;

use super::{Broker, Request};

#[allow(clippy::todo, unused_variables)]
impl Broker {
    pub(super) fn on_lock(self: &Arc<Self>, request: Request) {
        todo!()
    }
    pub(super) fn on_unlock(self: &Arc<Self>, request: Request) {
        todo!()
    }
}
