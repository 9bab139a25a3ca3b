//! Reading messages: which ones (from the index, under the lock), then their bytes (from the log, without).
//!
//! Every record is checked against its CRC32C and against what the index says of it before it is given
//! out; bytes that fail are an error, never a message.

use std::net::SocketAddrV4;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use quorumlog_raft::Position;
use quorumlog_raft::sabotage::{self, Sabotage};

use super::entry::RECORD_PREFIX_BYTES;
use super::index_file::BLOCK_ITEMS;
use super::queue::{Chunk, Item, Located};
use super::shared::Shared;
use super::{ReadLimits, ReadOutcome, StoreError, Wait};
use crate::protocol::message::{Record, fill_in};

/// Items looked at by one read: a filter that matches nothing must not hold a thread for long.
const EXAMINED_MAX: usize = 4096;
/// Items copied out of the active segment at once.
const CHUNK_ITEMS_MAX: usize = 512;
/// Bytes read at once from the log, when several records are.
const SPAN_BYTES_MAX: u64 = 256 * 1024;
/// Foreign bytes between two records that are cheaper to read along than a read more.
const GAP_BYTES_MAX: u64 = 4 * 1024;

/// A message to be returned.
#[derive(Clone, Copy)]
struct Pick {
    offset: i64,
    item: Item,
    segment: Position,
}

/// Items, and which of them are meant.
type ItemSlice = (Arc<Vec<Item>>, Range<usize>);

/// What to read of which queue.
pub(super) struct Request<'a> {
    pub topic: &'a str,
    pub queue: i32,
    pub from: i64,
    pub limits: ReadLimits,
    pub matches: &'a dyn Fn(i64) -> bool,
    pub store_host: SocketAddrV4,
    pub wait: Wait,
}

/// Where a queue begins and ends, and which incarnation of its topic that was.
#[derive(Clone, Copy)]
struct Bounds {
    min: i64,
    max: i64,
    incarnation: u64,
}

impl Shared {
    pub(super) fn read_queue(&self, request: &Request<'_>) -> Result<ReadOutcome, StoreError> {
        let Some(bounds) = self.bounds(request.topic, request.queue) else {
            return Ok(ReadOutcome::Empty);
        };
        let Bounds { min, max, .. } = bounds;
        if request.from < min || request.from > max {
            return Ok(ReadOutcome::OutOfRange { min, max });
        }
        if request.from == max {
            return Ok(ReadOutcome::AtEnd { min, max });
        }
        let Some((picks, next)) = self.select(request, bounds)? else {
            return Ok(ReadOutcome::WouldBlock);
        };
        if picks.is_empty() {
            return Ok(ReadOutcome::NoneMatched { next, min, max });
        }
        let records = self.fetch(
            request.topic,
            request.queue,
            &picks,
            request.store_host,
            request.wait,
        )?;
        Ok(match records {
            None => ReadOutcome::WouldBlock,
            Some(records) => ReadOutcome::Found {
                records,
                count: picks.len(),
                next,
                min,
                max,
            },
        })
    }

    /// `None` for a queue that never held a message.
    fn bounds(&self, topic: &str, queue: i32) -> Option<Bounds> {
        let state = self.read();
        let topic = state.topics.by_name(topic)?;
        let queue = topic.queues.get(&queue)?;
        Some(Bounds {
            min: queue.min,
            max: queue.next(),
            incarnation: topic.incarnation,
        })
    }

