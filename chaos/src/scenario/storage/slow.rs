//! Disks that stand still or crawl (D21, D22): the group goes on as long as a majority of the disks does, and the
//! network part of a node never waits for its disk.

use std::time::Duration;

use super::{Disks, some_follower};
use crate::rig::Placement;
use crate::rig::disk::{Disk, Kind};
use crate::rig::doctor::Facility;
use crate::scenario::context::{PATIENCE, Run};
use crate::scenario::{Floor, Scenario, Stop, Tier};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "stall-follower",
        rows: &["D21"],
        about: "A follower's disk that stands still for 1 or 5 s has no effect on the others",
        needs: &[Facility::Root, Facility::Freeze],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(800, 2),
        run: |run| Box::pin(follower(run, &[1, 5])),
    },
    Scenario {
        name: "stall-follower-long",
        rows: &["D21"],
        about: "A follower's disk that stands still for 30 s has no effect on the others",
        needs: &[Facility::Root, Facility::Freeze],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Release,
        floor: Floor::of(800, 1),
        run: |run| Box::pin(follower(run, &[30])),
    },
    Scenario {
        name: "stall-leader",
        rows: &["D21"],
        about: "A leader's disk that stands still costs no message and no leadership: heartbeats do not wait for it",
        needs: &[Facility::Root, Facility::Freeze],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Ci,
        floor: Floor::of(500, 2),
        run: |run| Box::pin(leader(run)),
    },
    Scenario {
        name: "stall-majority",
        rows: &["D21"],
        about: "While the disks of a majority stand still nothing is acknowledged, and everything is answered in time",
        needs: &[Facility::Root, Facility::Freeze],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(400, 1),
        run: |run| Box::pin(majority(run)),
    },
    Scenario {
        name: "slow-disk",
        rows: &["D22"],
        about: "Disks with 5 writes or 1 MB a second, one or all: progress, bounded memory, nothing lost",
        needs: &[Facility::Root, Facility::LoopXfs, Facility::Cgroups],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(250, 2),
        run: |run| Box::pin(slow(run)),
    },
];

/// Memory of a node that waits for its disk.
const RESIDENT_MAX: u64 = 512 << 20;

async fn start(run: &mut Run) -> Result<std::sync::Arc<Disks>, Stop> {
    let disks = Disks::create(run, 3, Kind::Xfs)?;
    run.start(disks.setup(run)).await?;
    let load = run.producers()?;
    run.begin(&load);
    run.progress(200, PATIENCE).await?;
    Ok(disks)
}

async fn leader_and_term(run: &mut Run) -> Result<(usize, u64), Stop> {
    let leader = run.rig()?.leader().await?;
    let views = run.rig()?.views().await;
    let terms = views
        .iter()
        .filter_map(|(_, view)| Some(view.as_ref()?.term));
    Ok((leader, terms.max().unwrap_or_default()))
}

async fn follower(run: &mut Run, seconds: &[u64]) -> Result<(), Stop> {
    let disks = start(run).await?;
    for seconds in seconds {
        let at = some_follower(run).await?;
        let before = leader_and_term(run).await?;
        run.fault(
            "stall",
            &[
                ("node", &format!("n{at}")),
                ("seconds", &seconds.to_string()),
            ],
        );
        let frozen = disks.all[at].freeze()?;
        let acknowledged = run.acknowledged();
        run.sleep(Duration::from_secs(*seconds)).await;
        let more = run.acknowledged() - acknowledged;
        run.require(more >= 100.min(30 * seconds), || {
            format!("{more} messages in {seconds} s while n{at}'s disk stood still")
        });
        let after = leader_and_term(run).await?;
        run.require(after == before, || {
            format!("leader and term were {before:?} and are {after:?}")
        });
        frozen.thaw()?;
        run.fault_over("stall");
        run.progress(100, PATIENCE).await?;
    }
    Ok(())
}

async fn leader(run: &mut Run) -> Result<(), Stop> {
    let disks = start(run).await?;
    for seconds in [1, 5] {
        let before = leader_and_term(run).await?;
        let at = before.0;
        run.fault(
            "stall",
            &[
                ("node", &format!("n{at}")),
                ("seconds", &seconds.to_string()),
            ],
        );
        let frozen = disks.all[at].freeze()?;
        let acknowledged = run.acknowledged();
        run.sleep(Duration::from_secs(seconds)).await;
        let more = run.acknowledged() - acknowledged;
        run.figure(
            "acknowledged while the leader's disk stood still",
            more as f64,
        );
        // Heartbeats do not wait for the disk, and the followers' disks are a majority.
        let after = leader_and_term(run).await?;
        run.require(after == before, || {
            format!("I-21: leader and term were {before:?} and are {after:?}: the node waits for its disk")
        });
        frozen.thaw()?;
        run.fault_over("stall");
        run.progress(100, PATIENCE).await?;
    }
    Ok(())
}

async fn majority(run: &mut Run) -> Result<(), Stop> {
    let disks = start(run).await?;
    let leader = run.rig()?.leader().await?;
    let before = leader_and_term(run).await?;
    run.fault("stall-majority", &[]);
    let first = disks.all[leader].freeze()?;
    let second = disks.all[(leader + 1) % 3].freeze()?;
    run.quorum_lost();
    run.sleep(Duration::from_secs(5)).await;
    let after = leader_and_term(run).await?;
    run.figure("terms that passed", (after.1 - before.1) as f64);
    run.quorum_back();
    first.thaw()?;
    second.thaw()?;
    run.fault_over("stall-majority");
    run.progress(100, PATIENCE).await
}

async fn slow(run: &mut Run) -> Result<(), Stop> {
    let disks = Disks::create_with(run, 3, |home, name| {
        Disk::create_direct(home, name, Kind::Xfs)
    })?;
    run.start(disks.setup(run)).await?;
    let load = run.producers()?;
    run.begin(&load);
    run.progress(100, PATIENCE).await?;
    let leader = run.rig()?.leader().await?;
    for nodes in [vec![leader], vec![0, 1, 2]] {
        run.fault("slow", &[("nodes", &format!("{nodes:?}"))]);
        let mut limited = Vec::new();
        for at in nodes {
            let pid = run.rig()?.pid(at)?;
            limited.push(disks.all[at].limit(pid, 5, 1 << 20)?);
        }
        let acknowledged = run.acknowledged();
        for _ in 0..8 {
            run.sleep(Duration::from_secs(1)).await;
            for at in 0..3 {
                let resident = run.rig()?.resident(at)?;
                run.require(resident < RESIDENT_MAX, || {
                    format!("n{at} holds {resident} bytes while it waits for its disk")
                });
            }
        }
        let more = run.acknowledged() - acknowledged;
        run.figure("acknowledged in 8 s of slow disks", more as f64);
        run.require(more > 0, || "no progress with slow disks".to_owned());
        drop(limited);
        run.fault_over("slow");
        run.progress(50, PATIENCE).await?;
    }
    Ok(())
}
