//! Torn tails (D5, D6): what a crash leaves behind the last durable entry. It is dropped, nothing before it is,
//! and old bytes are never taken for entries. The walk over every byte is `trial`'s.

use super::{note_loss, small_segments, trial};
use crate::rig::damage::{self, Entry, Segment};
use crate::rig::{Placement, RigError};
use crate::scenario::context::{PATIENCE, Run};
use crate::scenario::{Floor, Scenario, Stop, Tier};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "torn-tail-one",
        rows: &["D5", "D6"],
        about: "A node whose log ends in torn, lost or recycled sectors drops only those, and is filled by its leader",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Ci,
        floor: Floor::of(500, 7),
        run: |run| Box::pin(one_replica(run)),
    },
    Scenario {
        name: "torn-tail-all",
        rows: &["D5", "D6"],
        about: "All nodes drop what a crash left behind their last durable entries, and nothing else",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(500, 7),
        run: |run| Box::pin(all_replicas(run)),
    },
    Scenario {
        name: "torn-tail-bytes",
        rows: &["D5", "D6"],
        about: "Recovery cuts exactly the entries that are torn, tried at every 31st byte of the last three",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 1,
        tier: Tier::Nightly,
        floor: Floor::of(50, 1),
        run: |run| Box::pin(trial::run(run, 31)),
    },
    Scenario {
        name: "torn-tail-every-byte",
        rows: &["D5", "D6"],
        about: "Recovery cuts exactly the entries that are torn, tried at every byte of the last three",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 1,
        tier: Tier::Release,
        floor: Floor::of(50, 1),
        run: |run| Box::pin(trial::run(run, 1)),
    },
];

/// What is found where the log should go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tear {
    /// The file ends.
    End,
    Zeros,
    Garbage,
    /// Whole older entries.
    Recycled,
    /// A sector of zeros, then what was written.
    LostSector,
    /// A long hole, then garbage.
    Hole,
}

pub(super) const TEARS: [Tear; 6] = [
    Tear::End,
    Tear::Zeros,
    Tear::Garbage,
    Tear::Recycled,
    Tear::LostSector,
    Tear::Hole,
];

const SECTOR: u64 = 512;
/// Length of a hole.
const HOLE: u64 = 20_000;

/// Tears a segment from the byte at `from` on; `end` is the end of its last entry. What the file is allocated
/// beyond that stays.
pub(super) fn tear(
    segment: &Segment,
    how: Tear,
    from: u64,
    end: u64,
    seed: u64,
) -> Result<(), RigError> {
    let path = &segment.path;
    match how {
        Tear::End => damage::truncate(path, from),
        Tear::Zeros => damage::zero(path, from..end),
        Tear::Garbage => damage::garbage(path, from..end + SECTOR, seed),
        Tear::Recycled => {
            damage::zero(path, from..end)?;
            let older = damage::read(
                path,
                damage::HEADER_BYTES..damage::HEADER_BYTES + (end - from),
            )?;
            damage::overwrite(path, from, &older)
        }
        Tear::LostSector => damage::zero(path, from..(from / SECTOR + 1) * SECTOR),
        Tear::Hole => {
            damage::zero(path, from..end)?;
            damage::garbage(path, end + HOLE..end + HOLE + SECTOR, seed)
        }
    }
}

/// The entries of the last segment that nothing says to be durable.
fn unmarked(segment: &Segment) -> Result<Vec<Entry>, RigError> {
    let durable = segment.durable()?;
    let mut entries = segment.entries()?;
    entries.retain(|entry| entry.bytes.start >= durable);
    Ok(entries)
}

async fn one_replica(run: &mut Run) -> Result<(), Stop> {
    run.start(small_segments(run)).await?;
    for (round, how) in TEARS.into_iter().chain([Tear::End]).enumerate() {
        let load = run.producers()?;
        run.begin(&load);
        run.progress(80, PATIENCE).await?;
        run.rig()?.kill(&[0, 1, 2])?;
        run.stop_load().await;
        // Whatever the shortest log loses, both others have: it is a copy that is lost, not an entry.
        let at = shortest(run)?;
        let segment = damage::last_segment(run.rig()?.store(at))?;
        let entries = unmarked(&segment)?;
        let choice = run.rng.below(entries.len().min(3));
        match entries.iter().rev().nth(choice) {
            None => run.fault_skipped("tear", "every entry is marked durable"),
            Some(entry) => {
                let len = (entry.bytes.end - entry.bytes.start) as usize;
                let from = entry.bytes.start + run.rng.below(len) as u64;
                let end = entries.last().map_or(from, |last| last.bytes.end);
                let (name, form) = (format!("n{at}"), format!("{how:?}"));
                run.fault("tear", &[("node", &name), ("how", &form)]);
                note_loss(run, at)?;
                tear(&segment, how, from, end, round as u64)?;
            }
        }
        run.rig()?.restart_dead().await?;
        run.fault_over("tear");
    }
    Ok(())
}

/// The node whose log ends first.
fn shortest(run: &mut Run) -> Result<usize, Stop> {
    let rig = run.rig()?;
    let mut lasts = Vec::new();
    for at in 0..rig.len() {
        lasts.push((damage::last_index(rig.store(at))?, at));
    }
    lasts.sort_unstable();
    Ok(lasts[0].1)
}

async fn all_replicas(run: &mut Run) -> Result<(), Stop> {
    run.start(small_segments(run)).await?;
    for (round, how) in TEARS.into_iter().chain([Tear::Recycled]).enumerate() {
        let load = run.producers()?;
        run.begin(&load);
        run.progress(80, PATIENCE).await?;
        run.rig()?.kill(&[0, 1, 2])?;
        run.stop_load().await;
        let form = format!("{how:?}");
        run.fault("tear-all", &[("how", &form)]);
        for at in 0..3 {
            let segment = damage::last_segment(run.rig()?.store(at))?;
            let entries = segment.entries()?;
            let Some(last) = entries.last() else {
                continue;
            };
            // The beginnings of two more entries that were never durable anywhere, then the tear in them.
            let end = damage::append_torn(&segment, last, 2)?;
            let from = last.bytes.end + run.rng.below((end - last.bytes.end) as usize) as u64;
            tear(&segment, how, from, end, (3 * round + at) as u64)?;
        }
        run.rig()?.restart_dead().await?;
        run.fault_over("tear-all");
    }
    Ok(())
}
