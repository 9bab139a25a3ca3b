//! No room (D17, D18): a full disk is refused for certain, hurts nobody else, and is over when there is room again.

use super::readback::read_back;
use super::{Disks, durable, some_follower};
use crate::rig::disk::{Disk, Kind};
use crate::rig::doctor::Facility;
use crate::rig::inject::{Effect, Fault};
use crate::rig::{Placement, RigError, damage};
use crate::scenario::context::{PATIENCE, Run};
use crate::scenario::{Floor, Scenario, Stop, Tier};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "disk-full-follower",
        rows: &["D17", "D18"],
        about: "A follower with a full disk does not hurt the others, and catches up without a restart when there is room",
        needs: &[Facility::Root, Facility::LoopXfs],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Ci,
        floor: Floor::of(800, 1),
        run: |run| Box::pin(follower(run)),
    },
    Scenario {
        name: "disk-full-leader",
        rows: &["D17"],
        about: "A leader with a full disk refuses for certain or hands over, serves reads, and goes on when there is room",
        needs: &[Facility::Root, Facility::LoopXfs],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Ci,
        floor: Floor::of(400, 1),
        run: |run| Box::pin(leader(run)),
    },
    Scenario {
        name: "disk-full-all",
        rows: &["D17"],
        about: "With all disks full every write is refused and reads are served; with room again the group goes on",
        needs: &[Facility::Root, Facility::LoopXfs],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(400, 1).with_refused(1),
        run: |run| Box::pin(all(run)),
    },
    Scenario {
        name: "no-room-for-segment",
        rows: &["D18"],
        about: "A follower that finds no room in the middle of a segment roll loses nothing, whatever it does then",
        needs: &[Facility::Root, Facility::Strace],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(800, 1),
        run: |run| Box::pin(segment_roll(run)),
    },
    Scenario {
        name: "no-room-for-vote",
        rows: &["D18"],
        about: "A node that cannot save its vote gives none",
        needs: &[Facility::Root, Facility::Strace],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(400, 2),
        run: |run| Box::pin(vote(run)),
    },
];

/// Messages large enough for a segment every second or so.
async fn start(run: &mut Run) -> Result<std::sync::Arc<Disks>, Stop> {
    let disks = Disks::create(run, 3, Kind::Xfs)?;
    let setup = disks.setup(run);
    let undo = std::sync::Arc::clone(&disks);
    run.on_heal(move || undo.all.iter().try_for_each(Disk::empty));
    run.start(setup).await?;
    begin_large(run).await?;
    Ok(disks)
}

async fn begin_large(run: &mut Run) -> Result<(), Stop> {
    let mut load = run.producers()?;
    load.body = (2048, 8192);
    run.begin(&load);
    run.progress(200, PATIENCE).await
}

async fn follower(run: &mut Run) -> Result<(), Stop> {
    let disks = start(run).await?;
    let at = some_follower(run).await?;
    run.fault("disk-full", &[("node", &format!("n{at}"))]);
    disks.all[at].fill(0)?;
    // Several segments more than are prepared.
    let segments = segments(run, at)?;
    let other = (0..3).find(|other| *other != at).unwrap_or(0);
    let goal = self::segments(run, other)? + 4;
    while self::segments(run, other)? < goal {
        run.progress(50, PATIENCE).await?;
    }
    let grown = self::segments(run, at)? - segments;
    run.require(grown < 4, || {
        format!("n{at} made {grown} segments on a full disk")
    });
    run.progress(100, PATIENCE).await?;
    disks.all[at].empty()?;
    run.fault_over("disk-full");
    if let Some(status) = ended(run, at)? {
        run.require(false, || {
            format!("n{at} ended with {status} when its disk was full; it must go on by itself")
        });
        run.rig()?.restart_dead().await?;
    }
    catches_up(run, at).await
}

/// Segment files of a node.
fn segments(run: &mut Run, at: usize) -> Result<usize, Stop> {
    Ok(damage::segments(run.rig()?.store(at))?.len())
}

/// How a node ended by itself, if it did.
fn ended(run: &mut Run, at: usize) -> Result<Option<std::process::ExitStatus>, Stop> {
    let rig = run.rig()?;
    let name = rig.name(at).to_owned();
    let ended = rig.unexpected_ends()?.iter().rev();
    let found = ended.clone().find(|ended| ended.node == name);
    Ok(found.map(|ended| ended.status))
}

