//! Processes that stand still (SIGSTOP) and go on: the leader, followers, all, and the leader in a stutter
//! (P6 to P9). A pause is what a stopped virtual machine looks like.

use std::time::{Duration, Instant};

use super::context::{CLIENT_LIMIT, PATIENCE, Run};
use super::evidence::{leader_changes, sends, term_growth};
use super::kill::RECOVERS_WITHIN;
use super::refusal::{LEASE, refuses_within_its_lease};
use super::{Floor, Scenario, Stop, Tier};
use crate::rig::Placement;
use crate::wire::{SendOutcome, WireError};
use crate::workload::Probe;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "leader-pause",
        rows: &["P6", "C2"],
        about: "A leader that stood still acknowledges nothing and answers no read by its old state when it wakes, not even requests that had waited in its sockets",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Ci,
        floor: Floor::of(500, 3).with_leader_changes(2),
        run: |run| Box::pin(leader_pause(run, &[500, 2_000, 6_000])),
    },
    Scenario {
        name: "leader-pause-long",
        rows: &["P6", "C2"],
        about: "The same after ten seconds and after a minute",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Release,
        floor: Floor::of(500, 2).with_leader_changes(2),
        run: |run| Box::pin(leader_pause(run, &[10_000, 60_000])),
    },
    Scenario {
        name: "follower-pause",
        rows: &["P7"],
        about: "A follower that stands still fails no send to the other nodes and moves no leadership",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(500, 1),
        run: |run| Box::pin(follower_pause(run)),
    },
    Scenario {
        name: "majority-pause",
        rows: &["P7"],
        about: "With both followers paused the leader refuses for certain within its lease, acknowledges nothing, and goes on when they do",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Ci,
        floor: Floor::of(300, 1).with_refused(20),
        run: |run| Box::pin(majority_pause(run)),
    },
    Scenario {
        name: "pause-all",
        rows: &["P8"],
        about: "After all nodes stood still and went on in any order there is one leader, and no old timer acknowledges anything",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(300, 2),
        run: |run| Box::pin(pause_all(run)),
    },
    Scenario {
        name: "leader-stutter",
        rows: &["P9"],
        about: "A leader that stops and goes on each 50 to 200 ms lets a hundredth of the load through in ten seconds, or loses the leadership",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(300, 1),
        run: |run| Box::pin(leader_stutter(run)),
    },
];

/// A pause from which others take over for sure.
const OTHERS_LEAD_AFTER: u64 = 2_000;
const GROUP: &str = "chaos_woken";

async fn leader_pause(run: &mut Run, pauses_ms: &[u64]) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    for (round, pause_ms) in pauses_ms.iter().enumerate() {
        let rig = run.rig()?;
        let leader = rig.leader().await?;
        let name = rig.name(leader).to_owned();
        let mut waiting = Woken::connect(run, leader, &format!("{round}-waiting")).await?;
        let mut asking = Woken::connect(run, leader, &format!("{round}-asking")).await?;
        let pause_text = pause_ms.to_string();
        run.fault("pause-leader", &[("node", &name), ("ms", &pause_text)]);
        run.rig()?.pause(leader)?;
        let paused = Instant::now();
        if *pause_ms >= OTHERS_LEAD_AFTER {
            // The others must go on: what they acknowledge is what the woken one does not know.
            run.progress(100, RECOVERS_WITHIN).await?;
            others_commit(run, leader, round).await?;
        }
        let rest = Duration::from_millis(*pause_ms).saturating_sub(paused.elapsed());
        run.sleep(rest).await;
        // These lie in its sockets when it wakes; the others reach it in its first milliseconds.
        let (first, second) = tokio::join!(
            waiting.ask_all(),
            wake_and_ask(run.rig()?, leader, &mut asking)
        );
        run.fault_over("pause-leader");
        second?.add(first).report(run);
        run.rig()?.wait_serving().await?;
        run.progress(100, PATIENCE).await?;
    }
    Ok(())
}

