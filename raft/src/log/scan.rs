//! Walking the entries of one segment file in order, with every check.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;

use super::codec::{Expected, FRAME_BYTES, FrameError, Record, decode, decode_head};
use super::segment::HEADER_BYTES;
use crate::env::LogFile;
use crate::types::Position;

/// Bytes read at once; an entry that is longer is read as a whole.
const CHUNK: usize = 1 << 20;

/// What a scan met.
pub(crate) enum Step {
    Entry(Record),
    /// The limit, exactly at the end of an entry.
    End,
    /// No valid entry begins at the scan's position.
    Bad(FrameError),
}

/// A walk from one entry to the next.
pub(crate) struct Scanner {
    file: Arc<dyn LogFile>,
    group: u32,
    /// First position of the segment.
    first: Position,
    /// Where entries must end; the file holds nothing that counts after it.
    limit: Position,
    expected: Expected,
    buffer: BytesMut,
    /// Position of the byte after the buffer's last.
    buffered: Position,
}

impl Scanner {
    /// Begins at `expected.position`. `limit` is a position at or before the end of the file.
    pub fn new(
        file: Arc<dyn LogFile>,
        group: u32,
        first: Position,
        limit: Position,
        expected: Expected,
    ) -> Scanner {
        Scanner {
            file,
            group,
            first,
            limit,
            expected,
            buffer: BytesMut::new(),
            buffered: expected.position,
        }
    }

    /// Position of the next entry.
    pub fn position(&self) -> Position {
        self.expected.position
    }

    pub fn expected(&self) -> &Expected {
        &self.expected
    }

    /// The next entry, or why there is none. After anything but an entry the scan stays where it is.
    pub fn step(&mut self) -> io::Result<Step> {
        let room = self.limit - self.position();
        if room == 0 {
            return Ok(Step::End);
        }
        self.fill(FRAME_BYTES.min(usize::try_from(room).unwrap_or(usize::MAX)))?;
        let head = match decode_head(&self.buffer, room) {
            Ok(head) => head,
            Err(error) => return Ok(Step::Bad(error)),
        };
        let framed = usize::try_from(head.framed()).expect("a payload's length fits");
        self.fill(framed)?;
        if self.buffer.len() < framed {
            return Ok(Step::Bad(FrameError::Short {
                have: self.buffer.len() as u64,
                need: head.framed(),
            }));
        }
        let bytes = self.buffer.split_to(framed).freeze();
        let checked = decode(&bytes, self.group)
            .and_then(|record| self.expected.check(&record).map(|()| record));
        match checked {
            Ok(record) => {
                self.expected = Expected::after(&record);
                Ok(Step::Entry(record))
            }
            Err(error) => {
                // Read again from here, should anyone step again.
                self.buffer.clear();
                self.buffered = self.position();
                Ok(Step::Bad(error))
            }
        }
    }

    fn fill(&mut self, need: usize) -> io::Result<()> {
        while self.buffer.len() < need && self.buffered < self.limit {
            let room = usize::try_from(self.limit - self.buffered).unwrap_or(usize::MAX);
            let want = CHUNK.max(need - self.buffer.len()).min(room);
            let offset = HEADER_BYTES + (self.buffered - self.first);
            let read = self.file.read_at(&mut self.buffer, want, offset)?;
            if read == 0 {
                return Ok(());
            }
            self.buffered += read as u64;
        }
        Ok(())
    }
}
