//! The vote file: what this node voted, so that it never votes twice in a term, and which segment was the
//! newest, so that one that is missing is missed.
//!
//! Ordering with the log's own writes is the log writer's; telling a lost vote from a first start is
//! `open`'s.

use std::path::Path;

use super::OpenError;
use super::codec::u64_at;
use super::slots::SlotFile;
use crate::env::Files;
use crate::sabotage::{self, Sabotage};
use crate::types::{NodeId, Position};

const MAGIC: u32 = 0x514c_5631;

/// A vote as it is saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vote {
    pub term: u64,
    pub voted_for: NodeId,
    /// True when the node voted for is known to have been elected.
    pub committed: bool,
}

/// The vote file, open for writing.
pub(crate) struct VoteFile {
    slots: SlotFile,
    vote: Option<Vote>,
    newest: Option<Position>,
}

impl VoteFile {
    /// Makes the file; it says that no vote was given.
    pub fn create(files: &dyn Files, path: &Path) -> Result<VoteFile, OpenError> {
        let slots = SlotFile::create(files, path, MAGIC, &encode(None, None))
            .map_err(|source| OpenError::io(path, source))?;
        Ok(VoteFile {
            slots,
            vote: None,
            newest: None,
        })
    }

    /// Opens the file. The vote is `None` when none was ever saved.
    pub fn open(files: &dyn Files, path: &Path) -> Result<(VoteFile, Option<Vote>), OpenError> {
        let lost = |what: &str| OpenError::Vote {
            path: path.to_path_buf(),
            what: what.to_string(),
        };
        match files.exists(path) {
            Ok(true) => {}
            Ok(false) => return Err(lost("the vote file is missing")),
            Err(source) => return Err(OpenError::io(path, source)),
        }
        let opened = SlotFile::open(files, path, MAGIC)
            .map_err(|source| OpenError::io(path, source))?
            .ok_or_else(|| lost("both slots of the vote file are damaged"))?;
        let (slots, content) = opened;
        let (vote, newest) = decode(&content);
        let file = VoteFile {
            slots,
            vote,
            newest,
        };
        Ok((file, vote))
    }

    /// Saves a vote; durable when this returns.
    pub fn save(&mut self, vote: &Vote) -> std::io::Result<()> {
        let content = encode(Some(vote), self.newest);
        match sabotage::on(Sabotage::VoteUnsynced) {
            true => self.slots.put(&content)?, // I-13: the node may vote again.
            false => self.slots.save(&content)?,
        }
        self.vote = Some(*vote);
        Ok(())
    }

    /// Saves again what was read; durable when this returns. A process before this one may have ended because a
    /// sync failed: then what was read is perhaps in the page cache alone.
    pub fn renew(&mut self) -> std::io::Result<()> {
        self.slots.save(&encode(self.vote.as_ref(), self.newest))
    }

    /// First position of a segment that was there: it, or a newer one, must be found at a start. `None`: the
    /// log was empty, or the file is of a version that did not record it.
    pub fn newest(&self) -> Option<Position> {
        self.newest
    }

    /// Records the newest segment; durable when this returns. To be raised after a segment was made and before
    /// anything in it counts, lowered before one is removed.
    pub fn save_newest(&mut self, newest: Option<Position>) -> std::io::Result<()> {
        if newest == self.newest {
            return Ok(());
        }
        self.slots.save(&encode(self.vote.as_ref(), newest))?;
        self.newest = newest;
        Ok(())
    }
}

fn encode(vote: Option<&Vote>, newest: Option<Position>) -> [u8; 40] {
    let mut content = [0; 40];
    let newest = newest.map_or(0, |first| first + 1);
    content[24..32].copy_from_slice(&newest.to_le_bytes());
    let Some(vote) = vote else {
        return content;
    };
    content[0..8].copy_from_slice(&vote.term.to_le_bytes());
    content[8..16].copy_from_slice(&vote.voted_for.to_le_bytes());
    content[16] = 1;
    content[17] = u8::from(vote.committed);
    content
}

fn decode(content: &[u8; 40]) -> (Option<Vote>, Option<Position>) {
    let vote = (content[16] == 1).then(|| Vote {
        term: u64_at(content, 0),
        voted_for: u64_at(content, 8),
        committed: content[17] == 1,
    });
    (vote, u64_at(content, 24).checked_sub(1))
}

#[cfg(test)]
#[path = "vote_tests.rs"]
mod tests;
