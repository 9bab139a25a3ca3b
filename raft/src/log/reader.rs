//! Positioned reads of the log's bytes, and scans for what is derived from them.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::codec::{Expected, FRAME_BYTES, Kind};
use super::recovery::beginning;
use super::scan::{Scanner, Step};
use super::segment::Segment;
use super::{ReadError, Shared, lock};
use crate::types::{EntryId, Position};

/// Positioned reads, shared and cheap to clone. Reads never block the log writer.
#[derive(Clone)]
pub struct LogReader {
    shared: Arc<Shared>,
}

/// An entry met by [`LogReader::scan`]. `payload` is empty for entries that Raft made for itself.
#[derive(Clone, Debug)]
pub struct ScannedEntry {
    pub id: EntryId,
    pub position: Position,
    pub payload_position: Position,
    pub payload: Bytes,
}

/// Where bytes are.
enum Place {
    Memory(Bytes),
    /// `len` bytes are in the file; what follows them may not be written yet and comes from memory.
    File {
        segment: Arc<Segment>,
        len: usize,
        rest: Bytes,
    },
}

impl LogReader {
    pub(super) fn of(shared: Arc<Shared>) -> LogReader {
        LogReader { shared }
    }

    /// Reads `len` bytes at `position` if they can be had without waiting for the disk. `Ok(None)`: use
    /// [`LogReader::read`] on a thread that may wait. A range never spans two segments.
    pub fn read_cached(&self, position: Position, len: usize) -> Result<Option<Bytes>, ReadError> {
        let (segment, in_file, rest) = match self.place(position, len)? {
            Place::Memory(bytes) => return Ok(Some(bytes)),
            Place::File { segment, len, rest } => (segment, len, rest),
        };
        let io = |source| io_error(&segment, source);
        let mut bytes = BytesMut::with_capacity(len);
        let read = segment
            .file()
            .and_then(|file| file.read_at_cached(&mut bytes, in_file, segment.offset(position)))
            .map_err(io)?;
        // Fewer bytes than asked for: the others are not in memory.
        if read != Some(in_file) {
            return Ok(None);
        }
        bytes.extend_from_slice(&rest);
        Ok(Some(bytes.freeze()))
    }

    /// Reads `len` bytes at `position`, waiting for the disk if need be.
    pub fn read(&self, position: Position, len: usize) -> Result<Bytes, ReadError> {
        let (segment, in_file, rest) = match self.place(position, len)? {
            Place::Memory(bytes) => return Ok(bytes),
            Place::File { segment, len, rest } => (segment, len, rest),
        };
        let io = |source| io_error(&segment, source);
        let mut bytes = BytesMut::with_capacity(len);
        let read = segment
            .file()
            .and_then(|file| file.read_at(&mut bytes, in_file, segment.offset(position)))
            .map_err(io)?;
        if read < in_file {
            return Err(ReadError::Damaged {
                path: segment.path.clone(),
                offset: segment.offset(position) + read as u64,
                entry: format!("with position {position} (the file ends)"),
            });
        }
        bytes.extend_from_slice(&rest);
        Ok(bytes.freeze())
    }

    /// A committed entry may not be written here yet: the majority may be others. So what lies beyond the
    /// written end comes from memory, which holds all of that and, after a restart, nothing before it.
    fn place(&self, position: Position, len: usize) -> Result<Place, ReadError> {
        let out_of_range = ReadError::OutOfRange(position);
        let state = lock(&self.shared.state);
        let Some(end) = position.checked_add(len as u64) else {
            return Err(out_of_range);
        };
        let Some(at) = state.segment_of(position) else {
            return Err(out_of_range);
        };
        if end > state.segment_end(at) {
            return Err(out_of_range);
        }
        if let Some(bytes) = state.cache.slice(position, len, self.shared.group) {
            return Ok(Place::Memory(bytes));
        }
        let segment = state.segments[at].clone();
        if end <= state.written {
            let rest = Bytes::new();
            return Ok(Place::File { segment, len, rest });
        }
        let from = state.cache.first_position().unwrap_or(end);
        assert!(
            (position..=state.written).contains(&from),
            "bytes {position}..{end}: written up to {}, in memory from {from}",
            state.written
        );
        let rest = state
            .cache
            .slice(from, (end - from) as usize, self.shared.group);
        Ok(Place::File {
            segment,
            len: (from - position) as usize,
            rest: rest.expect("memory holds everything from its first entry to the end"),
        })
    }

