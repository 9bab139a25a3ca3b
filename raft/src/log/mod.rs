//! The log on this node's disk: segment files, the log writer, the vote file, recovery, positioned reads.
//!
//! Owns every byte below the data directory's `log/`, `vote`, `node.id` and `LOCK`. Knows nothing of peers
//! or of openraft.

use std::io;
use std::path::PathBuf;

use bytes::Bytes;

use crate::types::Position;

/// Why a data directory cannot be opened. Every text names the file and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "{path} is in use by another process; two nodes must not share a data directory (storePathRootDir)"
    )]
    Locked { path: PathBuf },
    #[error(
        "{path} belongs to {found}, but this node is {expected}; check dLegerGroup, dLegerSelfId and storePathRootDir"
    )]
    Foreign {
        path: PathBuf,
        found: String,
        expected: String,
    },
    #[error(
        "{path}: format version {found} is newer than this program knows ({known}); start the newer version"
    )]
    Version {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    #[error(
        "{path}: entry {entry} at byte {offset} is damaged, before the position that was durable ({durable}); \
         the log was not cut. The other nodes still hold the entry: restore this file from a copy, or empty \
         the data directory and let the node be filled again"
    )]
    Damaged {
        path: PathBuf,
        offset: u64,
        entry: String,
        durable: Position,
    },
    #[error("{path}: {what}. A node that does not know how it voted must not vote")]
    Vote { path: PathBuf, what: String },
}

/// Why bytes at a position could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("position {0} is not in this log")]
    OutOfRange(Position),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// Positioned reads, shared and cheap to clone. Reads never block the log writer.
#[derive(Clone)]
pub struct LogReader {
    // TO BE FILLED by the owner of this module.
}

#[allow(clippy::todo, unused_variables)]
impl LogReader {
    /// Reads `len` bytes at `position` if they can be had without waiting for the disk. `Ok(None)`: use
    /// [`LogReader::read`] on a thread that may wait. A range never spans two segments.
    pub fn read_cached(&self, position: Position, len: usize) -> Result<Option<Bytes>, ReadError> {
        todo!()
    }

    /// Reads `len` bytes at `position`, waiting for the disk if need be.
    pub fn read(&self, position: Position, len: usize) -> Result<Bytes, ReadError> {
        todo!()
    }

    /// First position still in the log.
    pub fn first_position(&self) -> Position {
        todo!()
    }

    /// First and end positions of every sealed segment, oldest first, and of the active one, last.
    pub fn segments(&self) -> Vec<(Position, Position)> {
        todo!()
    }

    /// Calls `visit(entry)` for each entry of the segment that begins at `segment`, in order, up to the
    /// entry whose end is `until`. For rebuilding what is derived from the log. Checks every CRC.
    pub fn scan(
        &self,
        segment: Position,
        until: Position,
        visit: &mut dyn FnMut(ScannedEntry),
    ) -> Result<(), ReadError> {
        todo!()
    }

    /// The directory that holds the segment files, for files that live beside them.
    pub fn dir(&self) -> PathBuf {
        todo!()
    }
}

/// An entry met by [`LogReader::scan`]. `payload` is empty for entries that Raft made for itself.
#[derive(Clone, Debug)]
pub struct ScannedEntry {
    pub id: crate::types::EntryId,
    pub position: Position,
    pub payload_position: Position,
    pub payload: Bytes,
}
