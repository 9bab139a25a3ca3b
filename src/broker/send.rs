//! Sends: one message, a batch, and what a message must be to be stored.
//!
//! The decisions are in `send_rules`; here they are put in RocketMQ's order, and the message is handed to the
//! proposer and its outcome to the client.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::proposer::WriteError;
use super::send_rules::{self as rules, Destination, QueueChoice, Refused};
use super::{Broker, Origin, Request};
use crate::net::connection::ReplyTo;
use crate::protocol::codes::response;
use crate::protocol::frame::{Frame, Reply};
use crate::protocol::message::{
    NewRecord, Record, new_unique_key, offset_message_id, property, split_batch,
};
use crate::protocol::names;
use crate::protocol::request::Send;
use crate::store::entry::RECORD_PREFIX_BYTES;
use crate::store::{Command, GroupConfig, TopicConfig, UnitOutcome};

/// Adds what clients expect in every reply to a send, errors included.
pub(super) fn with_region(reply: Reply) -> Reply {
    reply
        .with(property::MSG_REGION, rules::REGION)
        .with(property::TRACE_ON, "true")
}

/// Where the messages of a send go.
struct Target<'a> {
    topic: Cow<'a, str>,
    queue: i32,
    /// It was tried too often and is not to be delayed again.
    given_up: bool,
    /// What must exist first.
    ensure: SmallVec<[Command; 2]>,
}

/// The messages of a send, ready to be stored.
struct Messages<'a> {
    records: SmallVec<[NewRecord<'a>; 1]>,
    deduplicate: bool,
    transaction_id: Option<String>,
}

/// What is needed to answer a send once its outcome is known.
struct Pending {
    broker: Arc<Broker>,
    origin: Origin,
    reply: ReplyTo,
    opaque: i32,
    /// The client's frame, to pass it on if this node loses its lead before the message is proposed.
    raw: Bytes,
    topic: String,
    /// The queue that the client was told of: a delayed message's place in its level is none of its business.
    queue: i32,
    transaction_id: Option<String>,
    /// Bytes of each record but the last.
    lengths: SmallVec<[u32; 1]>,
}

impl Broker {
    pub(super) fn on_send(self: &Arc<Self>, request: Request) {
        let Some(request) = self.claim(request) else {
            return;
        };
        let Request {
            frame,
            origin,
            reply,
        } = request;
        let checked = match Send::read(&frame.header) {
            Ok(send) => match self.target(&send, frame.header.version, &origin) {
                Ok(target) if send.batch => self.send_batch(&send, &frame, &origin, target, reply),
                Ok(target) => self.send_one(&send, &frame, &origin, target, reply),
                Err(refused) => Err((reply, refused)),
            },
            Err(error) => Err((reply, (response::SYSTEM_ERROR, error.to_string()))),
        };
        if let Err((reply, (code, remark))) = checked {
            let refusal = Reply::new(code, frame.header.opaque).with_remark(remark);
            reply.send(with_region(refusal));
        }
    }

