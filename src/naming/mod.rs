//! The built-in name server: routes from what Raft knows, with write fronts, so that they are right the
//! moment a leader is elected. Leaves what a route is to `route`, and the bytes to `protocol::body`.

mod route;

use std::collections::BTreeMap;

use quorumlog_raft::{Group, View};

use self::route::{Scene, TopicRoute};
use crate::config::Config;
use crate::protocol::body::{cluster_info, topic_list, topic_route};
use crate::protocol::codes::{request as code, response};
use crate::protocol::frame::{Frame, Reply};
use crate::store::{NodeInfo, Store, TopicConfig};

/// Longest part of a topic's name that a remark quotes, bytes.
const QUOTED_BYTES_MAX: usize = 512;

/// Answers name-server requests of one node.
pub struct Naming {
    pub(crate) config: Config,
    pub(crate) group: Group,
    pub(crate) store: Store,
}

impl Naming {
    /// Answers one request; unknown codes get REQUEST_CODE_NOT_SUPPORTED.
    pub fn answer(&self, frame: &Frame) -> Reply {
        let opaque = frame.header.opaque;
        let success = Reply::new(response::SUCCESS, opaque);
        match frame.header.code {
            code::GET_ROUTEINFO_BY_TOPIC => self.route(frame),
            code::GET_BROKER_CLUSTER_INFO => {
                let (view, nodes) = (self.view(), self.nodes());
                let scene = self.scene(&view, &nodes);
                success.with_body(cluster_info(scene.group().as_slice()))
            }
            code::GET_ALL_TOPIC_LIST_FROM_NAMESERVER => {
                let topics = self.topics().into_keys().collect::<Vec<_>>();
                success.with_body(topic_list(&topics))
            }
            // Topics are the broker's: what was deleted there is gone here.
            code::DELETE_TOPIC_IN_NAMESRV => success,
            unknown => Reply::new(response::REQUEST_CODE_NOT_SUPPORTED, opaque)
                .with_remark(format!(" request type {unknown} not supported")),
        }
    }

    fn route(&self, frame: &Frame) -> Reply {
        let opaque = frame.header.opaque;
        let name = frame.header.ext.text("topic");
        let (view, nodes) = (self.view(), self.nodes());
        let scene = self.scene(&view, &nodes);
        let route = name.and_then(|name| {
            let known = self.topic(name, &view);
            let group = crate::protocol::names::group_of(name);
            let group = group.is_some_and(|group| self.store.group(group).is_some());
            scene.topic(name, known.as_ref(), group)
        });
        match route {
            Some(TopicRoute(brokers)) => {
                Reply::new(response::SUCCESS, opaque).with_body(topic_route(&brokers))
            }
            None => {
                let name = name.unwrap_or("null");
                let name = &name[..name.floor_char_boundary(QUOTED_BYTES_MAX)];
                Reply::new(response::TOPIC_NOT_EXIST, opaque).with_remark(format!(
                    "No topic route info in name server for the topic: {name}"
                ))
            }
        }
    }

    fn view(&self) -> View {
        self.group.view().borrow().clone()
    }

    fn scene<'a>(&'a self, view: &'a View, nodes: &'a BTreeMap<u64, NodeInfo>) -> Scene<'a> {
        Scene {
            config: &self.config,
            view,
            nodes,
        }
    }

    /// A topic as it is now, or as this node last knew it while it does not know better.
    fn topic(&self, name: &str, view: &View) -> Option<TopicConfig> {
        let warm = || {
            let warm = self.store.warm_topics().into_iter();
            warm.filter(|_| !view.ready)
                .find(|topic| topic.name == name)
        };
        self.store.topic(name).or_else(warm)
    }

    fn topics(&self) -> BTreeMap<String, TopicConfig> {
        let warm = if self.view().ready {
            Vec::new()
        } else {
            self.store.warm_topics()
        };
        let topics = warm.into_iter().chain(self.store.topics());
        topics.map(|topic| (topic.name.clone(), topic)).collect()
    }

    /// Where each node is, by its own newest word; the older one where there is none yet.
    fn nodes(&self) -> BTreeMap<u64, NodeInfo> {
        let now = self.store.nodes();
        let warm = if now.len() < self.config.group.peers.len() {
            self.store.warm_nodes()
        } else {
            Vec::new()
        };
        let nodes = warm.into_iter().chain(now);
        nodes.map(|node| (node.node, node)).collect()
    }
}
