//! The immutable index file beside each sealed segment: the places of its messages, by queue.
//!
//! Layout (numbers little endian): header of 48 bytes; the directory, a row per queue; the items of each
//! row in blocks of up to 1,024, each with a CRC32C behind it; a CRC32C of everything before as the last
//! four bytes. The directory stays in memory, blocks are read when needed. A file can always be made again
//! from the log.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use quorumlog_raft::Position;
use quorumlog_raft::env::Files;

use super::files::{Fields, read_file, replace_file};
use super::queue::Item;

const MAGIC: [u8; 8] = *b"QLINDEX\n";
const VERSION: u32 = 1;
/// Magic, version, rows, directory bytes (u64), first and end position of the segment, CRC, reserved.
const HEADER_BYTES: usize = 48;
const HEADER_CHECKED_BYTES: usize = 40;
const ITEM_BYTES: usize = 16;
const CRC_BYTES: usize = 4;
/// Items of a block: 16 KiB are read at once.
pub(super) const BLOCK_ITEMS: usize = 1024;

/// The items of one queue in a segment that was just sealed.
#[derive(Clone)]
pub(super) struct SealedRun {
    pub topic: Arc<str>,
    pub incarnation: u64,
    pub queue: i32,
    /// Queue offset of the first item.
    pub first: i64,
    /// At least one.
    pub items: Arc<Vec<Item>>,
}

/// Where the items of one queue are in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub topic: Arc<str>,
    pub incarnation: u64,
    pub queue: i32,
    pub first: i64,
    pub count: usize,
    /// Position of the first item.
    pub first_position: Position,
    /// Of the row's first block, in the file.
    offset: u64,
}

/// Why an index file is of no use. Making it again from the log helps.
#[derive(Debug, thiserror::Error)]
pub(super) enum IndexError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: {what}")]
    Damaged { path: PathBuf, what: &'static str },
}

/// An index file whose directory is in memory.
#[derive(Debug)]
pub(super) struct IndexFile {
    path: PathBuf,
    /// First position of the segment.
    pub segment: Position,
    /// Sorted by topic and queue.
    pub rows: Vec<Row>,
}

pub(super) fn index_path(dir: &Path, segment: Position) -> PathBuf {
    dir.join(format!("{segment:020}.index"))
}

/// Writes the index of a sealed segment. The new name need not be durable: a missing file is made again.
pub(super) fn write(
    files: &dyn Files,
    dir: &Path,
    segment: Position,
    end: Position,
    runs: &[SealedRun],
) -> Result<IndexFile, IndexError> {
    let path = index_path(dir, segment);
    let (bytes, rows) = encode(segment, end, runs);
    replace_file(files, &path, &[&bytes]).map_err(|source| IndexError::Io {
        path: path.clone(),
        source,
    })?;
    Ok(IndexFile {
        path,
        segment,
        rows,
    })
}

/// The bytes of an index file: the same for the same runs.
fn encode(segment: Position, end: Position, runs: &[SealedRun]) -> (Vec<u8>, Vec<Row>) {
    const ROW_FIXED_BYTES: usize = 2 + 8 + 4 + 8 + 4 + 8 + 8;
    let directory_bytes: usize = runs
        .iter()
        .map(|run| ROW_FIXED_BYTES + run.topic.len())
        .sum();
    let mut offset = (HEADER_BYTES + directory_bytes) as u64;
    let mut bytes = Vec::with_capacity(offset as usize);
    bytes.put_slice(&MAGIC);
    bytes.put_u32_le(VERSION);
    bytes.put_u32_le(runs.len() as u32);
    bytes.put_u64_le(directory_bytes as u64);
    bytes.put_u64_le(segment);
    bytes.put_u64_le(end);
    bytes.put_u32_le(crc32c::crc32c(&bytes));
    bytes.put_u32_le(0);
    let mut rows = Vec::with_capacity(runs.len());
    for run in runs {
        let row = Row {
            topic: run.topic.clone(),
            incarnation: run.incarnation,
            queue: run.queue,
            first: run.first,
            count: run.items.len(),
            first_position: run.items[0].position,
            offset,
        };
        bytes.put_u16_le(u16::try_from(row.topic.len()).expect("a topic in a record is shorter"));
        bytes.put_slice(row.topic.as_bytes());
        bytes.put_u64_le(row.incarnation);
        bytes.put_i32_le(row.queue);
        bytes.put_i64_le(row.first);
        bytes.put_u32_le(u32::try_from(row.count).expect("a segment holds fewer messages"));
        bytes.put_u64_le(row.first_position);
        bytes.put_u64_le(row.offset);
        offset += row_bytes(row.count);
        rows.push(row);
    }
    for run in runs {
        for block in run.items.chunks(BLOCK_ITEMS) {
            let start = bytes.len();
            for item in block {
                bytes.put_u64_le(item.position);
                bytes.put_u32_le(item.length);
                bytes.put_i32_le(item.tags);
            }
            bytes.put_u32_le(crc32c::crc32c(&bytes[start..]));
        }
    }
    bytes.put_u32_le(crc32c::crc32c(&bytes));
    (bytes, rows)
}

