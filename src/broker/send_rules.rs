//! What a message must be to be stored, and what it is stored as. Decisions only: no state, no I/O.

use std::time::Duration;

use quorumlog_raft::NodeId;

use super::proposer::UNIT_BYTES_MAX;
use crate::config::Config;
use crate::protocol::codes::response;
use crate::protocol::message::{
    BatchItem, NewRecord, PROPERTIES_BYTES_MAX, Properties, SYS_FLAG_TRANSACTION_MASK, property,
    push_property,
};
use crate::protocol::names;
use crate::protocol::request::Send;
use crate::store::entry::RECORD_PREFIX_BYTES;
use crate::store::{GroupConfig, TopicConfig};

/// `sysFlag` bits of a half message.
const TRANSACTION_PREPARED: i32 = 1 << 2;
/// The first client version whose `maxReconsumeTimes` counts (RocketMQ 3.4.9).
const VERSION_WITH_MAX_RECONSUME: i32 = 121;
/// Topics made by a send have no more queues than this, whatever the request says.
const QUEUES_MAX: u32 = 1024;

pub const PERM_INHERIT: u32 = 1;
pub const PERM_READ_WRITE: u32 = 6;
pub const REGION: &str = "DefaultRegion";

/// Why a message is not stored: a response code and its remark.
pub type Refused = (i32, String);

/// Checks the topic's name and kind.
pub fn check_topic(topic: &str) -> Result<(), Refused> {
    if let Err(problem) = names::check_topic(topic) {
        return Err((response::INVALID_PARAMETER, problem.to_string()));
    }
    if names::is_not_sendable(topic) {
        return Err((response::NO_PERMISSION, names::forbidden_remark(topic)));
    }
    Ok(())
}

/// The topic that a first send makes (remoting-protocol 6.1), or why it does not. `template` is the request's
/// default topic, as it is here; `group` the consumer group that a retry topic belongs to.
pub fn topic_to_make(
    send: &Send<'_>,
    template: Option<&TopicConfig>,
    group: Option<&GroupConfig>,
    auto_create: bool,
) -> Result<TopicConfig, Refused> {
    let (queues, perm) = if names::is_retry_topic(send.topic) {
        (group.map_or(1, |group| group.retry_queues), PERM_READ_WRITE)
    } else {
        let template = template
            .filter(|template| auto_create && template.perm & PERM_INHERIT != 0)
            .ok_or_else(|| {
                let remark = format!("topic[{}] not exist, apply first please!", send.topic);
                (response::TOPIC_NOT_EXIST, remark)
            })?;
        let asked = u32::try_from(send.default_topic_queue_nums).unwrap_or(0);
        (
            asked.min(template.write_queues),
            template.perm & !PERM_INHERIT,
        )
    };
    Ok(TopicConfig::plain(
        send.topic,
        queues.clamp(1, QUEUES_MAX),
        perm,
    ))
}

/// The template of new topics by its name, as the configuration says it is.
pub fn template(name: &str, config: &Config) -> Option<TopicConfig> {
    let perm = PERM_READ_WRITE | PERM_INHERIT;
    (name == names::AUTO_CREATE_TOPIC && config.auto_create_topic)
        .then(|| TopicConfig::plain(name, config.default_topic_queues, perm))
}

/// Which queue a send means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueChoice {
    Queue(i32),
    /// The client leaves it to the broker.
    Any,
    Illegal,
}

/// Resolves the queue id of a request. A write front shows one queue, 0, which stands for a queue of the
/// topic that depends on the node the front belongs to, so that the fronts of a group spread over the queues.
pub fn choose_queue(asked: i32, front: Option<NodeId>, topic: &TopicConfig) -> QueueChoice {
    if asked < 0 {
        return QueueChoice::Any;
    }
    if let (0, Some(node)) = (asked, front) {
        let queues = u64::from(topic.write_queues.max(1));
        return QueueChoice::Queue((node.saturating_sub(1) % queues) as i32);
    }
    if asked as u32 >= topic.read_queues.max(topic.write_queues) {
        return QueueChoice::Illegal;
    }
    QueueChoice::Queue(asked)
}

