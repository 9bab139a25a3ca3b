//! Bytes that rot (D7 to D13). A node never serves them, never takes them for a torn tail, and never votes on a log
//! that they shorten. Repair from the peers is not built: the operator restores the file or empties the directory.

use super::readback::read_back;
use super::{kill_one, refuses_to_start, small_segments, some_follower, wipe};
use crate::offline;
use crate::rig::damage::{self, Entry, Segment, VoteDamage};
use crate::rig::{Placement, RigError};
use crate::scenario::context::{PATIENCE, QUEUES, Run, TOPIC};
use crate::scenario::{Floor, Scenario, Stop, Tier};
use crate::wire::{Consumer, WireError};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "flip-in-active",
        rows: &["D7"],
        about: "A flipped bit before the durable mark: the node refuses to start, cuts nothing, the others serve",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Ci,
        floor: Floor::of(600, 1),
        run: |run| Box::pin(in_active(run)),
    },
    Scenario {
        name: "flip-in-sealed",
        rows: &["D7", "D8"],
        about: "A flipped bit in a sealed segment, offline or under a running node: it is never served",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Ci,
        floor: Floor::of(900, 2),
        run: |run| Box::pin(in_sealed(run)),
    },
    Scenario {
        name: "flip-under-leader",
        rows: &["D8"],
        about: "A leader with a damaged entry sends none of it to a node that it fills, and leaves no gap there",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(900, 2),
        run: |run| Box::pin(under_leader(run)),
    },
    Scenario {
        name: "flip-helix",
        rows: &["D9"],
        about: "Different entries damaged on all nodes: nothing wrong is served, and nothing is lost",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(900, 3),
        run: |run| Box::pin(helix(run)),
    },
    Scenario {
        name: "flip-on-majority",
        rows: &["D10"],
        about: "One entry damaged on a majority: both name it and refuse, and the last node acknowledges nothing",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(500, 1).with_refused(1),
        run: |run| Box::pin(on_majority(run)),
    },
    Scenario {
        name: "index-damage",
        rows: &["D11"],
        about: "Damaged, cut, emptied or missing index and entry tables are made again with the same offsets",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(900, 4),
        run: |run| Box::pin(index(run)),
    },
    Scenario {
        name: "vote-damage",
        rows: &["D12"],
        about: "A node that cannot read how it voted refuses to start; one bad slot of the two costs nothing",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Ci,
        floor: Floor::of(500, 4),
        run: |run| Box::pin(vote(run)),
    },
    Scenario {
        name: "checkpoint-damage",
        rows: &["D13"],
        about: "Damaged, half-written or missing checkpoints cost a replay, never a topic, a message or an offset",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(900, 4),
        run: |run| Box::pin(checkpoint(run)),
    },
];

/// Segments that must be sealed before the damage.
const SEALED: usize = 2;
const GROUP: &str = "chaos_damage";

/// A group under load whose nodes have sealed segments.
async fn start_sealed(run: &mut Run) -> Result<(), Stop> {
    run.start(small_segments(run)).await?;
    let mut load = run.producers()?;
    load.connections = 8;
    load.body = (1024, 4096);
    run.begin(&load);
    for _ in 0..200 {
        run.progress(100, PATIENCE).await?;
        let rig = run.rig()?;
        let segments = (0..3).map(|at| damage::segments(rig.store(at)));
        let least = segments.collect::<Result<Vec<_>, _>>()?;
        if least.iter().all(|segments| segments.len() > SEALED) {
            return Ok(());
        }
    }
    Err(Stop::Invalid("no segment was sealed".to_owned()))
}

/// An entry with a message, in the middle of a segment.
fn middle(segment: &Segment, entries: &[Entry]) -> Result<Entry, Stop> {
    let from = entries.len() / 2;
    let big = entries[from..]
        .iter()
        .find(|entry| entry.bytes.end - entry.bytes.start > 400);
    big.cloned()
        .ok_or_else(|| Stop::Invalid(format!("no message in {}", segment.path.display())))
}

/// An entry that its segment says to be durable, in the segment that is written to.
fn durable_in_active(run: &mut Run, at: usize) -> Result<(Segment, Entry), Stop> {
    let segment = damage::last_segment(run.rig()?.store(at))?;
    let durable = segment.durable()?;
    let mut entries = segment.entries()?;
    entries.retain(|entry| entry.bytes.end <= durable);
    let entry = middle(&segment, &entries)?;
    Ok((segment, entry))
}

/// A message in a sealed segment, of which one bit of the body can be turned around.
struct Rot {
    segment: Segment,
    /// Index of the entry that has the message.
    index: u64,
    /// File offset of a byte in the middle of the message's record.
    at: u64,
}

