//! Every request but sends and routes: pulls, offsets, groups, topics, locks, send back, runtime info.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::code;
use super::connection::{Connection, WireError, success};
use super::frame::Frame;
use super::record::{Record, decode_records};

const PULL_SUSPEND: i32 = 1 << 1;
const PULL_SUBSCRIPTION: i32 = 1 << 2;

/// A pull of one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pull {
    pub group: String,
    pub topic: String,
    pub queue: i32,
    pub offset: i64,
    pub max_messages: i32,
    /// Tag expression sent along; `None` uses what the group's heartbeat said.
    pub subscription: Option<String>,
    pub subscription_version: i64,
    /// Wait this long on the server for a message.
    pub suspend: Option<Duration>,
}

impl Pull {
    /// 32 messages of every tag, without waiting.
    pub fn new(group: &str, topic: &str, queue: i32, offset: i64) -> Pull {
        Pull {
            group: group.to_owned(),
            topic: topic.to_owned(),
            queue,
            offset,
            max_messages: 32,
            subscription: Some("*".to_owned()),
            subscription_version: 0,
            suspend: None,
        }
    }

    fn request(&self) -> Frame {
        let mut sys_flag = 0;
        if self.suspend.is_some() {
            sys_flag |= PULL_SUSPEND;
        }
        let mut frame = Frame::request(code::PULL)
            .with("consumerGroup", &self.group)
            .with("topic", &self.topic)
            .with("queueId", self.queue)
            .with("queueOffset", self.offset)
            .with("maxMsgNums", self.max_messages)
            .with("commitOffset", 0)
            .with(
                "suspendTimeoutMillis",
                self.suspend.unwrap_or_default().as_millis(),
            )
            .with("subVersion", self.subscription_version)
            .with("expressionType", "TAG");
        if let Some(expression) = &self.subscription {
            sys_flag |= PULL_SUBSCRIPTION;
            frame = frame.with("subscription", expression);
        }
        frame.with("sysFlag", sys_flag)
    }
}

/// The answer to a pull: messages (code 0) or why there are none (19, 20, 21).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    pub code: i32,
    pub next: i64,
    pub min: i64,
    pub max: i64,
    pub records: Vec<Record>,
}

/// A topic to create or change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    pub name: String,
    pub read_queues: i32,
    pub write_queues: i32,
    pub perm: i32,
}

impl Topic {
    pub fn new(name: &str, queues: i32) -> Topic {
        Topic {
            name: name.to_owned(),
            read_queues: queues,
            write_queues: queues,
            perm: 6,
        }
    }
}

/// A subscription within a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    pub topic: String,
    pub expression: String,
    pub version: i64,
}

/// A consumer group within a heartbeat: push, clustering, from the last offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    pub group: String,
    pub subscriptions: Vec<Subscription>,
}

impl Consumer {
    pub fn new(group: &str, topic: &str, expression: &str, version: i64) -> Consumer {
        Consumer {
            group: group.to_owned(),
            subscriptions: vec![Subscription {
                topic: topic.to_owned(),
                expression: expression.to_owned(),
                version,
            }],
        }
    }

    fn json(&self) -> Value {
        let subscriptions: Vec<Value> = self
            .subscriptions
            .iter()
            .map(|subscription| {
                let tags: Vec<&str> = subscription
                    .expression
                    .split("||")
                    .map(str::trim)
                    .filter(|tag| !tag.is_empty() && *tag != "*")
                    .collect();
                json!({"classFilterMode": false, "codeSet": [], "expressionType": "TAG",
                    "subString": subscription.expression, "subVersion": subscription.version,
                    "tagsSet": tags, "topic": subscription.topic})
            })
            .collect();
        json!({"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "consumeType": "CONSUME_PASSIVELY",
            "groupName": self.group, "messageModel": "CLUSTERING",
            "subscriptionDataSet": subscriptions, "unitMode": false})
    }
}

/// A queue as locks name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueRef {
    pub broker_name: String,
    pub queue_id: i32,
    pub topic: String,
}

