//! The fields of each request, read from a header's ext fields.
//!
//! A field is an error when it is unreadable, or when it is missing and RocketMQ 5.5 fails without it;
//! otherwise a missing one takes RocketMQ's default. Fields that nobody here uses are not looked at.

use super::codes::request::SEND_BATCH_MESSAGE;
use super::header::{Ext, FieldError, FieldValue, Header};

/// SEND_MESSAGE 10, SEND_MESSAGE_V2 310, SEND_BATCH_MESSAGE 320: V1 names or one-letter names, whichever
/// are there.
#[derive(Clone, Debug)]
pub struct Send<'a> {
    /// Empty when missing.
    pub producer_group: &'a str,
    /// Empty when missing: answered as a blank topic, as RocketMQ does.
    pub topic: &'a str,
    /// Empty when missing.
    pub default_topic: &'a str,
    /// 4 when missing, the clients' own default.
    pub default_topic_queue_nums: i32,
    pub queue_id: i32,
    pub sys_flag: i32,
    pub born_ms: i64,
    pub flag: i32,
    pub properties: &'a str,
    pub reconsume_times: i32,
    pub max_reconsume_times: Option<i32>,
    /// By the request code or by the field.
    pub batch: bool,
    /// The broker name that the client means, where it says so.
    pub broker_name: Option<&'a str>,
}

/// PULL_MESSAGE 11.
#[derive(Clone, Debug)]
pub struct Pull<'a> {
    pub consumer_group: &'a str,
    pub topic: &'a str,
    pub queue_id: i32,
    pub queue_offset: i64,
    pub max_msg_nums: i32,
    pub sys_flag: i32,
    /// -1, which commits nothing, when missing.
    pub commit_offset: i64,
    /// How long the client lets the pull be held, ms; 0 when missing.
    pub suspend_timeout_ms: i64,
    pub sub_version: i64,
    pub subscription: Option<&'a str>,
    pub expression_type: Option<&'a str>,
    pub max_msg_bytes: Option<i64>,
}

pub const PULL_COMMIT_OFFSET: i32 = 1;
pub const PULL_SUSPEND: i32 = 1 << 1;
pub const PULL_SUBSCRIPTION: i32 = 1 << 2;

/// Requests that name one queue of a topic (14, 15, 29, 30, 31, 32), with the fields that some add.
#[derive(Clone, Debug)]
pub struct QueueRequest<'a> {
    /// Empty where the request has none (29-32).
    pub consumer_group: &'a str,
    pub topic: &'a str,
    pub queue_id: i32,
    pub commit_offset: Option<i64>,
    /// Ms since the epoch.
    pub timestamp: Option<i64>,
    pub set_zero_if_not_found: Option<bool>,
    pub boundary_upper: bool,
}

/// UPDATE_AND_CREATE_TOPIC 17.
#[derive(Clone, Debug)]
pub struct CreateTopic<'a> {
    /// Empty when missing: answered as a blank topic.
    pub topic: &'a str,
    pub read_queue_nums: i32,
    pub write_queue_nums: i32,
    pub perm: i32,
    pub topic_sys_flag: i32,
    pub order: bool,
    /// `topicFilterType` MULTI_TAG: messages of the topic carry [`SYS_FLAG_MULTI_TAGS`].
    ///
    /// [`SYS_FLAG_MULTI_TAGS`]: super::message::SYS_FLAG_MULTI_TAGS
    pub multi_tag: bool,
    pub attributes: &'a str,
}

/// CONSUMER_SEND_MSG_BACK 36.
#[derive(Clone, Debug)]
pub struct SendBack<'a> {
    pub group: &'a str,
    /// Position of the message (the physical offset in its id).
    pub offset: i64,
    /// 0: the server decides; negative: to the dead letters at once.
    pub delay_level: i32,
    pub origin_msg_id: Option<&'a str>,
    pub origin_topic: Option<&'a str>,
    pub max_reconsume_times: Option<i32>,
}

/// UNREGISTER_CLIENT 35; empty group names are absent ones (C++).
#[derive(Clone, Debug)]
pub struct Unregister<'a> {
    /// Empty when missing.
    pub client_id: &'a str,
    pub producer_group: Option<&'a str>,
    pub consumer_group: Option<&'a str>,
}