    /// Finds topic and queue, in RocketMQ's order of checks.
    fn target<'a>(
        &self,
        send: &Send<'a>,
        client_version: i32,
        origin: &Origin,
    ) -> Result<Target<'a>, Refused> {
        rules::check_topic(send.topic)?;
        let mut ensure = SmallVec::new();
        let group = self.group_of_retry(send, &mut ensure)?;
        let topic = match self.store.topic(send.topic) {
            Some(topic) => topic,
            None => {
                let auto = self.config.auto_create_topic;
                let template = self
                    .store
                    .topic(send.default_topic)
                    // The first send may be earlier than the new leader's housekeeping.
                    .or_else(|| rules::template(send.default_topic, &self.config));
                let made = rules::topic_to_make(send, template.as_ref(), group.as_ref(), auto)?;
                ensure.push(Command::EnsureTopic(made.clone()));
                made
            }
        };
        let front = origin
            .front
            .then(|| origin.forwarded_by.unwrap_or(self.node()));
        let queue = match rules::choose_queue(send.queue_id, front, &topic) {
            QueueChoice::Queue(queue) => queue,
            QueueChoice::Any => self.next_queue(topic.write_queues),
            QueueChoice::Illegal => return Err(illegal_queue(send.queue_id, &topic, origin)),
        };
        if let Some(group) = group
            && rules::is_exhausted(send, client_version, &group)
        {
            let dlq = names::dlq_topic(&group.name);
            self.ensure_dlq(&dlq, &mut ensure);
            return Ok(Target {
                topic: Cow::Owned(dlq),
                queue: 0,
                given_up: true,
                ensure,
            });
        }
        Ok(Target {
            topic: Cow::Borrowed(send.topic),
            queue,
            given_up: false,
            ensure,
        })
    }

    /// The consumer group whose retry topic is sent to; made when it is new.
    fn group_of_retry(
        &self,
        send: &Send<'_>,
        ensure: &mut SmallVec<[Command; 2]>,
    ) -> Result<Option<GroupConfig>, Refused> {
        if !names::is_retry_topic(send.topic) {
            return Ok(None);
        }
        let name = names::group_of(send.topic).unwrap_or_default();
        let group = self.group_or_new(name)?;
        if self.store.group(name).is_none() {
            ensure.push(Command::EnsureGroup(group.clone()));
        }
        Ok(Some(group))
    }

    /// A consumer group's settings; the defaults for a new one, where groups may be made.
    pub(super) fn group_or_new(&self, name: &str) -> Result<GroupConfig, Refused> {
        if let Some(group) = self.store.group(name) {
            return Ok(group);
        }
        if let Err(problem) = names::check_group(name) {
            return Err((response::INVALID_PARAMETER, problem.to_string()));
        }
        if !self.config.auto_create_group && !names::is_system_group(name) {
            let remark = format!("subscription group not exist, {name}");
            return Err((response::SUBSCRIPTION_GROUP_NOT_EXIST, remark));
        }
        Ok(GroupConfig::new(name))
    }

    /// Adds the making of a dead-letter topic that is not there yet.
    pub(super) fn ensure_dlq(&self, dlq: &str, ensure: &mut SmallVec<[Command; 2]>) {
        if self.store.topic(dlq).is_none() {
            let topic = TopicConfig::plain(dlq, 1, rules::PERM_READ_WRITE);
            ensure.push(Command::EnsureTopic(topic));
        }
    }

    /// Proposes what must exist before the unit that is submitted next. Units keep their order, so nobody
    /// waits: what was ensured is there when that unit is applied.
    pub(super) fn ensure_first(&self, origin: &Origin, ensure: &[Command]) {
        for command in ensure {
            self.proposer.submit(
                origin.deadline(),
                |entry| entry.push_command(command),
                // The unit behind it has the same fate, or finds its topic missing: its reply says so.
                |_| {},
            );
        }
    }

    fn send_one(
        self: &Arc<Self>,
        send: &Send<'_>,
        frame: &Frame,
        origin: &Origin,
        target: Target<'_>,
        reply: ReplyTo,
    ) -> Result<(), (ReplyTo, Refused)> {
        let found = rules::scan(send.properties);
        let store_ms = self.wall_ms();
        let unique_key = match found.unique_key {
            Some(key) => key.to_string(),
            None => new_unique_key(self.address(), store_ms),
        };
        let checked = || {
            let level = match target.given_up {
                true => None,
                false => rules::delay_level(found.delay, &self.config.delay_levels)?,
            };
            rules::check_kind(&found, send.sys_flag, send.reconsume_times, level)?;
            rules::check_body(&frame.body, self.config.message_bytes_max)?;
            rules::check_properties(send.properties.as_bytes())?;
            let destination = Destination {
                topic: &target.topic,
                queue: target.queue,
                level,
            };
            let properties = rules::stored_properties(
                send.properties,
                &unique_key,
                &self.config.cluster,
                &destination,
                target.given_up,
            );
            rules::check_properties(&properties)?;
            Ok((destination, properties))
        };
        let (destination, properties) = match checked() {
            Ok(checked) => checked,
            Err(refused) => return Err((reply, refused)),
        };
        let (topic, queue_id) = destination.stored_at();
        let record = NewRecord {
            topic,
            queue_id,
            properties: &properties,
            ..self.record(send, origin, store_ms, &frame.body)
        };
        let messages = Messages {
            records: SmallVec::from_iter([record]),
            deduplicate: rules::deduplicates(&destination, &self.config),
            transaction_id: Some(unique_key),
        };
        self.submit_send(frame, origin, &target, messages, reply);
        Ok(())
    }

    fn send_batch(
        self: &Arc<Self>,
        send: &Send<'_>,
        frame: &Frame,
        origin: &Origin,
        target: Target<'_>,
        reply: ReplyTo,
    ) -> Result<(), (ReplyTo, Refused)> {
        let max = self.config.message_bytes_max;
        let found = rules::scan(send.properties);
        let checked = rules::check_kind(&found, send.sys_flag, send.reconsume_times, None)
            .and_then(|()| rules::check_body(&frame.body, max))
            .and_then(|()| {
                split_batch(&frame.body).map_err(|error| {
                    let remark = format!("the batch is illegal: {error}");
                    (response::MESSAGE_ILLEGAL, remark)
                })
            })
            .and_then(|items| rules::check_batch(send.topic, &items, max).map(|()| items));
        let items = match checked {
            Ok(items) => items,
            Err(refused) => return Err((reply, refused)),
        };
        let destination = Destination {
            topic: &target.topic,
            queue: target.queue,
            level: None,
        };
        let store_ms = self.wall_ms();
        let records = items.iter().map(|item| NewRecord {
            topic: destination.topic,
            queue_id: destination.queue,
            flag: item.flag,
            // An item's own, as it came: nothing is added to the messages of a batch.
            properties: item.properties,
            ..self.record(send, origin, store_ms, item.body)
        });
        let records: SmallVec<[NewRecord<'_>; 1]> = records.collect();
        if let Err(refused) = rules::check_stored_bytes(&records) {
            return Err((reply, refused));
        }
        let messages = Messages {
            records,
            deduplicate: rules::deduplicates(&destination, &self.config),
            transaction_id: found.unique_key.map(str::to_string),
        };
        self.submit_send(frame, origin, &target, messages, reply);
        Ok(())
    }

    /// A record with everything that all messages of a send share.
    fn record<'a>(
        &self,
        send: &Send<'_>,
        origin: &Origin,
        store_ms: i64,
        body: &'a [u8],
    ) -> NewRecord<'a> {
        NewRecord {
            topic: "",
            queue_id: 0,
            flag: send.flag,
            sys_flag: send.sys_flag,
            born_ms: send.born_ms,
            born_host: origin.client,
            store_ms,
            store_host: self.address(),
            reconsume_times: send.reconsume_times,
            prepared_transaction_offset: 0,
            body,
            properties: &[],
        }
    }

    fn submit_send(
        self: &Arc<Self>,
        frame: &Frame,
        origin: &Origin,
        target: &Target<'_>,
        messages: Messages<'_>,
        reply: ReplyTo,
    ) {
        let records = &messages.records;
        let pending = Pending {
            broker: self.clone(),
            origin: origin.clone(),
            reply,
            opaque: frame.header.opaque,
            raw: frame.raw.clone(),
            topic: target.topic.to_string(),
            queue: target.queue,
            transaction_id: messages.transaction_id,
            lengths: records[..records.len().saturating_sub(1)]
                .iter()
                .map(|record| record.encoded_len() as u32)
                .collect(),
        };
        self.ensure_first(origin, &target.ensure);
        self.proposer.submit(
            origin.deadline(),
            |entry| entry.push_send(records, messages.deduplicate),
            move |outcome| pending.settle(outcome),
        );
    }
}