    /// The messages to return, and the offset to go on from. `None`: the disk would have to be waited for.
    fn select(
        &self,
        request: &Request<'_>,
        bounds: Bounds,
    ) -> Result<Option<(Vec<Pick>, i64)>, StoreError> {
        let limits = request.limits;
        let messages_max = limits.messages_max.max(1);
        let chunk_items = messages_max.clamp(32, CHUNK_ITEMS_MAX);
        let mut picks: Vec<Pick> = Vec::with_capacity(messages_max.min(64));
        let mut bytes = 0;
        let mut next = request.from;
        while next < bounds.max && next - request.from < EXAMINED_MAX as i64 {
            let Some(located) =
                self.locate(request.topic, request.queue, next, chunk_items, bounds)
            else {
                break; // The topic was deleted meanwhile.
            };
            let segment = located.segment;
            let Some((items, range)) = self.items(located.chunk, request.wait)? else {
                return Ok(None);
            };
            for item in &items[range] {
                if (request.matches)(item.tags_code()) {
                    let length = item.length as usize;
                    let full = picks.len() == messages_max
                        || (!picks.is_empty() && bytes + length > limits.bytes_max);
                    if full {
                        return Ok(Some((picks, next)));
                    }
                    bytes += length;
                    picks.push(Pick {
                        offset: next,
                        item: *item,
                        segment,
                    });
                }
                next += 1;
            }
        }
        Ok(Some((picks, next)))
    }

    /// Items of a queue from `offset` on; `None` when the queue is not what it was or ends before.
    fn locate(
        &self,
        topic: &str,
        queue: i32,
        offset: i64,
        count: usize,
        bounds: Bounds,
    ) -> Option<Located> {
        let state = self.read();
        let topic = state.topics.by_name(topic)?;
        if topic.incarnation != bounds.incarnation {
            return None;
        }
        let queue = topic.queues.get(&queue)?;
        let known = queue.min <= offset && offset < queue.next();
        known.then(|| queue.locate(offset, count, state.segment))
    }

    /// The items of a chunk; of one in a file as many as the block of the first one has.
    fn items(&self, chunk: Chunk, wait: Wait) -> Result<Option<ItemSlice>, StoreError> {
        let (file, row, range) = match chunk {
            Chunk::Memory(items, range) => return Ok(Some((items, range))),
            Chunk::File(file, row, range) => (file, row, range),
        };
        let block = range.start / BLOCK_ITEMS;
        let start = block * BLOCK_ITEMS;
        let block = self
            .blocks
            .block(&*self.files, &file, row, block, wait == Wait::Yes)?;
        Ok(block.map(|items| {
            let end = (range.end - start).min(items.len());
            (items, range.start - start..end)
        }))
    }

    /// Copies the records into one buffer, checked and filled in. `None`: the disk would have to be waited
    /// for.
    fn fetch(
        &self,
        topic: &str,
        queue: i32,
        picks: &[Pick],
        store_host: SocketAddrV4,
        wait: Wait,
    ) -> Result<Option<Bytes>, StoreError> {
        let total = picks.iter().map(|pick| pick.item.length as usize).sum();
        let mut records = BytesMut::with_capacity(total);
        for group in picks.chunk_by(near).flat_map(spans) {
            let (start, end) = (first_byte(&group[0]), end_byte(&group[group.len() - 1]));
            let length = (end - start) as usize;
            let bytes = match wait {
                Wait::Yes => self.log.read(start, length)?,
                Wait::No => match self.log.read_cached(start, length)? {
                    Some(bytes) => bytes,
                    None => return Ok(None),
                },
            };
            for pick in group {
                let from = (first_byte(pick) - start) as usize;
                let to = (end_byte(pick) - start) as usize;
                let record =
                    check(&bytes[from..to], topic, queue).map_err(|what| StoreError::Damaged {
                        position: pick.item.position,
                        what,
                    })?;
                let at = records.len();
                records.extend_from_slice(record);
                let position = pick.item.position as i64;
                fill_in(&mut records[at..], pick.offset, position, store_host);
            }
        }
        Ok(Some(records.freeze()))
    }

    /// The message at a queue offset, filled in. Waits for the disk.
    pub(super) fn message_at_offset(
        &self,
        topic: &str,
        queue: i32,
        offset: i64,
        store_host: SocketAddrV4,
    ) -> Result<Option<Bytes>, StoreError> {
        let Some(pick) = self.pick(topic, queue, offset)? else {
            return Ok(None);
        };
        self.fetch(topic, queue, &[pick], store_host, Wait::Yes)
    }