/// A message given back for a later retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendBack {
    pub group: String,
    /// Position of the message in the commit log.
    pub position: i64,
    pub delay_level: i32,
    pub origin_topic: String,
    pub origin_id: String,
    pub max_reconsume_times: Option<i32>,
}

fn malformed(what: impl std::fmt::Display) -> WireError {
    WireError::Malformed(what.to_string())
}

fn offset_of(reply: &Frame) -> Result<i64, WireError> {
    reply
        .number("offset")
        .ok_or_else(|| malformed("no offset in the reply"))
}

fn queue_request(request: i32, topic: &str, queue: i32) -> Frame {
    Frame::request(request)
        .with("topic", topic)
        .with("queueId", queue)
}

impl Connection {
    /// Pulls; 19, 20 and 21 are answers, other codes are errors.
    pub async fn pull(&self, pull: &Pull) -> Result<Pulled, WireError> {
        let timeout = self.timeout() + pull.suspend.unwrap_or_default();
        let reply = self.request_within(pull.request(), timeout).await?;
        let reply = match reply.code {
            code::PULL_NOT_FOUND | code::PULL_RETRY | code::PULL_OFFSET_MOVED => reply,
            _ => success(reply)?,
        };
        let number = |name: &str| {
            reply
                .number(name)
                .ok_or_else(|| malformed(format!("no {name} in the answer to a pull")))
        };
        Ok(Pulled {
            code: reply.code,
            next: number("nextBeginOffset")?,
            min: number("minOffset")?,
            max: number("maxOffset")?,
            records: decode_records(reply.body.clone()).map_err(malformed)?,
        })
    }

    /// The offset that the queue's next message gets.
    pub async fn max_offset(&self, topic: &str, queue: i32) -> Result<i64, WireError> {
        let request = queue_request(code::MAX_OFFSET, topic, queue);
        offset_of(&self.call(request).await?)
    }

    pub async fn min_offset(&self, topic: &str, queue: i32) -> Result<i64, WireError> {
        let request = queue_request(code::MIN_OFFSET, topic, queue);
        offset_of(&self.call(request).await?)
    }

    /// The first offset stored at or after a wall clock time.
    pub async fn search_offset(
        &self,
        topic: &str,
        queue: i32,
        timestamp_ms: i64,
    ) -> Result<i64, WireError> {
        let request =
            queue_request(code::SEARCH_OFFSET, topic, queue).with("timestamp", timestamp_ms);
        offset_of(&self.call(request).await?)
    }

    /// The group's committed offset; `None` when it has none.
    pub async fn consumer_offset(
        &self,
        group: &str,
        topic: &str,
        queue: i32,
    ) -> Result<Option<i64>, WireError> {
        let request = queue_request(code::QUERY_OFFSET, topic, queue)
            .with("consumerGroup", group)
            .with("setZeroIfNotFound", false);
        let reply = self.request(request).await?;
        if reply.code == code::QUERY_NOT_FOUND {
            return Ok(None);
        }
        offset_of(&success(reply)?).map(Some)
    }

    /// Commits an offset and waits for the answer.
    pub async fn commit_offset(
        &self,
        group: &str,
        topic: &str,
        queue: i32,
        offset: i64,
    ) -> Result<(), WireError> {
        let request = queue_request(code::UPDATE_OFFSET, topic, queue)
            .with("consumerGroup", group)
            .with("commitOffset", offset);
        self.call(request).await.map(drop)
    }

    /// Tells the broker which groups this client is in.
    pub async fn heartbeat(
        &self,
        client: &str,
        producers: &[&str],
        consumers: &[Consumer],
    ) -> Result<(), WireError> {
        let body = json!({
            "clientID": client,
            "consumerDataSet": consumers.iter().map(Consumer::json).collect::<Vec<_>>(),
            "producerDataSet": producers.iter().map(|group| json!({"groupName": group})).collect::<Vec<_>>(),
            "heartbeatFingerprint": 0, "withoutSub": false,
        });
        let request = Frame::request(code::HEARTBEAT).with_body(body.to_string());
        self.call(request).await.map(drop)
    }

