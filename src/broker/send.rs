//! Sends: one message, a batch, and what a message must be to be stored.

use std::sync::Arc;

use super::{Broker, Request};

#[allow(clippy::todo, unused_variables)]
impl Broker {
    pub(super) fn on_send(self: &Arc<Self>, request: Request) {
        todo!()
    }
}