async fn wake_and_ask(
    rig: &mut crate::rig::Rig,
    leader: usize,
    asking: &mut Woken,
) -> Result<Answers, Stop> {
    tokio::time::sleep(Duration::from_millis(50)).await;
    rig.resume(leader)?;
    let mut answers = Answers::default();
    for _ in 0..5 {
        answers = answers.add(asking.ask_all().await);
    }
    Ok(answers)
}

/// Consumer offsets that the paused leader does not know of.
async fn others_commit(run: &mut Run, leader: usize, round: usize) -> Result<(), Stop> {
    let other = (leader + 1) % run.rig()?.len();
    let mut probe = run.probe(&format!("others-{round}"), other)?;
    for offset in 1..=20 {
        // One that is refused or unknown is recorded as such.
        let _answer = probe.commit(GROUP, 0, offset + 100 * round as i64).await;
    }
    Ok(())
}

/// Clients with connections to the leader from before its pause.
struct Woken {
    name: String,
    sends: u32,
    probes: Vec<Probe>,
}

/// How a woken leader answered.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    good: u32,
    refused: u32,
    unknown: u32,
}

impl Woken {
    async fn connect(run: &mut Run, leader: usize, name: &str) -> Result<Woken, Stop> {
        let mut probes = Vec::new();
        for what in ["send", "max", "offset", "pull"] {
            let mut probe = run.probe(&format!("{what}-{name}"), leader)?;
            if let Err(error) = probe.connect().await {
                return Err(Stop::Invalid(format!(
                    "no client before the pause: {error}"
                )));
            }
            probes.push(probe);
        }
        Ok(Woken {
            name: name.to_owned(),
            sends: 0,
            probes,
        })
    }

    /// A send, both kinds of offset and a pull, all at once. What they may answer is the checker's.
    async fn ask_all(&mut self) -> Answers {
        self.sends += 1;
        let key = format!("woken-{}-{}", self.name, self.sends);
        let [send, max, offset, pull] = &mut self.probes[..] else {
            return Answers::default();
        };
        let (sent, max, offset, pulled) = tokio::join!(
            send.send(0, &key),
            max.max_offset(0),
            offset.consumer_offset(GROUP, 0),
            pull.pull(0, 0, false)
        );
        let mut answers = Answers::default();
        match sent {
            SendOutcome::Ok(_) => answers.good += 1,
            SendOutcome::Fail { .. } => answers.refused += 1,
            SendOutcome::Info { .. } => answers.unknown += 1,
        }
        answers.count(&max);
        answers.count(&offset);
        answers.count(&pulled);
        answers
    }
}

impl Answers {
    fn count<T>(&mut self, answer: &Result<T, WireError>) {
        match answer {
            Ok(_) => self.good += 1,
            Err(WireError::Code { .. }) => self.refused += 1,
            Err(_) => self.unknown += 1,
        }
    }

    fn add(self, other: Answers) -> Answers {
        Answers {
            good: self.good + other.good,
            refused: self.refused + other.refused,
            unknown: self.unknown + other.unknown,
        }
    }

    fn report(self, run: &mut Run) {
        run.figure("good answers of the woken leader", self.good.into());
        run.figure("refusals of the woken leader", self.refused.into());
        run.figure("unknown answers of the woken leader", self.unknown.into());
    }
}

