//! Nodes that are asked to stop (SIGTERM): the leader, and all in turn (P10, P11).

use std::time::Duration;

use super::context::{PATIENCE, Run};
use super::evidence::{SendEnd, sends, unavailable};
use super::{Floor, Scenario, Stop, Tier};
use crate::history::recovery_ns;
use crate::rig::Placement;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "leader-stop",
        rows: &["P10"],
        about: "A leader that is asked to stop hands over, ends with status 0, and the group acknowledges again at once",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Ci,
        floor: Floor::of(500, 3).with_leader_changes(3),
        run: |run| Box::pin(leader_stop(run)),
    },
    Scenario {
        name: "rolling-restart",
        rows: &["P11"],
        about: "All three nodes are restarted in turn under load: nothing is lost, and the group is away for at most three hand-overs",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(500, 3),
        run: |run| Box::pin(rolling_restart(run)),
    },
];

/// From the signal to the next acknowledged message, at most. The goal on a quiet machine is 500 ms.
const HANDS_OVER_WITHIN: Duration = Duration::from_secs(5);
/// Longer without an acknowledgement is being away.
const AWAY: Duration = Duration::from_millis(250);

async fn leader_stop(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    for _ in 0..3 {
        let rig = run.rig()?;
        let leader = rig.leader().await?;
        let name = rig.name(leader).to_owned();
        let begun = run.fault("stop-leader", &[("node", &name)]);
        stop(run, leader).await?;
        run.progress(100, PATIENCE).await?;
        let events = run.events()?;
        let took = recovery_ns(&events, begun).map(Duration::from_nanos);
        run.require_in_time(took.is_some_and(|took| took <= HANDS_OVER_WITHIN), || {
            format!("{took:?} from the stop of {name} to the next acknowledged message")
        });
        let unknown = sends(&events, begun, u64::MAX)
            .iter()
            .filter(|sent| matches!(sent.end, SendEnd::Unknown(_)))
            .count();
        run.figure("unknown results of a hand-over", unknown as f64);
        run.rig()?.restart_dead().await?;
        run.fault_over("stop-leader");
        run.progress(50, PATIENCE).await?;
    }
    Ok(())
}

/// SIGTERM; the node must end with status 0.
async fn stop(run: &mut Run, at: usize) -> Result<(), Stop> {
    let status = run.rig()?.terminate(at).await?;
    run.require(status.success(), || {
        format!("n{at} was asked to stop and ended with {status}")
    });
    Ok(())
}

async fn rolling_restart(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    let begun = run.recorder.now();
    for at in 0..run.rig()?.len() {
        let name = run.rig()?.name(at).to_owned();
        run.fault("restart", &[("node", &name)]);
        stop(run, at).await?;
        run.sleep(Duration::from_millis(500)).await;
        run.rig()?.restart_dead().await?;
        run.fault_over("restart");
        run.progress(100, PATIENCE).await?;
    }
    let away = unavailable(&run.events()?, begun, run.recorder.now(), AWAY);
    run.figure("ms away in a rolling restart", away.as_millis() as f64);
    run.require_in_time(away <= 3 * HANDS_OVER_WITHIN, || {
        format!("the group was away for {away:?}")
    });
    Ok(())
}
