//! JSON bodies: heartbeats, locks, routes, lists. Lenient when reading (enums as names or numbers, numbers
//! as texts, missing members), compact and with quoted keys when writing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// HEART_BEAT 34.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    pub client_id: String,
    pub producer_groups: Vec<String>,
    pub consumers: Vec<ConsumerData>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConsumeType {
    Actively,
    #[default]
    Passively,
    Pop,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageModel {
    Broadcasting,
    #[default]
    Clustering,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerData {
    pub group: String,
    pub consume_type: ConsumeType,
    pub message_model: MessageModel,
    /// 0 LAST_OFFSET ... 4 FIRST_OFFSET, 5 TIMESTAMP.
    pub consume_from_where: i32,
    pub subscriptions: Vec<Subscription>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscription {
    pub topic: String,
    /// The expression as written; the tag codes are recomputed from it, never taken from the client.
    pub expression: String,
    /// `TAG` when absent.
    pub expression_type: String,
    pub version: i64,
}

/// A queue as clients name it in bodies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageQueue {
    pub broker_name: String,
    pub queue_id: i32,
    pub topic: String,
}

/// LOCK_BATCH_MQ 41 and UNLOCK_BATCH_MQ 42.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockBatch {
    pub consumer_group: String,
    pub client_id: String,
    pub queues: Vec<MessageQueue>,
}

/// CHECK_CLIENT_CONFIG 46: the subscription to be checked, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckClientConfig {
    pub group: String,
    pub subscription: Option<Subscription>,
}

/// One broker name of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteBroker {
    pub name: String,
    pub cluster: String,
    /// brokerId to `host:port`.
    pub addresses: BTreeMap<u64, String>,
    pub read_queue_nums: i32,
    pub write_queue_nums: i32,
    pub perm: i32,
    pub topic_sys_flag: i32,
}

/// Why a body cannot be read. Becomes code 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body cannot be read as {what}: {why}")]
pub struct BodyError {
    pub what: &'static str,
    pub why: String,
}

#[allow(clippy::todo, unused_variables)]
impl Heartbeat {
    pub fn parse(body: &[u8]) -> Result<Heartbeat, BodyError> {
        todo!()
    }
}

#[allow(clippy::todo, unused_variables)]
impl LockBatch {
    pub fn parse(body: &[u8]) -> Result<LockBatch, BodyError> {
        todo!()
    }
}

#[allow(clippy::todo, unused_variables)]
impl CheckClientConfig {
    pub fn parse(body: &[u8]) -> Result<CheckClientConfig, BodyError> {
        todo!()
    }
}

/// Body of a reply to 41.
#[allow(clippy::todo, unused_variables)]
pub fn locked_queues(queues: &[MessageQueue]) -> Vec<u8> {
    todo!()
}

/// Body of a reply to 38.
#[allow(clippy::todo, unused_variables)]
pub fn consumer_ids(ids: &[String]) -> Vec<u8> {
    todo!()
}

/// Body of a reply to 105: compact, keys quoted, names sorted.
#[allow(clippy::todo, unused_variables)]
pub fn topic_route(brokers: &[RouteBroker]) -> Vec<u8> {
    todo!()
}

/// Body of a reply to 106 (`brokerAddrTable`, `clusterAddrTable`).
#[allow(clippy::todo, unused_variables)]
pub fn cluster_info(brokers: &[RouteBroker]) -> Vec<u8> {
    todo!()
}

/// Body of a reply to 206.
#[allow(clippy::todo, unused_variables)]
pub fn topic_list(topics: &[String]) -> Vec<u8> {
    todo!()
}

/// Body of a reply to 28: all values are texts.
#[allow(clippy::todo, unused_variables)]
pub fn runtime_info(table: &BTreeMap<String, String>) -> Vec<u8> {
    todo!()
}
