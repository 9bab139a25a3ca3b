//! Segment files: their headers, and the entries in them, each with every check.

use std::path::PathBuf;

use bytes::Bytes;

use super::bytes::{u32_at, u64_at};
use super::small::{Mark, mark};

const HEADER_BYTES: usize = 4096;
const FRAME_BYTES: usize = 56;
const PAYLOAD_MAX: u32 = 256 << 20;
const ENTRY_MAGIC: u32 = 0x514c_4531;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Normal,
    Blank,
    Membership,
}

/// One valid entry, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub index: u64,
    pub term: u64,
    pub kind: Kind,
    /// Of its first byte.
    pub position: u64,
    /// Bytes of frame and payload.
    pub len: u64,
    /// Over everything but the entry's own checksum.
    pub hash: u64,
}

impl Entry {
    pub fn end(&self) -> u64 {
        self.position + self.len
    }

    /// Position of the payload's first byte.
    pub fn payload(&self) -> u64 {
        self.position + FRAME_BYTES as u64
    }
}

/// A segment's file with its header.
#[derive(Clone, Debug)]
pub struct Segment {
    pub path: PathBuf,
    pub first: u64,
    pub first_index: u64,
    /// Term and index of the entry before.
    pub before: Option<(u64, u64)>,
    pub mark: Option<Mark>,
    capacity: u64,
    group: u32,
    bytes: Bytes,
}

/// Where a scan ended, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The segment's end, or zeros.
    End,
    /// Bytes that are no valid next entry.
    Bad(&'static str),
}

impl Segment {
    /// Reads the header of a segment file whose bytes are given.
    pub fn open(path: PathBuf, bytes: Bytes, group: u32) -> Result<Segment, &'static str> {
        let Some(block) = bytes.get(..HEADER_BYTES) else {
            return Err("the header is cut short");
        };
        let crc = crc32c::crc32c_append(crc32c::crc32c(&block[..12]), &block[16..72]);
        if &block[..8] != b"QLSEGMNT" || u32_at(block, 12) != crc {
            return Err("the header is damaged");
        }
        if u32_at(block, 8) != 1 {
            return Err("the header has an unknown version");
        }
        if u32_at(block, 16) != group {
            return Err("the segment belongs to another group");
        }
        Ok(Segment {
            path,
            first: u64_at(block, 24),
            first_index: u64_at(block, 32),
            before: (block[20] == 1).then(|| (u64_at(block, 40), u64_at(block, 48))),
            mark: mark(block),
            capacity: u64_at(block, 56),
            group,
            bytes: bytes.clone(),
        })
    }

    /// Walks the entries up to `limit`, the first position of the next segment; `None`: as far as there are
    /// any. Returns where the last one ends and why there is no other.
    pub fn walk(&self, limit: Option<u64>, visit: &mut dyn FnMut(Entry, Bytes)) -> (u64, Stop) {
        let held = (self.bytes.len() - HEADER_BYTES) as u64;
        let limit = limit.unwrap_or(self.first + held.min(self.capacity));
        let mut at = self.first;
        let mut index = self.first_index;
        let mut term = self.before.map_or(0, |(term, _)| term);
        while at < limit {
            let room = (limit - at).min(held.saturating_sub(at - self.first));
            let rest = self.rest(at, room);
            if rest.iter().take(FRAME_BYTES).all(|byte| *byte == 0) {
                return (at, Stop::End);
            }
            match entry(rest, at, index, term, self.group) {
                Err(what) => return (at, Stop::Bad(what)),
                Ok(entry) => {
                    let start = HEADER_BYTES + (at - self.first) as usize;
                    let payload = start + FRAME_BYTES..start + entry.len as usize;
                    visit(entry, self.bytes.slice(payload));
                    at = entry.end();
                    (index, term) = (entry.index + 1, entry.term);
                }
            }
        }
        (at, Stop::End)
    }

    fn rest(&self, at: u64, room: u64) -> &[u8] {
        let start = HEADER_BYTES + (at - self.first) as usize;
        &self.bytes[start.min(self.bytes.len())..][..room as usize]
    }

    /// Bytes at and behind `at`, up to the last that is not zero.
    pub fn torn(&self, at: u64) -> u64 {
        let held = (self.bytes.len() - HEADER_BYTES) as u64;
        let rest = self.rest(at, held.saturating_sub(at - self.first));
        rest.iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last as u64 + 1)
    }
}

/// The entry at the start of `rest`, which must be this one.
fn entry(rest: &[u8], at: u64, index: u64, before: u64, group: u32) -> Result<Entry, &'static str> {
    let Some(frame) = rest.get(..FRAME_BYTES) else {
        return Err("a frame cut short");
    };
    let payload = u32_at(frame, 8);
    if u32_at(frame, 0) != ENTRY_MAGIC {
        return Err("no entry begins here");
    }
    if payload > PAYLOAD_MAX {
        return Err("an impossible length");
    }
    let len = FRAME_BYTES + payload as usize;
    let Some(whole) = rest.get(..len) else {
        return Err("an entry cut short");
    };
    let crc = crc32c::crc32c(&whole[8..]);
    if crc != u32_at(frame, 4) {
        return Err("the checksum does not match");
    }
    let kind = match (frame[12], frame[13]) {
        (1, 1) => Kind::Normal,
        (2, 1) => Kind::Blank,
        (3, 1) => Kind::Membership,
        _ => return Err("an unknown kind or version"),
    };
    let term = u64_at(frame, 24);
    if u32_at(frame, 16) != group {
        return Err("an entry of another group");
    }
    if u64_at(frame, 40) != at || u64_at(frame, 32) != index {
        return Err("an entry of another place");
    }
    if u64_at(frame, 48) != before || term < before {
        return Err("an entry that follows another one");
    }
    Ok(Entry {
        index,
        term,
        kind,
        position: at,
        len: len as u64,
        // Two checksums of different polynomials tell as much as one of 64 bits.
        hash: u64::from(crc) << 32 | u64::from(crc32fast::hash(&whole[8..])),
    })
}
