//! A log of segments in memory, which refuses what the real one refuses.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use quorumlog_raft::log::{ReadError, ScannedEntry};
use quorumlog_raft::{AppliedMark, Committed, EntryId, Members, Position};

use crate::store::log_bytes::LogBytes;

/// Bytes in front of each payload: like the real log's, they are not the store's business.
const FRAME_BYTES: u64 = 40;

#[derive(Default)]
struct LogState {
    bytes: Vec<u8>,
    /// First position of each segment, and first position of each entry with its payload's length.
    segments: Vec<Position>,
    entries: Vec<(Position, usize)>,
}

/// A log of segments in memory.
#[derive(Clone)]
pub struct FakeLog {
    state: Arc<Mutex<LogState>>,
    segment_bytes: u64,
    /// Where index files go.
    pub dir: PathBuf,
    /// Nothing can be read without waiting.
    pub cold: Arc<AtomicBool>,
    pub reads: Arc<AtomicUsize>,
}

impl FakeLog {
    pub fn new(segment_bytes: u64) -> FakeLog {
        FakeLog {
            state: Arc::default(),
            segment_bytes,
            dir: PathBuf::from("/node/log"),
            cold: Arc::default(),
            reads: Arc::default(),
        }
    }

    /// Appends an entry and returns it as it will be committed.
    pub fn append(&self, payload: Bytes) -> Committed {
        let mut state = self.state.lock().unwrap();
        let position = state.bytes.len() as u64;
        let full = |first: &Position| position - first >= self.segment_bytes;
        if state.segments.last().is_none_or(full) {
            state.segments.push(position);
        }
        state.entries.push((position, payload.len()));
        state.bytes.extend_from_slice(&[0xEE; FRAME_BYTES as usize]);
        state.bytes.extend_from_slice(&payload);
        let number = state.entries.len() - 1;
        state.committed(number)
    }

    pub fn committed(&self, number: usize) -> Committed {
        self.state.lock().unwrap().committed(number)
    }

    pub fn entries(&self) -> usize {
        self.state.lock().unwrap().entries.len()
    }

    pub fn flip(&self, position: Position) {
        self.state.lock().unwrap().bytes[position as usize] ^= 0x10;
    }
}

impl LogState {
    fn committed(&self, number: usize) -> Committed {
        let (position, length) = self.entries[number];
        let payload_position = position + FRAME_BYTES;
        let end = payload_position + length as u64;
        let id = EntryId {
            term: 1,
            index: number as u64,
        };
        Committed {
            id,
            segment: *self
                .segments
                .iter()
                .rfind(|first| **first <= position)
                .unwrap(),
            payload_position,
            payload: Bytes::copy_from_slice(&self.bytes[payload_position as usize..end as usize]),
            mark: AppliedMark {
                id,
                end,
                members_id: None,
                members: Members::default(),
            },
        }
    }

    fn segments(&self) -> Vec<(Position, Position)> {
        let ends = self.segments.iter().skip(1).copied();
        let ends = ends.chain([self.bytes.len() as u64]);
        self.segments.iter().copied().zip(ends).collect()
    }
}

impl LogBytes for FakeLog {
    fn read_cached(&self, position: Position, len: usize) -> Result<Option<Bytes>, ReadError> {
        if self.cold.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.read(position, len).map(Some)
    }

    fn read(&self, position: Position, len: usize) -> Result<Bytes, ReadError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let state = self.state.lock().unwrap();
        let end = position + len as u64;
        let whole = |(first, behind): &(Position, Position)| *first <= position && end <= *behind;
        if !state.segments().iter().any(whole) {
            return Err(ReadError::OutOfRange(position));
        }
        Ok(Bytes::copy_from_slice(
            &state.bytes[position as usize..end as usize],
        ))
    }

    fn segments(&self) -> Vec<(Position, Position)> {
        self.state.lock().unwrap().segments()
    }

    fn scan(
        &self,
        segment: Position,
        until: Position,
        visit: &mut dyn FnMut(ScannedEntry),
    ) -> Result<(), ReadError> {
        for number in 0..self.entries() {
            let entry = self.committed(number);
            if entry.segment == segment && entry.mark.end <= until {
                visit(ScannedEntry {
                    id: entry.id,
                    position: entry.payload_position - FRAME_BYTES,
                    payload_position: entry.payload_position,
                    payload: entry.payload,
                });
            }
        }
        Ok(())
    }

    fn dir(&self) -> PathBuf {
        self.dir.clone()
    }
}
