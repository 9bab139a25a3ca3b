//! Who leads a group, waiting for one, and what is asked of it: connections and topics.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::group::Rig;
use super::member::Member;
use super::view::{View, agreed_leader, newest_leader};
use super::{OBSERVE_EVERY, RigError};
use crate::wire::{Connection, Topic, WireError};

/// How long a group may take to start, elect and serve. Generous: test machines are busy.
const SERVING_WITHIN: Duration = Duration::from_secs(30);
const REQUEST_WITHIN: Duration = Duration::from_secs(5);
const VIEW_WITHIN: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);

impl Rig {
    /// Waits until one running node leads and all running nodes that are not paused say so. A node that ends
    /// meanwhile is an error.
    pub async fn wait_serving(&mut self) -> Result<(), RigError> {
        let begun = Instant::now();
        loop {
            self.all_alive()?;
            let views = self.views().await;
            if agreed_leader(&views).is_some() {
                return Ok(());
            }
            if begun.elapsed() > SERVING_WITHIN {
                return Err(not_serving(&views));
            }
            sleep(POLL).await;
        }
    }

    /// Which node leads. Waits for one.
    pub async fn leader(&self) -> Result<usize, RigError> {
        let begun = Instant::now();
        loop {
            let views = self.views().await;
            if let Some(at) = newest_leader(&views) {
                return Ok(at);
            }
            if begun.elapsed() > SERVING_WITHIN {
                return Err(not_serving(&views));
            }
            sleep(POLL).await;
        }
    }

    /// Running nodes that do not lead.
    pub async fn followers(&self) -> Result<Vec<usize>, RigError> {
        let leader = self.leader().await?;
        let follows = |at: &usize| *at != leader && self.is_running(*at);
        Ok((0..self.len()).filter(follows).collect())
    }

    /// What each node that can answer says of the group.
    pub async fn views(&self) -> Vec<(usize, Option<View>)> {
        let mut asked = JoinSet::new();
        for at in (0..self.len()).filter(|at| self.is_running(*at) && !self.is_paused(*at)) {
            let address = self.address(at);
            asked.spawn(async move { (at, View::of(address, VIEW_WITHIN).await.ok()) });
        }
        let mut views = asked.join_all().await;
        views.sort_by_key(|(at, _)| *at);
        views
    }

    /// A connection to a node.
    pub async fn connect(&self, at: usize) -> Result<Connection, RigError> {
        Connection::open(self.address(at), REQUEST_WITHIN)
            .await
            .map_err(|source| self.wire_error(at, source))
    }

    /// A connection to a node's name server.
    pub async fn connect_name_server(&self, at: usize) -> Result<Connection, RigError> {
        Connection::open(self.name_server(at), REQUEST_WITHIN)
            .await
            .map_err(|source| self.wire_error(at, source))
    }

    /// Creates a topic at the leader and waits until every node that can answer routes it.
    pub async fn create_topic(&self, name: &str, queues: i32) -> Result<(), RigError> {
        let topic = Topic::new(name, queues);
        let begun = Instant::now();
        loop {
            let leader = self.leader().await?;
            let created = match Connection::open(self.address(leader), REQUEST_WITHIN).await {
                Ok(connection) => connection.create_topic(&topic).await,
                Err(error) => Err(error),
            };
            match created {
                Ok(()) => break,
                Err(source) if begun.elapsed() > SERVING_WITHIN => {
                    return Err(self.wire_error(leader, source));
                }
                Err(_) => sleep(POLL).await,
            }
        }
        for at in (0..self.len()).filter(|at| self.is_running(*at) && !self.is_paused(*at)) {
            self.wait_route(at, name).await?;
        }
        Ok(())
    }

    async fn wait_route(&self, at: usize, topic: &str) -> Result<(), RigError> {
        let name_server = self.connect_name_server(at).await?;
        let begun = Instant::now();
        loop {
            match name_server.route(topic).await {
                Ok(_) => return Ok(()),
                Err(source) if begun.elapsed() > SERVING_WITHIN => {
                    return Err(self.wire_error(at, source));
                }
                Err(_) => sleep(OBSERVE_EVERY).await,
            }
        }
    }

    fn all_alive(&mut self) -> Result<(), RigError> {
        let before = self.ended.len();
        let Some(ended) = self.unexpected_ends()?.get(before).cloned() else {
            return Ok(());
        };
        let log = self
            .members
            .iter()
            .find(|member| member.name == ended.node)
            .map(Member::last_words);
        Err(RigError::Ended {
            node: ended.node,
            status: ended.status,
            log: log.unwrap_or_default(),
        })
    }

    fn wire_error(&self, at: usize, source: WireError) -> RigError {
        RigError::Wire {
            what: self.members[at].name.clone(),
            source,
        }
    }
}

fn not_serving(views: &[(usize, Option<View>)]) -> RigError {
    RigError::NotServing {
        within: SERVING_WITHIN,
        views: format!("{views:?}"),
    }
}
