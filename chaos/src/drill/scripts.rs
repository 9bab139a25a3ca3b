//! What each drill does, step by step, in one repetition. Every wait is bounded; a group that does not come back is a
//! finding, not an error.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::kind::{Kind, Verb};
use super::scene::{DrillError, Scene, WHOLE_WITHIN};
use crate::history::QUORUM_LOSS;

/// From when to when a recovery is measured, on the tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct From {
    pub start: u64,
    pub effective: u64,
}

/// What one repetition did.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Which nodes were hit, and what they were.
    pub hit: String,
    /// Where the first damage began.
    pub begun: u64,
    /// Where recovery of service is measured from: the damage, or its repair where nothing can recover before.
    pub recovers: Option<From>,
    /// Where the majority was lost, and until when.
    pub lost: Option<(From, u64)>,
    /// Repair ordered to all nodes level, nanoseconds.
    pub rejoin: Option<u64>,
    pub problem: Option<String>,
}

/// Between two looks at the tape.
const LOOK: Duration = Duration::from_millis(2);
/// Service is watched for so long after it came back.
const AFTERWARDS: Duration = Duration::from_millis(250);

/// Runs one repetition of a drill.
pub async fn run(kind: Kind, scene: &mut Scene) -> Result<Done, DrillError> {
    let ms = Duration::from_millis;
    match kind {
        Kind::LeaderKill => leader(kind, scene, Verb::Kill, Verb::Start, AFTERWARDS).await,
        Kind::LeaderPause => leader(kind, scene, Verb::Pause, Verb::Resume, ms(1500)).await,
        Kind::LeaderIsolate => leader(kind, scene, Verb::Isolate, Verb::Heal, ms(1500)).await,
        Kind::SlowDisk => leader(kind, scene, Verb::StallDisk, Verb::ReleaseDisk, ms(1500)).await,
        Kind::Transfer => leader(kind, scene, Verb::Stop, Verb::Start, AFTERWARDS).await,
        Kind::DiskFull => disk_full(scene).await,
        Kind::MajorityLoss => majority_loss(scene).await,
        Kind::PowerCut => power_cut(scene).await,
        Kind::RollingRestart => rolling_restart(scene).await,
        Kind::FollowerLag => follower_lag(scene).await,
    }
}

/// Hurts the leader, waits until writes go on, mends it after at least `hold`.
async fn leader(
    kind: Kind,
    scene: &mut Scene,
    hurt: Verb,
    mend: Verb,
    hold: Duration,
) -> Result<Done, DrillError> {
    let leader = scene.group.leader().await?;
    let damaged = Instant::now();
    let (span, from) = damage(scene, hurt, &[leader], "leader").await?;
    let mut done = Done {
        hit: format!("{} (leader)", scene.group.nodes()[leader].name),
        begun: from.start,
        recovers: Some(from),
        ..Done::default()
    };
    done.problem = wait_acknowledged(scene, from.effective, kind.recovers_within_ms()).await;
    sleep(AFTERWARDS).await;
    sleep(hold.saturating_sub(damaged.elapsed())).await;
    repair(scene, mend, &[leader], Some(span), &mut done).await?;
    if matches!(kind, Kind::Transfer | Kind::SlowDisk) {
        // The leader serves on until it has handed over, or the disk really stands: what counts is the gap.
        done.recovers = None;
    }
    Ok(done)
}

async fn disk_full(scene: &mut Scene) -> Result<Done, DrillError> {
    let leader = scene.group.leader().await?;
    let (span, from) = damage(scene, Verb::FillDisk, &[leader], "leader").await?;
    let mut done = Done {
        hit: format!("{} (leader)", scene.group.nodes()[leader].name),
        begun: from.start,
        ..Done::default()
    };
    sleep(Duration::from_secs(1)).await;
    let start = scene.tape.now();
    done.recovers = Some(From {
        start,
        effective: start,
    });
    repair(scene, Verb::FreeDisk, &[leader], Some(span), &mut done).await?;
    let waited = wait_acknowledged(scene, start, Kind::DiskFull.recovers_within_ms()).await;
    done.problem = done.problem.or(waited);
    sleep(AFTERWARDS).await;
    Ok(done)
}

async fn majority_loss(scene: &mut Scene) -> Result<Done, DrillError> {
    let leader = scene.group.leader().await?;
    let others: Vec<usize> = (0..scene.group.nodes().len())
        .filter(|at| *at != leader)
        .collect();
    let quorum = scene.group.nodes().len() / 2 + 1;
    let (first, last) = others.split_at(scene.group.nodes().len() - quorum);
    let (span, from) = damage(scene, Verb::Kill, first, "follower").await?;
    // With a majority left nothing may happen.
    sleep(Duration::from_millis(300)).await;
    let (second, lost) = damage(scene, Verb::Kill, last, "follower").await?;
    if let Some(recorder) = scene.recorder() {
        recorder.fault_start(QUORUM_LOSS, &[]);
    }
    let names: Vec<&str> = others
        .iter()
        .map(|at| scene.group.nodes()[*at].name.as_str())
        .collect();
    let mut done = Done {
        hit: format!("{} (followers)", names.join(", ")),
        begun: from.start,
        ..Done::default()
    };
    sleep(Duration::from_millis(1200)).await;
    if let Some(recorder) = scene.recorder() {
        recorder.fault_end(QUORUM_LOSS);
    }
    let back = scene.tape.now();
    scene.tape.end(span);
    done.lost = Some((lost, back));
    done.recovers = Some(From {
        start: back,
        effective: back,
    });
    repair(scene, Verb::Start, &others, Some(second), &mut done).await?;
    let waited = wait_acknowledged(scene, back, Kind::MajorityLoss.recovers_within_ms()).await;
    done.problem = done.problem.or(waited);
    sleep(AFTERWARDS).await;
    Ok(done)
}