impl Rot {
    /// Damages the message; done again, it is whole.
    fn flip(&self) -> Result<(), Stop> {
        Ok(damage::flip_bit(&self.segment.path, self.at, 3)?)
    }
}

/// A message that readers get, of the entry `number` behind the middle of the oldest segment: not of a send that was
/// recognised as a repetition and has no place in a queue.
fn sealed_message(run: &mut Run, at: usize, number: usize) -> Result<Rot, Stop> {
    let store = run.rig()?.store(at).to_owned();
    let [segment, next, ..] = &damage::segments(&store)?[..] else {
        return Err(Stop::Invalid("no sealed segment".to_owned()));
    };
    let files = offline::read(&store)
        .map_err(|error| Stop::Invalid(format!("before the damage: {error}")))?;
    let stored = files.replayed.map(|replayed| replayed.stored);
    let mut sealed: Vec<_> = stored
        .unwrap_or_default()
        .into_iter()
        .filter(|message| *message.topic == *TOPIC && (message.got.pos as u64) < next.first)
        .collect();
    sealed.dedup_by_key(|message| message.index);
    let middle = sealed.get(sealed.len() / 2 + number);
    let message =
        middle.ok_or_else(|| Stop::Invalid(format!("no message in {}", segment.path.display())))?;
    let in_file = damage::HEADER_BYTES + message.got.pos as u64 - segment.first;
    Ok(Rot {
        segment: segment.clone(),
        index: message.index,
        at: in_file + u64::from(message.len) / 2,
    })
}

async fn in_active(run: &mut Run) -> Result<(), Stop> {
    run.start(small_segments(run)).await?;
    let load = run.producers()?;
    run.begin(&load);
    run.progress(300, PATIENCE).await?;
    let at = some_follower(run).await?;
    kill_one(run, at).await?;
    let (segment, entry) = durable_in_active(run, at)?;
    run.fault("flip", &[("file", &segment.path.display().to_string())]);
    damage::flip_entry(&segment, &entry)?;
    let before = damage::checksum(&segment.path)?;
    let index = entry.index.to_string();
    refuses_to_start(run, at, &["damaged", &index, "was not cut"]).await?;
    let untouched = damage::checksum(&segment.path)? == before;
    run.require(untouched, || {
        format!("{} was changed", segment.path.display())
    });
    run.progress(200, PATIENCE).await?;
    // What the refusal says to do.
    wipe(run, at)?;
    run.rig()?.restart_dead().await?;
    run.fault_over("flip");
    run.progress(100, PATIENCE).await
}

async fn in_sealed(run: &mut Run) -> Result<(), Stop> {
    start_sealed(run).await?;
    let at = some_follower(run).await?;
    kill_one(run, at).await?;
    let rot = sealed_message(run, at, 0)?;
    run.fault("flip-offline", &[("node", &format!("n{at}"))]);
    rot.flip()?;
    run.rig()?.restart_dead().await?;
    fails_closed(run, at).await?;
    rot.flip()?;
    run.fault_over("flip-offline");
    let whole = read_back(run, at).await?;
    run.require(whole.failed.is_empty(), || {
        format!("after the file was restored: {:?}", whole.failed)
    });
    let rot = sealed_message(run, at, 7)?;
    run.fault("flip-online", &[("node", &format!("n{at}"))]);
    rot.flip()?;
    fails_closed(run, at).await?;
    rot.flip()?;
    run.fault_over("flip-online");
    run.progress(100, PATIENCE).await
}

/// A node with one damaged entry serves everything but its messages, and goes on.
async fn fails_closed(run: &mut Run, at: usize) -> Result<(), Stop> {
    let back = read_back(run, at).await?;
    let running = {
        let rig = run.rig()?;
        rig.unexpected_ends()?;
        rig.is_running(at)
    };
    run.require(running, || {
        format!("n{at} ended when its damaged entry was read")
    });
    run.require(!back.failed.is_empty(), || {
        format!(
            "n{at} served {} messages as if nothing were damaged",
            back.whole
        )
    });
    run.figure("messages that could not be read", back.failed.len() as f64);
    run.require(back.whole > 10 * back.failed.len() as u64, || {
        format!(
            "n{at} serves {} messages and fails {:?}",
            back.whole, back.failed
        )
    });
    run.progress(50, PATIENCE).await
}

