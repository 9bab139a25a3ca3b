//! Clocks (C1, C2, C4): no election, lease or acknowledgement depends on the wall clock, and a delayed message is
//! neither lost nor delivered twice when it jumps. Drifting monotonic clocks (C3) are the simulation's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::{PATIENCE, Run, TOPIC};
use super::{Floor, Scenario, Stop, Tier};
use crate::rig::clock::WallClock;
use crate::rig::doctor::Facility;
use crate::rig::{Launch, Placement};
use crate::wire::{Connection, Message, Pull, Record, SendOptions, SendOutcome};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "wall-clock-jumps",
        rows: &["C1"],
        about: "Jumps of an hour and of ten years, and a clock that swings, move no leader and cost no message",
        needs: &[Facility::FakeTime],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Ci,
        floor: Floor::of(1000, 10),
        run: |run| Box::pin(jumps(run)),
    },
    Scenario {
        name: "monotonic-gap",
        rows: &["C2", "P6"],
        about: "A leader that wakes after the others have elected another acknowledges nothing from its old term",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(400, 3).with_leader_changes(2),
        run: |run| Box::pin(gap(run)),
    },
    Scenario {
        name: "delayed-and-clock",
        rows: &["C4"],
        about: "A delayed message is delivered once, early by no more than the clock jumped, late by no more either",
        needs: &[Facility::FakeTime],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(200, 2),
        run: |run| Box::pin(delayed(run)),
    },
];

const HOUR: Duration = Duration::from_secs(3600);
const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A group in which every node has a wall clock of its own.
async fn start(run: &mut Run, more: &[(&str, &str)]) -> Result<Vec<Arc<WallClock>>, Stop> {
    let mut clocks = Vec::new();
    let mut setup = run.setup();
    for at in 0..3 {
        let clock = WallClock::create(&run.dir.join(format!("n{at}.clock")))?;
        let mut launch = Launch::default();
        clock.apply(&mut launch);
        setup.launch.push(launch);
        let clock = Arc::new(clock);
        let undo = Arc::clone(&clock);
        run.on_heal(move || undo.right());
        clocks.push(clock);
    }
    for (key, value) in more {
        setup = setup.with(key, value);
    }
    run.start(setup).await?;
    let load = run.producers()?;
    run.begin(&load);
    run.progress(200, PATIENCE).await?;
    Ok(clocks)
}

async fn leader_and_term(run: &mut Run) -> Result<(usize, u64), Stop> {
    let leader = run.rig()?.leader().await?;
    let views = run.rig()?.views().await;
    let terms = views
        .iter()
        .filter_map(|(_, view)| Some(view.as_ref()?.term));
    Ok((leader, terms.max().unwrap_or_default()))
}

async fn jumps(run: &mut Run) -> Result<(), Stop> {
    let clocks = start(run, &[]).await?;
    let before = leader_and_term(run).await?;
    for at in [before.0, (before.0 + 1) % 3] {
        for by in [HOUR, TEN_YEARS] {
            for ahead in [true, false] {
                let node = format!("n{at}");
                let seconds = by.as_secs().to_string();
                let direction = if ahead { "ahead" } else { "behind" };
                run.fault("clock", &[("node", &node), (direction, &seconds)]);
                match ahead {
                    true => clocks[at].ahead(by)?,
                    false => clocks[at].behind(by)?,
                }
                // Longer than any lease or election.
                run.sleep(Duration::from_millis(1500)).await;
                run.progress(50, PATIENCE).await?;
                clocks[at].right()?;
                run.fault_over("clock");
            }
        }
        run.fault("clock-swing", &[("node", &format!("n{at}"))]);
        for swing in 0..40 {
            match swing % 2 {
                0 => clocks[at].ahead(HOUR)?,
                _ => clocks[at].behind(HOUR)?,
            }
            run.sleep(Duration::from_millis(50)).await;
        }
        clocks[at].right()?;
        run.fault_over("clock-swing");
        run.progress(50, PATIENCE).await?;
    }
    let after = leader_and_term(run).await?;
    run.require(after == before, || {
        format!("leader and term were {before:?}, after jumps of the wall clock they are {after:?}")
    });
    store_times_jumped(run).await
}

/// That the nodes saw the jumps at all: among the stored times there are some of another decade.
async fn store_times_jumped(run: &mut Run) -> Result<(), Stop> {
    let times: Vec<i64> = records(run, TOPIC)
        .await?
        .iter()
        .map(|record| record.store_ms)
        .collect();
    let (least, most) = (times.iter().min().copied(), times.iter().max().copied());
    let span = most.unwrap_or_default() - least.unwrap_or_default();
    if span < TEN_YEARS.as_millis() as i64 {
        return Err(Stop::Invalid(format!(
            "the nodes did not see the clock jump: stored times span {span} ms"
        )));
    }
    Ok(())
}

