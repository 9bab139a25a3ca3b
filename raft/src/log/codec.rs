//! Bytes of an entry: the checked frame in front of each payload, and the content of membership entries.
//!
//! One encoding for leader and followers, so that a log prefix is the same bytes on every replica. What
//! surrounds entries (segment headers, slots) belongs to `segment` and `slots`.

use std::collections::BTreeMap;

use bincode::Options;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::types::{EntryId, Members, NodeId, Peer, Position};

/// Bytes in front of every payload.
pub(crate) const FRAME_BYTES: usize = 56;
/// Largest payload of one entry, in bytes. A bound for recovery, far above what a broker proposes.
pub(crate) const MAX_PAYLOAD: u32 = 256 << 20;
/// Version of the frame.
const VERSION: u8 = 1;
const MAGIC: u32 = 0x514c_4531;
/// Largest encoded membership, in bytes.
const MAX_MEMBERS: u64 = 1 << 20;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A proposed payload.
    Normal,
    /// An empty entry with which a leader begins its term.
    Blank,
    /// The members of the group; the payload is [`encode_members`].
    Membership,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Kind::Normal => 1,
            Kind::Blank => 2,
            Kind::Membership => 3,
        }
    }

    fn of(code: u8) -> Option<Kind> {
        match code {
            1 => Some(Kind::Normal),
            2 => Some(Kind::Blank),
            3 => Some(Kind::Membership),
            _ => None,
        }
    }
}

/// One entry as the log knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub kind: Kind,
    pub id: EntryId,
    /// Term of the entry before; 0 for the first entry of all.
    pub prev_term: u64,
    /// Position of the first byte of the frame.
    pub position: Position,
    pub payload: Bytes,
}

impl Record {
    /// Length of frame and payload, in bytes.
    pub fn framed(&self) -> u64 {
        framed(self.payload.len())
    }

    /// Position after the last byte.
    pub fn end(&self) -> Position {
        self.position + self.framed()
    }
}

/// Framed length of a payload of `len` bytes.
pub(crate) fn framed(len: usize) -> u64 {
    (FRAME_BYTES + len) as u64
}

/// The frame that goes in front of `record`'s payload. `group` is [`group_tag`].
pub(crate) fn encode_frame(record: &Record, group: u32) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    let len = u32::try_from(record.payload.len()).expect("append bounds the payload");
    frame[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    frame[8..12].copy_from_slice(&len.to_le_bytes());
    frame[12] = record.kind.code();
    frame[13] = VERSION;
    // 14..16 and 20..24 are zero, for later versions.
    frame[16..20].copy_from_slice(&group.to_le_bytes());
    frame[24..32].copy_from_slice(&record.id.term.to_le_bytes());
    frame[32..40].copy_from_slice(&record.id.index.to_le_bytes());
    frame[40..48].copy_from_slice(&record.position.to_le_bytes());
    frame[48..56].copy_from_slice(&record.prev_term.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&frame[8..]), &record.payload);
    frame[4..8].copy_from_slice(&crc.to_le_bytes());
    frame
}

/// Why bytes are not an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    /// Nothing was ever written here.
    #[error("nothing but zeros")]
    Zero,
    #[error("no entry begins here")]
    Magic,
    #[error("cut short: {have} of {need} bytes")]
    Short { have: u64, need: u64 },
    #[error("length {0} is impossible")]
    Length(u32),
    #[error("the checksum does not match")]
    Checksum,
    #[error("entry format version {0} is newer than this program knows")]
    Version(u8),
    #[error("unknown kind {0}")]
    Kind(u8),
    #[error("the entry belongs to another group")]
    Group,
    #[error("the entry says it is at position {0}")]
    Position(Position),
    #[error("the entry is {found}, expected index {index}")]
    Index { found: EntryId, index: u64 },
    #[error("the entry follows term {found}, but the one before has term {expected}")]
    Chain { found: u64, expected: u64 },
}

/// A frame whose magic and length make sense; nothing else is checked yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub payload_len: u32,
}

impl Head {
    /// Framed length, in bytes.
    pub fn framed(&self) -> u64 {
        framed(self.payload_len as usize)
    }
}

