//! Who is connected: producers and consumers by group, their subscriptions, and telling the members of a
//! group that it changed. Each node keeps its own view: clients send heartbeats to every node.

use std::sync::Arc;

use crate::net::connection::Connection;
use crate::protocol::body::{ConsumerData, Heartbeat, Subscription};

/// The connected clients of this node.
#[derive(Default)]
pub struct Clients {
    // TO BE FILLED by the owner of this module.
}

#[allow(clippy::todo, unused_variables)]
impl Clients {
    /// Registers what a heartbeat says. Returns the groups whose members or topics changed.
    pub fn heartbeat(
        &self,
        connection: &Arc<Connection>,
        language: u8,
        heartbeat: &Heartbeat,
    ) -> Vec<String> {
        todo!()
    }

    /// Removes a client from a group; returns whether the group changed.
    pub fn unregister(&self, client_id: &str, group: &str) -> bool {
        todo!()
    }

    /// A connection is gone: removes everything that was only reachable through it. Returns the groups that
    /// changed.
    pub fn closed(&self, connection_id: u64) -> Vec<String> {
        todo!()
    }

    /// Client ids of a consumer group, sorted.
    pub fn members(&self, group: &str) -> Vec<String> {
        todo!()
    }

    /// A group's subscription for a topic, as its consumers announced it; newest version wins.
    pub fn subscription(&self, group: &str, topic: &str) -> Option<Subscription> {
        todo!()
    }

    pub fn consumer(&self, group: &str) -> Option<ConsumerData> {
        todo!()
    }

    /// One connection per member of the group, to tell it something.
    pub fn connections(&self, group: &str) -> Vec<Arc<Connection>> {
        todo!()
    }
}
