//! What each unit of an entry does to the state. Nothing here but the entries decides: every replica must
//! come to the same state and the same outcomes.

use std::sync::Arc;

use bytes::Bytes;
use quorumlog_raft::Position;
use quorumlog_raft::sabotage::{self, Sabotage};

use super::codec;
use super::command::Command;
use super::dedup::{Key, Place, Window};
use super::entry::{OutcomeWriter, UnitOutcome};
use super::queue::{Item, Queue};
use super::state::{State, Topic};
use super::unit::{Placed, Unit, UnitError, UnitErrorKind, Units};
use crate::protocol::message::{HotProperties, Record, tags_code};

/// A queue that an entry made grow.
pub(super) struct Grown {
    pub topic: Arc<str>,
    pub queue: i32,
    pub end: i64,
}

/// One entry being applied.
pub(super) struct EntryContext<'a> {
    /// Of the payload's first byte.
    pub payload_position: Position,
    /// Queues that grew, each once, in the order in which they first did.
    pub grown: &'a mut Vec<Grown>,
}

impl State {
    /// Applies the units of one payload, in order.
    ///
    /// An error leaves the state half changed: the caller must not go on. The entry was committed and its
    /// CRC was right, so this program cannot know what the others make of it.
    pub(super) fn apply(
        &mut self,
        payload: &[u8],
        context: &mut EntryContext<'_>,
    ) -> Result<Bytes, UnitError> {
        let units = Units::new(payload)?;
        let mut outcomes = OutcomeWriter::with_units(units.len());
        for unit in units {
            let outcome = match unit? {
                Unit::Send {
                    deduplicate,
                    records,
                } => self.send(deduplicate, records, context)?,
                Unit::Delivery {
                    level,
                    offset,
                    record,
                } => self.deliver(level, offset, record, context)?,
                Unit::Command { at, bytes } => {
                    let command: Command = codec::decode(bytes).map_err(|error| UnitError {
                        at,
                        what: UnitErrorKind::Command(error),
                    })?;
                    UnitOutcome::Command(self.command(command))
                }
            };
            outcomes.push(&outcome);
        }
        Ok(outcomes.finish())
    }

    fn deliver<'a>(
        &mut self,
        level: u32,
        offset: i64,
        record: Placed<'a>,
        context: &mut EntryContext<'_>,
    ) -> Result<UnitOutcome, UnitError> {
        let progress = self.small.delay_progress.entry(level).or_insert(0);
        if *progress != offset {
            return Ok(UnitOutcome::AlreadyDelivered);
        }
        // Also when the topic is gone: otherwise the level would wait for it for ever.
        *progress += 1;
        self.send(false, std::iter::once(Ok(record)), context)
    }

    /// Gives the records of one unit their places, consecutive ones in one queue.
    fn send<'a>(
        &mut self,
        deduplicate: bool,
        mut records: impl Iterator<Item = Result<Placed<'a>, UnitError>>,
        context: &mut EntryContext<'_>,
    ) -> Result<UnitOutcome, UnitError> {
        let first = records.next().expect("a unit has at least one record")?;
        let position = context.payload_position + first.at as u64;
        let Some(topic) = self.topics.by_name_mut(first.record.topic()) else {
            return Ok(UnitOutcome::NoSuchTopic);
        };
        let queue_id = first.record.queue_id();
        if !topic.has_queue(queue_id) {
            return Ok(UnitOutcome::NoSuchQueue);
        }
        let hot = first.record.properties().hot();
        let key = window_key(&mut self.window, topic, &first.record, &hot);
        // I-4: what is sent again under its key is stored once.
        let key = key.filter(|_| deduplicate && !sabotage::on(Sabotage::NoDeduplication));
        if let Some(place) = key.and_then(|key| self.window.find(&key)) {
            return Ok(UnitOutcome::Stored {
                queue_offset: place.queue_offset,
                position: place.position,
                duplicate: true,
            });
        }
        let queue = topic.queues.entry(queue_id).or_default();
        let queue_offset = queue.next();
        queue.active.push(item(position, &first.record, hot.tags));
        for placed in records {
            let Placed { at, record } = placed?;
            if record.queue_id() != queue_id || record.topic() != first.record.topic() {
                return Err(UnitError {
                    at,
                    what: UnitErrorKind::MixedQueues,
                });
            }
            let tags = record.properties().hot().tags;
            let position = context.payload_position + at as u64;
            queue.active.push(item(position, &record, tags));
        }
        context.grew(&topic.name, queue_id, queue);
        if let Some(key) = key {
            let place = Place {
                queue_offset,
                position,
            };
            self.window.insert(key, place);
        }
        Ok(UnitOutcome::Stored {
            queue_offset,
            position,
            duplicate: false,
        })
    }
}

impl EntryContext<'_> {
    fn grew(&mut self, topic: &Arc<str>, queue_id: i32, queue: &mut Queue) {
        let end = queue.next();
        let (entry, place) = queue.grown_by;
        if entry == self.payload_position
            && let Some(grown) = self.grown.get_mut(place)
        {
            grown.end = end;
            return;
        }
        queue.grown_by = (self.payload_position, self.grown.len());
        self.grown.push(Grown {
            topic: topic.clone(),
            queue: queue_id,
            end,
        });
    }
}

/// Moves the window to the record's time; the key that its unit is known by, if it can have one.
fn window_key(
    window: &mut Window,
    topic: &Topic,
    record: &Record<'_>,
    hot: &HotProperties<'_>,
) -> Option<Key> {
    if !topic.deduplicates {
        return None;
    }
    window.advance(record.store_ms());
    let unique_key = hot.unique_key?;
    Some(Key::new(
        &topic.name,
        topic.incarnation,
        unique_key,
        record.body_crc(),
    ))
}

fn item(position: Position, record: &Record<'_>, tags: Option<&str>) -> Item {
    Item {
        position,
        length: record.len() as u32,
        // The code is a sign-extended 32-bit hash: nothing is cut off.
        tags: tags_code(tags) as i32,
    }
}
