//! Small records that are overwritten in place and never lost: two checked slots, the newer valid one counts.
//!
//! Used for the vote and the purge watermark, each in a file of its own. The durable marks in segment
//! headers use the same slots but are written without waiting.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;

use super::codec::{u32_at, u64_at};
use crate::env::{Files, LogFile};

/// Bytes of a slot's content; the rest of its block is unused.
pub(crate) const SLOT_BYTES: usize = 64;
const CONTENT: usize = 40;
/// Each slot of a file has a block of its own, so that one torn or bad block harms one slot.
const BLOCK: u64 = 4096;

/// Encodes a slot: magic, sequence, up to 40 bytes of content, checksum.
pub(crate) fn encode_slot(magic: u32, sequence: u64, content: &[u8; CONTENT]) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[0..4].copy_from_slice(&magic.to_le_bytes());
    slot[8..16].copy_from_slice(&sequence.to_le_bytes());
    slot[16..56].copy_from_slice(content);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&slot[0..4]), &slot[8..]);
    slot[4..8].copy_from_slice(&crc.to_le_bytes());
    slot
}

/// The sequence and content of a slot, when it is whole.
pub(crate) fn decode_slot(magic: u32, bytes: &[u8]) -> Option<(u64, [u8; CONTENT])> {
    let slot = bytes.get(..SLOT_BYTES)?;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&slot[0..4]), &slot[8..]);
    if u32_at(slot, 0) != magic || u32_at(slot, 4) != crc {
        return None;
    }
    let content = slot[16..56].try_into().expect("forty bytes");
    Some((u64_at(slot, 8), content))
}

/// The newer of two slots that are whole.
pub(crate) fn newest(magic: u32, first: &[u8], second: &[u8]) -> Option<(u64, [u8; CONTENT])> {
    match (decode_slot(magic, first), decode_slot(magic, second)) {
        (Some(first), Some(second)) if second.0 > first.0 => Some(second),
        (Some(first), _) => Some(first),
        (None, second) => second,
    }
}

/// A file of two slots.
pub(crate) struct SlotFile {
    file: Arc<dyn LogFile>,
    magic: u32,
    sequence: u64,
}

impl SlotFile {
    /// Makes the file with an initial record in both slots. The name is durable only after the caller has
    /// synced the directory.
    pub fn create(
        files: &dyn Files,
        path: &Path,
        magic: u32,
        content: &[u8; CONTENT],
    ) -> io::Result<SlotFile> {
        let file = files.open(path, true)?;
        file.set_len(0)?;
        file.set_len(2 * BLOCK)?;
        let mut slots = SlotFile {
            file,
            magic,
            sequence: 0,
        };
        slots.save(content)?;
        Ok(slots)
    }

    /// Opens the file and reads the record that counts. `Ok(None)`: neither slot is whole.
    pub fn open(
        files: &dyn Files,
        path: &Path,
        magic: u32,
    ) -> io::Result<Option<(SlotFile, [u8; CONTENT])>> {
        let file = files.open(path, false)?;
        // What counts is what the disk has, not what a failed sync left in memory.
        file.forget_cached()?;
        let Some((sequence, content)) = read(file.as_ref(), magic)? else {
            return Ok(None);
        };
        let slots = SlotFile {
            file,
            magic,
            sequence,
        };
        Ok(Some((slots, content)))
    }

    /// Writes the record into one slot, waits for the disk, then into the other: at every moment one slot
    /// is whole, and afterwards either one alone is enough. Two waits, because votes are rare.
    pub fn save(&mut self, content: &[u8; CONTENT]) -> io::Result<()> {
        for _ in 0..2 {
            self.put(content)?;
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// Writes the record into the older slot; not durable yet.
    pub fn put(&mut self, content: &[u8; CONTENT]) -> io::Result<()> {
        self.sequence += 1;
        let slot = encode_slot(self.magic, self.sequence, content);
        self.file
            .write_all_at(&[&slot], (self.sequence % 2) * BLOCK)
    }
}

fn read(file: &dyn LogFile, magic: u32) -> io::Result<Option<(u64, [u8; CONTENT])>> {
    let mut first = BytesMut::new();
    let mut second = BytesMut::new();
    file.read_at(&mut first, SLOT_BYTES, 0)?;
    file.read_at(&mut second, SLOT_BYTES, BLOCK)?;
    Ok(newest(magic, &first, &second))
}