    /// The index's item at a queue offset; `None` when it is not there. Waits for the disk.
    fn pick(&self, topic: &str, queue: i32, offset: i64) -> Result<Option<Pick>, StoreError> {
        let Some(bounds) = self.bounds(topic, queue) else {
            return Ok(None);
        };
        let Some(located) = self.locate(topic, queue, offset, 1, bounds) else {
            return Ok(None);
        };
        let items = self.items(located.chunk, Wait::Yes)?;
        let item = items.and_then(|(items, range)| items.get(range.start).copied());
        Ok(item.map(|item| Pick {
            offset,
            item,
            segment: located.segment,
        }))
    }

    /// The queue offset of the message whose record starts at `position`, by the queue's index.
    pub(super) fn offset_of_position(
        &self,
        topic: &str,
        queue: i32,
        segment: Position,
        position: Position,
    ) -> Result<Option<(i64, Item)>, StoreError> {
        let range = {
            let state = self.read();
            let queue = state.queue(topic, queue);
            queue.and_then(|queue| queue.offsets_in_segment(segment, state.segment))
        };
        let Some(Range { mut start, mut end }) = range else {
            return Ok(None);
        };
        while start < end {
            let middle = start + (end - start) / 2;
            let Some(pick) = self.pick(topic, queue, middle)? else {
                return Ok(None);
            };
            match pick.item.position.cmp(&position) {
                std::cmp::Ordering::Equal => return Ok(Some((middle, pick.item))),
                std::cmp::Ordering::Less => start = middle + 1,
                std::cmp::Ordering::Greater => end = middle,
            }
        }
        Ok(None)
    }
}

/// First byte to be read of a message: its CRC.
fn first_byte(pick: &Pick) -> Position {
    pick.item.position - RECORD_PREFIX_BYTES as u64
}

fn end_byte(pick: &Pick) -> Position {
    pick.item.position + u64::from(pick.item.length)
}

/// Are two successive messages worth one read?
fn near(a: &Pick, b: &Pick) -> bool {
    a.segment == b.segment && first_byte(b).saturating_sub(end_byte(a)) <= GAP_BYTES_MAX
}

/// Splits neighbours into groups that one read may cover.
fn spans(mut picks: &[Pick]) -> Vec<&[Pick]> {
    let mut spans = Vec::new();
    while let Some(first) = picks.first() {
        let start = first_byte(first);
        let many = picks.partition_point(|pick| end_byte(pick) - start <= SPAN_BYTES_MAX);
        let (span, rest) = picks.split_at(many.max(1));
        spans.push(span);
        picks = rest;
    }
    spans
}

/// Checks bytes that should be a CRC and then a record of this queue; the record's bytes.
pub(super) fn check<'a>(bytes: &'a [u8], topic: &str, queue: i32) -> Result<&'a [u8], String> {
    let Some((prefix, record)) = bytes.split_first_chunk::<RECORD_PREFIX_BYTES>() else {
        return Err("cut short".to_string());
    };
    let (expected, found) = (u32::from_le_bytes(*prefix), crc32c::crc32c(record));
    // I-5: bytes that are not what was written are not served.
    if expected != found && !sabotage::on(Sabotage::RecordUnchecked) {
        return Err(format!("its CRC32C is {found:#010x}, not {expected:#010x}"));
    }
    let parsed = Record::parse(record).map_err(|error| error.to_string())?;
    if parsed.len() != record.len() || parsed.topic() != topic || parsed.queue_id() != queue {
        return Err(format!(
            "it is of {}/{} with {} bytes, not of {topic}/{queue} with {}",
            parsed.topic(),
            parsed.queue_id(),
            parsed.len(),
            record.len()
        ));
    }
    Ok(record)
}