async fn under_leader(run: &mut Run) -> Result<(), Stop> {
    start_sealed(run).await?;
    // Nothing of the damaged entry is left in anybody's memory.
    run.rig()?.kill(&[0, 1, 2])?;
    run.rig()?.restart_dead().await?;
    let leader = run.rig()?.leader().await?;
    let term = leading_term(run, leader).await?;
    let rot = sealed_message(run, leader, 0)?;
    run.fault("flip-online", &[("node", &format!("n{leader}"))]);
    rot.flip()?;
    let filled = (leader + 1) % 3;
    kill_one(run, filled).await?;
    wipe(run, filled)?;
    run.rig()?.spawn(filled)?;
    match run.rig()?.wait_end(leader, PATIENCE / 6).await {
        // A leader that cannot read what it must send gives up: another one, whose entry is whole, takes over.
        Ok(status) => {
            let said = run.rig()?.log_text(leader)?;
            let names_it = said.contains(&format!("entry {} ", rot.index));
            run.require(status.code() == Some(70) && names_it, || {
                format!(
                    "n{leader} ended with {status} and does not name entry {}",
                    rot.index
                )
            });
            run.figure("leader gave up", 1.0);
        }
        Err(RigError::Lasting { .. }) => {
            let last = damage::last_index(run.rig()?.store(filled))?;
            // Unless another led in between, and filled the node.
            let leads = term.is_some() && leading_term(run, leader).await? == term;
            run.require(!leads || last < Some(rot.index), || {
                format!(
                    "n{filled} has entry {last:?}, though {} cannot be read",
                    rot.index
                )
            });
        }
        Err(error) => return Err(error.into()),
    }
    run.progress(50, PATIENCE).await?;
    rot.flip()?;
    run.fault_over("flip-online");
    run.rig()?.restart_dead().await?;
    run.progress(100, PATIENCE).await
}

/// The term in which a node leads, as it says itself.
async fn leading_term(run: &mut Run, at: usize) -> Result<Option<u64>, Stop> {
    let views = run.rig()?.views().await;
    let view = views.into_iter().find(|(node, _)| *node == at);
    let view = view.and_then(|(_, view)| view);
    Ok(view.filter(|view| view.leads).map(|view| view.term))
}

async fn helix(run: &mut Run) -> Result<(), Stop> {
    start_sealed(run).await?;
    run.stop_load().await;
    run.rig()?.kill(&[0, 1, 2])?;
    let mut flipped = Vec::new();
    for at in 0..3 {
        let rot = sealed_message(run, at, 5 * at)?;
        run.fault("flip", &[("node", &format!("n{at}"))]);
        rot.flip()?;
        flipped.push(rot);
    }
    let distinct = flipped[0].index != flipped[1].index && flipped[1].index != flipped[2].index;
    if !distinct {
        return Err(Stop::Invalid(
            "the damaged entries are not different ones".to_owned(),
        ));
    }
    run.rig()?.restart_dead().await?;
    let load = run.producers()?;
    run.begin(&load);
    run.progress(50, PATIENCE).await?;
    for at in 0..3 {
        fails_closed(run, at).await?;
    }
    // Each damaged message is still whole on two nodes: read everywhere, it is only missing where it is damaged.
    for rot in &flipped {
        rot.flip()?;
    }
    run.fault_over("flip");
    Ok(())
}

async fn on_majority(run: &mut Run) -> Result<(), Stop> {
    run.start(small_segments(run)).await?;
    let load = run.producers()?;
    run.begin(&load);
    run.progress(300, PATIENCE).await?;
    run.rig()?.kill(&[0, 1, 2])?;
    run.quorum_lost();
    let (_, bad) = durable_in_active(run, 0)?;
    run.fault("flip-majority", &[("entry", &bad.index.to_string())]);
    let mut flipped = Vec::new();
    for at in [0, 1] {
        let segment = damage::last_segment(run.rig()?.store(at))?;
        let entries = segment.entries()?;
        let entry = entries.iter().find(|entry| entry.index == bad.index);
        let durable = segment.durable()?;
        let entry = entry
            .filter(|entry| entry.bytes.end <= durable)
            .cloned()
            .ok_or_else(|| Stop::Invalid(format!("entry {} is not durable on n{at}", bad.index)))?;
        damage::flip_entry(&segment, &entry)?;
        flipped.push((segment, entry));
    }
    run.rig()?.spawn(2)?;
    let index = bad.index.to_string();
    for at in [0, 1] {
        refuses_to_start(run, at, &["damaged", &index]).await?;
    }
    // The one that is whole stays alone: the load is refused.
    run.sleep(PATIENCE / 10).await;
    run.quorum_back();
    for (segment, entry) in &flipped {
        damage::flip_entry(segment, entry)?;
    }
    run.rig()?.restart_dead().await?;
    run.fault_over("flip-majority");
    run.progress(100, PATIENCE).await
}

/// What is done to a file that can be made again.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Flip,
    Cut,
    Zeros,
    Missing,
}

