//! Power cuts (D1 to D4): what was not synced is lost, as a machine that loses power loses it. A kill alone
//! proves nothing of this, because the page cache survives it.

use std::time::{Duration, Instant};

use super::{Disks, store};
use crate::rig::damage;
use crate::rig::disk::Kind;
use crate::rig::doctor::Facility;
use crate::rig::{Placement, View};
use crate::scenario::context::{PATIENCE, Run};
use crate::scenario::{Floor, Scenario, Stop, Tier};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "power-cut-one",
        rows: &["D1"],
        about: "A node that loses power under load has every entry that it reported durable, and its vote",
        needs: &[Facility::Root, Facility::LoopXfs],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Ci,
        floor: Floor::of(800, 4),
        run: |run| Box::pin(one(run)),
    },
    Scenario {
        name: "power-cut-all",
        rows: &["D2"],
        about: "A power cut of all nodes at once loses nothing that was acknowledged",
        needs: &[Facility::Root, Facility::LoopXfs],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Ci,
        floor: Floor::of(300, 1),
        run: |run| Box::pin(all(run)),
    },
    Scenario {
        name: "power-cut-then-pause",
        rows: &["D3"],
        about: "One power cut and two pauses in the order that broke NATS lose nothing that was acknowledged",
        needs: &[Facility::Root, Facility::LoopXfs],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(500, 3).with_leader_changes(1),
        run: |run| Box::pin(then_pause(run)),
    },
    Scenario {
        name: "power-cut-votes",
        rows: &["D4"],
        about: "A vote that made a leader is on the disk of the node that gave it when the power goes right after",
        needs: &[Facility::Root, Facility::LoopXfs],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(400, 4).with_leader_changes(1),
        run: |run| Box::pin(votes(run)),
    },
];

/// Every fourth run stands on ext4, the others on XFS, which is the stricter one.
fn kind(run: &Run) -> Kind {
    match run.seed % 4 {
        0 => Kind::Ext4,
        _ => Kind::Xfs,
    }
}

async fn start(run: &mut Run) -> Result<std::sync::Arc<Disks>, Stop> {
    let kind = kind(run);
    let disks = Disks::create(run, 3, kind)?;
    run.start(disks.setup(run)).await?;
    let load = run.producers()?;
    run.begin(&load);
    run.progress(200, PATIENCE).await?;
    Ok(disks)
}

async fn one(run: &mut Run) -> Result<(), Stop> {
    let disks = start(run).await?;
    let leader = run.rig()?.leader().await?;
    for at in [(leader + 1) % 3, (leader + 2) % 3, leader, leader] {
        let view = View::of(run.rig()?.address(at), Duration::from_secs(2)).await;
        let view = view.map_err(|error| Stop::Invalid(error.to_string()))?;
        let name = run.rig()?.name(at).to_owned();
        run.fault("power-cut", &[("node", &name)]);
        disks.cut_power(run.rig()?, &[at])?;
        kept_what_it_reported(run, &disks, at, &view)?;
        run.rig()?.restart_dead().await?;
        run.fault_over("power-cut");
        run.progress(100, PATIENCE).await?;
    }
    Ok(())
}

/// Looks at the files of a node that has power again and does not run yet.
fn kept_what_it_reported(run: &mut Run, disks: &Disks, at: usize, view: &View) -> Result<(), Stop> {
    let dir = store(disks.all[at].path());
    let last = damage::last_whole_index(&dir)?;
    run.require(last >= view.durable, || {
        format!(
            "n{at} reported entry {:?} durable, after the cut it has {last:?}",
            view.durable
        )
    });
    let vote = damage::saved_vote(&dir)?;
    run.require(vote.is_some_and(|vote| vote.term >= view.term), || {
        format!(
            "n{at} was in term {}, after the cut its vote is {vote:?}",
            view.term
        )
    });
    Ok(())
}

async fn all(run: &mut Run) -> Result<(), Stop> {
    let disks = start(run).await?;
    // Not always at the same distance from the start.
    let more = run.rng.below(400) as u64;
    run.progress(100 + more, PATIENCE).await?;
    run.fault("power-cut-all", &[]);
    disks.cut_power(run.rig()?, &[0, 1, 2])?;
    run.stop_load().await;
    run.rig()?.restart_dead().await?;
    run.fault_over("power-cut-all");
    Ok(())
}

