//! Partitions: who hears whom (N1 to N7). The bridge between the nodes' namespaces drops the packets; nothing
//! is reset.

use std::time::Duration;

use super::context::{PATIENCE, Run};
use super::evidence::{acknowledged, leader_changes, leaders, term_growth};
use super::kill::RECOVERS_WITHIN;
use super::refusal::{refuses_as_a_follower, refuses_within_its_lease};
use super::{Floor, Scenario, Stop, Tier};
use crate::rig::Placement;
use crate::rig::doctor::Facility;
use crate::rig::switch::{Cut, End, both, deaf, isolated, mute};

const NEEDS: &[Facility] = &[Facility::SwitchRules];

/// A partition scenario; what differs is filled in.
const fn scenario(
    name: &'static str,
    rows: &'static [&'static str],
    about: &'static str,
    tier: Tier,
    floor: Floor,
    run: for<'a> fn(&'a mut Run) -> super::Running<'a>,
) -> Scenario {
    Scenario {
        name,
        rows,
        about,
        needs: NEEDS,
        placement: Placement::Namespaces,
        nodes: 3,
        tier,
        floor,
        run,
    }
}

pub const SCENARIOS: &[Scenario] = &[
    scenario(
        "leader-isolated",
        &["N1"],
        "The majority elects a leader and goes on; the isolated one refuses within its lease and acknowledges nothing; when it is back it follows",
        Tier::Ci,
        Floor::of(300, 2).with_leader_changes(2).with_refused(20),
        |run| Box::pin(leader_isolated(run)),
    ),
    scenario(
        "follower-isolated",
        &["N2"],
        "A follower that was cut off and comes back moves neither the leadership nor the term",
        Tier::Nightly,
        Floor::of(300, 1),
        |run| Box::pin(follower_isolated(run)),
    ),
    scenario(
        "leader-one-way",
        &["N3"],
        "With a leader that hears nobody, or that nobody hears, the group settles within two elections and acknowledges",
        Tier::Ci,
        Floor::of(300, 2),
        |run| Box::pin(one_way(run, true)),
    ),
    scenario(
        "follower-one-way",
        &["N3"],
        "A follower that hears nobody, or that nobody hears, disturbs nothing",
        Tier::Nightly,
        Floor::of(300, 2),
        |run| Box::pin(one_way(run, false)),
    ),
    scenario(
        "bridge",
        &["N4"],
        "When two nodes cannot talk to each other but both to the third, leadership does not go back and forth, and writing goes on",
        Tier::Nightly,
        Floor::of(300, 2),
        |run| Box::pin(bridge(run)),
    ),
    scenario(
        "flapping",
        &["N5"],
        "Partitions that come and go every 200 ms, of the leader and of any ends, lose nothing, and the group recovers when they end",
        Tier::Nightly,
        Floor::of(200, 20),
        |run| Box::pin(flapping(run)),
    ),
    scenario(
        "all-isolated",
        &["N6"],
        "With no two nodes connected nothing is acknowledged, every node refuses, and the group goes on when it is healed",
        Tier::Ci,
        Floor::of(200, 1).with_refused(60),
        |run| Box::pin(all_isolated(run)),
    ),
    scenario(
        "client-cut",
        &["N7"],
        "Clients that reach the followers only, or the leader only, go on writing",
        Tier::Nightly,
        Floor::of(300, 2),
        |run| Box::pin(client_cut(run)),
    ),
];

/// Cuts these pairs, and nothing else, until they are replaced, mended or healed.
pub fn cut(run: &mut Run, name: &str, node: &str, cuts: &[Cut]) -> Result<u64, Stop> {
    let site = std::sync::Arc::clone(&run.site);
    run.on_heal(move || site.network().map_or(Ok(()), |network| network.mend()));
    let t = run.fault(name, &[("node", node)]);
    run.network()?.cut(cuts)?;
    Ok(t)
}

/// Mends everything; a cut that dropped nothing cut nothing, and the run proves nothing.
pub fn mend(run: &mut Run, name: &str) -> Result<u64, Stop> {
    let dropped = run.network()?.dropped()?;
    if dropped == 0 {
        run.fault_indeterminate(name, "no packet was dropped");
    }
    run.network()?.mend()?;
    run.fault_over(name);
    Ok(run.recorder.now())
}

/// Nodes whose namespaces give a connection up after a few seconds instead of many minutes. Half of the
/// partitions run without: what the nodes do by themselves must be enough.
fn quick_retries(run: &Run, quick: bool) -> Result<(), Stop> {
    Ok(run.network()?.set_tcp_retries(if quick { 4 } else { 15 })?)
}

