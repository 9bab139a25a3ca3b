//! A segment file: its header block with the durable marks, and how a new one is made.
//!
//! The block is 4096 bytes; entries follow. A position's file offset is
//! `HEADER_BYTES + (position - first position)`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use bytes::BytesMut;

use super::codec::{u32_at, u64_at};
use super::lock;
use super::slots::{SLOT_BYTES, encode_slot, newest};
use super::table::Table;
use crate::env::{Files, LogFile};
use crate::sabotage::{self, Sabotage};
use crate::types::{EntryId, Position};

/// Bytes of the header block.
pub(crate) const HEADER_BYTES: u64 = 4096;
/// The name under which the next segment is prepared.
pub(crate) const PREPARED: &str = "next.tmp";
const MAGIC: &[u8; 8] = b"QLSEGMNT";
const VERSION: u32 = 1;
const FIXED: usize = 72;
const MARK_MAGIC: u32 = 0x514c_4d31;
/// The two slots lie in sectors of their own.
const MARK_OFFSETS: [u64; 2] = [1024, 2048];

/// What a segment's header says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub group: u32,
    /// Position of the first entry.
    pub first: Position,
    pub first_index: u64,
    /// The entry before the first; `None` at the very beginning of a log.
    pub prev: Option<EntryId>,
    /// Bytes of entries the segment may hold.
    pub capacity: u64,
}

/// A lower bound of what was durable, as recorded in a segment's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Everything before this position was durable.
    pub position: Position,
    /// Last index that was durable.
    pub index: Option<u64>,
    /// Last entry known to be committed then; maybe beyond what was durable here.
    pub committed: Option<EntryId>,
}

/// Why a header cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Torn,
    Version(u32),
}

impl Header {
    /// The whole block, both marks saying that everything before this segment is durable.
    pub fn encode(&self, committed: Option<EntryId>) -> Vec<u8> {
        let mut block = vec![0; HEADER_BYTES as usize];
        block[0..8].copy_from_slice(MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[16..20].copy_from_slice(&self.group.to_le_bytes());
        block[20] = u8::from(self.prev.is_some());
        block[24..32].copy_from_slice(&self.first.to_le_bytes());
        block[32..40].copy_from_slice(&self.first_index.to_le_bytes());
        let prev = self.prev.unwrap_or_default();
        block[40..48].copy_from_slice(&prev.term.to_le_bytes());
        block[48..56].copy_from_slice(&prev.index.to_le_bytes());
        block[56..64].copy_from_slice(&self.capacity.to_le_bytes());
        let crc = header_crc(&block);
        block[12..16].copy_from_slice(&crc.to_le_bytes());
        let mark = Mark {
            position: self.first,
            index: self.prev.map(|prev| prev.index),
            committed,
        };
        for (sequence, offset) in MARK_OFFSETS.iter().enumerate() {
            let slot = encode_mark(sequence as u64, &mark);
            block[*offset as usize..*offset as usize + SLOT_BYTES].copy_from_slice(&slot);
        }
        block
    }

    pub fn decode(block: &[u8]) -> Result<Header, HeaderError> {
        if block.len() < FIXED || &block[0..8] != MAGIC {
            return Err(HeaderError::Torn);
        }
        let version = u32_at(block, 8);
        if u32_at(block, 12) != header_crc(block) {
            return Err(HeaderError::Torn);
        }
        if version > VERSION {
            return Err(HeaderError::Version(version));
        }
        Ok(Header {
            group: u32_at(block, 16),
            first: u64_at(block, 24),
            first_index: u64_at(block, 32),
            prev: (block[20] == 1).then(|| EntryId {
                term: u64_at(block, 40),
                index: u64_at(block, 48),
            }),
            capacity: u64_at(block, 56),
        })
    }
}

fn header_crc(block: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&block[0..12]), &block[16..FIXED])
}

fn encode_mark(sequence: u64, mark: &Mark) -> [u8; SLOT_BYTES] {
    let mut content = [0; 40];
    content[0..8].copy_from_slice(&mark.position.to_le_bytes());
    content[8..16].copy_from_slice(&mark.index.map_or(0, |index| index + 1).to_le_bytes());
    if let Some(committed) = mark.committed {
        content[16..24].copy_from_slice(&committed.term.to_le_bytes());
        content[24..32].copy_from_slice(&(committed.index + 1).to_le_bytes());
    }
    encode_slot(MARK_MAGIC, sequence, &content)
}

/// Writes a mark into one of the two slots, by its sequence; not synced.
pub(crate) fn write_mark(file: &dyn LogFile, sequence: u64, mark: &Mark) -> io::Result<()> {
    let slot = encode_mark(sequence, mark);
    file.write_all_at(&[&slot], MARK_OFFSETS[(sequence % 2) as usize])
}

