//! Nodes without enough memory or processor time (P12), and nodes whose core cannot go on (P13).

use std::time::{Duration, Instant};

use super::context::{PATIENCE, Run};
use super::evidence::{leader_changes, term_growth};
use super::kill::RECOVERS_WITHIN;
use super::{Floor, Scenario, Stop, Tier};
use crate::rig::Placement;
use crate::rig::cgroup::Cgroup;
use crate::rig::doctor::Facility;
use crate::rig::trace::Tracer;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "out-of-memory",
        rows: &["P12"],
        about: "A leader that is killed because it has no memory loses nothing, and starts again",
        needs: &[Facility::Root, Facility::Cgroups],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(300, 1).with_leader_changes(1),
        run: |run| Box::pin(out_of_memory(run)),
    },
    Scenario {
        name: "starved-leader",
        rows: &["P12"],
        about: "A leader with a twentieth of a processor makes progress or loses the leadership, and costs at most a term a second",
        needs: &[Facility::Root, Facility::Cgroups],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(300, 1),
        run: |run| Box::pin(starved_leader(run)),
    },
    Scenario {
        name: "dead-core",
        rows: &["P13"],
        about: "A leader whose log failed ends within a second, with a status that says so: it is never a process that accepts connections and fails every request",
        needs: &[Facility::Strace],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(300, 1).with_leader_changes(1),
        run: |run| Box::pin(dead_core(run)),
    },
];

/// What a leader may touch anew before it is killed.
const MEMORY: u64 = 3 << 20;
/// A node that cannot go on has ended by then. The promise is a second; a tracer slows it down.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

async fn out_of_memory(run: &mut Run) -> Result<(), Stop> {
    run.start(run.setup()).await?;
    let mut load = run.producers()?;
    load.body = (16_384, 262_144);
    load.connections = 8;
    run.begin(&load);
    run.progress(50, PATIENCE).await?;
    let leader = run.rig()?.leader().await?;
    let pid = run.rig()?.pid(leader)?;
    let cgroup = Cgroup::memory("memory", MEMORY)?;
    run.fault("out-of-memory", &[("node", &format!("n{leader}"))]);
    cgroup.take(pid)?;
    let status = run.rig()?.wait_end(leader, PATIENCE).await?;
    let kills = cgroup.oom_kills()?;
    if kills == 0 {
        return Err(Stop::Invalid(format!(
            "n{leader} ended with {status}, but not for want of memory"
        )));
    }
    run.progress(50, RECOVERS_WITHIN).await?;
    run.rig()?.restart_dead().await?;
    run.fault_over("out-of-memory");
    run.stop_load().await;
    let load = run.producers()?;
    run.begin(&load);
    run.progress(200, PATIENCE).await
}

async fn starved_leader(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    let leader = run.rig()?.leader().await?;
    let pid = run.rig()?.pid(leader)?;
    let cgroup = Cgroup::processor("processor", 5)?;
    let from = run.fault(
        "starve-leader",
        &[("node", &format!("n{leader}")), ("percent", "5")],
    );
    cgroup.take(pid)?;
    let (begun, before) = (Instant::now(), run.acknowledged());
    run.sleep(Duration::from_secs(15)).await;
    let seconds = begun.elapsed().as_secs();
    let acknowledged = run.acknowledged() - before;
    let events = run.events()?;
    let until = run.recorder.now();
    let (changes, terms) = (
        leader_changes(&events, from, until),
        term_growth(&events, from, until),
    );
    drop(cgroup);
    run.fault_over("starve-leader");
    run.figure("acknowledged while starved", acknowledged as f64);
    run.figure("terms while starved", terms as f64);
    run.require(acknowledged > 0 || changes > 0, || {
        format!("n{leader} led for {seconds} s and acknowledged nothing")
    });
    run.require(terms <= seconds, || format!("{terms} terms in {seconds} s"));
    run.progress(100, PATIENCE).await
}

/// A core that cannot go on, brought about by a failed sync: the same watch ends the process when the core
/// panics or falls silent.
async fn dead_core(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    let leader = run.rig()?.leader().await?;
    let pid = run.rig()?.pid(leader)?;
    run.fault("dead-core", &[("node", &format!("n{leader}"))]);
    let tracer = Tracer::attach(pid, "fdatasync", "error=EIO:when=1")?;
    let begun = Instant::now();
    let status = run.rig()?.wait_end(leader, ENDS_WITHIN).await?;
    run.figure(
        "ms to the end of a dead core",
        begun.elapsed().as_millis() as f64,
    );
    drop(tracer);
    run.require(status.code().is_some_and(|code| code != 0), || {
        format!("n{leader} ended with {status} when its log failed")
    });
    let log = run.rig()?.log_text(leader)?;
    run.require(log.contains("quorumlog stops: "), || {
        format!("n{leader} ended with {status} and did not say why")
    });
    run.progress(150, RECOVERS_WITHIN).await?;
    run.rig()?.restart_dead().await?;
    run.fault_over("dead-core");
    run.progress(50, PATIENCE).await
}
