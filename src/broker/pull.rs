//! Pulls: reading a queue for a consumer.

use std::sync::Arc;

use super::{Broker, Request};

#[allow(clippy::todo, unused_variables)]
impl Broker {
    pub(super) fn on_pull(self: &Arc<Self>, request: Request) {
        todo!()
    }
}