/// Bytes of the blocks of a row.
fn row_bytes(count: usize) -> u64 {
    (count * ITEM_BYTES + count.div_ceil(BLOCK_ITEMS) * CRC_BYTES) as u64
}

/// Opens the index of a sealed segment with these bounds, checking the whole file.
pub(super) fn load(
    files: &dyn Files,
    dir: &Path,
    segment: Position,
    end: Position,
) -> Result<IndexFile, IndexError> {
    let path = index_path(dir, segment);
    let bytes = read_file(files, &path).map_err(|source| IndexError::Io {
        path: path.clone(),
        source,
    })?;
    match parse(&bytes, segment, end) {
        Ok(rows) => Ok(IndexFile {
            path,
            segment,
            rows,
        }),
        Err(what) => Err(IndexError::Damaged { path, what }),
    }
}

fn parse(bytes: &[u8], segment: Position, end: Position) -> Result<Vec<Row>, &'static str> {
    const SHORT: &str = "cut short";
    let (checked, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or(SHORT)?;
    let mut header = Fields(checked);
    if header.array() != Some(MAGIC) {
        return Err("not an index file");
    }
    if header.u32() != Some(VERSION) {
        return Err("a version that this program does not know");
    }
    if crc32c::crc32c(checked) != u32::from_le_bytes(*crc) {
        return Err("the CRC of the file is wrong");
    }
    let count = header.u32().ok_or(SHORT)?;
    let directory_bytes = header.u64().ok_or(SHORT)?;
    if (header.u64(), header.u64()) != (Some(segment), Some(end)) {
        return Err("made for another segment");
    }
    let header_crc = header.u32().ok_or(SHORT)?;
    if header_crc != crc32c::crc32c(&checked[..HEADER_CHECKED_BYTES]) {
        return Err("the CRC of the header is wrong");
    }
    header.u32().ok_or(SHORT)?;
    let mut offset = HEADER_BYTES as u64 + directory_bytes;
    let mut rows = Vec::new();
    for _ in 0..count {
        let row = parse_row(&mut header).ok_or("a row of the directory is cut short")?;
        if row.count == 0 || row.offset != offset {
            return Err("a row of the directory is out of place");
        }
        offset += row_bytes(row.count);
        rows.push(row);
    }
    if offset != checked.len() as u64 {
        return Err("the directory does not fit the file");
    }
    Ok(rows)
}

fn parse_row(fields: &mut Fields<'_>) -> Option<Row> {
    let name = fields.u16()? as usize;
    Some(Row {
        topic: Arc::from(std::str::from_utf8(fields.take(name)?).ok()?),
        incarnation: fields.u64()?,
        queue: fields.i32()?,
        first: fields.i64()?,
        count: fields.u32()? as usize,
        first_position: fields.u64()?,
        offset: fields.u64()?,
    })
}

impl IndexFile {
    /// Reads a block of a row. `Ok(None)`: the disk would have to be waited for, and `wait` is false.
    pub(super) fn read_block(
        &self,
        files: &dyn Files,
        row: usize,
        block: usize,
        wait: bool,
    ) -> Result<Option<Vec<Item>>, IndexError> {
        let row = &self.rows[row];
        let first = block * BLOCK_ITEMS;
        let count = row.count.saturating_sub(first).min(BLOCK_ITEMS);
        let offset = row.offset + (block * (BLOCK_ITEMS * ITEM_BYTES + CRC_BYTES)) as u64;
        let length = count * ITEM_BYTES + CRC_BYTES;
        let io_error = |source| IndexError::Io {
            path: self.path.clone(),
            source,
        };
        let file = files.open(&self.path, false).map_err(io_error)?;
        let mut bytes = BytesMut::with_capacity(length);
        let read = if wait {
            file.read_at(&mut bytes, length, offset).map(Some)
        } else {
            file.read_at_cached(&mut bytes, length, offset)
        };
        match read.map_err(io_error)? {
            None => return Ok(None),
            // The cached part may be shorter than what was asked for.
            Some(read) if read < length && !wait => return Ok(None),
            Some(_) => {}
        }
        parse_block(&bytes, count)
            .map(Some)
            .ok_or_else(|| IndexError::Damaged {
                path: self.path.clone(),
                what: "the CRC of a block is wrong",
            })
    }
}

fn parse_block(bytes: &[u8], count: usize) -> Option<Vec<Item>> {
    let (content, crc) = bytes.split_last_chunk::<CRC_BYTES>()?;
    if content.len() != count * ITEM_BYTES || crc32c::crc32c(content) != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut items = Vec::with_capacity(count);
    let mut fields = Fields(content);
    for _ in 0..count {
        items.push(Item {
            position: fields.u64()?,
            length: fields.u32()?,
            tags: fields.i32()?,
        });
    }
    Some(items)
}
