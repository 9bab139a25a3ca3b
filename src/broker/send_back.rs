//! Consumers that give a message back: the retry topic, and the dead-letter topic after too many tries.

use std::sync::Arc;

use super::{Broker, Request};

#[allow(clippy::todo, unused_variables)]
impl Broker {
    pub(super) fn on_send_back(self: &Arc<Self>, request: Request) {
        todo!()
    }
}
