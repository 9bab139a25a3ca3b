//! What a log makes of queues: which messages get a place, and which. Topics, deduplication and deliveries
//! of delayed messages are modelled; groups, consumer offsets and locks are not, for no place depends on them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::payload::{Command, Placed, Topic, Unit};
use super::segment::Entry;
use crate::history::Got;
use crate::workload::got_of;

/// Keys that are remembered, and for how long.
const WINDOW_KEYS: usize = 131_072;
const WINDOW_MS: i64 = 60_000;
const DELAY_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";

/// A message with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub topic: Arc<str>,
    pub incarnation: u64,
    pub queue: i32,
    /// Index of its entry.
    pub index: u64,
    /// Bytes of the record.
    pub len: u32,
    pub tag_hash: i32,
    /// As a drain would have read it.
    pub got: Got,
}

/// Everything that a log's entries did to queues.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    /// In the order of the log.
    pub stored: Vec<Stored>,
    /// Index of the entry, topic and incarnation.
    pub deleted: Vec<(u64, Arc<str>, u64)>,
    /// Index and key of every message in the log, whether it got a place or not.
    pub keys: Vec<(u64, String)>,
}

#[derive(Debug)]
struct Live {
    name: Arc<str>,
    incarnation: u64,
    queues: u64,
    next: BTreeMap<i32, i64>,
}

/// By what a message is known: topic, incarnation, the producer's id, the body's CRC.
type Key = (Arc<str>, u64, String, u32);

/// The recently seen keys.
#[derive(Debug, Default)]
struct Window {
    clock_ms: i64,
    order: VecDeque<(i64, Key)>,
    known: HashMap<Key, ()>,
}

impl Window {
    fn advance(&mut self, store_ms: i64) {
        self.clock_ms = self.clock_ms.max(store_ms);
        while let Some((at, _)) = self.order.front()
            && self.clock_ms - at > WINDOW_MS
        {
            self.forget_oldest();
        }
    }

    fn insert(&mut self, key: Key) {
        if self.order.len() == WINDOW_KEYS {
            self.forget_oldest();
        }
        self.order.push_back((self.clock_ms, key.clone()));
        self.known.insert(key, ());
    }

    fn forget_oldest(&mut self) {
        if let Some((_, key)) = self.order.pop_front() {
            self.known.remove(&key);
        }
    }
}

/// The state while a log is replayed.
#[derive(Debug, Default)]
pub struct Replay {
    topics: BTreeMap<String, Live>,
    next_incarnation: u64,
    delivered: BTreeMap<u32, i64>,
    window: Window,
    done: Replayed,
}

impl Replay {
    pub fn finish(self) -> Replayed {
        self.done
    }

    /// Applies one entry's units.
    pub fn apply(&mut self, entry: &Entry, units: Vec<Unit>) {
        for unit in units {
            match unit {
                Unit::Command(command) => self.command(entry, command),
                Unit::Send {
                    deduplicate,
                    records,
                } => self.send(entry, deduplicate, records),
                Unit::Delivery {
                    level,
                    offset,
                    record,
                } => {
                    let next = self.delivered.entry(level).or_insert(0);
                    if *next == offset {
                        *next += 1;
                        self.send(entry, false, vec![record]);
                    }
                }
            }
        }
    }

    fn command(&mut self, entry: &Entry, command: Command) {
        match command {
            Command::PutTopic(topic) => self.put_topic(topic),
            Command::EnsureTopic(topic) => {
                if !self.topics.contains_key(&topic.name) {
                    self.put_topic(topic);
                }
            }
            Command::DeleteTopic(name) => {
                if let Some(gone) = self.topics.remove(&name) {
                    let deleted = (entry.index, gone.name, gone.incarnation);
                    self.done.deleted.push(deleted);
                    if name == DELAY_TOPIC {
                        self.delivered.clear();
                    }
                }
            }
            Command::Other => {}
        }
    }

    fn put_topic(&mut self, topic: Topic) {
        if let Some(known) = self.topics.get_mut(&topic.name) {
            known.queues = topic.queues;
            return;
        }
        let live = Live {
            name: topic.name.as_str().into(),
            incarnation: self.next_incarnation,
            queues: topic.queues,
            next: BTreeMap::new(),
        };
        self.next_incarnation += 1;
        self.topics.insert(topic.name, live);
    }

    fn send(&mut self, entry: &Entry, deduplicate: bool, records: Vec<Placed>) {
        for placed in &records {
            let record = &placed.record;
            let got = got_of(record, &record.topic, record.queue);
            self.done.keys.push((entry.index, got.key));
        }
        let Some(first) = records.first().map(|placed| &placed.record) else {
            return;
        };
        let Some(topic) = self.topics.get_mut(&first.topic) else {
            return;
        };
        let queue = first.queue;
        if u64::try_from(queue).is_ok_and(|queue| queue >= topic.queues) || queue < 0 {
            return;
        }
        let recognised = !["%RETRY%", "%DLQ%"]
            .iter()
            .any(|prefix| topic.name.starts_with(prefix))
            && &*topic.name != DELAY_TOPIC;
        let mut key = None;
        if recognised {
            self.window.advance(first.store_ms);
            key = first.key().filter(|_| deduplicate).map(|id| {
                let crc = crc32fast::hash(&first.body) & 0x7fff_ffff;
                (topic.name.clone(), topic.incarnation, id.to_owned(), crc)
            });
        }
        if key
            .as_ref()
            .is_some_and(|key| self.window.known.contains_key(key))
        {
            return;
        }
        let next = topic.next.entry(queue).or_insert(0);
        for Placed { at, mut record } in records {
            record.offset = *next;
            record.position = i64::try_from(entry.payload() + at as u64).unwrap_or(i64::MAX);
            *next += 1;
            self.done.stored.push(Stored {
                topic: topic.name.clone(),
                incarnation: topic.incarnation,
                queue,
                index: entry.index,
                len: u32::try_from(record.size).unwrap_or(u32::MAX),
                tag_hash: tag_hash(record.property("TAGS")),
                got: got_of(&record, &topic.name, queue),
            });
        }
        if let Some(key) = key {
            self.window.insert(key);
        }
    }
}

/// Java's `hashCode` of a text; 0 for none.
fn tag_hash(tag: Option<&str>) -> i32 {
    tag.unwrap_or("").encode_utf16().fold(0, |hash: i32, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}
