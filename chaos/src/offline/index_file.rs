//! The index files beside sealed segments: what a node says its queues are.

use super::bytes::{Fields, u32_at};

const HEADER_BYTES: usize = 48;
const BLOCK_ITEMS: usize = 1024;

/// Where one message is: position, length of its record, hash of its tag.
pub type Item = (u64, u32, i32);

/// The messages of one queue in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub topic: String,
    pub incarnation: u64,
    pub queue: i32,
    /// Offset of the first.
    pub first: i64,
    pub items: Vec<Item>,
}

/// An index file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexFile {
    /// First and end position of the segment.
    pub segment: u64,
    pub end: u64,
    pub rows: Vec<Row>,
}

pub fn parse(bytes: &[u8]) -> Result<IndexFile, &'static str> {
    let (checked, crc) = bytes.split_last_chunk::<4>().ok_or("cut short")?;
    if crc32c::crc32c(checked) != u32::from_le_bytes(*crc) {
        return Err("the checksum does not match");
    }
    let header = checked.get(..HEADER_BYTES).ok_or("cut short")?;
    if &header[..8] != b"QLINDEX\n" || crc32c::crc32c(&header[..40]) != u32_at(header, 40) {
        return Err("the header is damaged");
    }
    let mut fields = Fields(&checked[8..]);
    rows(&mut fields, checked).ok_or("the directory does not fit the file")
}

fn rows(fields: &mut Fields<'_>, file: &[u8]) -> Option<IndexFile> {
    if fields.u32()? != 1 {
        return None;
    }
    let count = fields.u32()?;
    let directory = usize::try_from(fields.u64()?).ok()?;
    let (segment, end) = (fields.u64()?, fields.u64()?);
    fields.take(8)?;
    let mut directory = Fields(fields.take(directory)?);
    let mut rows = Vec::new();
    for _ in 0..count {
        let len = usize::from(directory.u16()?);
        let topic = std::str::from_utf8(directory.take(len)?).ok()?.to_owned();
        let incarnation = directory.u64()?;
        let queue = directory.i32()?;
        let first = directory.i64()?;
        let count = directory.u32()? as usize;
        let first_position = directory.u64()?;
        let place = usize::try_from(directory.u64()?).ok()?;
        // Rows lie one behind the other in the order of the directory.
        if place != file.len() - fields.0.len() {
            return None;
        }
        let items = items(fields, count)?;
        if items.first()?.0 != first_position {
            return None;
        }
        rows.push(Row {
            topic,
            incarnation,
            queue,
            first,
            items,
        });
    }
    (directory.is_empty() && fields.is_empty()).then_some(IndexFile { segment, end, rows })
}

fn items(fields: &mut Fields<'_>, count: usize) -> Option<Vec<Item>> {
    let mut items = Vec::new();
    while items.len() < count {
        let here = (count - items.len()).min(BLOCK_ITEMS);
        let block = fields.take(here * 16)?;
        if crc32c::crc32c(block) != fields.u32()? {
            return None;
        }
        let mut block = Fields(block);
        for _ in 0..here {
            items.push((block.u64()?, block.u32()?, block.i32()?));
        }
    }
    Some(items)
}