    /// First position still in the log.
    pub fn first_position(&self) -> Position {
        let state = lock(&self.shared.state);
        state
            .segments
            .first()
            .map_or(state.end, |first| first.header.first)
    }

    /// First and end positions of every sealed segment, oldest first, and of the active one, last.
    pub fn segments(&self) -> Vec<(Position, Position)> {
        let state = lock(&self.shared.state);
        state
            .segments
            .iter()
            .enumerate()
            .map(|(at, segment)| (segment.header.first, state.segment_end(at)))
            .collect()
    }

    /// Calls `visit(entry)` for each entry of the segment that begins at `segment`, in order, up to the
    /// entry whose end is `until`. For rebuilding what is derived from the log. Checks every CRC.
    pub fn scan(
        &self,
        segment: Position,
        until: Position,
        visit: &mut dyn FnMut(ScannedEntry),
    ) -> Result<(), ReadError> {
        let (segment, end) = {
            let state = lock(&self.shared.state);
            let at = state
                .segment_of(segment)
                .filter(|at| state.segments[*at].header.first == segment)
                .ok_or(ReadError::OutOfRange(segment))?;
            (state.segments[at].clone(), state.segment_end(at))
        };
        if until > end || until < segment.header.first {
            return Err(ReadError::OutOfRange(until));
        }
        let mut next = beginning(&segment.header);
        while next.position < until {
            // What the log writer has not written yet is in memory; what is not in memory is written.
            let record = lock(&self.shared.state).cache.at_position(next.position);
            match record {
                Some(record) => {
                    next = Expected::after(&record);
                    visit(scanned(&record));
                }
                None => next = self.scan_file(&segment, next, until, visit)?,
            }
        }
        Ok(())
    }

    /// Visits entries in the file; returns where it stopped: at `until`, or at what is not written yet.
    fn scan_file(
        &self,
        segment: &Segment,
        from: Expected,
        until: Position,
        visit: &mut dyn FnMut(ScannedEntry),
    ) -> Result<Expected, ReadError> {
        let limit = until.min(lock(&self.shared.state).written);
        let io = |source| io_error(segment, source);
        let file = segment.file().map_err(io)?.clone();
        let header = &segment.header;
        let mut scanner = Scanner::new(file, header.group, header.first, limit, from);
        loop {
            match scanner.step().map_err(io)? {
                Step::Entry(record) => visit(scanned(&record)),
                Step::End => return Ok(*scanner.expected()),
                Step::Bad(error) => {
                    let index = scanner.expected().index.unwrap_or(header.first_index);
                    return Err(ReadError::Damaged {
                        path: segment.path.clone(),
                        offset: segment.offset(scanner.position()),
                        entry: format!("{index} ({error})"),
                    });
                }
            }
        }
    }

    /// The directory that holds the segment files, for files that live beside them.
    pub fn dir(&self) -> PathBuf {
        self.shared.log_dir.clone()
    }
}

fn scanned(record: &super::codec::Record) -> ScannedEntry {
    ScannedEntry {
        id: record.id,
        position: record.position,
        payload_position: record.position + FRAME_BYTES as u64,
        payload: match record.kind {
            Kind::Normal => record.payload.clone(),
            Kind::Blank | Kind::Membership => Bytes::new(),
        },
    }
}

fn io_error(segment: &Segment, source: std::io::Error) -> ReadError {
    ReadError::Io {
        path: segment.path.clone(),
        source,
    }
}