/// Everything in the first queue of a topic.
async fn records(run: &mut Run, topic: &str) -> Result<Vec<Record>, Stop> {
    let mut records = Vec::new();
    let mut pull = Pull::new("chaos_clock", topic, 0, 0);
    let begun = Instant::now();
    loop {
        let leader = run.rig()?.leader().await?;
        let connection = run.rig()?.connect(leader).await?;
        match connection.pull(&pull).await {
            Ok(pulled) => {
                let at_end = pulled.next >= pulled.max || pulled.next <= pull.offset;
                records.extend(pulled.records);
                if at_end {
                    return Ok(records);
                }
                pull.offset = pulled.next;
            }
            // No lease for a moment.
            Err(error) if begun.elapsed() > PATIENCE => {
                return Err(Stop::Violated(format!("{topic} cannot be read: {error}")));
            }
            Err(_) => run.sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn gap(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    for milliseconds in [700, 2000, 5000] {
        let old = run.rig()?.leader().await?;
        let node = format!("n{old}");
        run.fault("gap", &[("node", &node), ("ms", &milliseconds.to_string())]);
        run.rig()?.pause(old)?;
        run.sleep(Duration::from_millis(milliseconds)).await;
        run.progress(50, PATIENCE).await?;
        wakes_humbly(run, old).await?;
        run.fault_over("gap");
        run.progress(50, PATIENCE).await?;
    }
    Ok(())
}

/// Asks a node for the newest state in the first moments after it wakes: it refuses, or knows what others were told.
async fn wakes_humbly(run: &mut Run, old: usize) -> Result<(), Stop> {
    let known = records(run, TOPIC)
        .await?
        .last()
        .map_or(0, |last| last.offset + 1);
    let address = run.rig()?.address(old);
    run.rig()?.resume(old)?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(500) {
        let within = Duration::from_secs(2);
        let Ok(connection) = Connection::open(address, within).await else {
            continue;
        };
        if let Ok(max) = connection.max_offset(TOPIC, 0).await {
            let after = begun.elapsed();
            run.require(max >= known, || {
                format!(
                    "{after:?} after it woke n{old} says that queue 0 ends at {max}, not at {known}"
                )
            });
        }
    }
    Ok(())
}

/// Where delayed messages go, so that the load does not mix with them.
const DELAYED: &str = "chaos_delayed";
const LEVELS: &str = "2s 4s";

async fn delayed(run: &mut Run) -> Result<(), Stop> {
    let clocks = start(run, &[("messageDelayLevel", LEVELS)]).await?;
    run.rig()?.create_topic(DELAYED, 1).await?;
    // Jumps forward make what waits due at once; what is sent under the jumped clock is due by that clock.
    let first = send_delayed(run, "forward", 2).await?;
    run.fault("clock", &[("all", "ahead")]);
    for clock in &clocks {
        clock.ahead(HOUR)?;
    }
    let early = delivered_after(run, "forward", first).await?;
    run.figure(
        "delivered after a jump forward, of 4 s",
        early.as_secs_f64(),
    );
    let second = send_delayed(run, "backward", 1).await?;
    run.fault("clock", &[("all", "right")]);
    for clock in &clocks {
        clock.right()?;
    }
    // Stamped an hour ahead: it waits for the clock to come there, or until the jump is taken back.
    run.sleep(Duration::from_secs(3)).await;
    let waits = found(run, "backward").await? == 0;
    run.figure("waits after a jump back", if waits { 1.0 } else { 0.0 });
    for clock in &clocks {
        clock.ahead(HOUR)?;
    }
    let late = delivered_after(run, "backward", second).await?;
    run.figure(
        "delivered after a jump back was undone, of 2 s",
        late.as_secs_f64(),
    );
    for clock in &clocks {
        clock.right()?;
    }
    run.fault_over("clock");
    let third = send_delayed(run, "plain", 1).await?;
    let plain = delivered_after(run, "plain", third).await?;
    run.require(plain >= Duration::from_millis(1500), || {
        format!("a message delayed by 2 s came after {plain:?}")
    });
    // A second delivery would come within this time.
    run.sleep(Duration::from_secs(1)).await;
    for key in ["forward", "backward", "plain"] {
        let count = found(run, key).await?;
        run.require(count == 1, || format!("{key} was delivered {count} times"));
    }
    Ok(())
}

async fn send_delayed(run: &mut Run, key: &str, level: u32) -> Result<Instant, Stop> {
    let message = Message::new(DELAYED, 0, key, key.as_bytes().to_vec())
        .with_property("DELAY", &level.to_string());
    let begun = Instant::now();
    loop {
        let leader = run.rig()?.leader().await?;
        let connection = run.rig()?.connect(leader).await?;
        // Retries of delayed messages are not recognised: only what was refused for certain is sent again.
        match connection.send(&message, &SendOptions::default()).await {
            SendOutcome::Ok(_) => return Ok(Instant::now()),
            SendOutcome::Fail { .. } if begun.elapsed() < PATIENCE => {
                run.sleep(Duration::from_millis(50)).await;
            }
            outcome => return Err(Stop::Invalid(format!("a delayed message: {outcome:?}"))),
        }
    }
}

async fn delivered_after(run: &mut Run, key: &str, sent: Instant) -> Result<Duration, Stop> {
    while found(run, key).await? == 0 {
        if sent.elapsed() > 2 * PATIENCE {
            return Err(Stop::Violated(format!(
                "{key} is not delivered after {PATIENCE:?}"
            )));
        }
        run.sleep(Duration::from_millis(20)).await;
    }
    Ok(sent.elapsed())
}

/// How often a message is in its topic.
async fn found(run: &mut Run, key: &str) -> Result<usize, Stop> {
    let records = records(run, DELAYED).await?;
    let same = records
        .iter()
        .filter(|record| record.body == key.as_bytes());
    Ok(same.count())
}