async fn power_cut(scene: &mut Scene) -> Result<Done, DrillError> {
    let all: Vec<usize> = (0..scene.group.nodes().len()).collect();
    let (span, from) = damage(scene, Verb::CutPower, &all, "all").await?;
    let mut done = Done {
        hit: "all nodes".to_owned(),
        begun: from.start,
        ..Done::default()
    };
    scene.group.act(Verb::PowerOn, &all).await?;
    let back = scene.tape.now();
    done.recovers = Some(From {
        start: back,
        effective: back,
    });
    repair(scene, Verb::Start, &all, Some(span), &mut done).await?;
    let waited = wait_acknowledged(scene, back, Kind::PowerCut.recovers_within_ms()).await;
    done.problem = done.problem.or(waited);
    sleep(AFTERWARDS).await;
    Ok(done)
}

async fn rolling_restart(scene: &mut Scene) -> Result<Done, DrillError> {
    let mut done = Done {
        hit: "every node in turn".to_owned(),
        begun: scene.tape.now(),
        ..Done::default()
    };
    for at in 0..scene.group.nodes().len() {
        let (span, _) = damage(scene, Verb::Stop, &[at], "in turn").await?;
        repair(scene, Verb::Start, &[at], Some(span), &mut done).await?;
        if done.problem.is_some() {
            break;
        }
        sleep(AFTERWARDS).await;
    }
    Ok(done)
}

async fn follower_lag(scene: &mut Scene) -> Result<Done, DrillError> {
    let leader = scene.group.leader().await?;
    let follower = (leader + 1) % scene.group.nodes().len();
    let (span, from) = damage(scene, Verb::Kill, &[follower], "follower").await?;
    let mut done = Done {
        hit: format!("{} (follower)", scene.group.nodes()[follower].name),
        begun: from.start,
        ..Done::default()
    };
    sleep(Duration::from_secs(2)).await;
    repair(scene, Verb::Start, &[follower], Some(span), &mut done).await?;
    sleep(AFTERWARDS).await;
    Ok(done)
}

/// Does the damage; gives its span on the tape.
async fn damage(
    scene: &mut Scene,
    verb: Verb,
    nodes: &[usize],
    what: &str,
) -> Result<(usize, From), DrillError> {
    let names: Vec<&str> = nodes
        .iter()
        .map(|at| scene.group.nodes()[*at].name.as_str())
        .collect();
    let label = match what {
        "all" => words(verb).to_owned(),
        _ => format!("{} {} ({what})", words(verb), names.join(", ")),
    };
    if let Some(recorder) = scene.recorder() {
        recorder.fault_start(verb.key(), &[("nodes", &names.join(","))]);
    }
    let span = scene.tape.start(&label, nodes);
    scene.group.act(verb, nodes).await?;
    scene.tape.took_effect(span);
    let from = scene.tape.span(span).map_or(
        From {
            start: 0,
            effective: 0,
        },
        |span| From {
            start: span.start,
            effective: span.effective,
        },
    );
    Ok((span, from))
}

/// Damage as a report names it.
fn words(verb: Verb) -> &'static str {
    match verb {
        Verb::Kill => "kill",
        Verb::Stop => "stop",
        Verb::Pause => "pause",
        Verb::Isolate => "isolate",
        Verb::CutPower => "power cut",
        Verb::FillDisk => "fill the disk of",
        Verb::StallDisk => "stall the disk of",
        _ => verb.key(),
    }
}

/// Mends, and waits until the group is whole again.
async fn repair(
    scene: &mut Scene,
    verb: Verb,
    nodes: &[usize],
    span: Option<usize>,
    done: &mut Done,
) -> Result<(), DrillError> {
    let begun = scene.tape.now();
    scene.group.act(verb, nodes).await?;
    if let Some(span) = span {
        scene.tape.end(span);
        if let Some(recorder) = scene.recorder() {
            recorder.fault_end(verb.key());
        }
    }
    match scene.group.wait_whole(WHOLE_WITHIN).await {
        Ok(()) => {
            let took = scene.tape.now() - begun;
            done.rejoin = Some(done.rejoin.unwrap_or(0).max(took));
        }
        Err(error) => {
            let ends = scene.group.unexpected_ends();
            done.problem = Some(format!("{error}. {ends}"));
        }
    }
    Ok(())
}

/// Waits until a write that began at `since` or later is acknowledged; otherwise what is wrong.
async fn wait_acknowledged(scene: &Scene, since: u64, within_ms: f64) -> Option<String> {
    let within = Duration::from_secs_f64(within_ms / 1000.0);
    let begun = Instant::now();
    // It is watched for longer than is allowed, so that the report can say how long it really took.
    while begun.elapsed() < within * 3 {
        if scene.tape.acknowledged_since(since) {
            let late = begun.elapsed() > within;
            return late.then(|| format!("no write was acknowledged within {within:?}"));
        }
        sleep(LOOK).await;
    }
    Some(format!("no write was acknowledged within {:?}", within * 3))
}
