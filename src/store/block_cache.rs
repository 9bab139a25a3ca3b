//! A few recently read blocks of index files.

use std::sync::{Arc, Mutex, PoisonError};

use quorumlog_raft::Position;
use quorumlog_raft::env::Files;

use super::index_file::{IndexError, IndexFile};
use super::queue::Item;

/// Blocks kept: 64 of 16 KiB are 1 MiB.
const BLOCKS: usize = 64;

/// Segment, row, block.
type Key = (Position, usize, usize);

/// Least recently used blocks go first. A row of pulls through a backlog touches one block many times.
#[derive(Default)]
pub(super) struct BlockCache {
    /// Most recently used last.
    blocks: Mutex<Vec<(Key, Arc<Vec<Item>>)>>,
}

impl BlockCache {
    /// As [`IndexFile::read_block`], but a second time without the file.
    pub(super) fn block(
        &self,
        files: &dyn Files,
        file: &IndexFile,
        row: usize,
        block: usize,
        wait: bool,
    ) -> Result<Option<Arc<Vec<Item>>>, IndexError> {
        let key = (file.segment, row, block);
        if let Some(found) = self.find(key) {
            return Ok(Some(found));
        }
        let Some(items) = file.read_block(files, row, block, wait)? else {
            return Ok(None);
        };
        let items = Arc::new(items);
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if blocks.len() == BLOCKS {
            blocks.remove(0);
        }
        blocks.push((key, items.clone()));
        Ok(Some(items))
    }

    fn find(&self, key: Key) -> Option<Arc<Vec<Item>>> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let found = blocks.iter().rposition(|(known, _)| *known == key)?;
        let entry = blocks.remove(found);
        let items = entry.1.clone();
        blocks.push(entry);
        Some(items)
    }
}
