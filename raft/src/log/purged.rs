//! The purge watermark: up to where the log's beginning was given up.

use std::path::Path;

use super::OpenError;
use super::codec::u64_at;
use super::slots::SlotFile;
use crate::env::Files;
use crate::types::{EntryId, Position};

const MAGIC: u32 = 0x514c_5031;

/// The last purged entry, and where a log begins that holds nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purged {
    pub id: EntryId,
    /// Position at which the log goes on when it holds no entry after `id`.
    pub end: Position,
}

/// The watermark's file, made at the first purge.
pub(crate) struct PurgedFile(Option<SlotFile>);

impl PurgedFile {
    /// Opens the file when there is one.
    pub fn open(files: &dyn Files, path: &Path) -> Result<(PurgedFile, Option<Purged>), OpenError> {
        let io = |source| OpenError::io(path, source);
        if !files.exists(path).map_err(io)? {
            return Ok((PurgedFile(None), None));
        }
        match SlotFile::open(files, path, MAGIC).map_err(io)? {
            Some((slots, content)) => Ok((PurgedFile(Some(slots)), decode(&content))),
            None => Err(OpenError::Damaged {
                path: path.to_path_buf(),
                offset: 0,
                entry: "purge watermark".to_string(),
                durable: 0,
            }),
        }
    }

    /// Saves again what was read, as the vote file does.
    pub fn renew(&mut self, purged: Option<Purged>) -> std::io::Result<()> {
        match (&mut self.0, purged) {
            (Some(slots), Some(purged)) => slots.save(&encode(purged)),
            _ => Ok(()),
        }
    }

    /// Records the watermark; durable when this returns.
    pub fn save(&mut self, files: &dyn Files, path: &Path, purged: Purged) -> std::io::Result<()> {
        if let Some(slots) = &mut self.0 {
            return slots.save(&encode(purged));
        }
        // A half-made file must never be found under the name.
        let temporary = path.with_extension("tmp");
        SlotFile::create(files, &temporary, MAGIC, &encode(purged))?;
        files.rename(&temporary, path)?;
        if let Some(dir) = path.parent() {
            files.sync_dir(dir)?;
        }
        self.0 = SlotFile::open(files, path, MAGIC)?.map(|(slots, _)| slots);
        Ok(())
    }
}

fn encode(purged: Purged) -> [u8; 40] {
    let mut content = [0; 40];
    content[0..8].copy_from_slice(&purged.id.term.to_le_bytes());
    content[8..16].copy_from_slice(&purged.id.index.to_le_bytes());
    content[16..24].copy_from_slice(&purged.end.to_le_bytes());
    content[24] = 1;
    content
}

fn decode(content: &[u8; 40]) -> Option<Purged> {
    (content[24] == 1).then(|| Purged {
        id: EntryId {
            term: u64_at(content, 0),
            index: u64_at(content, 8),
        },
        end: u64_at(content, 16),
    })
}
