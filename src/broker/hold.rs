//! Held pulls (long polling): pulls that found nothing wait here for a message or their deadline.

use crate::store::Arrivals;

/// The held pulls of this node, by queue.
#[derive(Default)]
pub struct Holds {
    // TO BE FILLED by the owner of this module.
}

#[allow(clippy::todo, unused_variables)]
impl Arrivals for Holds {
    fn arrived(&self, topic: &str, queue: i32, end: i64) {
        todo!()
    }
}