/// Fields of a send by their place in RocketMQ's list; a place is also a letter of the short form.
mod place {
    pub const PRODUCER_GROUP: usize = 0;
    pub const TOPIC: usize = 1;
    pub const DEFAULT_TOPIC: usize = 2;
    pub const DEFAULT_TOPIC_QUEUE_NUMS: usize = 3;
    pub const QUEUE_ID: usize = 4;
    pub const SYS_FLAG: usize = 5;
    pub const BORN_TIMESTAMP: usize = 6;
    pub const FLAG: usize = 7;
    pub const PROPERTIES: usize = 8;
    pub const RECONSUME_TIMES: usize = 9;
    pub const MAX_RECONSUME_TIMES: usize = 11;
    pub const BATCH: usize = 12;
    pub const BROKER_NAME: usize = 13;
    pub const COUNT: usize = 14;

    /// Place of a field by its one letter.
    pub fn of_letter(name: &[u8]) -> Option<usize> {
        match name {
            [letter @ b'a'..=b'n'] => Some(usize::from(letter - b'a')),
            _ => None,
        }
    }

    /// Place of a field by its whole name.
    pub fn of_name(name: &[u8]) -> Option<usize> {
        Some(match name {
            b"producerGroup" => PRODUCER_GROUP,
            b"topic" => TOPIC,
            b"defaultTopic" => DEFAULT_TOPIC,
            b"defaultTopicQueueNums" => DEFAULT_TOPIC_QUEUE_NUMS,
            b"queueId" => QUEUE_ID,
            b"sysFlag" => SYS_FLAG,
            b"bornTimestamp" => BORN_TIMESTAMP,
            b"flag" => FLAG,
            b"properties" => PROPERTIES,
            b"reconsumeTimes" => RECONSUME_TIMES,
            b"maxReconsumeTimes" => MAX_RECONSUME_TIMES,
            b"batch" => BATCH,
            b"bname" => BROKER_NAME,
            _ => return None,
        })
    }
}

/// The fields of a send, found in one pass.
struct SendFields<'a>([Option<FieldValue<'a>>; place::COUNT]);

impl<'a> SendFields<'a> {
    /// The letters' fields when there is a group or topic by letter, else the whole names'.
    fn find(ext: &'a Ext) -> SendFields<'a> {
        let mut by_letter = [None; place::COUNT];
        let mut by_name = [None; place::COUNT];
        for (name, value) in ext.raw_fields() {
            if let Some(place) = place::of_letter(name) {
                by_letter[place] = Some(value);
            } else if let Some(place) = place::of_name(name) {
                by_name[place] = Some(value);
            }
        }
        let lettered =
            by_letter[place::PRODUCER_GROUP].is_some() || by_letter[place::TOPIC].is_some();
        SendFields(if lettered { by_letter } else { by_name })
    }

    fn text(&self, place: usize) -> Option<&'a str> {
        self.0[place].map(FieldValue::text)
    }

    fn i32(&self, place: usize, name: &'static str) -> Result<Option<i32>, FieldError> {
        self.0[place].map(|value| value.i32(name)).transpose()
    }

    fn required_i32(&self, place: usize, name: &'static str) -> Result<i32, FieldError> {
        self.i32(place, name)?.ok_or(FieldError::Missing(name))
    }
}