/// Waits until a node has what the leader has now.
async fn catches_up(run: &mut Run, at: usize) -> Result<(), Stop> {
    let leader = run.rig()?.leader().await?;
    let goal = durable(run, leader).await?;
    let begun = std::time::Instant::now();
    while durable(run, at).await? < goal {
        if begun.elapsed() > PATIENCE {
            let has = durable(run, at).await?;
            return Err(Stop::Violated(format!(
                "n{at} has entry {has:?} of {goal:?} after {PATIENCE:?} with room"
            )));
        }
        run.sleep(std::time::Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn leader(run: &mut Run) -> Result<(), Stop> {
    let disks = start(run).await?;
    let at = run.rig()?.leader().await?;
    run.fault("disk-full", &[("node", &format!("n{at}"))]);
    disks.all[at].fill(0)?;
    run.sleep(PATIENCE / 10).await;
    let next = run.rig()?.leader().await?;
    run.figure("leadership moved", if next == at { 0.0 } else { 1.0 });
    let back = read_back(run, at).await?;
    run.require(back.failed.is_empty() && back.whole > 0, || {
        format!(
            "n{at} with a full disk serves {} messages and fails {:?}",
            back.whole, back.failed
        )
    });
    let refused = refusals(run)?;
    run.require(next != at || refused > 0, || {
        "a leader with a full disk neither hands over nor refuses".to_owned()
    });
    disks.all[at].empty()?;
    run.fault_over("disk-full");
    run.progress(100, PATIENCE).await?;
    catches_up(run, at).await
}

/// Sends that were refused for certain since the last fault began.
fn refusals(run: &mut Run) -> Result<usize, Stop> {
    let events = run.recorder.events()?;
    let faults = events
        .iter()
        .rposition(|event| matches!(event.what, crate::history::What::Start { .. }));
    let since = &events[faults.unwrap_or(0)..];
    let refused = since
        .iter()
        .filter(|event| matches!(event.what, crate::history::What::Fail { .. }));
    Ok(refused.count())
}

async fn all(run: &mut Run) -> Result<(), Stop> {
    let disks = start(run).await?;
    run.fault("disk-full-all", &[]);
    for disk in &disks.all {
        disk.fill(0)?;
    }
    // The nodes look at their disks every now and then; what was prepared takes a little more.
    run.sleep(PATIENCE / 10).await;
    let before = run.acknowledged();
    run.sleep(PATIENCE / 10).await;
    let acknowledged = run.acknowledged() - before;
    run.require(acknowledged == 0, || {
        format!("{acknowledged} messages were acknowledged on full disks")
    });
    let refused = refusals(run)?;
    run.require(refused > 0, || {
        "nothing was refused on full disks".to_owned()
    });
    for at in 0..3 {
        let back = read_back(run, at).await?;
        run.require(back.failed.is_empty() && back.whole > 0, || {
            format!(
                "n{at} with a full disk serves {} messages and fails {:?}",
                back.whole, back.failed
            )
        });
    }
    for disk in &disks.all {
        disk.empty()?;
    }
    run.fault_over("disk-full-all");
    run.progress(100, PATIENCE).await
}

async fn segment_roll(run: &mut Run) -> Result<(), Stop> {
    run.start(super::small_segments(run)).await?;
    begin_large(run).await?;
    let at = some_follower(run).await?;
    let pid = run.rig()?.pid(at)?;
    run.fault(
        "no-room",
        &[("node", &format!("n{at}")), ("call", "fallocate")],
    );
    let injected = Fault::new("fallocate", Effect::Error("ENOSPC")).inject(pid)?;
    let other = (0..3).find(|other| *other != at).unwrap_or(0);
    let goal = segments(run, other)? + 4;
    while segments(run, other)? < goal {
        run.progress(50, PATIENCE).await?;
    }
    drop(injected);
    run.fault_over("no-room");
    stays_or_ends_with_its_reason(run, at).await?;
    catches_up(run, at).await
}

/// A node may have ended for want of room; it says so, and is started again.
async fn stays_or_ends_with_its_reason(run: &mut Run, at: usize) -> Result<(), Stop> {
    match run
        .rig()?
        .wait_end(at, std::time::Duration::from_secs(1))
        .await
    {
        Ok(status) => {
            let said = run.rig()?.log_text(at)?;
            let reason =
                said.contains("No space left") && status.code().is_some_and(|code| code != 0);
            run.require(reason, || {
                format!("n{at} ended with {status} and does not say why")
            });
            run.figure("ended", 1.0);
        }
        Err(RigError::Lasting { .. }) => run.figure("went on", 1.0),
        Err(error) => return Err(error.into()),
    }
    Ok(run.rig()?.restart_dead().await?)
}

async fn vote(run: &mut Run) -> Result<(), Stop> {
    run.start(super::small_segments(run)).await?;
    begin_large(run).await?;
    let leader = run.rig()?.leader().await?;
    let (without, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let file = run.rig()?.store(without).join("vote");
    let before = damage::saved_vote(run.rig()?.store(without))?;
    let pid = run.rig()?.pid(without)?;
    run.fault(
        "no-room",
        &[("node", &format!("n{without}")), ("file", "vote")],
    );
    let injected = Fault::new(
        "pwritev,pwrite64,pwritev2,fdatasync",
        Effect::Error("ENOSPC"),
    )
    .on(&file)
    .inject(pid)?;
    run.fault("pause-leader", &[("node", &format!("n{leader}"))]);
    run.rig()?.pause(leader)?;
    run.quorum_lost();
    // The other one cannot lead without this node's vote.
    let begun = std::time::Instant::now();
    while begun.elapsed() < PATIENCE / 6 {
        let views = run.rig()?.views().await;
        let leads = views.iter().any(|(at, view)| {
            (*at == other || *at == without) && view.as_ref().is_some_and(|view| view.leads)
        });
        run.require(!leads, || {
            "a node was elected by a vote that was not saved".to_owned()
        });
        run.sleep(std::time::Duration::from_millis(50)).await;
    }
    let after = damage::saved_vote(run.rig()?.store(without))?;
    run.require(after == before, || {
        format!("the vote was {before:?} and is {after:?}, though none could be saved")
    });
    run.quorum_back();
    drop(injected);
    run.rig()?.resume(leader)?;
    run.fault_over("pause-leader");
    run.fault_over("no-room");
    stays_or_ends_with_its_reason(run, without).await?;
    run.progress(100, PATIENCE).await
}
