//! Processes that die (P1 to P3).

use super::context::{PATIENCE, Run};
use super::{Floor, Scenario, Stop, Tier};
use crate::rig::Placement;

/// The family, in the order of the catalogue.
pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "leader-kill",
    rows: &["P1"],
    about: "After SIGKILL to the leader one other node leads in a higher term, and nothing acknowledged is lost",
    needs: &[],
    placement: Placement::Loopback,
    nodes: 3,
    tier: Tier::Smoke,
    floor: Floor::of(500, 1).with_leader_changes(1),
    run: |run| Box::pin(leader_kill(run)),
}];

async fn leader_kill(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    let leader = run.rig()?.leader().await?;
    let name = run.rig()?.name(leader).to_owned();
    run.fault("kill-leader", &[("node", &name)]);
    run.rig()?.kill(&[leader])?;
    run.progress(200, PATIENCE).await?;
    let next = run.rig()?.leader().await?;
    run.require(next != leader, || {
        format!("{name} still leads after its end")
    });
    Ok(())
}
