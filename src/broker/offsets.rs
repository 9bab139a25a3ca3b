//! Queue ends, offsets by time, and the progress of consumer groups.

use std::sync::Arc;

use super::{Broker, Request};

#[allow(clippy::todo, unused_variables)]
impl Broker {
    pub(super) fn on_query_offset(self: &Arc<Self>, request: Request) {
        todo!()
    }
    pub(super) fn on_update_offset(self: &Arc<Self>, request: Request) {
        todo!()
    }
    pub(super) fn on_search_offset(self: &Arc<Self>, request: Request) {
        todo!()
    }
    pub(super) fn on_max_offset(self: &Arc<Self>, request: Request) {
        todo!()
    }
    pub(super) fn on_min_offset(self: &Arc<Self>, request: Request) {
        todo!()
    }
    pub(super) fn on_earliest_time(self: &Arc<Self>, request: Request) {
        todo!()
    }
}
