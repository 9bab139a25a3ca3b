//! Heartbeats, leaving, and who else is in a group.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::future::try_join_all;
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::clients::{ClientsError, Speaker};
use super::proposer::WriteError;
use super::pull::busy;
use super::send_rules::PERM_READ_WRITE;
use super::subscription::check_expression_type;
use super::{Broker, Origin, REPLY_WITHIN, Request};
use crate::net::connection::ReplyTo;
use crate::protocol::body::{CheckClientConfig, Heartbeat, MessageModel, consumer_ids};
use crate::protocol::codes::{request as code, response};
use crate::protocol::frame::{Reply, encode_request};
use crate::protocol::header::{Ext, FLAG_ONEWAY};
use crate::protocol::names;
use crate::protocol::request::Unregister;
use crate::store::{Command, GroupConfig, TopicConfig};

/// How often silent clients are looked for (RocketMQ's scan).
const SCAN_INTERVAL: Duration = Duration::from_secs(10);

impl Broker {
    /// Registers the client, tells the groups that changed, and makes the groups that are new.
    pub(super) fn on_heartbeat(self: &Arc<Self>, request: Request) {
        let header = &request.frame.header;
        let opaque = header.opaque;
        let mut heartbeat = match Heartbeat::parse(&request.frame.body) {
            Ok(heartbeat) => heartbeat,
            Err(error) => return request.refuse(response::SYSTEM_ERROR, error.to_string()),
        };
        heartbeat
            .consumers
            .retain(|data| self.may_consume(&data.group));
        if let Some(connection) = &request.origin.connection
            && !heartbeat.client_id.is_empty()
        {
            let speaker = Speaker {
                language: header.language,
                version: header.version,
            };
            match self.clients.heartbeat(connection, speaker, &heartbeat) {
                // Before the reply, as RocketMQ does.
                Ok(changed) => self.tell_changed(&changed),
                Err(error @ ClientsError::Full) => {
                    return request.reply.send(busy(opaque, &error.to_string()));
                }
                Err(error) => return request.refuse(response::SYSTEM_ERROR, error.to_string()),
            }
        }
        let groups = heartbeat.consumers.into_iter().map(|data| data.group);
        let missing: Vec<String> = groups.filter(|group| self.is_incomplete(group)).collect();
        if missing.is_empty() {
            return request.reply.send(Reply::new(response::SUCCESS, opaque));
        }
        self.create_groups_and_answer(request, missing);
    }

    /// Answers a heartbeat when its new groups have been made, or could not be: the next one tries again.
    fn create_groups_and_answer(self: &Arc<Self>, request: Request, groups: Vec<String>) {
        let deadline = request.origin.deadline();
        if self.leads() {
            let broker = self.clone();
            tokio::spawn(async move {
                if let Err(error) = broker.create_groups(&groups, deadline).await {
                    tracing::debug!(%error, ?groups, "consumer groups not made yet");
                }
                request.succeed();
            });
            return;
        }
        if request.origin.forwarded_by.is_some() {
            return request.hand_back();
        }
        // The leader registers nothing for a heartbeat that comes without a connection: it makes the groups.
        let (back, answered) = oneshot::channel();
        let copy = Request {
            frame: request.frame.clone(),
            origin: Origin {
                connection: None,
                ..request.origin.clone()
            },
            reply: ReplyTo::Peer(back),
        };
        self.pass_to_leader(copy, REPLY_WITHIN);
        tokio::spawn(async move {
            // Whatever the leader said: this node has registered the client.
            let _ = timeout_at(deadline, answered).await;
            request.succeed();
        });
    }

    /// Makes groups and their retry topics, where this node leads.
    pub(super) async fn create_groups(
        &self,
        groups: &[String],
        deadline: Instant,
    ) -> Result<(), WriteError> {
        let mut commands = Vec::new();
        for group in groups {
            let config = self.store.group(group).unwrap_or_else(|| {
                let config = GroupConfig::new(group);
                commands.push(Command::EnsureGroup(config.clone()));
                config
            });
            let retry = names::retry_topic(group);
            let topic = TopicConfig::plain(&retry, config.retry_queues, PERM_READ_WRITE);
            commands.push(Command::EnsureTopic(topic));
        }
        let proposed = commands
            .iter()
            .map(|command| self.proposer.command(deadline, command));
        try_join_all(proposed).await.map(|_| ())
    }

    /// Must this group be made before it can be used, and may it?
    pub(super) fn group_to_create(&self, group: &str) -> bool {
        self.store.group(group).is_none() && self.may_create_group(group)
    }

