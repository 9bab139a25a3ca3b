//! Bad links: packets that are late, lost, out of order or doubled, little bandwidth, resets, and connections
//! that die without a word (N8 to N11).

use std::time::{Duration, Instant};

use super::context::{PATIENCE, Run};
use super::evidence::{leader_changes, term_growth};
use super::kill::RECOVERS_WITHIN;
use super::partition::{cut, mend};
use super::{Floor, Scenario, Stop, Tier};
use crate::rig::doctor::Facility;
use crate::rig::switch::{End, both};
use crate::rig::{Placement, Queued, Treatment};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "late-packets",
        rows: &["N8"],
        about: "With 50 ms on every way the leader stays; with 200 ms and a second, jitter and reordering nothing is lost, and the group recovers",
        needs: &[Facility::Queue],
        placement: Placement::Namespaces,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(200, 4),
        run: |run| Box::pin(late_packets(run)),
    },
    Scenario {
        name: "lost-packets",
        rows: &["N8"],
        about: "With 1, 5 and 20 percent of all packets lost, and with every packet doubled, writing goes on and nothing is lost",
        needs: &[Facility::Queue, Facility::Bandwidth],
        placement: Placement::Namespaces,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(200, 4),
        run: |run| Box::pin(lost_packets(run)),
    },
    Scenario {
        name: "thin-link",
        rows: &["N9"],
        about: "A follower behind 1 Mbit/s lags and slows nobody; a leader behind 1 Mbit/s makes progress; neither grows without bound",
        needs: &[Facility::Bandwidth],
        placement: Placement::Namespaces,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(200, 2),
        run: |run| Box::pin(thin_link(run)),
    },
    Scenario {
        name: "reset-storm",
        rows: &["N10"],
        about: "With all connections between the nodes reset ten times a second writing goes on, and no descriptor is leaked",
        needs: &[Facility::SocketKill],
        placement: Placement::Namespaces,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(200, 1),
        run: |run| Box::pin(reset_storm(run)),
    },
    Scenario {
        name: "half-open",
        rows: &["N11"],
        about: "An idle connection that died without a word is noticed: a follower that was cut off in silence is level again within ten seconds of the heal",
        needs: &[Facility::SwitchRules],
        placement: Placement::Namespaces,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(200, 2),
        run: |run| Box::pin(half_open(run)),
    },
];

/// A bad link is on for so long.
const FOR: Duration = Duration::from_secs(8);
/// From the end of a fault to all nodes level.
const LEVEL_WITHIN: Duration = Duration::from_secs(10);
const RESIDENT_MAX: u64 = 512 << 20;

/// Every packet from any node to any other is treated so.
fn treat_all(run: &mut Run, treatment: Treatment) -> Result<Vec<Queued>, Stop> {
    let nodes = run.rig()?.len();
    let mut queues = Vec::new();
    for at in 0..nodes {
        let seed = run.rng.next_u64();
        let others: Vec<usize> = (0..nodes).filter(|other| *other != at).collect();
        queues.push(run.network()?.treat(at, &others, treatment, seed)?);
    }
    Ok(queues)
}

async fn late_packets(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    for (delay, jitter) in [(50, 0), (20, 80), (200, 0), (1_000, 200)] {
        let treatment = Treatment {
            delay: Duration::from_millis(delay),
            jitter: Duration::from_millis(jitter),
            ..Treatment::default()
        };
        let queues = treat_all(run, treatment)?;
        let ways = format!("{delay}+{jitter} ms");
        let from = run.fault("late-packets", &[("way", &ways)]);
        let before = run.acknowledged();
        run.sleep(FOR).await;
        let acks = run.acknowledged() - before;
        let passed: u64 = queues.iter().map(Queued::passed).sum();
        let overtaken: u64 = queues.iter().map(Queued::overtaken).sum();
        drop(queues);
        run.fault_over("late-packets");
        if passed == 0 || (jitter > 0 && overtaken == 0) {
            run.fault_indeterminate(
                "late-packets",
                &format!("{passed} passed, {overtaken} overtaken"),
            );
        }
        run.figure(
            &format!("acknowledged with {ways} on every way"),
            acks as f64,
        );
        // A heartbeat and its answer take 100 ms here, the lease is 300 ms.
        if delay + jitter <= 100 {
            let events = run.events()?;
            let moved = leader_changes(&events, from, u64::MAX);
            run.require(moved == 0, || {
                format!("{ways}: the leadership moved {moved} times")
            });
            run.require(acks > 0, || format!("{ways}: nothing was acknowledged"));
        }
        run.progress(50, RECOVERS_WITHIN).await?;
        run.rig()?.wait_serving().await?;
    }
    Ok(())
}

async fn lost_packets(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    for loss_percent in [1, 5, 20] {
        let treatment = Treatment {
            loss_percent,
            ..Treatment::default()
        };
        let queues = treat_all(run, treatment)?;
        let from = run.fault("lost-packets", &[("percent", &loss_percent.to_string())]);
        let before = run.acknowledged();
        run.sleep(FOR).await;
        let acks = run.acknowledged() - before;
        let lost: u64 = queues.iter().map(Queued::lost).sum();
        drop(queues);
        run.fault_over("lost-packets");
        if lost == 0 {
            run.fault_indeterminate("lost-packets", "no packet was lost");
        }
        let terms = term_growth(&run.events()?, from, u64::MAX);
        run.figure(
            &format!("acknowledged with {loss_percent} percent lost"),
            acks as f64,
        );
        run.figure(
            &format!("terms with {loss_percent} percent lost"),
            terms as f64,
        );
        run.require(acks > 0, || {
            format!("nothing was acknowledged with {loss_percent} percent lost")
        });
        run.progress(50, RECOVERS_WITHIN).await?;
        run.rig()?.wait_serving().await?;
    }
    doubled_packets(run).await
}