fn illegal_queue(asked: i32, topic: &TopicConfig, origin: &Origin) -> Refused {
    let remark = format!(
        "request queueId[{asked}] is illegal, TopicConfig [topicName={}, readQueueNums={}, writeQueueNums={}, perm={}] Producer: {}",
        topic.name, topic.read_queues, topic.write_queues, topic.perm, origin.client
    );
    (response::INVALID_PARAMETER, remark)
}

impl Pending {
    fn settle(self, outcome: Result<UnitOutcome, WriteError>) {
        let outcome = match outcome {
            Err(WriteError::NotLeader { .. }) => return self.try_elsewhere(),
            Ok(UnitOutcome::Stored {
                queue_offset,
                position,
                duplicate: true,
            }) => return self.answer_duplicate(queue_offset, position),
            outcome => outcome,
        };
        let reply = match outcome {
            Ok(UnitOutcome::Stored {
                queue_offset,
                position,
                ..
            }) => self.stored(queue_offset, position),
            Ok(UnitOutcome::NoSuchTopic) => Reply::new(response::TOPIC_NOT_EXIST, self.opaque)
                .with_remark(format!(
                    "topic[{}] not exist, apply first please!",
                    self.topic
                )),
            Ok(UnitOutcome::NoSuchQueue) => Reply::new(response::INVALID_PARAMETER, self.opaque)
                .with_remark(format!(
                    "request queueId[{}] is illegal: topic {} has fewer queues now",
                    self.queue, self.topic
                )),
            Ok(other @ (UnitOutcome::AlreadyDelivered | UnitOutcome::Command(_))) => {
                unreachable!("a send had the outcome of something else: {other:?}")
            }
            Err(error) => super::forward::failure(self.opaque, &error),
        };
        self.reply.send(with_region(reply));
    }

