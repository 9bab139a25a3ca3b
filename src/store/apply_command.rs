//! What each command does to the state.

use std::collections::btree_map::Entry;

use super::changes::Rows;
use super::command::{Command, CommandOutcome, GroupConfig, LOCK_EXPIRY_MS, QueueId, TopicConfig};
use super::state::{Lock, State, Topic};
use crate::protocol::names::SCHEDULE_TOPIC;

impl State {
    pub(super) fn command(&mut self, command: Command) -> CommandOutcome {
        match command {
            Command::PutTopic(config) => self.put_topic(config),
            Command::EnsureTopic(config) => {
                if self.topics.by_name(&config.name).is_none() {
                    self.put_topic(config);
                }
                CommandOutcome::Done
            }
            Command::DeleteTopic { name } => self.delete_topic(&name),
            Command::PutGroup(config) => self.put_group(config),
            Command::EnsureGroup(config) => {
                if !self.small.groups.contains_key(&config.name) {
                    self.put_group(config);
                }
                CommandOutcome::Done
            }
            Command::CommitOffset {
                group,
                topic,
                queue,
                offset,
            } => self.commit_offset(group, topic, queue, offset),
            Command::Lock {
                group,
                client,
                queues,
                now_ms,
            } => self.lock(group, &client, queues, now_ms),
            Command::Unlock {
                group,
                client,
                queues,
            } => self.unlock(&group, &client, &queues),
            Command::AnnounceNode(info) => {
                self.changes.nodes.add(info.node);
                self.small.nodes.insert(info.node, info);
                CommandOutcome::Done
            }
        }
    }

    fn put_topic(&mut self, config: TopicConfig) -> CommandOutcome {
        self.changes.topics.add(config.name.clone());
        match self.topics.by_name_mut(&config.name) {
            // Queues beyond a smaller number stay as they are: their messages can still be read.
            Some(topic) => topic.config = config,
            None => {
                let incarnation = self.small.next_incarnation;
                self.small.next_incarnation += 1;
                self.topics.insert(Topic::new(config, incarnation));
            }
        }
        CommandOutcome::Done
    }

    fn delete_topic(&mut self, name: &str) -> CommandOutcome {
        if self.topics.remove(name).is_none() {
            return CommandOutcome::Done;
        }
        self.changes.topics.add(name.to_string());
        for group in self.small.offsets.values_mut() {
            if group.remove(name).is_some() {
                self.changes.offsets = Rows::All;
            }
        }
        self.small.offsets.retain(|_, topics| !topics.is_empty());
        for locks in self.small.locks.values_mut() {
            locks.retain(|queue, _| queue.topic != name);
        }
        self.small.locks.retain(|_, locks| !locks.is_empty());
        if name == SCHEDULE_TOPIC {
            self.small.delay_progress.clear();
        }
        CommandOutcome::Done
    }

    fn put_group(&mut self, config: GroupConfig) -> CommandOutcome {
        self.changes.groups.add(config.name.clone());
        self.small.groups.insert(config.name.clone(), config);
        CommandOutcome::Done
    }

    fn commit_offset(
        &mut self,
        group: String,
        topic: String,
        queue: i32,
        offset: i64,
    ) -> CommandOutcome {
        if !self.small.groups.contains_key(&group) {
            return CommandOutcome::NoSuchGroup;
        }
        let Some(known) = self.topics.by_name(&topic) else {
            return CommandOutcome::NoSuchTopic;
        };
        // A queue that holds messages counts although the topic has become smaller than it.
        if !known.has_queue(queue) && !known.queues.contains_key(&queue) {
            return CommandOutcome::NoSuchTopic;
        }
        self.changes
            .offsets
            .add((group.clone(), topic.clone(), queue));
        let topics = self.small.offsets.entry(group).or_default();
        topics.entry(topic).or_default().insert(queue, offset);
        CommandOutcome::Done
    }

    fn lock(
        &mut self,
        group: String,
        client: &str,
        queues: Vec<QueueId>,
        now_ms: i64,
    ) -> CommandOutcome {
        let now_ms = now_ms.max(self.small.lock_clock_ms);
        self.small.lock_clock_ms = now_ms;
        let locks = self.small.locks.entry(group.clone()).or_default();
        locks.retain(|_, lock| !expired(lock, now_ms));
        let mut held = Vec::new();
        for queue in queues {
            let known = self.topics.by_name(&queue.topic);
            if !known.is_some_and(|topic| topic.has_queue(queue.queue)) {
                continue;
            }
            match locks.entry(queue.clone()) {
                Entry::Occupied(lock) if lock.get().client != client => continue,
                Entry::Occupied(mut lock) => lock.get_mut().renewed_ms = now_ms,
                Entry::Vacant(free) => {
                    free.insert(Lock {
                        client: client.to_string(),
                        renewed_ms: now_ms,
                    });
                }
            }
            held.push(queue);
        }
        if locks.is_empty() {
            self.small.locks.remove(&group);
        }
        CommandOutcome::Locked(held)
    }

    fn unlock(&mut self, group: &str, client: &str, queues: &[QueueId]) -> CommandOutcome {
        if let Some(locks) = self.small.locks.get_mut(group) {
            for queue in queues {
                if locks.get(queue).is_some_and(|lock| lock.client == client) {
                    locks.remove(queue);
                }
            }
            if locks.is_empty() {
                self.small.locks.remove(group);
            }
        }
        CommandOutcome::Done
    }
}

/// RocketMQ: more than the life time since the last renewal.
fn expired(lock: &Lock, now_ms: i64) -> bool {
    now_ms - lock.renewed_ms > LOCK_EXPIRY_MS
}
