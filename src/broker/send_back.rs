//! Consumers that give a message back: the retry topic, and the dead-letter topic after too many tries.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::forward::failure;
use super::proposer::WriteError;
use super::send_rules::{self as rules, Destination, Refused};
use super::{Broker, Request};
use crate::protocol::codes::response;
use crate::protocol::frame::Reply;
use crate::protocol::message::{
    NewRecord, Properties, Record, offset_message_id, property, push_property,
};
use crate::protocol::names;
use crate::protocol::request::SendBack;
use crate::store::{Command, GroupConfig, TopicConfig, UnitOutcome};

/// The level of a first retry when the client leaves it to the broker; each further one is a level higher.
const FIRST_RETRY_LEVEL: i32 = 3;
/// The first client version whose `maxReconsumeTimes` counts (RocketMQ 3.4.9).
const VERSION_WITH_MAX_RECONSUME: i32 = 121;

/// What becomes of a message that is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Retry { level: u32 },
    DeadLetter,
}

/// Decides by the tries so far and what the client asks for. `>=`, as RocketMQ here.
fn fate(tried: i32, max: i32, asked_level: i32, levels: usize) -> Fate {
    if tried >= max || asked_level < 0 {
        return Fate::DeadLetter;
    }
    let level = match asked_level {
        0 => FIRST_RETRY_LEVEL.saturating_add(tried.max(0)),
        asked => asked,
    };
    Fate::Retry {
        level: (level as u32).min(levels as u32),
    }
}

impl Broker {
    pub(super) fn on_send_back(self: &Arc<Self>, request: Request) {
        let Some(request) = self.claim(request) else {
            return;
        };
        let broker = self.clone();
        tokio::spawn(async move { broker.give_back(request).await });
    }

    async fn give_back(self: &Arc<Self>, request: Request) {
        let checked = match SendBack::read(&request.frame.header.ext) {
            Err(error) => Err((response::SYSTEM_ERROR, error.to_string())),
            Ok(back) => self
                .group_or_new(back.group)
                .map(|group| (group, back.offset)),
        };
        let (group, offset) = match checked {
            Ok(found) => found,
            Err((code, remark)) => return request.refuse(code, remark),
        };
        if group.retry_queues == 0 {
            // A group without retries: the message counts as consumed.
            let reply = Reply::new(response::SUCCESS, request.frame.header.opaque);
            return request.reply.send(reply);
        }
        match self.look_up(offset).await {
            Ok(message) => self.resubmit(request, &group, &message),
            Err((code, remark)) => request.refuse(code, remark),
        }
    }

    async fn look_up(self: &Arc<Self>, offset: i64) -> Result<Bytes, Refused> {
        let broker = self.clone();
        let read = self.group.env().writer.spawn_blocking(move || {
            let position = u64::try_from(offset).ok()?;
            Some(broker.store.message_at(position, broker.address()))
        });
        let why = match read.await {
            Ok(Some(Ok(Some(message)))) => return Ok(message),
            Ok(Some(Ok(None)) | None) => format!("look message by offset failed, {offset}"),
            Ok(Some(Err(error))) => format!("look message by offset failed, {offset}: {error}"),
            Err(error) => format!("look message by offset failed, {offset}: {error}"),
        };
        Err((response::SYSTEM_ERROR, why))
    }

