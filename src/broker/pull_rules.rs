//! What a pull must be, what it gets, and what a read becomes as an answer. Decisions only, and RocketMQ's
//! words for them.

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;

use super::hold::HOLD_MAX;
use crate::protocol::codes::response;
use crate::protocol::frame::Reply;
use crate::protocol::request::{PULL_SUSPEND, Pull};
use crate::store::{GroupConfig, ReadLimits, ReadOutcome, TopicConfig};

/// Messages that one pull may ask for.
const MESSAGES_MAX: i32 = 1024;
/// Bytes of messages in a reply: what the pull asks for within these bounds, the lower one when it asks for
/// nothing. A single message may be larger.
const REPLY_BYTES_MIN: i64 = 256 * 1024;
const REPLY_BYTES_MAX: i64 = 4 * 1024 * 1024;
const PERM_READ: u32 = 4;
/// Longest part of a name that a remark quotes, bytes.
const QUOTED_BYTES_MAX: usize = 512;

/// A pull that is refused, in RocketMQ's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRefusal {
    pub code: i32,
    pub remark: String,
    /// `forbiddenType` of a code 16: 2 the group, 3 the topic, 4 broadcasting.
    pub forbidden: Option<i32>,
}

impl PullRefusal {
    pub fn new(code: i32, remark: String) -> PullRefusal {
        PullRefusal {
            code,
            remark,
            forbidden: None,
        }
    }

    pub fn reply(self, opaque: i32) -> Reply {
        let reply = Reply::new(self.code, opaque).with_remark(self.remark);
        match self.forbidden {
            Some(what) => reply.with("forbiddenType", what),
            None => reply,
        }
    }
}

/// A pull's answer before it becomes a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullAnswer {
    pub code: i32,
    /// RocketMQ's name of the store's status.
    pub remark: &'static str,
    pub next: i64,
    pub min: i64,
    pub max: i64,
    pub records: Bytes,
}

impl PullAnswer {
    pub fn reply(self, opaque: i32, topic_sys_flag: i32) -> Reply {
        Reply::new(self.code, opaque)
            .with_remark(self.remark)
            .with("suggestWhichBrokerId", 0)
            .with("nextBeginOffset", self.next)
            .with("minOffset", self.min)
            .with("maxOffset", self.max)
            .with("topicSysFlag", topic_sys_flag)
            .with("groupSysFlag", 0)
            .with_body(self.records)
    }
}

/// RocketMQ's reply to what a read found from `from` on (remoting-protocol 3.8).
pub fn answer(outcome: ReadOutcome, from: i64) -> PullAnswer {
    let nothing = |code, remark, next, min, max| PullAnswer {
        code,
        remark,
        next,
        min,
        max,
        records: Bytes::new(),
    };
    let not_found = response::PULL_NOT_FOUND;
    let moved = response::PULL_OFFSET_MOVED;
    match outcome {
        ReadOutcome::Found {
            records,
            next,
            min,
            max,
            ..
        } => PullAnswer {
            code: response::SUCCESS,
            remark: "FOUND",
            next,
            min,
            max,
            records,
        },
        ReadOutcome::NoneMatched { next, min, max } => {
            let code = response::PULL_RETRY_IMMEDIATELY;
            nothing(code, "NO_MATCHED_MESSAGE", next, min, max)
        }
        ReadOutcome::AtEnd { max: 0, .. } => nothing(not_found, "NO_MESSAGE_IN_QUEUE", 0, 0, 0),
        ReadOutcome::AtEnd { min, max } => nothing(not_found, "OFFSET_OVERFLOW_ONE", max, min, max),
        ReadOutcome::Empty if from == 0 => nothing(not_found, "NO_MESSAGE_IN_QUEUE", 0, 0, 0),
        ReadOutcome::Empty => nothing(moved, "NO_MESSAGE_IN_QUEUE", 0, 0, 0),
        ReadOutcome::OutOfRange { min, max } if from < min => {
            nothing(moved, "OFFSET_TOO_SMALL", min, min, max)
        }
        ReadOutcome::OutOfRange { min, max } => {
            nothing(moved, "OFFSET_OVERFLOW_BADLY", max, min, max)
        }
        // Callers read again instead; a client that gets this does the same.
        ReadOutcome::WouldBlock => nothing(
            response::PULL_RETRY_IMMEDIATELY,
            "MESSAGE_NOT_IN_MEMORY",
            from,
            0,
            0,
        ),
    }
}

/// The checks before the filter, in RocketMQ's order.
pub fn check(
    pull: &Pull<'_>,
    group: Option<GroupConfig>,
    topic: Option<TopicConfig>,
    peer: &dyn Display,
) -> Result<(GroupConfig, TopicConfig), PullRefusal> {
    let group_name = quoted(pull.consumer_group);
    let topic_name = quoted(pull.topic);
    let Some(group) = group else {
        let remark = format!("subscription group [{group_name}] does not exist");
        return Err(PullRefusal::new(
            response::SUBSCRIPTION_GROUP_NOT_EXIST,
            remark,
        ));
    };
    if !group.consume_enable {
        return Err(PullRefusal {
            code: response::NO_PERMISSION,
            remark: format!("subscription group no permission, {group_name}"),
            forbidden: Some(2),
        });
    }
    let Some(topic) = topic else {
        let remark = format!("topic[{topic_name}] not exist, apply first please!");
        return Err(PullRefusal::new(response::TOPIC_NOT_EXIST, remark));
    };
    if topic.perm & PERM_READ == 0 {
        return Err(PullRefusal {
            code: response::NO_PERMISSION,
            remark: format!("the topic[{topic_name}] pulling message is forbidden"),
            forbidden: Some(3),
        });
    }
    if u32::try_from(pull.queue_id).is_ok_and(|queue| queue < topic.read_queues) {
        return Ok((group, topic));
    }
    let remark = format!(
        "queueId[{}] is illegal, topic:[{topic_name}] topicConfig.readQueueNums:[{}] consumer:[/{peer}]",
        pull.queue_id, topic.read_queues
    );
    Err(PullRefusal::new(response::INVALID_PARAMETER, remark))
}

/// A name as remarks quote it: the start of it, if it is longer than any that is allowed.
pub fn quoted(name: &str) -> &str {
    let end = name.floor_char_boundary(QUOTED_BYTES_MAX);
    &name[..end]
}

/// How much a pull gets. 0 and less messages are one (the Go pull consumer).
pub fn limits(pull: &Pull<'_>) -> ReadLimits {
    let bytes = pull.max_msg_bytes.unwrap_or(REPLY_BYTES_MIN);
    ReadLimits {
        messages_max: pull.max_msg_nums.clamp(1, MESSAGES_MAX) as usize,
        bytes_max: bytes.clamp(REPLY_BYTES_MIN, REPLY_BYTES_MAX) as usize,
    }
}

/// How long a pull may be held; `None` when it wants its answer at once.
pub fn hold_time(pull: &Pull<'_>) -> Option<Duration> {
    let wanted = u64::try_from(pull.suspend_timeout_ms)
        .ok()
        .filter(|&ms| ms > 0)?;
    (pull.sys_flag & PULL_SUSPEND != 0).then(|| Duration::from_millis(wanted).min(HOLD_MAX))
}

#[cfg(test)]
#[path = "pull_rules_tests.rs"]
mod tests;