async fn leader_isolated(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    for quick in [false, true] {
        quick_retries(run, quick)?;
        let leader = run.rig()?.leader().await?;
        let nodes = run.rig()?.len();
        let name = run.rig()?.name(leader).to_owned();
        let other = (leader + 1) % nodes;
        let steady = [run.begin_steady(leader)?, run.begin_steady(other)?];
        run.sleep(Duration::from_millis(500)).await;
        let lost = cut(run, "isolate-leader", &name, &isolated(leader, nodes))?;
        run.progress(100, RECOVERS_WITHIN).await?;
        run.sleep(Duration::from_secs(5)).await;
        let back = mend(run, "isolate-leader")?;
        for steady in steady {
            steady.stop().await;
        }
        refuses_within_its_lease(run, leader, lost, back)?;
        run.rig()?.wait_serving().await?;
        run.progress(100, PATIENCE).await?;
        let growth = term_growth(&run.events()?, back, u64::MAX);
        run.require(growth == 0, || {
            format!("the return of {name} cost {growth} terms")
        });
    }
    Ok(())
}

async fn follower_isolated(run: &mut Run) -> Result<(), Stop> {
    let setup = run.calm_setup();
    run.start_loaded_with(setup, 200).await?;
    let leader = run.rig()?.leader().await?;
    let nodes = run.rig()?.len();
    let victim = (leader + 1 + run.rng.below(nodes - 1)) % nodes;
    let name = run.rig()?.name(victim).to_owned();
    let from = cut(run, "isolate-follower", &name, &isolated(victim, nodes))?;
    run.progress(100, RECOVERS_WITHIN).await?;
    run.sleep(Duration::from_secs(8)).await;
    mend(run, "isolate-follower")?;
    run.rig()?.wait_serving().await?;
    run.sleep(Duration::from_secs(2)).await;
    run.progress(100, PATIENCE).await?;
    let growth = term_growth(&run.events()?, from, u64::MAX);
    run.require(growth == 0, || {
        format!("cutting {name} off cost {growth} terms")
    });
    let now = run.rig()?.leader().await?;
    run.require(now == leader, || {
        format!("leadership moved from n{leader} to n{now}")
    });
    Ok(())
}

/// How long a group may take to settle in a one-way partition: two elections, and a busy machine.
const SETTLES_WITHIN: Duration = Duration::from_secs(6);
const SETTLED_FOR: Duration = Duration::from_secs(10);
/// Terms within [`SETTLED_FOR`]: six a minute.
const TERMS_MAX: u64 = 1;

async fn one_way(run: &mut Run, of_leader: bool) -> Result<(), Stop> {
    let setup = run.calm_setup();
    run.start_loaded_with(setup, 200).await?;
    for hears in [false, true] {
        let leader = run.rig()?.leader().await?;
        let nodes = run.rig()?.len();
        let victim = match of_leader {
            true => leader,
            false => (leader + 1 + run.rng.below(nodes - 1)) % nodes,
        };
        let name = run.rig()?.name(victim).to_owned();
        let (fault, cuts) = match hears {
            false => ("deaf", deaf(victim, nodes)),
            true => ("mute", mute(victim, nodes)),
        };
        let begun = cut(run, fault, &name, &cuts)?;
        run.sleep(SETTLES_WITHIN).await;
        let settled = run.recorder.now();
        run.progress(20, RECOVERS_WITHIN).await?;
        run.sleep(SETTLED_FOR).await;
        let until = run.recorder.now();
        mend(run, fault)?;
        let events = run.events()?;
        let growth = term_growth(&events, settled, until);
        run.figure(
            "terms before it settled",
            term_growth(&events, begun, settled) as f64,
        );
        run.figure("terms once settled", growth as f64);
        run.require(growth <= TERMS_MAX, || {
            format!("{fault} {name}: {growth} terms in {SETTLED_FOR:?} after {SETTLES_WITHIN:?}")
        });
        let acks = acknowledged(&events, settled, until);
        run.require(acks >= 100, || {
            format!("{fault} {name}: only {acks} were acknowledged")
        });
        if !of_leader {
            let moved = leader_changes(&events, begun, until);
            run.require(moved == 0, || {
                format!("{fault} {name} moved the leadership")
            });
        }
        run.rig()?.wait_serving().await?;
        run.progress(50, PATIENCE).await?;
    }
    Ok(())
}

