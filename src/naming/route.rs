//! What a route is: the group's broker name at its leader, and a write front for every voter. Decisions
//! only.
//!
//! The names of a route never change with leadership, so that a producer's queue selector maps a key to the
//! same queue before, during and after a failover; only the address behind the group's own name moves.

use std::collections::{BTreeMap, BTreeSet};

use quorumlog_raft::{NodeId, View};

use crate::config::Config;
use crate::protocol::body::RouteBroker;
use crate::protocol::names;
use crate::store::{NodeInfo, TopicConfig};

const PERM_READ: u32 = 4;
const PERM_WRITE: u32 = 2;
const PERM_INHERIT: u32 = 1;
/// The address that producers send to, and consumers pull from.
const LEADER_ID: u64 = 0;

/// What a route depends on.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    pub config: &'a Config,
    pub view: &'a View,
    pub nodes: &'a BTreeMap<NodeId, NodeInfo>,
}

/// The broker names of a topic, sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRoute(pub Vec<RouteBroker>);

impl Scene<'_> {
    /// The route of a topic; `None` when there is no such topic, or no node's address is known yet.
    /// `group_known`: for a retry topic, its group exists.
    pub fn topic(
        &self,
        name: &str,
        known: Option<&TopicConfig>,
        group_known: bool,
    ) -> Option<TopicRoute> {
        let made_up;
        let topic = match known {
            Some(_) if name == names::AUTO_CREATE_TOPIC && !self.config.auto_create_topic => None,
            Some(topic) => Some(topic),
            None => {
                made_up = self.expected(name, group_known);
                made_up.as_ref()
            }
        }?;
        let mut group = self.group()?;
        group.read_queue_nums = queues(topic.read_queues);
        group.write_queue_nums = queues(topic.write_queues);
        group.perm = topic.perm as i32;
        group.topic_sys_flag = topic.sys_flag;
        let mut brokers = vec![group];
        if self.has_fronts(topic) {
            brokers.extend(self.fronts(topic.sys_flag));
        }
        brokers.sort_by(|a, b| a.name.cmp(&b.name));
        Some(TopicRoute(brokers))
    }

    /// Topics that are about to be: a retry topic is asked for before the heartbeat that makes its group,
    /// and then only 30 s later; the template of new topics is made by the first leader.
    fn expected(&self, name: &str, group_known: bool) -> Option<TopicConfig> {
        let topic = |queues, perm| TopicConfig::plain(name, queues, perm);
        if name == names::AUTO_CREATE_TOPIC && self.config.auto_create_topic {
            let perm = PERM_READ | PERM_WRITE | PERM_INHERIT;
            return Some(topic(self.config.default_topic_queues, perm));
        }
        let group = names::group_of(name).filter(|_| names::is_retry_topic(name))?;
        let expected = group_known || self.config.auto_create_group;
        (expected && names::check_group(group).is_ok()).then(|| topic(1, PERM_READ | PERM_WRITE))
    }

    /// The group's own broker name: the leader as 0, and the followers that serve pulls under their own
    /// ids. `None` before any node's address is known.
    pub fn group(&self) -> Option<RouteBroker> {
        let leader = self.leader()?;
        let followers = self
            .voters()
            .into_iter()
            .filter(|&voter| voter != leader.node);
        let mut addresses: BTreeMap<u64, String> = followers
            .filter_map(|voter| self.nodes.get(&voter))
            .filter(|node| node.slave_read)
            .map(|node| (node.node, node.address.clone()))
            .collect();
        addresses.insert(LEADER_ID, leader.address.clone());
        Some(RouteBroker {
            name: self.config.broker_name.clone(),
            cluster: self.config.cluster.clone(),
            addresses,
            read_queue_nums: 0,
            write_queue_nums: 0,
            perm: 0,
            topic_sys_flag: 0,
        })
    }

    /// Who is named as the leader: the one there is, while an election runs the last one, and before any is
    /// known this node, or any other: it passes on what it gets.
    fn leader(&self) -> Option<&NodeInfo> {
        let view = self.view;
        let candidates = [view.leader, view.last_leader, Some(view.node)];
        let candidates = candidates.into_iter().flatten().chain(self.voters());
        candidates.filter_map(|id| self.nodes.get(&id)).next()
    }

    /// The voters as Raft knows them, as configured until it does.
    fn voters(&self) -> BTreeSet<NodeId> {
        if self.view.voters.is_empty() {
            self.config.group.peers.keys().copied().collect()
        } else {
            self.view.voters.iter().copied().collect()
        }
    }

    /// Fronts are for what ordinary producers write to. A single broker needs none.
    fn has_fronts(&self, topic: &TopicConfig) -> bool {
        let name = topic.name.as_str();
        let own = [&self.config.cluster, &self.config.broker_name];
        let reply_topic = || format!("{}_REPLY_TOPIC", self.config.cluster);
        self.config.write_fronts
            && self.voters().len() > 1
            && topic.perm & PERM_WRITE != 0
            && !names::is_retry_topic(name)
            && !names::is_dlq_topic(name)
            // The template counts: from it a producer makes the queues of a topic that is not there yet.
            && (name == names::AUTO_CREATE_TOPIC || !names::is_system_topic(name))
            && !own.iter().any(|own| *own == name)
            && name != reply_topic()
    }

    /// One write-only broker name for every voter, with a single queue. Without read permission no client
    /// puts it among the queues to consume; the one read queue is for Java, which takes the smaller number
    /// of both for topics that do not exist yet.
    fn fronts(&self, topic_sys_flag: i32) -> impl Iterator<Item = RouteBroker> {
        let voters = self.voters().into_iter();
        let nodes = voters.filter_map(|voter| self.nodes.get(&voter));
        nodes.map(move |node| RouteBroker {
            name: self.front_name(node.node),
            cluster: self.config.cluster.clone(),
            addresses: BTreeMap::from([(LEADER_ID, node.front_address.clone())]),
            read_queue_nums: 1,
            write_queue_nums: 1,
            perm: PERM_WRITE as i32,
            topic_sys_flag,
        })
    }

    fn front_name(&self, node: NodeId) -> String {
        let broker = &self.config.broker_name;
        match self.config.group.names.get(&node) {
            Some(name) => format!("{broker}-front-{name}"),
            None => format!("{broker}-front-{node}"),
        }
    }
}

fn queues(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