/// Reads how long the entry at the start of `bytes` says it is. `room` bounds the whole entry.
pub(crate) fn decode_head(bytes: &[u8], room: u64) -> Result<Head, FrameError> {
    let Some(frame) = bytes.get(..FRAME_BYTES) else {
        return if bytes.iter().all(|byte| *byte == 0) {
            Err(FrameError::Zero)
        } else {
            Err(FrameError::Short {
                have: bytes.len() as u64,
                need: FRAME_BYTES as u64,
            })
        };
    };
    if frame.iter().all(|byte| *byte == 0) {
        return Err(FrameError::Zero);
    }
    if u32_at(frame, 0) != MAGIC {
        return Err(FrameError::Magic);
    }
    let payload_len = u32_at(frame, 8);
    let head = Head { payload_len };
    if payload_len > MAX_PAYLOAD {
        return Err(FrameError::Length(payload_len));
    }
    if head.framed() > room {
        return Err(FrameError::Short {
            have: room,
            need: head.framed(),
        });
    }
    Ok(head)
}

/// Decodes and checks one whole entry: `bytes` is exactly its frame and payload, as [`decode_head`] says.
pub(crate) fn decode(bytes: &Bytes, group: u32) -> Result<Record, FrameError> {
    let head = decode_head(bytes, bytes.len() as u64)?;
    if head.framed() != bytes.len() as u64 {
        return Err(FrameError::Length(head.payload_len));
    }
    if crc32c::crc32c(&bytes[8..]) != u32_at(bytes, 4) {
        return Err(FrameError::Checksum);
    }
    if bytes[13] != VERSION {
        return Err(FrameError::Version(bytes[13]));
    }
    let kind = Kind::of(bytes[12]).ok_or(FrameError::Kind(bytes[12]))?;
    if u32_at(bytes, 16) != group {
        return Err(FrameError::Group);
    }
    Ok(Record {
        kind,
        id: EntryId {
            term: u64_at(bytes, 24),
            index: u64_at(bytes, 32),
        },
        prev_term: u64_at(bytes, 48),
        position: u64_at(bytes, 40),
        payload: bytes.slice(FRAME_BYTES..),
    })
}

/// What the next entry of a log must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub position: Position,
    /// `None`: any index may begin this log.
    pub index: Option<u64>,
    /// Term of the entry before; `None` where it is not known.
    pub prev_term: Option<u64>,
}

impl Expected {
    /// What follows `record`.
    pub fn after(record: &Record) -> Expected {
        Expected {
            position: record.end(),
            index: Some(record.id.index + 1),
            prev_term: Some(record.id.term),
        }
    }

    /// Checks that `record` is the entry that belongs here.
    pub fn check(&self, record: &Record) -> Result<(), FrameError> {
        if record.position != self.position {
            return Err(FrameError::Position(record.position));
        }
        if let Some(index) = self.index
            && record.id.index != index
        {
            return Err(FrameError::Index {
                found: record.id,
                index,
            });
        }
        if let Some(expected) = self.prev_term
            && (record.prev_term != expected || record.id.term < expected)
        {
            return Err(FrameError::Chain {
                found: record.prev_term,
                expected,
            });
        }
        Ok(())
    }
}

/// The group's tag in every frame and header: a checksum of its name.
pub(crate) fn group_tag(group: &str) -> u32 {
    crc32c::crc32c(group.as_bytes())
}

/// Content of a membership entry on disk and between peers.
#[derive(Serialize, Deserialize)]
struct MembersRecord {
    version: u8,
    voters: Vec<Vec<NodeId>>,
    nodes: Vec<(NodeId, String)>,
}

fn bincode_options() -> impl Options {
    bincode::DefaultOptions::new().with_limit(MAX_MEMBERS)
}

/// Encodes the members of a group. Bounded by 1 MiB.
pub(crate) fn encode_members(members: &Members) -> Bytes {
    let record = MembersRecord {
        version: 1,
        voters: members.voters.clone(),
        nodes: members
            .nodes
            .iter()
            .map(|(node, peer)| (*node, peer.address.clone()))
            .collect(),
    };
    bincode_options()
        .serialize(&record)
        .expect("a membership is far below the limit")
        .into()
}

/// Decodes [`encode_members`]; `None` when the bytes are not that.
pub(crate) fn decode_members(bytes: &[u8]) -> Option<Members> {
    let record: MembersRecord = bincode_options().deserialize(bytes).ok()?;
    if record.version != 1 {
        return None;
    }
    let nodes: BTreeMap<NodeId, Peer> = record
        .nodes
        .into_iter()
        .map(|(node, address)| (node, Peer { address }))
        .collect();
    Some(Members {
        voters: record.voters,
        nodes,
    })
}

/// Little-endian number at `at`; the caller has checked the length.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Little-endian number at `at`; the caller has checked the length.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
