//! The most recent entries, in memory: what replication and apply read, and what is not written yet.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::codec::{FRAME_BYTES, Record, encode_frame};
use crate::types::Position;

/// A run of entries without a gap, ending with the last of the log.
#[derive(Default)]
pub(crate) struct Cache {
    records: VecDeque<Record>,
    bytes: u64,
}

impl Cache {
    pub fn push(&mut self, record: Record) {
        if let Some(last) = self.records.back() {
            assert_eq!(last.end(), record.position, "a gap after {}", last.id);
        }
        self.bytes += record.framed();
        self.records.push_back(record);
    }

    /// Drops the oldest entries above `limit` bytes, but none that ends after `written`.
    pub fn evict(&mut self, limit: u64, written: Position) {
        while self.bytes > limit
            && let Some(front) = self.records.front()
            && front.end() <= written
        {
            self.bytes -= front.framed();
            self.records.pop_front();
        }
    }

    pub fn truncate_from(&mut self, index: u64) {
        while let Some(back) = self.records.back()
            && back.id.index >= index
        {
            self.bytes -= back.framed();
            self.records.pop_back();
        }
    }

    pub fn clear(&mut self) {
        self.records.clear();
        self.bytes = 0;
    }

    /// First index held; `None` when empty.
    pub fn first_index(&self) -> Option<u64> {
        self.records.front().map(|record| record.id.index)
    }

    /// Position of the first entry held; `None` when empty.
    pub fn first_position(&self) -> Option<Position> {
        self.records.front().map(|record| record.position)
    }

    /// Entries from `from` on; the caller has checked that `from` is not before the first.
    pub fn from(&self, from: u64) -> impl Iterator<Item = &Record> {
        let skip = from.saturating_sub(self.first_index().unwrap_or(from));
        self.records.range(
            self.records
                .len()
                .min(usize::try_from(skip).unwrap_or(usize::MAX))..,
        )
    }

    /// The entry that begins at `position`.
    pub fn at_position(&self, position: Position) -> Option<Record> {
        let at = self
            .records
            .partition_point(|record| record.position < position);
        self.records
            .get(at)
            .filter(|record| record.position == position)
            .cloned()
    }

    /// The bytes `position..position + len` of the log, when all of them are held. Not copied when they
    /// lie within one payload.
    pub fn slice(&self, position: Position, len: usize, group: u32) -> Option<Bytes> {
        let end = position.checked_add(len as u64)?;
        let first = self.records.front()?.position;
        let last = self.records.back()?.end();
        if position < first || end > last {
            return None;
        }
        let at = self
            .records
            .partition_point(|record| record.end() <= position);
        let Some(record) = self.records.get(at) else {
            return Some(Bytes::new());
        };
        let payload = record.position + FRAME_BYTES as u64;
        if position >= payload && end <= record.end() {
            let from = (position - payload) as usize;
            return Some(record.payload.slice(from..from + len));
        }
        let mut copy = BytesMut::with_capacity(len);
        for record in self.records.range(at..) {
            if record.position >= end {
                break;
            }
            let frame = encode_frame(record, group);
            copy_overlap(&mut copy, &frame, record.position, position, end);
            let payload = record.position + FRAME_BYTES as u64;
            copy_overlap(&mut copy, &record.payload, payload, position, end);
        }
        Some(copy.freeze())
    }
}

/// Appends the part of `bytes`, which begin at `at`, that lies in `from..to`.
fn copy_overlap(into: &mut BytesMut, bytes: &[u8], at: Position, from: Position, to: Position) {
    let end = at + bytes.len() as u64;
    let (start, stop) = (at.max(from), end.min(to));
    if start < stop {
        into.extend_from_slice(&bytes[(start - at) as usize..(stop - at) as usize]);
    }
}
