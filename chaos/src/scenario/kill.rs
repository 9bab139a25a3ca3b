//! Processes that are killed: one, all, and again and again while they start (P1 to P4).

use std::time::Duration;

use super::context::{PATIENCE, Run};
use super::evidence::sends;
use super::{Floor, Scenario, Stop, Tier};
use crate::rig::Placement;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "leader-kill",
        rows: &["P1"],
        about: "After SIGKILL to the leader another node leads in a higher term and acknowledges within fifteen seconds, and nothing is lost",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Smoke,
        floor: Floor::of(500, 2).with_leader_changes(2),
        run: |run| Box::pin(leader_kill(run)),
    },
    Scenario {
        name: "follower-kill",
        rows: &["P2"],
        about: "SIGKILL to a follower fails no send to the other nodes and moves no leadership",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Ci,
        floor: Floor::of(500, 2),
        run: |run| Box::pin(follower_kill(run)),
    },
    Scenario {
        name: "kill-all",
        rows: &["P3"],
        about: "After SIGKILL to all nodes at once and a restart the group serves everything that was acknowledged",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Ci,
        floor: Floor::of(500, 3),
        run: |run| Box::pin(kill_all(run)),
    },
    Scenario {
        name: "kill-while-starting",
        rows: &["P4"],
        about: "Nodes that are killed again and again while they start and recover start in the end, with everything",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(500, 12),
        run: |run| Box::pin(kill_while_starting(run)),
    },
];

/// From a fault to the next acknowledged messages, at most. The goal is 3 s; machines are busy.
pub const RECOVERS_WITHIN: Duration = Duration::from_secs(15);

async fn leader_kill(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    for round in 0..2 {
        let rig = run.rig()?;
        let leader = rig.leader().await?;
        let name = rig.name(leader).to_owned();
        run.fault("kill-leader", &[("node", &name)]);
        run.rig()?.kill(&[leader])?;
        run.progress(150, RECOVERS_WITHIN).await?;
        let next = run.rig()?.leader().await?;
        run.require(next != leader, || {
            format!("round {round}: {name} leads after its end")
        });
        run.rig()?.restart_dead().await?;
        run.fault_over("kill-leader");
    }
    Ok(())
}

async fn follower_kill(run: &mut Run) -> Result<(), Stop> {
    let setup = run.calm_setup();
    run.start_loaded_with(setup, 200).await?;
    for _ in 0..2 {
        let rig = run.rig()?;
        let leader = rig.leader().await?;
        let followers = rig.followers().await?;
        let victim = followers[run.rng.below(followers.len())];
        let name = run.rig()?.name(victim).to_owned();
        let begun = run.fault("kill-follower", &[("node", &name)]);
        run.rig()?.kill(&[victim])?;
        run.progress(200, PATIENCE).await?;
        run.rig()?.restart_dead().await?;
        run.fault_over("kill-follower");
        run.progress(100, PATIENCE).await?;
        only_the_victims_sends_failed(run, &name, begun)?;
        let now = run.rig()?.leader().await?;
        run.require(now == leader, || {
            format!("the end of the follower {name} moved the leadership from n{leader} to n{now}")
        });
    }
    Ok(())
}

/// Every send to another node than `victim` was acknowledged.
fn only_the_victims_sends_failed(run: &mut Run, victim: &str, begun: u64) -> Result<(), Stop> {
    let events = run.events()?;
    let failed: Vec<String> = sends(&events, begun, u64::MAX)
        .iter()
        .filter(|sent| sent.to != victim && !sent.is_acknowledged())
        .map(|sent| format!("{sent:?}"))
        .collect();
    run.require(failed.is_empty(), || {
        format!(
            "{} sends failed that were not {victim}'s, the first: {}",
            failed.len(),
            failed[0]
        )
    });
    Ok(())
}

async fn kill_all(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    for _ in 0..3 {
        let all: Vec<usize> = (0..run.rig()?.len()).collect();
        run.fault("kill-all", &[]);
        run.rig()?.kill(&all)?;
        run.rig()?.restart_dead().await?;
        run.fault_over("kill-all");
        run.progress(150, PATIENCE).await?;
    }
    Ok(())
}

async fn kill_while_starting(run: &mut Run) -> Result<(), Stop> {
    // Small segments: a start has several to look through.
    let setup = run.setup().with("mappedFileSizeCommitLog", "4194304");
    run.start(setup).await?;
    let mut load = run.producers()?;
    load.body = (256, 16_384);
    run.begin(&load);
    run.progress(600, PATIENCE).await?;
    let all: Vec<usize> = (0..run.rig()?.len()).collect();
    for round in 0..12 {
        // Half of the kills come while the files are being read, half while the group forms.
        let bound = if round % 2 == 0 { 150 } else { 2_000 };
        let wait = Duration::from_millis(run.rng.below(bound) as u64);
        run.rig()?.kill(&all)?;
        for at in &all {
            run.rig()?.spawn(*at)?;
        }
        run.sleep(wait).await;
        run.fault(
            "kill-starting",
            &[("after_ms", &wait.as_millis().to_string())],
        );
    }
    run.rig()?.kill(&all)?;
    run.rig()?.restart_dead().await?;
    run.fault_over("kill-starting");
    run.progress(100, PATIENCE).await
}