const LOSSES: [Loss; 4] = [Loss::Flip, Loss::Cut, Loss::Zeros, Loss::Missing];

fn lose(path: &std::path::Path, how: Loss) -> Result<(), Stop> {
    let len = damage::len(path)?;
    match how {
        Loss::Flip => damage::flip_bit(path, len / 2, 2)?,
        Loss::Cut => damage::truncate(path, len / 2)?,
        Loss::Zeros => damage::zero(path, 0..len)?,
        Loss::Missing => damage::remove(path)?,
    }
    Ok(())
}

async fn index(run: &mut Run) -> Result<(), Stop> {
    start_sealed(run).await?;
    for how in LOSSES {
        let at = some_follower(run).await?;
        kill_one(run, at).await?;
        let log = run.rig()?.store(at).join("log");
        let mut lost = 0;
        for ending in [".index", ".entries"] {
            for path in damage::files_ending(&log, ending)? {
                lose(&path, how)?;
                lost += 1;
            }
        }
        match lost {
            0 => run.fault_skipped("index", "there is no index file"),
            _ => {
                run.fault("index", &[("how", &format!("{how:?}"))]);
            }
        }
        run.rig()?.restart_dead().await?;
        run.fault_over("index");
        let back = read_back(run, at).await?;
        run.require(back.failed.is_empty(), || {
            format!("n{at} after {how:?}: {:?}", back.failed)
        });
    }
    Ok(())
}

async fn vote(run: &mut Run) -> Result<(), Stop> {
    run.start(small_segments(run)).await?;
    let load = run.producers()?;
    run.begin(&load);
    run.progress(200, PATIENCE).await?;
    for how in [
        VoteDamage::OneSlot,
        VoteDamage::BothSlots,
        VoteDamage::Empty,
        VoteDamage::Missing,
    ] {
        let at = some_follower(run).await?;
        kill_one(run, at).await?;
        let path = run.rig()?.store(at).join("vote");
        let whole = damage::read(&path, 0..damage::len(&path)?)?;
        run.fault("vote", &[("how", &format!("{how:?}"))]);
        damage::damage_vote(run.rig()?.store(at), how)?;
        if how != VoteDamage::OneSlot {
            refuses_to_start(run, at, &["vote"]).await?;
            damage::restore(&path, &whole)?;
        }
        run.rig()?.restart_dead().await?;
        run.fault_over("vote");
        run.progress(50, PATIENCE).await?;
    }
    Ok(())
}

async fn checkpoint(run: &mut Run) -> Result<(), Stop> {
    start_sealed(run).await?;
    let leader = run.rig()?.leader().await?;
    let wire = |error: WireError| Stop::Violated(error.to_string());
    let connection = run.rig()?.connect(leader).await?;
    let member = Consumer::new(GROUP, TOPIC, "*", 0);
    let joined = connection.heartbeat("chaos-damage", &[], &[member]).await;
    joined.map_err(wire)?;
    for queue in 0..QUEUES {
        let commit = connection
            .commit_offset(GROUP, TOPIC, queue, i64::from(queue) + 5)
            .await;
        commit.map_err(wire)?;
    }
    for how in LOSSES {
        // All of them at once: otherwise an older checkpoint hides what a damaged one costs.
        let at = some_follower(run).await?;
        kill_one(run, at).await?;
        let dir = run.rig()?.store(at).join("checkpoint");
        let files = damage::files_ending(&dir, ".ckpt")?;
        for path in &files {
            let half = damage::read(path, 0..damage::len(path)? / 2)?;
            // What a crash in the middle of a write leaves.
            damage::restore(&path.with_extension("ckpt.tmp"), &half)?;
            lose(path, how)?;
        }
        match files.is_empty() {
            true => run.fault_skipped("checkpoint", "there is none"),
            false => {
                run.fault("checkpoint", &[("how", &format!("{how:?}"))]);
            }
        }
        run.rig()?.restart_dead().await?;
        run.fault_over("checkpoint");
        let back = read_back(run, at).await?;
        run.require(back.failed.is_empty(), || {
            format!("n{at} after {how:?}: {:?}", back.failed)
        });
    }
    // The offsets lived through it on whoever leads now.
    let leader = run.rig()?.leader().await?;
    let connection = run.rig()?.connect(leader).await?;
    for queue in 0..QUEUES {
        let offset = connection
            .consumer_offset(GROUP, TOPIC, queue)
            .await
            .map_err(wire)?;
        run.require(offset == Some(i64::from(queue) + 5), || {
            format!("the committed offset of queue {queue} is {offset:?}")
        });
    }
    Ok(())
}
