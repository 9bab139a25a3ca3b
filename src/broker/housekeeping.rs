//! What a node does by itself: the system's own topics, and telling the group how clients reach it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::send_rules::{PERM_INHERIT, PERM_READ_WRITE};
use super::{Broker, REPLY_WITHIN, wait_for_change};
use crate::config::Config;
use crate::protocol::names;
use crate::store::{Command, NodeInfo, TopicConfig};

/// How long until the next look while something is to be done, and when all is done.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
const LOOK_AROUND: Duration = Duration::from_secs(5);
/// Queues of the topic that is named after the cluster (RocketMQ).
const CLUSTER_TOPIC_QUEUES: u32 = 16;

/// Runs until the process ends.
pub(super) async fn run(broker: Arc<Broker>) {
    let mut view = broker.group.view();
    let mine = node_info(&broker.config);
    loop {
        view.borrow_and_update();
        let announced = broker.store.nodes().contains(&mine) || broker.announce(&mine).await;
        let done = announced && (!broker.leads() || ensure_topics(&broker).await);
        let wait = if done { LOOK_AROUND } else { LOOK_AGAIN };
        wait_for_change(&mut view, wait).await;
    }
}

/// Makes the system's topics that are missing; `false` if one could not be made now.
async fn ensure_topics(broker: &Arc<Broker>) -> bool {
    for topic in system_topics(&broker.config) {
        if broker.store.topic(&topic.name).is_some() {
            continue;
        }
        let deadline = Instant::now() + REPLY_WITHIN;
        let command = Command::EnsureTopic(topic);
        if broker.proposer.command(deadline, &command).await.is_err() {
            return false;
        }
    }
    true
}

/// The topics that exist without anybody asking for them (remoting-protocol 6.2).
fn system_topics(config: &Config) -> Vec<TopicConfig> {
    let template = PERM_READ_WRITE | PERM_INHERIT;
    let levels = config.delay_levels.len() as u32;
    let mut topics = vec![
        TopicConfig::plain(names::SELF_TEST_TOPIC, 1, PERM_READ_WRITE),
        TopicConfig::plain(names::OFFSET_MOVED_TOPIC, 1, PERM_READ_WRITE),
        TopicConfig::plain(names::SCHEDULE_TOPIC, levels, PERM_READ_WRITE),
        TopicConfig::plain(&config.broker_name, 1, template),
    ];
    if config.cluster != config.broker_name {
        topics.push(TopicConfig::plain(
            &config.cluster,
            CLUSTER_TOPIC_QUEUES,
            template,
        ));
    }
    topics.extend(super::send_rules::template(
        names::AUTO_CREATE_TOPIC,
        config,
    ));
    topics
}

/// What this node says of itself.
fn node_info(config: &Config) -> NodeInfo {
    let at = |port: u16| format!("{}:{port}", config.broker_ip);
    NodeInfo {
        node: config.group.node,
        address: at(config.listen_port),
        front_address: at(config.front_port),
        namesrv_address: at(config.namesrv_port),
        slave_read: config.slave_read,
    }
}