/// Whether a message sent to a retry topic has been tried too often and goes to the dead-letter topic.
/// Strictly more than the limit: RocketMQ compares so here, and with `>=` when a consumer sends back.
pub fn is_exhausted(send: &Send<'_>, client_version: i32, group: &GroupConfig) -> bool {
    let max = send
        .max_reconsume_times
        .filter(|_| client_version >= VERSION_WITH_MAX_RECONSUME)
        .unwrap_or(group.retry_max_times);
    send.reconsume_times > max
}

/// What a scan of the client's properties finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned<'a> {
    pub unique_key: Option<&'a str>,
    pub delay: Option<&'a str>,
    pub timer: Option<&'a str>,
    pub transaction: bool,
}

pub fn scan(properties: &str) -> Scanned<'_> {
    let mut found = Scanned::default();
    for (name, value) in Properties(properties.as_bytes()).iter() {
        match name {
            property::UNIQ_KEY => found.unique_key = Some(value),
            property::DELAY => found.delay = Some(value),
            property::TRAN_MSG => found.transaction = value.eq_ignore_ascii_case("true"),
            property::TIMER_DELIVER_MS | property::TIMER_DELAY_SEC | property::TIMER_DELAY_MS => {
                found.timer = Some(name)
            }
            _ => {}
        }
    }
    found
}

/// The delay level that a DELAY property asks for: `None` for none, else 1 to the highest there is.
pub fn delay_level(delay: Option<&str>, levels: &[Duration]) -> Result<Option<u32>, Refused> {
    let Some(text) = delay else { return Ok(None) };
    let level: i64 = text.trim().parse().map_err(|_| {
        let remark = format!("the property DELAY must be a number, but is {text:?}");
        (response::MESSAGE_ILLEGAL, remark)
    })?;
    let highest = levels.len() as i64;
    Ok((level > 0 && highest > 0).then(|| level.min(highest) as u32))
}

/// Refuses kinds of messages that are not supported: to store them as ordinary ones would show them too early.
pub fn check_kind(
    found: &Scanned<'_>,
    sys_flag: i32,
    reconsume_times: i32,
    level: Option<u32>,
) -> Result<(), Refused> {
    let half = found.transaction && !(reconsume_times > 0 && level.is_some());
    if half || sys_flag & SYS_FLAG_TRANSACTION_MASK == TRANSACTION_PREPARED {
        return Err((
            response::NO_PERMISSION,
            "transactional messages are not supported yet".to_string(),
        ));
    }
    match found.timer {
        Some(name) if level.is_none() => Err((
            response::MESSAGE_ILLEGAL,
            format!("timer messages ({name}) are not supported yet; delay levels (DELAY) are"),
        )),
        _ => Ok(()),
    }
}

/// Checks a body against `max` bytes (`maxMessageSize`).
pub fn check_body(body: &[u8], max: usize) -> Result<(), Refused> {
    let remark = match body.len() {
        0 => "the message is illegal: its body is empty".to_string(),
        len if len > max => {
            format!("the message is illegal: msg body length limit {max}B, but it has {len}B")
        }
        _ => return Ok(()),
    };
    Err((response::MESSAGE_ILLEGAL, remark))
}

/// Checks a properties text, of a client or as it would be stored.
pub fn check_properties(properties: &[u8]) -> Result<(), Refused> {
    if properties.len() <= PROPERTIES_BYTES_MAX {
        return Ok(());
    }
    let remark = format!(
        "the message is illegal: msg properties length limit {PROPERTIES_BYTES_MAX}B, but they have {}B",
        properties.len()
    );
    Err((response::MESSAGE_ILLEGAL, remark))
}

