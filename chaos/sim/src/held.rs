//! What the disks of the nodes really hold, read from their durable images and not from what the nodes say.

use std::path::{Path, PathBuf};

use crate::disk::Disk;
use crate::host::{AppliedEntry, DIR, Seat};
use crate::plan::Node;

/// Nodes whose disk durably holds an entry; `start` is the position of its first byte.
pub fn holders(entry: &AppliedEntry, start: u64, seats: &[std::sync::Arc<Seat>]) -> usize {
    let images: Vec<Option<Vec<u8>>> = seats
        .iter()
        .map(|seat| durable_log(&seat.disk, start, (entry.end - start) as usize))
        .collect();
    let payload = (entry.payload_position - start) as usize;
    let payload = payload..payload + entry.payload_bytes as usize;
    let same = |image: &Vec<u8>| {
        images
            .iter()
            .flatten()
            .filter(|other| *other == image)
            .count()
    };
    let good = |image: &&Vec<u8>| {
        let written = image.iter().any(|byte| *byte != 0);
        let payload = image.get(payload.clone());
        written
            && payload.is_some_and(|payload| {
                quorumlog_chaos::workload::hash(payload) == entry.payload_hash
            })
    };
    images
        .iter()
        .flatten()
        .filter(good)
        .map(same)
        .max()
        .unwrap_or(0)
}

/// Bytes of a segment before its first entry.
const SEGMENT_HEADER: u64 = 4096;

/// Durable bytes of a node's log.
fn durable_log(disk: &Disk, position: u64, len: usize) -> Option<Vec<u8>> {
    let dir = Path::new(DIR).join("log");
    let name = disk.last_up_to(&dir, &format!("{position:020}.seg"), true)?;
    let first: u64 = name.strip_suffix(".seg")?.parse().ok()?;
    let offset = SEGMENT_HEADER + (position - first);
    disk.durable(&dir.join(name), offset as usize, len)
}

/// Term and candidate of the vote that a disk durably holds: the newer of two slots (magic, CRC, sequence,
/// term, candidate, whether there is one).
pub fn durable_vote(disk: &Disk) -> Option<(u64, Node)> {
    const SLOT: usize = 64;
    let path = PathBuf::from(DIR).join("vote");
    let number = |slot: &[u8], at: usize| {
        let word = slot.get(at..at + 8)?.try_into().ok()?;
        Some(u64::from_le_bytes(word))
    };
    let slot = [0, 4096]
        .into_iter()
        .filter_map(|offset| disk.durable(&path, offset, SLOT))
        .filter(|slot| slot[..4] == 0x514c_5631_u32.to_le_bytes())
        .max_by_key(|slot| number(slot, 8))?;
    (slot[32] == 1).then_some((number(&slot, 16)?, number(&slot, 24)?))
}
