//! Heartbeats, leaving, and who else is in a group.

use std::sync::Arc;

use super::{Broker, Request};

#[allow(clippy::todo, unused_variables)]
impl Broker {
    pub(super) fn on_heartbeat(self: &Arc<Self>, request: Request) {
        todo!()
    }
    pub(super) fn on_unregister(self: &Arc<Self>, request: Request) {
        todo!()
    }
    pub(super) fn on_check_client_config(self: &Arc<Self>, request: Request) {
        todo!()
    }
    pub(super) fn on_consumer_list(self: &Arc<Self>, request: Request) {
        todo!()
    }
    pub(super) fn on_naming(self: &Arc<Self>, request: Request) {
        todo!()
    }
}