    /// Stores the message once more, for its group's retry or dead-letter topic, and answers.
    fn resubmit(self: &Arc<Self>, request: Request, group: &GroupConfig, message: &[u8]) {
        let header = &request.frame.header;
        let parsed = SendBack::read(&header.ext)
            .map_err(|error| error.to_string())
            .and_then(|back| {
                let record = Record::parse(message).map_err(|error| error.to_string())?;
                Ok((back, record))
            });
        let (back, record) = match parsed {
            Ok(parsed) => parsed,
            Err(problem) => return request.refuse(response::SYSTEM_ERROR, problem),
        };
        let max = back
            .max_reconsume_times
            .filter(|_| header.version >= VERSION_WITH_MAX_RECONSUME)
            .unwrap_or(group.retry_max_times);
        let levels = self.config.delay_levels.len();
        let fate = fate(record.reconsume_times(), max, back.delay_level, levels);
        let mut ensure = SmallVec::new();
        let (topic, queue, level) = self.destination_of(group, fate, &mut ensure);
        let destination = Destination {
            topic: &topic,
            queue,
            level,
        };
        let origin_id = offset_message_id(self.address(), back.offset as u64);
        let properties = given_back_properties(&record, &origin_id, &destination);
        if let Err((code, remark)) = rules::check_properties(&properties) {
            return request.refuse(code, remark);
        }
        let (stored_topic, queue_id) = destination.stored_at();
        let again = NewRecord {
            topic: stored_topic,
            queue_id,
            flag: record.flag(),
            sys_flag: record.sys_flag(),
            born_ms: record.born_ms(),
            born_host: record.born_host(),
            store_ms: self.wall_ms(),
            store_host: self.address(),
            reconsume_times: record.reconsume_times().saturating_add(1),
            prepared_transaction_offset: 0,
            body: record.body(),
            properties: &properties,
        };
        let deadline = request.origin.deadline();
        self.ensure_first(&request.origin, &ensure);
        let broker = self.clone();
        self.proposer.submit(
            deadline,
            |entry| entry.push_send(std::slice::from_ref(&again), false),
            move |outcome| settle(&broker, request, outcome),
        );
    }

    fn destination_of(
        &self,
        group: &GroupConfig,
        fate: Fate,
        ensure: &mut SmallVec<[Command; 2]>,
    ) -> (String, i32, Option<u32>) {
        if self.store.group(&group.name).is_none() {
            ensure.push(Command::EnsureGroup(group.clone()));
        }
        match fate {
            Fate::DeadLetter => {
                let dlq = names::dlq_topic(&group.name);
                self.ensure_dlq(&dlq, ensure);
                (dlq, 0, None)
            }
            Fate::Retry { level } => {
                let retry = names::retry_topic(&group.name);
                let topic = self.store.topic(&retry).unwrap_or_else(|| {
                    let queues = group.retry_queues;
                    let topic = TopicConfig::plain(&retry, queues, rules::PERM_READ_WRITE);
                    ensure.push(Command::EnsureTopic(topic.clone()));
                    topic
                });
                (
                    retry,
                    self.next_queue(topic.write_queues),
                    (level > 0).then_some(level),
                )
            }
        }
    }
}

fn settle(broker: &Arc<Broker>, request: Request, outcome: Result<UnitOutcome, WriteError>) {
    let opaque = request.frame.header.opaque;
    let reply = match outcome {
        Ok(UnitOutcome::Stored { .. }) => Reply::new(response::SUCCESS, opaque),
        Ok(_) => Reply::new(response::SYSTEM_ERROR, opaque)
            .with_remark("the retry topic was deleted meanwhile"),
        Err(WriteError::NotLeader { .. }) => {
            return broker.pass_to_leader(request, super::REPLY_WITHIN);
        }
        Err(error) => failure(opaque, &error),
    };
    request.reply.send(reply);
}

/// The properties of a message that is given back: its own, where it came from, and where it goes.
fn given_back_properties(
    record: &Record<'_>,
    origin_id: &str,
    destination: &Destination<'_>,
) -> Vec<u8> {
    let old: Properties<'_> = record.properties();
    let mut out = Vec::with_capacity(512);
    for (name, value) in old.iter() {
        if !matches!(
            name,
            property::DELAY
                | property::REAL_TOPIC
                | property::REAL_QID
                | property::WAIT
                | property::RETRY_TOPIC
                | property::ORIGIN_MESSAGE_ID
                | property::DLQ_ORIGIN_TOPIC
                | property::DLQ_ORIGIN_MESSAGE_ID
        ) {
            push_property(&mut out, name, value);
        }
    }
    let origin_topic = old.value(property::RETRY_TOPIC).unwrap_or(record.topic());
    let origin_id = old.value(property::ORIGIN_MESSAGE_ID).unwrap_or(origin_id);
    push_property(&mut out, property::RETRY_TOPIC, origin_topic);
    push_property(&mut out, property::ORIGIN_MESSAGE_ID, origin_id);
    push_property(&mut out, property::WAIT, "false");
    if names::is_dlq_topic(destination.topic) {
        push_property(&mut out, property::DLQ_ORIGIN_TOPIC, origin_topic);
        push_property(&mut out, property::DLQ_ORIGIN_MESSAGE_ID, origin_id);
    }
    rules::push_delay(&mut out, destination);
    out
}

#[cfg(test)]
#[path = "send_back_tests.rs"]
mod tests;