async fn doubled_packets(run: &mut Run) -> Result<(), Stop> {
    let nodes = run.rig()?.len();
    for from in 0..nodes {
        let site = std::sync::Arc::clone(&run.site);
        run.on_heal(move || match site.network() {
            // Gone already when the scenario came to its end.
            Some(network) => network.unduplicate(from).or(Ok(())),
            None => Ok(()),
        });
        for to in (0..nodes).filter(|to| *to != from) {
            run.network()?.duplicate(from, to)?;
        }
    }
    run.fault("doubled-packets", &[]);
    run.progress(100, PATIENCE).await?;
    run.sleep(Duration::from_secs(3)).await;
    for from in 0..nodes {
        run.network()?.unduplicate(from)?;
    }
    run.fault_over("doubled-packets");
    run.progress(50, PATIENCE).await
}

async fn thin_link(run: &mut Run) -> Result<(), Stop> {
    let setup = run.calm_setup();
    run.start(setup).await?;
    let mut load = run.producers()?;
    // Far more than the link takes.
    load.body = (2_048, 8_192);
    run.begin(&load);
    run.progress(100, PATIENCE).await?;
    for of_leader in [false, true] {
        let leader = run.rig()?.leader().await?;
        let victim = if of_leader { leader } else { (leader + 1) % 3 };
        let name = run.rig()?.name(victim).to_owned();
        run.network()?.limit(victim, "1mbit")?;
        let site = std::sync::Arc::clone(&run.site);
        run.on_heal(move || match site.network() {
            // Gone already when the scenario came to its end.
            Some(network) => network.unlimit(victim).or(Ok(())),
            None => Ok(()),
        });
        let from = run.fault("thin-link", &[("node", &name)]);
        let before = run.acknowledged();
        run.sleep(2 * FOR).await;
        let acks = run.acknowledged() - before;
        run.figure("acknowledged beside a thin link", acks as f64);
        for at in 0..run.rig()?.len() {
            let resident = run.rig()?.resident(at)?;
            run.require(resident < RESIDENT_MAX, || {
                format!("n{at} holds {resident} bytes beside a thin link")
            });
        }
        let moved = leader_changes(&run.events()?, from, u64::MAX);
        run.require(acks >= 20, || {
            format!("{acks} acknowledged beside the thin link of {name}")
        });
        if !of_leader {
            run.require(moved == 0, || {
                format!("the thin link of {name} moved the leadership")
            });
        }
        run.network()?.unlimit(victim)?;
        run.fault_over("thin-link");
        run.progress(100, PATIENCE).await?;
        run.rig()?.wait_serving().await?;
    }
    Ok(())
}

async fn reset_storm(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    let nodes = run.rig()?.len();
    let port = run.rig()?.peer_address(0).port();
    run.fault("reset-storm", &[]);
    let (begun, before) = (Instant::now(), run.acknowledged());
    let mut resets = 0;
    while begun.elapsed() < Duration::from_secs(10) {
        for at in 0..nodes {
            resets += run.network()?.reset_connections(at, port)?;
        }
        run.sleep(Duration::from_millis(100)).await;
    }
    run.fault_over("reset-storm");
    let acks = run.acknowledged() - before;
    run.figure("resets", resets as f64);
    run.figure("acknowledged in the storm", acks as f64);
    if resets < 50 {
        run.fault_indeterminate(
            "reset-storm",
            &format!("only {resets} connections were reset"),
        );
    }
    run.require(acks > 0, || {
        format!("nothing was acknowledged between {resets} resets")
    });
    run.progress(100, RECOVERS_WITHIN).await
}

async fn half_open(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    for retries in [15, 3] {
        run.network()?.set_tcp_retries(retries)?;
        run.stop_load().await;
        let leader = run.rig()?.leader().await?;
        let victim = (leader + 1) % 3;
        let name = run.rig()?.name(victim).to_owned();
        cut(
            run,
            "half-open",
            &name,
            &both(End::Node(leader), End::Node(victim)),
        )?;
        run.sleep(FOR).await;
        // The others write meanwhile: the victim has something to catch up with.
        let load = run.producers()?;
        run.begin(&load);
        run.progress(100, PATIENCE).await?;
        run.stop_load().await;
        mend(run, "half-open")?;
        let begun = Instant::now();
        while !is_level(run).await? && begun.elapsed() < LEVEL_WITHIN {
            run.sleep(Duration::from_millis(20)).await;
        }
        let took = begun.elapsed();
        run.figure("ms until the follower was level", took.as_millis() as f64);
        run.require_in_time(took < LEVEL_WITHIN, || {
            format!("{name} is not level {LEVEL_WITHIN:?} after the heal (tcp_retries2 {retries})")
        });
        let load = run.producers()?;
        run.begin(&load);
        run.progress(100, PATIENCE).await?;
    }
    Ok(())
}

/// All nodes have applied the same, and say so.
async fn is_level(run: &mut Run) -> Result<bool, Stop> {
    let views = run.rig()?.views().await;
    let mut applied = views.iter().map(|(_, view)| view.as_ref()?.applied);
    let first = applied.next().flatten();
    Ok(first.is_some() && applied.all(|other| other == first))
}
