//! Topics made and deleted by request, and made by the first send.

use std::sync::Arc;

use super::{Broker, Request};

#[allow(clippy::todo, unused_variables)]
impl Broker {
    pub(super) fn on_create_topic(self: &Arc<Self>, request: Request) {
        todo!()
    }
    pub(super) fn on_delete_topic(self: &Arc<Self>, request: Request) {
        todo!()
    }
}
