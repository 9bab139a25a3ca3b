//! JSON bodies: heartbeats, locks, routes, lists. Lenient when reading (enums as names or numbers, numbers
//! as texts, missing members), compact and with quoted keys when writing.

mod lenient;
mod read;
mod write;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use write::{cluster_info, consumer_ids, locked_queues, runtime_info, topic_list, topic_route};

/// Longest JSON body that is read, bytes. RocketMQ knows no bound below the frame's; a heartbeat of this
/// size names some ten thousand subscriptions.
pub const JSON_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Expression type of a subscription that names none.
pub const EXPRESSION_TAG: &str = "TAG";

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

#[cfg(test)]
mod tests;
