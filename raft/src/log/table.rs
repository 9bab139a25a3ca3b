//! The entry table of a segment: where each entry begins, and where terms begin.
//!
//! Kept in memory for the active segment, in a checked file beside each sealed one. Derived: it is rebuilt
//! by a scan when it is missing, damaged or stale.

use std::io;
use std::path::Path;

use bytes::BytesMut;

use super::codec::{Record, u32_at, u64_at};
use super::segment::Header;
use crate::env::Files;
use crate::types::{EntryId, Position};

const MAGIC: &[u8; 8] = b"QLENTRIS";
const FIXED: usize = 72;
const VERSION: u32 = 1;

/// Offsets of a segment's entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// First position of the segment.
    pub first: Position,
    pub first_index: u64,
    /// Position after the last entry.
    pub end: Position,
    /// Start of each entry, relative to `first`.
    offsets: Vec<u32>,
    /// Term and first index of each run of entries of one term.
    terms: Vec<(u64, u64)>,
}

impl Table {
    pub fn empty(header: &Header) -> Table {
        Table {
            first: header.first,
            first_index: header.first_index,
            end: header.first,
            offsets: Vec::new(),
            terms: Vec::new(),
        }
    }

    /// Adds the next entry.
    pub fn push(&mut self, record: &Record) {
        assert!(
            record.position == self.end && record.id.index == self.next_index(),
            "entry {} at {} does not follow index {} at {}",
            record.id,
            record.position,
            self.next_index(),
            self.end
        );
        let offset = u32::try_from(record.position - self.first)
            .expect("segment capacity is bounded below 4 GiB");
        self.offsets.push(offset);
        if self.terms.last().map(|(term, _)| *term) != Some(record.id.term) {
            self.terms.push((record.id.term, record.id.index));
        }
        self.end = record.end();
    }

    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Index that the next entry gets.
    pub fn next_index(&self) -> u64 {
        self.first_index + self.offsets.len() as u64
    }

    /// Bytes of entries.
    pub fn used(&self) -> u64 {
        self.end - self.first
    }

    /// The last entry.
    pub fn last(&self) -> Option<EntryId> {
        self.terms.last().map(|(term, _)| EntryId {
            term: *term,
            index: self.next_index() - 1,
        })
    }

    /// Where the entry begins; for the next index, the end.
    pub fn position(&self, index: u64) -> Option<Position> {
        let at = usize::try_from(index.checked_sub(self.first_index)?).ok()?;
        if at == self.offsets.len() {
            return Some(self.end);
        }
        Some(self.first + u64::from(*self.offsets.get(at)?))
    }

    /// The last entry of each term among `from..=to`, oldest first.
    pub fn last_of_terms(&self, from: u64, to: u64) -> Vec<EntryId> {
        let mut found = Vec::new();
        for (at, (term, first)) in self.terms.iter().enumerate() {
            let next = self
                .terms
                .get(at + 1)
                .map_or(self.next_index(), |(_, next)| *next);
            let last = (next - 1).min(to);
            if *first <= to && last >= from {
                found.push(EntryId {
                    term: *term,
                    index: last,
                });
            }
        }
        found
    }

    /// Forgets every entry after `last`, which must be in the table.
    pub fn truncate_after(&mut self, last: u64) {
        let keep = usize::try_from(last + 1 - self.first_index).expect("index is in the table");
        self.end = self.position(last + 1).expect("index is in the table");
        self.offsets.truncate(keep);
        self.terms.retain(|(_, first)| *first <= last);
    }

    fn encode(&self) -> Vec<u8> {
        let last = self.last().unwrap_or_default();
        let mut bytes = vec![0; FIXED];
        bytes[0..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first_index.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.end.to_le_bytes());
        bytes[40..48].copy_from_slice(&last.term.to_le_bytes());
        bytes[48..56].copy_from_slice(&(self.offsets.len() as u64).to_le_bytes());
        bytes[56..64].copy_from_slice(&(self.terms.len() as u64).to_le_bytes());
        for offset in &self.offsets {
            bytes.extend_from_slice(&offset.to_le_bytes());
        }
        for (term, first) in &self.terms {
            bytes.extend_from_slice(&term.to_le_bytes());
            bytes.extend_from_slice(&first.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Table> {
        if bytes.len() < FIXED
            || &bytes[0..8] != MAGIC
            || u32_at(bytes, 8) != VERSION
            || u32_at(bytes, 12) != crc32c::crc32c(&bytes[16..])
        {
            return None;
        }
        let count = usize::try_from(u64_at(bytes, 48)).ok()?;
        let runs = usize::try_from(u64_at(bytes, 56)).ok()?;
        let body = count.checked_mul(4)?.checked_add(runs.checked_mul(16)?)?;
        if bytes.len() != FIXED.checked_add(body)? {
            return None;
        }
        let (offsets, terms) = bytes[FIXED..].split_at(count * 4);
        Some(Table {
            first: u64_at(bytes, 16),
            first_index: u64_at(bytes, 24),
            end: u64_at(bytes, 32),
            offsets: offsets.chunks_exact(4).map(|at| u32_at(at, 0)).collect(),
            terms: terms
                .chunks_exact(16)
                .map(|run| (u64_at(run, 0), u64_at(run, 8)))
                .collect(),
        })
    }

    /// Writes the table's file. Not synced: a torn one is noticed and rebuilt.
    pub fn write(&self, files: &dyn Files, path: &Path) -> io::Result<()> {
        let temporary = path.with_extension("entries.tmp");
        let file = files.open(&temporary, true)?;
        file.set_len(0)?;
        file.write_all_at(&[&self.encode()], 0)?;
        files.rename(&temporary, path)
    }

    /// Reads the table's file. `Ok(None)`: missing, damaged, or not the table of the segment that begins
    /// as `header` says and is followed by `next`.
    pub fn read(
        files: &dyn Files,
        path: &Path,
        header: &Header,
        next: &Header,
    ) -> io::Result<Option<Table>> {
        if !files.exists(path)? {
            return Ok(None);
        }
        let file = files.open(path, false)?;
        let len = usize::try_from(file.len()?).unwrap_or(usize::MAX);
        // Four bytes an entry of at least a frame, and at most one term an entry: more cannot be right.
        if len as u64 > FIXED as u64 + header.capacity {
            return Ok(None);
        }
        let mut bytes = BytesMut::with_capacity(len);
        file.read_at(&mut bytes, len, 0)?;
        Ok(Table::decode(&bytes).filter(|table| table.fits(header, next)))
    }

    /// Is this the table of the sealed segment between the two headers?
    pub fn fits(&self, header: &Header, next: &Header) -> bool {
        self.first == header.first
            && self.first_index == header.first_index
            && self.end == next.first
            && self.next_index() == next.first_index
            && self.last() == next.prev
            && self.offsets.is_sorted_by(|before, after| before < after)
            && self.offsets.first() == Some(&0)
            && self
                .offsets
                .last()
                .is_some_and(|last| u64::from(*last) < self.used())
            && self.terms.is_sorted_by(|before, after| before < after)
            && self.terms.first().map(|(_, first)| *first) == Some(self.first_index)
    }
}
