//! Everything that entries have said so far: topics with their queues, groups, offsets, locks, the window.
//!
//! Plain data behind one lock. Changing it is the work of `apply`; keeping it, of `checkpoint`.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quorumlog_raft::{AppliedMark, Position};
use serde::{Deserialize, Serialize};

use super::changes::Changes;
use super::command::{GroupConfig, NodeInfo, QueueId, TopicConfig};
use super::dedup::Window;
use super::index_file::SealedRun;
use super::queue::Queue;
use crate::protocol::names;

pub(super) struct Topic {
    pub name: Arc<str>,
    pub config: TopicConfig,
    /// Number of the creation: tells this topic from one of the same name that was deleted before.
    pub incarnation: u64,
    /// Retry, dead-letter and delay topics are written by brokers, not by producers that retry.
    pub deduplicates: bool,
    /// Queues that hold a message or did.
    pub queues: BTreeMap<i32, Queue>,
}

impl Topic {
    pub(super) fn new(config: TopicConfig, incarnation: u64) -> Topic {
        let name = config.name.as_str();
        Topic {
            name: Arc::from(name),
            deduplicates: !(names::is_retry_topic(name)
                || names::is_dlq_topic(name)
                || name == names::SCHEDULE_TOPIC),
            config,
            incarnation,
            queues: BTreeMap::new(),
        }
    }

    /// May a message go to this queue? Readable and writable queues both count: RocketMQ's rule.
    pub(super) fn has_queue(&self, queue: i32) -> bool {
        u32::try_from(queue)
            .is_ok_and(|queue| queue < self.config.read_queues.max(self.config.write_queues))
    }
}

/// Topics by name, each in a slot whose number stays while the topic lives.
#[derive(Default)]
pub(super) struct Topics {
    slots: Vec<Option<Topic>>,
    free: Vec<usize>,
    by_name: HashMap<Arc<str>, usize, FixedState>,
    /// The slot found last: messages for one topic come in rows.
    last: usize,
}

impl Topics {
    pub(super) fn by_name(&self, name: &str) -> Option<&Topic> {
        self.slots[*self.by_name.get(name)?].as_ref()
    }

    pub(super) fn by_name_mut(&mut self, name: &str) -> Option<&mut Topic> {
        let last = self.slots.get(self.last).and_then(Option::as_ref);
        if last.is_none_or(|topic| &*topic.name != name) {
            self.last = *self.by_name.get(name)?;
        }
        self.slots[self.last].as_mut()
    }

    pub(super) fn insert(&mut self, topic: Topic) {
        let name = topic.name.clone();
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot] = Some(topic);
                slot
            }
            None => {
                self.slots.push(Some(topic));
                self.slots.len() - 1
            }
        };
        let before = self.by_name.insert(name, slot);
        assert!(before.is_none(), "a topic was added that was there");
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Topic> {
        let slot = self.by_name.remove(name)?;
        self.free.push(slot);
        self.slots[slot].take()
    }

    /// Sorted by name.
    pub(super) fn sorted(&self) -> Vec<&Topic> {
        let mut topics: Vec<&Topic> = self.slots.iter().flatten().collect();
        topics.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        topics
    }

    /// In no useful order.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Topic> {
        self.slots.iter_mut().flatten()
    }
}

/// Who holds a queue's lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lock {
    pub client: String,
    /// State clock at the last grant or renewal, ms.
    pub renewed_ms: i64,
}

/// The part of the state that is a plain value: goes into checkpoints as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Small {
    pub groups: BTreeMap<String, GroupConfig>,
    pub nodes: BTreeMap<u64, NodeInfo>,
    /// Group, topic, queue: next offset to consume.
    pub offsets: BTreeMap<String, BTreeMap<String, BTreeMap<i32, i64>>>,
    /// Group, then queue.
    pub locks: BTreeMap<String, BTreeMap<QueueId, Lock>>,
    /// Delay level: next queue offset to deliver.
    pub delay_progress: BTreeMap<u32, i64>,
    /// Largest `now_ms` of a lock command so far: time in the state never runs backwards.
    pub lock_clock_ms: i64,
    pub next_incarnation: u64,
}

#[derive(Default)]
pub(super) struct State {
    pub topics: Topics,
    pub small: Small,
    pub window: Window,
    /// How far the state has come.
    pub mark: Option<AppliedMark>,
    /// First position of the active segment: where the active items of all queues are.
    pub segment: Position,
    /// What the tables have not been told yet.
    pub changes: Changes,
}

impl State {
    /// Position after the last applied entry.
    pub(super) fn applied_end(&self) -> Position {
        self.mark.as_ref().map_or(0, |mark| mark.end)
    }

    pub(super) fn queue(&self, topic: &str, queue: i32) -> Option<&Queue> {
        self.topics.by_name(topic)?.queues.get(&queue)
    }

    /// Closes the active segment, of which everything has been applied: its items, by topic and queue.
    pub(super) fn seal(&mut self, next_segment: Position) -> Vec<SealedRun> {
        let segment = std::mem::replace(&mut self.segment, next_segment);
        let mut runs = Vec::new();
        for topic in self.topics.iter_mut() {
            for (&queue, content) in &mut topic.queues {
                if let Some((first, items)) = content.seal(segment) {
                    runs.push(SealedRun {
                        topic: topic.name.clone(),
                        incarnation: topic.incarnation,
                        queue,
                        first,
                        items,
                    });
                }
            }
        }
        runs.sort_unstable_by(|a, b| (&a.topic, a.queue).cmp(&(&b.topic, b.queue)));
        runs
    }
}