    fn may_create_group(&self, group: &str) -> bool {
        let allowed = self.config.auto_create_group || names::is_system_group(group);
        allowed && names::check_group(group).is_ok()
    }

    /// A consumer group is known, or will be.
    fn may_consume(&self, group: &str) -> bool {
        self.may_create_group(group) || self.store.group(group).is_some()
    }

    fn is_incomplete(&self, group: &str) -> bool {
        self.store.group(group).is_none() || self.store.topic(&names::retry_topic(group)).is_none()
    }

    /// Tells each member of each group that it changed, once.
    fn tell_changed(&self, groups: &[String]) {
        for group in groups {
            let broadcasting = self
                .clients
                .consumer(group)
                .is_none_or(|data| data.message_model == MessageModel::Broadcasting);
            let silent = self
                .store
                .group(group)
                .is_some_and(|config| !config.notify_changes);
            if broadcasting || silent {
                continue;
            }
            for connection in self.clients.connections(group) {
                let mut ext = Ext::new();
                ext.push("consumerGroup", group);
                let mut frame = BytesMut::new();
                let opaque = self.clients.next_opaque();
                let what = code::NOTIFY_CONSUMER_IDS_CHANGED;
                encode_request(what, opaque, FLAG_ONEWAY, &ext, &[], &mut frame);
                connection.send_frame(frame.freeze());
            }
        }
    }

    pub(super) fn on_unregister(self: &Arc<Self>, request: Request) {
        if let Some(connection) = &request.origin.connection
            && let Ok(said) = Unregister::read(&request.frame.header.ext)
        {
            if let Some(group) = said.producer_group {
                self.clients
                    .unregister(connection.id, said.client_id, group, false);
            }
            if let Some(group) = said.consumer_group
                && self
                    .clients
                    .unregister(connection.id, said.client_id, group, true)
            {
                self.tell_changed(&[group.to_string()]);
            }
        }
        request.succeed();
    }

    /// A client's connection is gone, with its groups and the pulls it waited for.
    pub fn on_connection_closed(self: &Arc<Self>, connection_id: u64) {
        self.holds.drop_connection(connection_id);
        let changed = self.clients.closed(connection_id);
        self.tell_changed(&changed);
    }

    pub(super) fn on_check_client_config(self: &Arc<Self>, request: Request) {
        let said = match CheckClientConfig::parse(&request.frame.body) {
            Ok(said) => said,
            Err(error) => return request.refuse(response::SYSTEM_ERROR, error.to_string()),
        };
        let expression_type = said
            .subscription
            .map(|subscription| subscription.expression_type);
        match check_expression_type(&expression_type.unwrap_or_default()) {
            Ok(()) => request.succeed(),
            Err(refusal) => request.refuse(refusal.code, refusal.remark),
        }
    }

    pub(super) fn on_consumer_list(self: &Arc<Self>, request: Request) {
        let header = &request.frame.header;
        let members = match header.ext.required("consumerGroup") {
            Ok(group) => self.clients.members(group),
            Err(error) => return request.refuse(response::SYSTEM_ERROR, error.to_string()),
        };
        if members.is_empty() {
            let group = header.ext.text("consumerGroup").unwrap_or_default();
            let remark = format!(
                "no consumer for this group, {}",
                super::pull_rules::quoted(group)
            );
            return request.refuse(response::SYSTEM_ERROR, remark);
        }
        let reply = Reply::new(response::SUCCESS, header.opaque);
        request.reply.send(reply.with_body(consumer_ids(&members)));
    }

    pub(super) fn on_naming(self: &Arc<Self>, request: Request) {
        let reply = self.naming.answer(&request.frame);
        request.reply.send(reply);
    }

    /// Forgets clients that have fallen silent, until the process ends.
    pub(super) async fn forget_silent_clients(self: Arc<Self>) {
        let mut scan = interval(SCAN_INTERVAL);
        scan.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            scan.tick().await;
            let changed = self.clients.forget_silent(Instant::now());
            self.tell_changed(&changed);
        }
    }
}

impl Request {
    /// Answers with success and nothing else.
    fn succeed(self) {
        let reply = Reply::new(response::SUCCESS, self.frame.header.opaque);
        self.reply.send(reply);
    }

    /// Answers with a code other than success.
    pub(super) fn refuse(self, code: i32, remark: String) {
        let reply = Reply::new(code, self.frame.header.opaque);
        self.reply.send(reply.with_remark(remark));
    }
}