/// Checks the messages of a batch, which is split already.
pub fn check_batch(topic: &str, items: &[BatchItem<'_>], max: usize) -> Result<(), Refused> {
    if names::is_retry_topic(topic) {
        let remark = format!("batch request does not support retry group {topic}");
        return Err((response::MESSAGE_ILLEGAL, remark));
    }
    if topic.len() > names::TOPIC_CHARS_MAX {
        let remark = format!(
            "batch request does not support a topic of {} bytes",
            topic.len()
        );
        return Err((response::MESSAGE_ILLEGAL, remark));
    }
    for item in items {
        check_body(item.body, max)?;
        check_properties(item.properties)?;
    }
    Ok(())
}

/// Checks what the messages of a batch take in the log: many small ones take far more than their bodies.
pub fn check_stored_bytes(records: &[NewRecord<'_>]) -> Result<(), Refused> {
    let of = |record: &NewRecord<'_>| record.encoded_len() + RECORD_PREFIX_BYTES;
    let bytes: usize = records.iter().map(of).sum();
    if bytes <= UNIT_BYTES_MAX {
        return Ok(());
    }
    let remark = format!(
        "the batch is illegal: its {} messages take {bytes}B in the log, limit {UNIT_BYTES_MAX}B",
        records.len()
    );
    Err((response::MESSAGE_ILLEGAL, remark))
}

/// Where a message is stored, if that is not where it was sent.
pub struct Destination<'a> {
    pub topic: &'a str,
    pub queue: i32,
    /// The delay level that it waits in first.
    pub level: Option<u32>,
}

/// The properties that are stored: the client's, what the broker adds, and the real destination of a delayed
/// message. `clear_delay`: it is not delayed, whatever its property says.
pub fn stored_properties(
    properties: &str,
    unique_key: &str,
    cluster: &str,
    destination: &Destination<'_>,
    clear_delay: bool,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(properties.len() + 160);
    let delayed = destination.level.is_some();
    for (name, value) in Properties(properties.as_bytes()).iter() {
        let replaced = match name {
            property::POP_CK
            | property::MSG_REGION
            | property::TRACE_ON
            | property::CLUSTER
            | property::UNIQ_KEY => true,
            property::DELAY => delayed || clear_delay,
            property::REAL_TOPIC | property::REAL_QID => delayed,
            _ => false,
        };
        if !replaced {
            push_property(&mut out, name, value);
        }
    }
    push_property(&mut out, property::UNIQ_KEY, unique_key);
    push_property(&mut out, property::MSG_REGION, REGION);
    push_property(&mut out, property::CLUSTER, cluster);
    push_property(&mut out, property::TRACE_ON, "true");
    push_delay(&mut out, destination);
    out
}

/// Appends what a delayed message needs to find its way.
pub fn push_delay(out: &mut Vec<u8>, destination: &Destination<'_>) {
    if let Some(level) = destination.level {
        push_property(out, property::DELAY, &level.to_string());
        push_property(out, property::REAL_TOPIC, destination.topic);
        push_property(out, property::REAL_QID, &destination.queue.to_string());
    }
}

impl<'a> Destination<'a> {
    /// Topic and queue of the record: the real ones, or those of the delay level.
    pub fn stored_at(&self) -> (&'a str, i32) {
        match self.level {
            Some(level) => (names::SCHEDULE_TOPIC, level as i32 - 1),
            None => (self.topic, self.queue),
        }
    }
}

/// Whether a retry of the same send is to be recognised. Retry, dead-letter and delayed messages keep the
/// key of the message they came from, so for them an equal key does not mean an equal send.
pub fn deduplicates(destination: &Destination<'_>, config: &Config) -> bool {
    config.deduplicate
        && destination.level.is_none()
        && !names::is_retry_topic(destination.topic)
        && !names::is_dlq_topic(destination.topic)
}

#[cfg(test)]
#[path = "send_rules_tests.rs"]
mod tests;