    /// A retry that is recognised may have asked for another queue than the send that landed: the reply tells
    /// where the message is, and only the message knows its queue. Rare, so it is read.
    fn answer_duplicate(mut self, queue_offset: i64, position: u64) {
        let mode = self.broker.group.env().writer;
        mode.spawn_blocking(move || {
            let store = &self.broker.store;
            if let Ok(Some(message)) = store.message_at(position, self.broker.address())
                && let Ok(record) = Record::parse(&message)
            {
                self.queue = record.queue_id();
            }
            let reply = self.stored(queue_offset, position);
            self.reply.send(with_region(reply));
        });
    }

    /// The reply to a stored message or batch: its ids by the places of its records.
    fn stored(&self, queue_offset: i64, position: u64) -> Reply {
        let host = self.broker.address();
        let mut ids = offset_message_id(host, position);
        let mut at = position;
        for length in &self.lengths {
            at += u64::from(*length) + RECORD_PREFIX_BYTES as u64;
            ids.push(',');
            ids.push_str(&offset_message_id(host, at));
        }
        let reply = Reply::new(response::SUCCESS, self.opaque)
            .with("msgId", ids)
            .with("queueId", self.queue)
            .with("queueOffset", queue_offset);
        match &self.transaction_id {
            Some(id) => reply.with("transactionId", id),
            None => reply,
        }
    }

    /// The gate closed between the handler and the log: nothing was proposed, so the request may go to the
    /// next leader as if it had come here a moment later.
    fn try_elsewhere(self) {
        match Frame::decode_whole(self.raw) {
            Ok(frame) => {
                let request = Request {
                    frame,
                    origin: self.origin,
                    reply: self.reply,
                };
                self.broker.pass_to_leader(request, super::REPLY_WITHIN);
            }
            Err(error) => {
                let error = WriteError::Refused(error.to_string());
                let reply = super::forward::failure(self.opaque, &error);
                self.reply.send(with_region(reply));
            }
        }
    }
}