async fn then_pause(run: &mut Run) -> Result<(), Stop> {
    let disks = start(run).await?;
    let leader = run.rig()?.leader().await?;
    let (first, second) = ((leader + 1) % 3, (leader + 2) % 3);
    run.fault("pause-follower", &[]);
    run.rig()?.pause(second)?;
    // Acknowledged by the leader and the first follower alone.
    run.progress(200, PATIENCE).await?;
    run.fault("power-cut", &[]);
    disks.cut_power(run.rig()?, &[first])?;
    let term = newest_term(run).await?;
    run.fault("pause-leader", &[]);
    run.rig()?.pause(leader)?;
    run.rig()?.spawn(first)?;
    run.rig()?.resume(second)?;
    run.fault_over("pause-follower");
    let (_, next) = elected_after(run, term).await?;
    run.progress(100, PATIENCE).await?;
    run.require(next == first, || {
        format!("n{next} leads, though only n{first} has what was acknowledged")
    });
    run.rig()?.resume(leader)?;
    run.fault_over("pause-leader");
    run.progress(100, PATIENCE).await
}

async fn votes(run: &mut Run) -> Result<(), Stop> {
    let disks = start(run).await?;
    for _ in 0..4 {
        let leader = run.rig()?.leader().await?;
        let term = newest_term(run).await?;
        let others = [(leader + 1) % 3, (leader + 2) % 3];
        run.fault("pause-leader", &[]);
        run.rig()?.pause(leader)?;
        // With the leader out, both others must have voted for whoever leads next.
        let (elected, _) = elected_after(run, term).await?;
        run.fault("power-cut-voters", &[]);
        disks.cut_power(run.rig()?, &others)?;
        let saved = others.map(|at| damage::saved_vote(&store(disks.all[at].path())));
        for (at, vote) in others.iter().zip(saved) {
            let vote = vote?;
            run.require(vote.is_some_and(|vote| vote.term >= elected), || {
                format!("a leader of term {elected} was seen, but n{at}'s vote is {vote:?}")
            });
        }
        run.rig()?.resume(leader)?;
        run.rig()?.restart_dead().await?;
        run.fault_over("power-cut-voters");
        run.fault_over("pause-leader");
        run.progress(50, PATIENCE).await?;
    }
    one_leader_a_term(run)
}

async fn newest_term(run: &mut Run) -> Result<u64, Stop> {
    let views = run.rig()?.views().await;
    let terms = views
        .iter()
        .filter_map(|(_, view)| Some(view.as_ref()?.term));
    Ok(terms.max().unwrap_or_default())
}

/// The first term after `term` that a node says to lead in, and the node.
async fn elected_after(run: &mut Run, term: u64) -> Result<(u64, usize), Stop> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let views = run.rig()?.views().await;
        let elected = views
            .iter()
            .filter_map(|(at, view)| Some((view.as_ref()?, *at)))
            .filter(|(view, _)| view.leads && view.term > term)
            .map(|(view, at)| (view.term, at))
            .max();
        if let Some(elected) = elected {
            return Ok(elected);
        }
    }
    Err(Stop::Violated(format!(
        "two of three nodes elect nobody after term {term} within {PATIENCE:?}"
    )))
}

/// I-12, from what the nodes said of themselves.
pub(super) fn one_leader_a_term(run: &mut Run) -> Result<(), Stop> {
    let mut leaders = std::collections::BTreeMap::<String, String>::new();
    for event in run.recorder.events()? {
        let crate::history::What::Obs { node, table } = event.what else {
            continue;
        };
        let leads = table.get("raftRole").is_some_and(|role| role == "leader");
        if let (true, Some(term)) = (leads, table.get("raftTerm")) {
            let first = leaders.entry(term.clone()).or_insert_with(|| node.clone());
            let first = first.clone();
            run.require(first == node, || {
                format!("both {first} and {node} said that they lead in term {term}")
            });
        }
    }
    Ok(())
}
