//! What a node answers when it has no majority: a definite refusal, soon, and nothing else.

use std::time::Duration;

use super::Stop;
use super::context::{CLIENT_LIMIT, Run};
use super::evidence::sends;

/// `raftElectionTimeoutMax`, for which a leader may believe in its majority.
pub const LEASE: Duration = Duration::from_millis(300);
/// Beyond the lease: a round trip, and what a busy machine adds. The goal is 100 ms.
const GRACE: Duration = Duration::from_millis(1_200);
/// A node without a leader holds a send for this long (`writeHoldTimeout`) before it refuses it.
const HOLD: Duration = Duration::from_millis(1_000);

/// A follower passes sends on until it takes its link to the leader for dead; until then what became of them is
/// unknown to it.
const LINK_IS_DEAD_AFTER: Duration = Duration::from_millis(2_500);

/// A steady load ran at `leader`, which had no majority from `lost` to `back`. From the lease on (and what a
/// busy machine adds) each send is refused by the gate.
pub fn refuses_within_its_lease(
    run: &mut Run,
    leader: usize,
    lost: u64,
    back: u64,
) -> Result<(), Stop> {
    refuses(
        run,
        leader,
        (lost, back),
        Bounds {
            first: LEASE + GRACE,
            certain_from: LEASE + GRACE,
            each: HOLD + GRACE,
        },
    )
}

/// The same of a node that followed, and cannot know at once that its leader is out of reach.
pub fn refuses_as_a_follower(
    run: &mut Run,
    follower: usize,
    lost: u64,
    back: u64,
) -> Result<(), Stop> {
    let dead = LINK_IS_DEAD_AFTER + GRACE;
    refuses(
        run,
        follower,
        (lost, back),
        Bounds {
            first: dead + CLIENT_LIMIT,
            certain_from: dead,
            each: CLIENT_LIMIT,
        },
    )
}

/// Times, from the loss of the majority on.
#[derive(Clone, Copy)]
struct Bounds {
    /// For the first refusal.
    first: Duration,
    /// What is begun later is refused, nothing else.
    certain_from: Duration,
    /// For each such send to be answered.
    each: Duration,
}

fn refuses(
    run: &mut Run,
    node: usize,
    (lost, back): (u64, u64),
    bounds: Bounds,
) -> Result<(), Stop> {
    let name = run.rig()?.name(node).to_owned();
    let events = run.events()?;
    let all = sends(&events, lost, back);
    let to_it: Vec<_> = all.iter().filter(|sent| sent.to == name).collect();
    let refusals = to_it.iter().filter(|sent| sent.is_refused_by_the_gate());
    let Some(first) = refusals.map(|sent| sent.done).min() else {
        run.require(false, || {
            format!(
                "{name} refused nothing of {} sends without a majority",
                to_it.len()
            )
        });
        return Ok(());
    };
    let first = Duration::from_nanos(first - lost);
    run.figure("ms to the first refusal", first.as_millis() as f64);
    run.require_in_time(first <= bounds.first, || {
        format!(
            "{name} refused for the first time after {first:?}, at most {:?} are allowed",
            bounds.first
        )
    });
    let certain = lost + nanos(bounds.certain_from);
    for sent in to_it {
        if sent.begun < certain || sent.begun + nanos(bounds.each) > back {
            continue;
        }
        let fits = sent.is_refused_by_the_gate() && sent.took() <= bounds.each;
        run.require(fits, || {
            format!("without a majority a send to {name} ended so: {sent:?}")
        });
    }
    Ok(())
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
