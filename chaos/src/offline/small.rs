//! The small files: `node.id`, `vote`, `purged`, and the slots that they and segment headers are made of.

use std::path::Path;

use super::bytes::{Fields, u32_at, u64_at};
use super::{OfflineError, read_file};

const SLOT_BYTES: usize = 64;
const VOTE_MAGIC: u32 = 0x514c_5631;
const PURGED_MAGIC: u32 = 0x514c_5031;
const MARK_MAGIC: u32 = 0x514c_4d31;
/// Where the two slots lie in a file of their own, and in a segment's header block.
const OWN: [usize; 2] = [0, 4096];
const IN_HEADER: [usize; 2] = [1024, 2048];

/// Who a directory belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub group: String,
    pub node: u64,
}

/// The newest vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    pub term: u64,
    pub voted_for: u64,
    /// The one voted for is known to have been elected.
    pub elected: bool,
}

/// What was durable and committed when a segment's mark was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Everything before was durable.
    pub position: u64,
    /// Last durable index.
    pub index: Option<u64>,
    /// Term and index of the last entry known to be committed.
    pub committed: Option<(u64, u64)>,
}

/// Content of the valid slot with the larger sequence.
fn newest(bytes: &[u8], places: [usize; 2], magic: u32) -> Option<&[u8]> {
    let valid = places.iter().filter_map(|at| {
        let slot = bytes.get(*at..*at + SLOT_BYTES)?;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&slot[..4]), &slot[8..]);
        let whole = u32_at(slot, 0) == magic && u32_at(slot, 4) == crc;
        whole.then(|| (u64_at(slot, 8), &slot[16..56]))
    });
    valid
        .max_by_key(|(sequence, _)| *sequence)
        .map(|(_, content)| content)
}

pub fn identity(path: &Path) -> Result<Identity, OfflineError> {
    let bytes = read_file(path)?;
    let damaged = || OfflineError::Damaged {
        path: path.to_owned(),
        what: "no whole identity".to_owned(),
    };
    parse_identity(&bytes).ok_or_else(damaged)
}

fn parse_identity(bytes: &[u8]) -> Option<Identity> {
    let mut fields = Fields(bytes);
    let magic = fields.take(8)?;
    let crc = fields.u32()?;
    if magic != b"QLNODEID" || crc32c::crc32c(fields.0) != crc || fields.u32()? != 1 {
        return None;
    }
    let node = fields.u64()?;
    let len = usize::try_from(fields.u32()?).ok()?;
    let group = std::str::from_utf8(fields.take(len)?).ok()?.to_owned();
    fields.is_empty().then_some(Identity { group, node })
}

/// `Err`: neither slot is whole. `Ok(None)`: no vote was given yet.
pub fn vote(bytes: &[u8]) -> Result<Option<Vote>, &'static str> {
    let content = newest(bytes, OWN, VOTE_MAGIC).ok_or("both slots are damaged")?;
    Ok((content[16] == 1).then(|| Vote {
        term: u64_at(content, 0),
        voted_for: u64_at(content, 8),
        elected: content[17] == 1,
    }))
}

/// Index of the last entry that was given up.
pub fn purged(bytes: &[u8]) -> Result<Option<u64>, &'static str> {
    let content = newest(bytes, OWN, PURGED_MAGIC).ok_or("both slots are damaged")?;
    Ok((content[24] == 1).then(|| u64_at(content, 8)))
}

/// The newest durable mark of a header block.
pub fn mark(block: &[u8]) -> Option<Mark> {
    let content = newest(block, IN_HEADER, MARK_MAGIC)?;
    let index = |at| u64_at(content, at).checked_sub(1);
    Some(Mark {
        position: u64_at(content, 0),
        index: index(8),
        committed: index(24).map(|index| (u64_at(content, 16), index)),
    })
}