impl<'a> Send<'a> {
    pub fn read(header: &'a Header) -> Result<Send<'a>, FieldError> {
        let fields = SendFields::find(&header.ext);
        let born_ms =
            fields.0[place::BORN_TIMESTAMP].ok_or(FieldError::Missing("bornTimestamp"))?;
        let batch = match fields.0[place::BATCH] {
            Some(value) => value.bool("batch")?,
            None => false,
        };
        Ok(Send {
            producer_group: fields.text(place::PRODUCER_GROUP).unwrap_or_default(),
            topic: fields.text(place::TOPIC).unwrap_or_default(),
            default_topic: fields.text(place::DEFAULT_TOPIC).unwrap_or_default(),
            default_topic_queue_nums: fields
                .i32(place::DEFAULT_TOPIC_QUEUE_NUMS, "defaultTopicQueueNums")?
                .unwrap_or(4),
            queue_id: fields.required_i32(place::QUEUE_ID, "queueId")?,
            sys_flag: fields.required_i32(place::SYS_FLAG, "sysFlag")?,
            born_ms: born_ms.i64("bornTimestamp")?,
            flag: fields.i32(place::FLAG, "flag")?.unwrap_or(0),
            properties: fields.text(place::PROPERTIES).unwrap_or_default(),
            reconsume_times: fields
                .i32(place::RECONSUME_TIMES, "reconsumeTimes")?
                .unwrap_or(0),
            max_reconsume_times: fields.i32(place::MAX_RECONSUME_TIMES, "maxReconsumeTimes")?,
            batch: batch || header.code == SEND_BATCH_MESSAGE,
            broker_name: fields.text(place::BROKER_NAME),
        })
    }
}

impl<'a> Pull<'a> {
    pub fn read(ext: &'a Ext) -> Result<Pull<'a>, FieldError> {
        Ok(Pull {
            consumer_group: ext.required("consumerGroup")?,
            topic: ext.required("topic")?,
            queue_id: ext.required_i32("queueId")?,
            queue_offset: ext.required_i64("queueOffset")?,
            max_msg_nums: ext.required_i32("maxMsgNums")?,
            sys_flag: ext.required_i32("sysFlag")?,
            commit_offset: ext.i64("commitOffset")?.unwrap_or(-1),
            suspend_timeout_ms: ext.i64("suspendTimeoutMillis")?.unwrap_or(0),
            sub_version: ext.i64("subVersion")?.unwrap_or(0),
            subscription: ext.text("subscription"),
            expression_type: ext.text("expressionType"),
            max_msg_bytes: ext.i64("maxMsgBytes")?,
        })
    }
}

impl<'a> QueueRequest<'a> {
    /// `group`: whether a consumer group is a field of this request.
    pub fn read(ext: &'a Ext, group: bool) -> Result<QueueRequest<'a>, FieldError> {
        let boundary = ext.text("boundaryType").unwrap_or_default();
        Ok(QueueRequest {
            consumer_group: if group {
                ext.required("consumerGroup")?
            } else {
                ""
            },
            topic: ext.required("topic")?,
            queue_id: ext.required_i32("queueId")?,
            commit_offset: ext.i64("commitOffset")?,
            timestamp: ext.i64("timestamp")?,
            set_zero_if_not_found: ext.bool("setZeroIfNotFound")?,
            boundary_upper: boundary.eq_ignore_ascii_case("upper"),
        })
    }
}

impl<'a> CreateTopic<'a> {
    pub fn read(ext: &'a Ext) -> Result<CreateTopic<'a>, FieldError> {
        let multi_tag = match ext.text("topicFilterType") {
            None | Some("SINGLE_TAG") => false,
            Some("MULTI_TAG") => true,
            Some(other) => {
                let wanted = "topic filter type";
                return Err(FieldError::unreadable("topicFilterType", wanted, other));
            }
        };
        Ok(CreateTopic {
            topic: ext.text("topic").unwrap_or_default(),
            read_queue_nums: ext.required_i32("readQueueNums")?,
            write_queue_nums: ext.required_i32("writeQueueNums")?,
            perm: ext.required_i32("perm")?,
            topic_sys_flag: ext.i32("topicSysFlag")?.unwrap_or(0),
            order: ext.bool("order")?.unwrap_or(false),
            multi_tag,
            attributes: ext.text("attributes").unwrap_or_default(),
        })
    }
}

impl<'a> SendBack<'a> {
    pub fn read(ext: &'a Ext) -> Result<SendBack<'a>, FieldError> {
        Ok(SendBack {
            group: ext.required("group")?,
            offset: ext.required_i64("offset")?,
            delay_level: ext.required_i32("delayLevel")?,
            origin_msg_id: ext.text("originMsgId"),
            origin_topic: ext.text("originTopic"),
            max_reconsume_times: ext.i32("maxReconsumeTimes")?,
        })
    }
}

impl<'a> Unregister<'a> {
    /// RocketMQ answers this request with success whatever is in it, so there is nothing to refuse.
    pub fn read(ext: &'a Ext) -> Result<Unregister<'a>, FieldError> {
        let group = |name| ext.text(name).filter(|group| !group.is_empty());
        Ok(Unregister {
            client_id: ext.text("clientID").unwrap_or_default(),
            producer_group: group("producerGroup"),
            consumer_group: group("consumerGroup"),
        })
    }
}

#[cfg(test)]
mod tests;
