//! What the store needs of the log: a seam, so that tests bring a log of their own.

use std::path::PathBuf;

use bytes::Bytes;
use quorumlog_raft::log::{ReadError, ScannedEntry};
use quorumlog_raft::{LogReader, Position};

/// As the methods of the same names of [`LogReader`].
pub(super) trait LogBytes: Send + Sync + 'static {
    fn read_cached(&self, position: Position, len: usize) -> Result<Option<Bytes>, ReadError>;
    fn read(&self, position: Position, len: usize) -> Result<Bytes, ReadError>;
    fn segments(&self) -> Vec<(Position, Position)>;
    fn scan(
        &self,
        segment: Position,
        until: Position,
        visit: &mut dyn FnMut(ScannedEntry),
    ) -> Result<(), ReadError>;
    fn dir(&self) -> PathBuf;
}

impl LogBytes for LogReader {
    fn read_cached(&self, position: Position, len: usize) -> Result<Option<Bytes>, ReadError> {
        LogReader::read_cached(self, position, len)
    }

    fn read(&self, position: Position, len: usize) -> Result<Bytes, ReadError> {
        LogReader::read(self, position, len)
    }

    fn segments(&self) -> Vec<(Position, Position)> {
        LogReader::segments(self)
    }

    fn scan(
        &self,
        segment: Position,
        until: Position,
        visit: &mut dyn FnMut(ScannedEntry),
    ) -> Result<(), ReadError> {
        LogReader::scan(self, segment, until, visit)
    }

    fn dir(&self) -> PathBuf {
        LogReader::dir(self)
    }
}
