//! Reading the bodies of requests.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::lenient::{List, Scalar};
use super::{
    BodyError, CheckClientConfig, ConsumeType, ConsumerData, EXPRESSION_TAG, Heartbeat,
    JSON_BYTES_MAX, LockBatch, MessageModel, MessageQueue, Subscription,
};

const CONSUME_TYPES: [&str; 3] = ["CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"];
const MESSAGE_MODELS: [&str; 2] = ["BROADCASTING", "CLUSTERING"];
const CONSUME_FROM: [&str; 6] = [
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
];

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireHeartbeat {
    #[serde(rename = "clientID")]
    client_id: Scalar,
    #[serde(rename = "producerDataSet")]
    producers: List<WireProducer>,
    #[serde(rename = "consumerDataSet")]
    consumers: List<WireConsumer>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireProducer {
    group_name: Scalar,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireConsumer {
    group_name: Scalar,
    consume_type: Scalar,
    message_model: Scalar,
    consume_from_where: Scalar,
    subscription_data_set: List<WireSubscription>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireSubscription {
    topic: Scalar,
    sub_string: Scalar,
    sub_version: Scalar,
    expression_type: Scalar,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireLockBatch {
    consumer_group: Scalar,
    client_id: Scalar,
    mq_set: List<WireQueue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireQueue {
    broker_name: Scalar,
    queue_id: Scalar,
    topic: Scalar,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireCheck {
    group: Scalar,
    subscription_data: Option<WireSubscription>,
}

fn json<T: DeserializeOwned>(what: &'static str, body: &[u8]) -> Result<T, BodyError> {
    let error = |why: String| BodyError { what, why };
    if body.len() > JSON_BYTES_MAX {
        let len = body.len();
        return Err(error(format!("{len} bytes; allowed are {JSON_BYTES_MAX}")));
    }
    // Derived readers take a list for an object; no client means that.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(error("a list where an object was expected".into()));
    }
    serde_json::from_slice(body).map_err(|cause| error(cause.to_string()))
}

impl Heartbeat {
    /// Absent sets are empty ones. An enum that is unknown takes its default.
    pub fn parse(body: &[u8]) -> Result<Heartbeat, BodyError> {
        const WHAT: &str = "a heartbeat";
        let wire: WireHeartbeat = json(WHAT, body)?;
        let consumers = wire.consumers.0.into_iter().map(WireConsumer::checked);
        Ok(Heartbeat {
            client_id: wire.client_id.into_text(),
            producer_groups: (wire.producers.0.into_iter())
                .map(|producer| producer.group_name.into_text())
                .collect(),
            consumers: consumers
                .collect::<Result<_, _>>()
                .map_err(|why| BodyError { what: WHAT, why })?,
        })
    }
}

impl LockBatch {
    /// Absent members are empty ones.
    pub fn parse(body: &[u8]) -> Result<LockBatch, BodyError> {
        const WHAT: &str = "a set of queues to lock";
        let wire: WireLockBatch = json(WHAT, body)?;
        let queues = wire.mq_set.0.into_iter().map(WireQueue::checked);
        Ok(LockBatch {
            consumer_group: wire.consumer_group.into_text(),
            client_id: wire.client_id.into_text(),
            queues: queues
                .collect::<Result<_, _>>()
                .map_err(|why| BodyError { what: WHAT, why })?,
        })
    }
}

impl CheckClientConfig {
    pub fn parse(body: &[u8]) -> Result<CheckClientConfig, BodyError> {
        const WHAT: &str = "a client's configuration";
        let wire: WireCheck = json(WHAT, body)?;
        let subscription = wire.subscription_data.map(WireSubscription::checked);
        Ok(CheckClientConfig {
            group: wire.group.into_text(),
            subscription: subscription
                .transpose()
                .map_err(|why| BodyError { what: WHAT, why })?,
        })
    }
}

impl WireConsumer {
    fn checked(self) -> Result<ConsumerData, String> {
        let subscriptions = self.subscription_data_set.0.into_iter();
        Ok(ConsumerData {
            group: self.group_name.into_text(),
            consume_type: match self.consume_type.into_place(&CONSUME_TYPES) {
                Some(0) => ConsumeType::Actively,
                Some(2) => ConsumeType::Pop,
                _ => ConsumeType::Passively,
            },
            message_model: match self.message_model.into_place(&MESSAGE_MODELS) {
                Some(0) => MessageModel::Broadcasting,
                _ => MessageModel::Clustering,
            },
            consume_from_where: self
                .consume_from_where
                .into_place(&CONSUME_FROM)
                .unwrap_or(0) as i32,
            subscriptions: subscriptions
                .map(WireSubscription::checked)
                .collect::<Result<_, _>>()?,
        })
    }
}

impl WireSubscription {
    fn checked(self) -> Result<Subscription, String> {
        let mut expression_type = self.expression_type.into_text();
        if expression_type.is_empty() {
            expression_type.push_str(EXPRESSION_TAG);
        }
        Ok(Subscription {
            topic: self.topic.into_text(),
            expression: self.sub_string.into_text(),
            expression_type,
            version: self.sub_version.into_number()?,
        })
    }
}

impl WireQueue {
    fn checked(self) -> Result<MessageQueue, String> {
        let queue_id = self.queue_id.into_number()?;
        Ok(MessageQueue {
            broker_name: self.broker_name.into_text(),
            queue_id: i32::try_from(queue_id).map_err(|_| format!("not a queue id: {queue_id}"))?,
            topic: self.topic.into_text(),
        })
    }
}
