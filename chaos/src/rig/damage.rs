//! What time, firmware and operators do to files: flipped bits, torn tails, zeros, garbage, recycled bytes,
//! missing and swapped files, directories rolled back. Of the format it knows as much as it needs to aim.
//!
//! A segment `log/<first position, 20 digits>.seg` is a header block of 4096 bytes, then entries. An entry is
//! a frame of 56 bytes and its payload: magic `0x514c4531` at 0, CRC32C at 4, payload length at 8, term at 24,
//! index at 32, position at 40, all little endian. The header block has two slots that say up to which position
//! the file was known to be durable, at 1024 and 2048: magic `0x514c4d31` at 0, sequence at 8, position at 16.
//! The vote file has such slots at 0 and 4096: magic `0x514c5631`, term at 16, who was voted for at 24, and at 32
//! a byte that is 1 when there is a vote.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::RigError;
use crate::rng::Rng;

/// Bytes in front of the first entry.
pub const HEADER_BYTES: u64 = 4096;
/// Bytes in front of a payload.
pub const FRAME_BYTES: u64 = 56;
const ENTRY_MAGIC: u32 = 0x514c_4531;
const MARK_MAGIC: u32 = 0x514c_4d31;
const VOTE_MAGIC: u32 = 0x514c_5631;
const MARKS: [u64; 2] = [1024, 2048];
/// A slot of a vote file lies at the start of a block.
const VOTE_SLOTS: [u64; 2] = [0, 4096];
/// What a disk writes as one.
const SECTOR: u64 = 512;

type Result<T> = std::result::Result<T, RigError>;

fn failed(path: &Path) -> impl FnOnce(io::Error) -> RigError {
    RigError::io(path.display().to_string())
}

fn unfit(path: &Path, what: impl Into<String>) -> RigError {
    failed(path)(io::Error::other(what.into()))
}

/// An entry as it lies in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub term: u64,
    pub index: u64,
    /// File offsets of frame and payload.
    pub bytes: Range<u64>,
}

/// A segment file.
#[derive(Clone, Debug)]
pub struct Segment {
    pub path: PathBuf,
    /// Position of its first entry.
    pub first: u64,
}

/// The segments of a node's directory, oldest first.
pub fn segments(dir: &Path) -> Result<Vec<Segment>> {
    let log = dir.join("log");
    let mut found = Vec::new();
    for file in std::fs::read_dir(&log).map_err(failed(&log))? {
        let path = file.map_err(failed(&log))?.path();
        let first = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(".seg")?.parse().ok());
        if let Some(first) = first {
            found.push(Segment { path, first });
        }
    }
    found.sort_by_key(|segment| segment.first);
    Ok(found)
}

/// The segment that is written to.
pub fn last_segment(dir: &Path) -> Result<Segment> {
    segments(dir)?
        .pop()
        .ok_or_else(|| unfit(dir, "no segment file"))
}

impl Segment {
    /// Its entries, as far as frames follow each other. Checksums are not looked at.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let file = File::open(&self.path).map_err(failed(&self.path))?;
        let mut entries = Vec::new();
        let mut at = HEADER_BYTES;
        let mut frame = [0; FRAME_BYTES as usize];
        while file.read_exact_at(&mut frame, at).is_ok() && number32(&frame, 0) == ENTRY_MAGIC {
            let end = at + FRAME_BYTES + u64::from(number32(&frame, 8));
            entries.push(Entry {
                term: number64(&frame, 24),
                index: number64(&frame, 32),
                bytes: at..end,
            });
            at = end;
        }
        Ok(entries)
    }

    /// File offset of the byte up to which the file says that it is durable: what is before it may never be
    /// cut, what is after it may.
    pub fn durable(&self) -> Result<u64> {
        let file = File::open(&self.path).map_err(failed(&self.path))?;
        let mut newest = None;
        for offset in MARKS {
            let mut slot = [0; 64];
            file.read_exact_at(&mut slot, offset)
                .map_err(failed(&self.path))?;
            if number32(&slot, 0) == MARK_MAGIC {
                newest = newest.max(Some((number64(&slot, 8), number64(&slot, 16))));
            }
        }
        let (_, position) = newest.ok_or_else(|| unfit(&self.path, "no durable mark"))?;
        Ok(HEADER_BYTES + position.saturating_sub(self.first))
    }
}

/// The last index of a node's log; `None` when there is no entry.
pub fn last_index(dir: &Path) -> Result<Option<u64>> {
    for segment in segments(dir)?.iter().rev() {
        if let Some(last) = segment.entries()?.last() {
            return Ok(Some(last.index));
        }
    }
    Ok(None)
}

