//! Topics made and deleted by request. Those made by a first send are `send`'s.

use std::sync::Arc;

use super::forward::failure;
use super::send_rules::Refused;
use super::{Broker, Request};
use crate::config::Config;
use crate::protocol::codes::response;
use crate::protocol::frame::Reply;
use crate::protocol::names;
use crate::protocol::request::CreateTopic;
use crate::store::{Command, CommandOutcome, TopicConfig};

/// More queues than this in one topic are refused: each costs memory on every node.
const QUEUES_MAX: i32 = 16 * 1024;
/// All permission bits: read 4, write 2, inherit 1.
const PERM_BITS: u32 = 7;
/// Attributes that RocketMQ knows.
const ATTRIBUTES: [&str; 4] = [
    "queue.type",
    "cleanup.policy",
    "message.type",
    "reserve.time",
];

impl Broker {
    pub(super) fn on_create_topic(self: &Arc<Self>, request: Request) {
        let checked = match CreateTopic::read(&request.frame.header.ext) {
            Ok(asked) => topic_asked_for(&asked, &self.config),
            Err(error) => Err((response::SYSTEM_ERROR, error.to_string())),
        };
        self.change(request, checked.map(Command::PutTopic));
    }

    pub(super) fn on_delete_topic(self: &Arc<Self>, request: Request) {
        let name = request.frame.header.ext.text("topic").unwrap_or_default();
        let checked = deletable(name, &self.config).map(|()| Command::DeleteTopic {
            name: name.to_string(),
        });
        self.change(request, checked);
    }

    /// Answers a refused change, or has the leader make it. Checked on the node it came to and once more on
    /// the leader, so that a wrong request costs the leader nothing.
    fn change(self: &Arc<Self>, request: Request, checked: Result<Command, Refused>) {
        let command = match checked {
            Ok(command) => command,
            Err((code, remark)) => {
                let reply = Reply::new(code, request.frame.header.opaque).with_remark(remark);
                return request.reply.send(reply);
            }
        };
        let Some(request) = self.claim(request) else {
            return;
        };
        let broker = self.clone();
        tokio::spawn(async move {
            let opaque = request.frame.header.opaque;
            let deadline = request.origin.deadline();
            match broker.proposer.command(deadline, &command).await {
                Ok(CommandOutcome::Done) => {
                    request.reply.send(Reply::new(response::SUCCESS, opaque));
                }
                Ok(other) => {
                    let remark = format!("unexpected outcome {other:?}");
                    request
                        .reply
                        .send(Reply::new(response::SYSTEM_ERROR, opaque).with_remark(remark));
                }
                Err(super::proposer::WriteError::NotLeader { .. }) => {
                    broker.pass_to_leader(request, super::REPLY_WITHIN);
                }
                Err(error) => request.reply.send(failure(opaque, &error)),
            }
        });
    }
}

/// Whether a topic belongs to the system, so that it is neither made nor deleted by request.
fn is_system_topic(topic: &str, config: &Config) -> bool {
    names::is_system_topic(topic) || topic == config.cluster || topic == config.broker_name
}

fn topic_asked_for(asked: &CreateTopic<'_>, config: &Config) -> Result<TopicConfig, Refused> {
    let invalid = |remark: String| (response::INVALID_PARAMETER, remark);
    names::check_topic(asked.topic).map_err(|problem| invalid(problem.to_string()))?;
    if is_system_topic(asked.topic, config) {
        return Err(invalid(names::system_topic_remark(asked.topic)));
    }
    let queues = |name: &str, asked: i32| match u32::try_from(asked) {
        Ok(queues) if asked <= QUEUES_MAX => Ok(queues),
        _ => Err(invalid(format!(
            "{name} must be from 0 to {QUEUES_MAX}, but is {asked}"
        ))),
    };
    let perm = u32::try_from(asked.perm)
        .ok()
        .filter(|perm| perm & !PERM_BITS == 0)
        .ok_or_else(|| {
            invalid(format!(
                "perm must be a sum of 4 (read), 2 (write) and 1 (inherit), but is {}",
                asked.perm
            ))
        })?;
    check_attributes(asked.attributes)?;
    Ok(TopicConfig {
        name: asked.topic.to_string(),
        read_queues: queues("readQueueNums", asked.read_queue_nums)?,
        write_queues: queues("writeQueueNums", asked.write_queue_nums)?,
        perm,
        sys_flag: asked.topic_sys_flag,
        order: asked.order,
        attributes: asked.attributes.to_string(),
    })
}

/// Attributes are `+key=value` and `-key`, separated by commas.
fn check_attributes(attributes: &str) -> Result<(), Refused> {
    for part in attributes.split(',').map(str::trim) {
        if part.is_empty() {
            continue;
        }
        let added = part.strip_prefix('+').and_then(|rest| rest.split_once('='));
        let key = match added {
            Some((key, _)) => Some(key),
            None => part.strip_prefix('-'),
        };
        let key = key.ok_or_else(|| bad_attribute(part))?;
        if !ATTRIBUTES.contains(&key) {
            return Err((response::SYSTEM_ERROR, format!("unsupported key: {key}")));
        }
    }
    Ok(())
}

fn bad_attribute(part: &str) -> Refused {
    let remark = format!("attribute {part:?} is neither +key=value nor -key");
    (response::SYSTEM_ERROR, remark)
}

fn deletable(topic: &str, config: &Config) -> Result<(), Refused> {
    if topic.trim().is_empty() {
        return Err((
            response::INVALID_PARAMETER,
            "The specified topic is blank.".to_string(),
        ));
    }
    if is_system_topic(topic, config) {
        let remark = names::system_topic_remark(topic);
        return Err((response::INVALID_PARAMETER, remark));
    }
    Ok(())
}

#[cfg(test)]
#[path = "topics_tests.rs"]
mod tests;