async fn bridge(run: &mut Run) -> Result<(), Stop> {
    let setup = run.calm_setup();
    run.start_loaded_with(setup, 200).await?;
    run.sleep(Duration::from_secs(1)).await;
    for leader_in_the_middle in [false, true] {
        let base = rate(run).await?;
        let leader = run.rig()?.leader().await?;
        let others = [(leader + 1) % 3, (leader + 2) % 3];
        let pair = match leader_in_the_middle {
            true => both(End::Node(others[0]), End::Node(others[1])),
            false => both(End::Node(leader), End::Node(others[0])),
        };
        let begun = cut(run, "bridge", &format!("n{leader}"), &pair)?;
        run.sleep(SETTLES_WITHIN).await;
        let settled = run.recorder.now();
        let during = rate(run).await?;
        run.sleep(SETTLED_FOR).await;
        let until = run.recorder.now();
        // With the leader in the middle the other two have nothing to say to each other, unless one of them
        // asks for votes: no packet need be dropped.
        match leader_in_the_middle {
            true => {
                run.network()?.mend()?;
                run.fault_over("bridge");
            }
            false => drop(mend(run, "bridge")?),
        }
        let events = run.events()?;
        run.figure(
            "progress beside a bridge, percent",
            100.0 * during / base.max(1.0),
        );
        let changes = leader_changes(&events, begun, until);
        run.require(changes <= 2, || format!("leadership moved {changes} times"));
        let growth = term_growth(&events, settled, until);
        run.require(growth <= TERMS_MAX, || {
            format!("{growth} terms once settled")
        });
        // The goal is half; a busy machine changes its pace by itself.
        run.require(during * 5.0 >= base, || {
            format!("{during} a second beside the bridge, {base} before")
        });
        run.rig()?.wait_serving().await?;
        run.progress(50, PATIENCE).await?;
    }
    Ok(())
}

/// Acknowledged messages a second, over three seconds.
async fn rate(run: &mut Run) -> Result<f64, Stop> {
    let (before, begun) = (run.acknowledged(), std::time::Instant::now());
    run.sleep(Duration::from_secs(3)).await;
    Ok((run.acknowledged() - before) as f64 / begun.elapsed().as_secs_f64())
}

async fn flapping(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    let beat = Duration::from_millis(200);
    for _ in 0..25 {
        let leader = run.rig()?.leader().await?;
        let nodes = run.rig()?.len();
        cut(run, "flap", &format!("n{leader}"), &isolated(leader, nodes))?;
        run.sleep(beat).await;
        run.network()?.mend()?;
        run.fault_over("flap");
        run.sleep(beat).await;
    }
    for _ in 0..40 {
        let cuts = any_cuts(run)?;
        cut(run, "clog", "any", &cuts)?;
        let time = Duration::from_millis(50 + run.rng.below(350) as u64);
        run.sleep(time).await;
        run.fault_over("clog");
    }
    run.network()?.mend()?;
    run.progress(50, RECOVERS_WITHIN).await?;
    run.rig()?.wait_serving().await?;
    Ok(())
}

/// Each direction of each pair with a chance of one third.
fn any_cuts(run: &mut Run) -> Result<Vec<Cut>, Stop> {
    let nodes = run.rig()?.len();
    let mut cuts = Vec::new();
    for at in 0..nodes {
        for pair in mute(at, nodes) {
            if run.rng.percent(33) {
                cuts.push(pair);
            }
        }
    }
    Ok(cuts)
}

async fn all_isolated(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    let leader = run.rig()?.leader().await?;
    let nodes = run.rig()?.len();
    let mut steady = Vec::new();
    for at in 0..nodes {
        steady.push(run.begin_steady(at)?);
    }
    run.sleep(Duration::from_millis(500)).await;
    let cuts: Vec<Cut> = (0..nodes).flat_map(|at| mute(at, nodes)).collect();
    cut(run, "isolate-all", "all", &cuts)?;
    let lost = run.recorder.now();
    run.quorum_lost();
    run.sleep(Duration::from_secs(8)).await;
    let back = run.recorder.now();
    run.quorum_back();
    mend(run, "isolate-all")?;
    for steady in steady {
        steady.stop().await;
    }
    for at in 0..nodes {
        match at == leader {
            true => refuses_within_its_lease(run, at, lost, back)?,
            false => refuses_as_a_follower(run, at, lost, back)?,
        }
    }
    let claims = leaders(&run.events()?, lost + 5_000_000_000, back).len();
    run.require(claims <= 1, || {
        format!("{claims} terms had a leader while no two nodes were connected")
    });
    run.progress(50, RECOVERS_WITHIN).await
}

async fn client_cut(run: &mut Run) -> Result<(), Stop> {
    let setup = run.calm_setup();
    run.start_loaded_with(setup, 200).await?;
    let nodes = run.rig()?.len();
    for from_leader in [true, false] {
        let leader = run.rig()?.leader().await?;
        let cuts: Vec<Cut> = (0..nodes)
            .filter(|at| (*at == leader) == from_leader)
            .flat_map(|at| both(End::Clients, End::Node(at)))
            .collect();
        let name = format!("n{leader}");
        let from = cut(run, "cut-clients", &name, &cuts)?;
        run.progress(100, PATIENCE).await?;
        run.sleep(Duration::from_secs(3)).await;
        let until = mend(run, "cut-clients")?;
        let growth = term_growth(&run.events()?, from, until);
        run.require(growth == 0, || {
            format!("clients that were cut off cost {growth} terms")
        });
        run.progress(100, PATIENCE).await?;
    }
    Ok(())
}