/// The last index of a node's log up to which the last segment with entries has the bytes that were written.
pub fn last_whole_index(dir: &Path) -> Result<Option<u64>> {
    for segment in segments(dir)?.iter().rev() {
        let entries = segment.entries()?;
        if entries.is_empty() {
            continue;
        }
        let mut last = entries[0].index.checked_sub(1);
        for entry in entries {
            // A length that is torn may point beyond the end of the file.
            let Ok(bytes) = read(&segment.path, entry.bytes) else {
                break;
            };
            if crc32c::crc32c(&bytes[8..]) != number32(&bytes, 4) {
                break;
            }
            last = Some(entry.index);
        }
        return Ok(last);
    }
    Ok(None)
}

/// What a node's vote file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedVote {
    pub term: u64,
    pub voted_for: u64,
}

/// The newer of the two slots of a node's vote file; `None` when it holds no vote. Checksums are not looked at.
pub fn saved_vote(dir: &Path) -> Result<Option<SavedVote>> {
    let path = dir.join("vote");
    let mut newest = None;
    for offset in VOTE_SLOTS {
        let slot = read(&path, offset..offset + 64)?;
        if number32(&slot, 0) == VOTE_MAGIC && slot[32] == 1 {
            newest = newest.max(Some((
                number64(&slot, 8),
                number64(&slot, 16),
                number64(&slot, 24),
            )));
        }
    }
    Ok(newest.map(|(_, term, voted_for)| SavedVote { term, voted_for }))
}

fn number32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn number64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn writable(path: &Path) -> Result<File> {
    File::options()
        .read(true)
        .write(true)
        .open(path)
        .map_err(failed(path))
}

/// Writes over the bytes at `offset`; the file does not become longer than it must.
pub fn overwrite(path: &Path, offset: u64, bytes: &[u8]) -> Result<()> {
    writable(path)?
        .write_all_at(bytes, offset)
        .map_err(failed(path))
}

/// Some bytes of a file.
pub fn read(path: &Path, range: Range<u64>) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).expect("fits memory")];
    File::open(path)
        .and_then(|file| file.read_exact_at(&mut bytes, range.start))
        .map_err(failed(path))?;
    Ok(bytes)
}

/// Length of a file.
pub fn len(path: &Path) -> Result<u64> {
    std::fs::metadata(path)
        .map(|metadata| metadata.len())
        .map_err(failed(path))
}

/// CRC-32 of a whole file, to see whether it was changed.
pub fn checksum(path: &Path) -> Result<u32> {
    std::fs::read(path)
        .map(|bytes| crc32fast::hash(&bytes))
        .map_err(failed(path))
}

/// Writes a file as a whole.
pub fn restore(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).map_err(failed(path))
}

/// Turns one bit of the byte at `offset` around.
pub fn flip_bit(path: &Path, offset: u64, bit: u32) -> Result<()> {
    let byte = read(path, offset..offset + 1)?[0];
    overwrite(path, offset, &[byte ^ (1 << (bit % 8))])
}

/// Turns one bit in the middle of an entry's payload around (of its frame when it has none).
pub fn flip_entry(segment: &Segment, entry: &Entry) -> Result<()> {
    let len = entry.bytes.end - entry.bytes.start;
    let at = if len > FRAME_BYTES {
        entry.bytes.start + FRAME_BYTES + (len - FRAME_BYTES) / 2
    } else {
        entry.bytes.start + len / 2
    };
    flip_bit(&segment.path, at, 3)
}

/// Ends the file before the byte at `len`.
pub fn truncate(path: &Path, len: u64) -> Result<()> {
    writable(path)?.set_len(len).map_err(failed(path))
}

/// Puts zeros over a range.
pub fn zero(path: &Path, range: Range<u64>) -> Result<()> {
    let len = usize::try_from(range.end - range.start).expect("fits memory");
    overwrite(path, range.start, &vec![0; len])
}

/// Puts random bytes over a range.
pub fn garbage(path: &Path, range: Range<u64>, seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed);
    let bytes: Vec<u8> = range.clone().map(|_| rng.below(256) as u8).collect();
    overwrite(path, range.start, &bytes)
}

/// Puts the bytes of whole older entries where the next entry would begin: what a recycled block holds.
pub fn recycle(segment: &Segment, entries: usize) -> Result<()> {
    let all = segment.entries()?;
    let (Some(first), Some(end)) = (all.len().checked_sub(entries), all.last()) else {
        return Err(unfit(&segment.path, format!("less than {entries} entries")));
    };
    let bytes = read(&segment.path, all[first].bytes.start..end.bytes.end)?;
    overwrite(&segment.path, end.bytes.end, &bytes)
}