async fn follower_pause(run: &mut Run) -> Result<(), Stop> {
    let setup = run.calm_setup();
    run.start_loaded_with(setup, 200).await?;
    let rig = run.rig()?;
    let leader = rig.leader().await?;
    let followers = rig.followers().await?;
    let victim = followers[run.rng.below(followers.len())];
    let name = run.rig()?.name(victim).to_owned();
    let begun = run.fault("pause-follower", &[("node", &name)]);
    run.rig()?.pause(victim)?;
    run.progress(200, PATIENCE).await?;
    run.sleep(Duration::from_secs(4)).await;
    run.progress(50, PATIENCE).await?;
    run.rig()?.resume(victim)?;
    run.fault_over("pause-follower");
    run.rig()?.wait_serving().await?;
    run.progress(100, PATIENCE).await?;
    let events = run.events()?;
    let failed = sends(&events, begun, u64::MAX)
        .iter()
        .filter(|sent| sent.to != name && !sent.is_acknowledged())
        .count();
    run.require(failed == 0, || {
        format!("{failed} sends failed that were not {name}'s")
    });
    let growth = term_growth(&events, begun, u64::MAX);
    run.require(growth == 0, || {
        format!("the pause of the follower {name} cost {growth} terms")
    });
    let now = run.rig()?.leader().await?;
    run.require(now == leader, || {
        format!("leadership moved from n{leader} to n{now}")
    });
    Ok(())
}

async fn majority_pause(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    let leader = run.rig()?.leader().await?;
    let followers = run.rig()?.followers().await?;
    let steady = run.begin_steady(leader)?;
    run.sleep(Duration::from_millis(500)).await;
    run.fault("pause-majority", &[]);
    for at in &followers {
        run.rig()?.pause(*at)?;
    }
    let lost = run.recorder.now();
    run.quorum_lost();
    run.sleep(CLIENT_LIMIT + LEASE).await;
    let back = run.recorder.now();
    run.quorum_back();
    for at in &followers {
        run.rig()?.resume(*at)?;
    }
    run.fault_over("pause-majority");
    steady.stop().await;
    refuses_within_its_lease(run, leader, lost, back)?;
    run.progress(50, PATIENCE).await
}

async fn pause_all(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    for round in 0..2 {
        let mut order: Vec<usize> = (0..run.rig()?.len()).collect();
        run.fault("pause-all", &[]);
        for at in &order {
            run.rig()?.pause(*at)?;
        }
        run.quorum_lost();
        run.sleep(Duration::from_secs(if round == 0 { 2 } else { 30 }))
            .await;
        run.quorum_back();
        while !order.is_empty() {
            let at = order.swap_remove(run.rng.below(order.len()));
            run.rig()?.resume(at)?;
            let wait = Duration::from_millis(run.rng.below(400) as u64);
            run.sleep(wait).await;
        }
        run.fault_over("pause-all");
        run.rig()?.wait_serving().await?;
        run.progress(100, PATIENCE).await?;
    }
    Ok(())
}

async fn leader_stutter(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    let base = run.acknowledged();
    run.sleep(Duration::from_secs(5)).await;
    let base = 2 * (run.acknowledged() - base);
    let leader = run.rig()?.leader().await?;
    let name = run.rig()?.name(leader).to_owned();
    run.fault("stutter-leader", &[("node", &name)]);
    for window in 0..2 {
        let (begun, before) = (Instant::now(), run.acknowledged());
        let from = run.recorder.now();
        while begun.elapsed() < Duration::from_secs(10) {
            run.rig()?.pause(leader)?;
            let stopped = Duration::from_millis(50 + run.rng.below(150) as u64);
            run.sleep(stopped).await;
            run.rig()?.resume(leader)?;
            let going = Duration::from_millis(50 + run.rng.below(150) as u64);
            run.sleep(going).await;
        }
        let acknowledged = run.acknowledged() - before;
        run.figure(
            "acknowledged in ten seconds of stutter",
            acknowledged as f64,
        );
        let changes = leader_changes(&run.events()?, from, u64::MAX);
        run.require(acknowledged * 100 >= base || changes > 0, || {
            format!("window {window}: {acknowledged} acknowledged in ten seconds, {base} without the stutter, and {name} still led")
        });
    }
    run.fault_over("stutter-leader");
    run.rig()?.wait_serving().await?;
    run.progress(100, PATIENCE).await
}
