//! Finding a message by its position in the log or by its store time.

use std::net::SocketAddrV4;

use bytes::Bytes;
use quorumlog_raft::Position;
use quorumlog_raft::log::ReadError;

use super::StoreError;
use super::entry::RECORD_PREFIX_BYTES;
use super::read::check;
use super::shared::Shared;
use crate::protocol::message::{BODY_BYTES_MAX, PROPERTIES_BYTES_MAX, Record};

/// Bytes of a record besides body, topic and properties are fewer; a topic is no longer than a u16 says.
const RECORD_BYTES_MAX: usize = BODY_BYTES_MAX + PROPERTIES_BYTES_MAX + 65_535 + 128;
/// A record is never shorter than this; its size is in the first four bytes.
const RECORD_BYTES_MIN: usize = 91;

impl Shared {
    /// The message whose record starts at `position`, filled in; `None` when none does. Any number may be
    /// asked for: what is found there is believed only if the queue's index points to it.
    pub(super) fn message_at(
        &self,
        position: Position,
        store_host: SocketAddrV4,
    ) -> Result<Option<Bytes>, StoreError> {
        let Some((segment, bytes)) = self.candidate(position)? else {
            return Ok(None);
        };
        let Ok(record) = Record::parse(&bytes[RECORD_PREFIX_BYTES..]) else {
            return Ok(None);
        };
        let (topic, queue) = (record.topic(), record.queue_id());
        let Some((offset, item)) = self.offset_of_position(topic, queue, segment, position)? else {
            return Ok(None);
        };
        let whole = RECORD_PREFIX_BYTES + item.length as usize;
        if whole != bytes.len() || check(&bytes, topic, queue).is_err() {
            return Err(StoreError::Damaged {
                position,
                what: "its CRC or its size is wrong".to_string(),
            });
        }
        self.message_at_offset(topic, queue, offset, store_host)
    }

    /// Bytes that may be a CRC and a record at `position`, by the size that they claim; and their segment.
    fn candidate(&self, position: Position) -> Result<Option<(Position, Bytes)>, StoreError> {
        let prefix = RECORD_PREFIX_BYTES as u64;
        let Some(start) = position.checked_sub(prefix) else {
            return Ok(None);
        };
        let applied = self.read().applied_end();
        let segments = self.log.segments();
        let segment = segments
            .iter()
            .find(|(first, end)| (*first..*end).contains(&start));
        let Some(&(segment, end)) = segment else {
            return Ok(None);
        };
        let left = end.min(applied).saturating_sub(start);
        if left < prefix + RECORD_BYTES_MIN as u64 {
            return Ok(None);
        }
        let read = |length| match self.log.read(start, length) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(ReadError::OutOfRange(_)) => Ok(None),
            Err(error) => Err(StoreError::from(error)),
        };
        let Some(head) = read(2 * RECORD_PREFIX_BYTES)? else {
            return Ok(None);
        };
        let Some(size) = head.last_chunk().map(|size| u32::from_be_bytes(*size)) else {
            return Ok(None);
        };
        let size = size as usize;
        let plausible = (RECORD_BYTES_MIN..=RECORD_BYTES_MAX).contains(&size)
            && (size + RECORD_PREFIX_BYTES) as u64 <= left;
        if !plausible {
            return Ok(None);
        }
        Ok(read(size + RECORD_PREFIX_BYTES)?.map(|bytes| (segment, bytes)))
    }

    /// See [`super::Store::store_time`].
    pub(super) fn store_time(
        &self,
        topic: &str,
        queue: i32,
        offset: i64,
    ) -> Result<Option<i64>, StoreError> {
        let nobody = SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 0);
        let Some(bytes) = self.message_at_offset(topic, queue, offset, nobody)? else {
            return Ok(None);
        };
        Ok(Record::parse(&bytes).ok().map(|record| record.store_ms()))
    }

    /// See [`super::Store::offset_by_time`]. Takes the queue's store times as rising, as RocketMQ does.
    pub(super) fn offset_by_time(
        &self,
        topic: &str,
        queue: i32,
        timestamp_ms: i64,
        upper: bool,
    ) -> Result<i64, StoreError> {
        let bounds = {
            let state = self.read();
            let queue = state.queue(topic, queue);
            queue.map(|queue| (queue.min, queue.next()))
        };
        let Some((min, max)) = bounds else {
            return Ok(0);
        };
        // The first offset in min..max whose store time is not before the time (`upper`: behind it).
        let (mut start, mut end) = (min, max);
        while start < end {
            let middle = start + (end - start) / 2;
            let Some(time) = self.store_time(topic, queue, middle)? else {
                return Ok(min); // The topic was deleted meanwhile.
            };
            let before = time < timestamp_ms || (upper && time == timestamp_ms);
            if before {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        Ok(if upper { (start - 1).max(min) } else { start })
    }
}