/// Writes `count` more entries behind the last one, each a copy of it under the next index and position whose
/// checksum is wrong: entries of which not every byte reached the disk. Returns the file offset of their end.
pub fn append_torn(segment: &Segment, last: &Entry, count: u64) -> Result<u64> {
    let mut bytes = read(&segment.path, last.bytes.clone())?;
    let mut at = last.bytes.end;
    for number in 1..=count {
        bytes[32..40].copy_from_slice(&(last.index + number).to_le_bytes());
        bytes[40..48].copy_from_slice(&(segment.first + at - HEADER_BYTES).to_le_bytes());
        overwrite(&segment.path, at, &bytes)?;
        at += bytes.len() as u64;
    }
    Ok(at)
}

/// A sector within a range as it was before it was ever written, while the ones after it hold what they should.
/// Returns the range of zeros; an error when the range has no whole sector.
pub fn lose_sector(path: &Path, range: Range<u64>) -> Result<Range<u64>> {
    let first = range.start.div_ceil(SECTOR) * SECTOR;
    let whole = (range.end / SECTOR * SECTOR).saturating_sub(first) / SECTOR;
    if whole == 0 {
        return Err(unfit(path, format!("no whole sector in {range:?}")));
    }
    let start = first + whole / 2 * SECTOR;
    zero(path, start..start + SECTOR)?;
    Ok(start..start + SECTOR)
}

/// Removes a file.
pub fn remove(path: &Path) -> Result<()> {
    std::fs::remove_file(path).map_err(failed(path))
}

/// What became of a vote file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoteDamage {
    /// A bit of one of its two slots: the other one counts.
    OneSlot,
    BothSlots,
    Empty,
    Missing,
}

/// Damages the vote file of a node's directory.
pub fn damage_vote(dir: &Path, how: VoteDamage) -> Result<()> {
    let path = dir.join("vote");
    match how {
        VoteDamage::OneSlot => flip_bit(&path, VOTE_SLOTS[1] + 20, 1),
        VoteDamage::BothSlots => VOTE_SLOTS
            .iter()
            .try_for_each(|slot| flip_bit(&path, slot + 20, 1)),
        VoteDamage::Empty => truncate(&path, 0),
        VoteDamage::Missing => remove(&path),
    }
}

/// Files directly below `dir` whose name ends with `ending`, sorted.
pub fn files_ending(dir: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(dir).map_err(failed(dir))? {
        let path = file.map_err(failed(dir))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Copies a directory as it is; holes stay holes.
pub fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).map_err(failed(to))?;
    for file in std::fs::read_dir(from).map_err(failed(from))? {
        let file = file.map_err(failed(from))?;
        let (old, new) = (file.path(), to.join(file.file_name()));
        if old.is_dir() {
            copy_dir(&old, &new)?;
        } else {
            copy_sparse(&old, &new)?;
        }
    }
    Ok(())
}

/// Segments are allocated far beyond what is written; a copy needs none of that.
fn copy_sparse(from: &Path, to: &Path) -> Result<()> {
    const PIECE: usize = 64 << 10;
    let bytes = std::fs::read(from).map_err(failed(from))?;
    let file = File::create(to).map_err(failed(to))?;
    file.set_len(bytes.len() as u64).map_err(failed(to))?;
    for (at, piece) in bytes.chunks(PIECE).enumerate() {
        if piece.iter().any(|byte| *byte != 0) {
            file.write_all_at(piece, (at * PIECE) as u64)
                .map_err(failed(to))?;
        }
    }
    Ok(())
}

/// Empties a directory and keeps it: a mount point cannot be removed.
pub fn wipe_dir(dir: &Path) -> Result<()> {
    for file in std::fs::read_dir(dir).map_err(failed(dir))? {
        let path = file.map_err(failed(dir))?.path();
        let removed = if path.is_dir() {
            std::fs::remove_dir_all(&path)
        } else {
            std::fs::remove_file(&path)
        };
        removed.map_err(failed(&path))?;
    }
    Ok(())
}

/// Puts an older copy in place of a directory's content.
pub fn roll_back_dir(dir: &Path, older: &Path) -> Result<()> {
    wipe_dir(dir)?;
    copy_dir(older, dir)
}

/// Exchanges the contents of two directories. `spare` is a directory with room for one of them.
pub fn swap_dirs(one: &Path, other: &Path, spare: &Path) -> Result<()> {
    copy_dir(one, spare)?;
    roll_back_dir(one, other)?;
    roll_back_dir(other, spare)
}

#[cfg(test)]
#[path = "damage_tests.rs"]
mod tests;