/// The newest mark of a header block, with its sequence. `None`: both slots are damaged.
pub(crate) fn read_mark(block: &[u8]) -> Option<(u64, Mark)> {
    let slot = |offset: u64| block.get(offset as usize..).unwrap_or_default();
    let (sequence, content) = newest(MARK_MAGIC, slot(MARK_OFFSETS[0]), slot(MARK_OFFSETS[1]))?;
    let mark = Mark {
        position: u64_at(&content, 0),
        index: u64_at(&content, 8).checked_sub(1),
        committed: u64_at(&content, 24).checked_sub(1).map(|index| EntryId {
            term: u64_at(&content, 16),
            index,
        }),
    };
    Some((sequence, mark))
}

/// One segment, shared by the writer and all readers.
pub(crate) struct Segment {
    pub header: Header,
    pub path: PathBuf,
    /// Set once the file exists under its name.
    file: OnceLock<Arc<dyn LogFile>>,
    /// The entry table, pinned from the moment the segment is full until the table's file is written.
    pub pinned: Mutex<Option<Arc<Table>>>,
}

impl Segment {
    /// A segment whose file the log writer has yet to make.
    pub fn planned(dir: &Path, header: Header) -> Segment {
        Segment {
            path: dir.join(file_name(header.first)),
            header,
            file: OnceLock::new(),
            pinned: Mutex::new(None),
        }
    }

    /// A segment found on disk.
    pub fn existing(path: PathBuf, header: Header, file: Arc<dyn LogFile>) -> Segment {
        let segment = Segment {
            header,
            path,
            file: OnceLock::new(),
            pinned: Mutex::new(None),
        };
        segment.attach(file);
        segment
    }

    pub fn attach(&self, file: Arc<dyn LogFile>) {
        let attached = self.file.set(file).is_ok();
        assert!(attached, "segment {} has two files", self.path.display());
    }

    /// The file; an error until the log writer has made it.
    pub fn file(&self) -> io::Result<&Arc<dyn LogFile>> {
        self.file.get().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("{} is not written yet", self.path.display()),
            )
        })
    }

    /// File offset of a position at or after the first.
    pub fn offset(&self, position: Position) -> u64 {
        HEADER_BYTES + (position - self.header.first)
    }

    /// Path of the entry table beside the segment.
    pub fn table_path(&self) -> PathBuf {
        self.path.with_extension("entries")
    }

    /// Bytes the file is preallocated to.
    pub fn allocated(&self) -> u64 {
        HEADER_BYTES + self.header.capacity
    }

    pub fn pinned_table(&self) -> Option<Arc<Table>> {
        lock(&self.pinned).clone()
    }
}

/// `<first position, 20 digits>.seg`
pub(crate) fn file_name(first: Position) -> String {
    format!("{first:020}.seg")
}

/// The first position in a segment file's name.
pub(crate) fn parse_name(name: &str) -> Option<Position> {
    let digits = name.strip_suffix(".seg")?;
    (digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}

/// Prepares an empty, preallocated file that is not a segment yet; durable when this returns. `StorageFull`
/// when fewer than `reserve` bytes would be left free; the disk is then as it was before.
pub(crate) fn prepare(
    files: &dyn Files,
    dir: &Path,
    capacity: u64,
    reserve: u64,
) -> io::Result<Arc<dyn LogFile>> {
    let file = files.open(&dir.join(PREPARED), true)?;
    file.set_len(0)?;
    let bytes = HEADER_BYTES + capacity;
    // Unknown is not full: the allocation says.
    let free = files.free_bytes(dir).unwrap_or(u64::MAX);
    if reserve > 0 && free < bytes.saturating_add(reserve) {
        return Err(io::ErrorKind::StorageFull.into());
    }
    if let Err(error) = file.allocate(bytes) {
        // A part may have been allocated.
        file.set_len(0)?;
        return Err(error);
    }
    file.sync_data()?;
    Ok(file)
}

/// Turns the prepared file into the segment: header first, then the name. Nothing in the segment may count
/// as durable before this returns.
pub(crate) fn install(
    files: &dyn Files,
    dir: &Path,
    segment: &Segment,
    file: Arc<dyn LogFile>,
    committed: Option<EntryId>,
) -> io::Result<()> {
    file.write_all_at(&[&segment.header.encode(committed)], 0)?;
    file.sync_data()?;
    files.rename(&dir.join(PREPARED), &segment.path)?;
    // I-19: a file without its name is lost with all that is synced in it.
    if !sabotage::on(Sabotage::SegmentNameUnsynced) {
        files.sync_dir(dir)?;
    }
    segment.attach(file);
    Ok(())
}

/// Reads the header block of a segment file.
pub(crate) fn read_block(file: &dyn LogFile) -> io::Result<BytesMut> {
    let mut block = BytesMut::with_capacity(HEADER_BYTES as usize);
    file.read_at(&mut block, HEADER_BYTES as usize, 0)?;
    Ok(block)
}