    pub async fn unregister(&self, client: &str, consumer_group: &str) -> Result<(), WireError> {
        let request = Frame::request(code::UNREGISTER)
            .with("clientID", client)
            .with("producerGroup", "")
            .with("consumerGroup", consumer_group);
        self.call(request).await.map(drop)
    }

    /// Client ids of a group's members, sorted; none when the broker knows nobody.
    pub async fn consumer_list(&self, group: &str) -> Result<Vec<String>, WireError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct List {
            consumer_id_list: Vec<String>,
        }
        let request = Frame::request(code::CONSUMER_LIST).with("consumerGroup", group);
        let reply = self.request(request).await?;
        if reply.code == code::SYSTEM_ERROR && reply.remark_text().starts_with("no consumer") {
            return Ok(Vec::new());
        }
        let list: List = serde_json::from_slice(&success(reply)?.body).map_err(malformed)?;
        let mut ids = list.consumer_id_list;
        ids.sort();
        Ok(ids)
    }

    pub async fn create_topic(&self, topic: &Topic) -> Result<(), WireError> {
        let request = Frame::request(code::CREATE_TOPIC)
            .with("topic", &topic.name)
            .with("defaultTopic", "TBW102")
            .with("readQueueNums", topic.read_queues)
            .with("writeQueueNums", topic.write_queues)
            .with("perm", topic.perm)
            .with("topicFilterType", "SINGLE_TAG")
            .with("topicSysFlag", 0)
            .with("order", false)
            .with("attributes", "");
        self.call(request).await.map(drop)
    }

    pub async fn delete_topic(&self, topic: &str) -> Result<(), WireError> {
        let request = Frame::request(code::DELETE_TOPIC).with("topic", topic);
        self.call(request).await.map(drop)
    }

    /// Locks queues for a client; returns those it now holds, sorted.
    pub async fn lock(
        &self,
        group: &str,
        client: &str,
        queues: &[QueueRef],
    ) -> Result<Vec<QueueRef>, WireError> {
        #[derive(Deserialize)]
        struct Locked {
            #[serde(rename = "lockOKMQSet")]
            queues: Vec<QueueRef>,
        }
        let reply = self
            .call(lock_request(code::LOCK, group, client, queues))
            .await?;
        let locked: Locked = serde_json::from_slice(&reply.body).map_err(malformed)?;
        let mut queues = locked.queues;
        queues.sort();
        Ok(queues)
    }

    pub async fn unlock(
        &self,
        group: &str,
        client: &str,
        queues: &[QueueRef],
    ) -> Result<(), WireError> {
        self.call(lock_request(code::UNLOCK, group, client, queues))
            .await
            .map(drop)
    }

    /// Gives a message back for a retry.
    pub async fn send_back(&self, back: &SendBack) -> Result<(), WireError> {
        let mut request = Frame::request(code::SEND_BACK)
            .with("offset", back.position)
            .with("group", &back.group)
            .with("delayLevel", back.delay_level)
            .with("originMsgId", &back.origin_id)
            .with("originTopic", &back.origin_topic)
            .with("unitMode", false);
        if let Some(times) = back.max_reconsume_times {
            request = request.with("maxReconsumeTimes", times);
        }
        self.call(request).await.map(drop)
    }

    /// The broker's table of named values.
    pub async fn runtime_info(&self) -> Result<BTreeMap<String, String>, WireError> {
        #[derive(Deserialize)]
        struct Info {
            table: BTreeMap<String, String>,
        }
        let reply = self.call(Frame::request(code::RUNTIME_INFO)).await?;
        let info: Info = serde_json::from_slice(&reply.body).map_err(malformed)?;
        Ok(info.table)
    }
}

fn lock_request(request: i32, group: &str, client: &str, queues: &[QueueRef]) -> Frame {
    let body = json!({"clientId": client, "consumerGroup": group, "mqSet": queues,
        "onlyThisBroker": false});
    Frame::request(request).with_body(body.to_string())
}
