//! Whole directories (D14 to D16, D25): emptied, rolled back, without their newest or an old file, used twice,
//! exchanged. A node that lacks what it once acknowledged must not help to elect one that lacks it, too. An older
//! copy is whole in itself and not recognised: it may be put back while the other nodes are up, and is tried so.

use super::readback::read_back;
use super::{
    ENDS_WITHIN, kill_one, note_loss, refuses_to_start, small_segments, some_follower, wipe,
};
use crate::rig::damage;
use crate::rig::{Placement, Rig, RigError, Setup, Site};
use crate::scenario::context::{PATIENCE, Run};
use crate::scenario::{Floor, Scenario, Stop, Tier};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "wiped-directory",
        rows: &["D14"],
        about: "An emptied node does not help an outdated one to lead; once the others are back it is filled",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Ci,
        floor: Floor::of(500, 3).with_refused(1),
        run: |run| Box::pin(lacking(run, Lack::Everything)),
    },
    Scenario {
        name: "missing-newest-segment",
        rows: &["D14", "D25"],
        about: "A node without its newest segment file does not help an outdated one to lead",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Ci,
        floor: Floor::of(500, 3).with_refused(1),
        run: |run| Box::pin(lacking(run, Lack::NewestSegment)),
    },
    Scenario {
        name: "lost-directory-others-up",
        rows: &["D14", "D15"],
        about: "A node that comes back empty or rolled back while the others serve is filled, and they serve on",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(400, 2),
        run: |run| Box::pin(others_up(run)),
    },
    Scenario {
        name: "foreign-directory",
        rows: &["D16"],
        about: "A second process on a directory and a node on another node's directory refuse to start",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(400, 2),
        run: |run| Box::pin(foreign(run)),
    },
    Scenario {
        name: "missing-old-segment",
        rows: &["D25"],
        about: "An old segment file removed under a running node: nothing wrong is served, and a start is refused",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(600, 1),
        run: |run| Box::pin(missing_old(run)),
    },
];

/// What the directory lacks of what its node acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    Everything,
    NewestSegment,
}

/// The schedule: one follower stands still while the leader and the other one acknowledge; that other one
/// then comes back lacking it, the leader stops, and the outdated follower goes on.
async fn lacking(run: &mut Run, lack: Lack) -> Result<(), Stop> {
    run.start(small_segments(run)).await?;
    let mut load = run.producers()?;
    load.connections = 8;
    load.body = (1024, 4096);
    run.begin(&load);
    run.progress(200, PATIENCE).await?;
    let leader = run.rig()?.leader().await?;
    let (lacking, outdated) = ((leader + 1) % 3, (leader + 2) % 3);
    run.fault("pause-outdated", &[("node", &format!("n{outdated}"))]);
    run.rig()?.pause(outdated)?;
    let segments = damage::segments(run.rig()?.store(lacking))?.len();
    run.progress(100, PATIENCE).await?;
    // Enough for a segment that was begun after the outdated node stood still.
    while damage::segments(run.rig()?.store(lacking))?.len() < segments + 1 {
        run.progress(100, PATIENCE).await?;
    }
    run.rig()?.kill(&[lacking])?;
    run.fault(
        "lose",
        &[
            ("node", &format!("n{lacking}")),
            ("what", &format!("{lack:?}")),
        ],
    );
    let store = run.rig()?.store(lacking).to_owned();
    match lack {
        Lack::Everything => wipe(run, lacking)?,
        Lack::NewestSegment => damage::remove(&damage::last_segment(&store)?.path)?,
    }
    run.fault("pause-leader", &[("node", &format!("n{leader}"))]);
    run.rig()?.pause(leader)?;
    run.quorum_lost();
    run.rig()?.spawn(lacking)?;
    run.rig()?.resume(outdated)?;
    run.fault_over("pause-outdated");
    elects_nobody(run, [lacking, outdated]).await?;
    run.quorum_back();
    run.rig()?.resume(leader)?;
    run.fault_over("pause-leader");
    refill_if_it_refused(run, lacking).await?;
    run.fault_over("lose");
    run.progress(100, PATIENCE).await
}

/// For longer than many elections take, neither of two nodes leads.
async fn elects_nobody(run: &mut Run, nodes: [usize; 2]) -> Result<(), Stop> {
    let begun = std::time::Instant::now();
    while begun.elapsed() < PATIENCE / 6 {
        let views = run.rig()?.views().await;
        for (at, view) in views {
            let leads = nodes.contains(&at) && view.is_some_and(|view| view.leads);
            if leads {
                return Err(Stop::Violated(format!(
                    "n{at} leads, though neither it nor the only node that can have voted for it has what was acknowledged"
                )));
            }
        }
        run.sleep(std::time::Duration::from_millis(50)).await;
    }
    Ok(())
}

/// A node may also refuse a directory that lacks something; then the operator empties it, with the others up.
async fn refill_if_it_refused(run: &mut Run, at: usize) -> Result<(), Stop> {
    let refused = match run
        .rig()?
        .wait_end(at, std::time::Duration::from_millis(200))
        .await
    {
        Ok(status) => status.code().is_some_and(|code| code != 0),
        Err(RigError::Lasting { .. }) => false,
        Err(error) => return Err(error.into()),
    };
    if refused {
        run.figure("refused to start", 1.0);
        wipe(run, at)?;
        run.rig()?.wait_serving().await?;
    }
    Ok(run.rig()?.restart_dead().await?)
}

async fn others_up(run: &mut Run) -> Result<(), Stop> {
    run.start(small_segments(run)).await?;
    let load = run.producers()?;
    run.begin(&load);
    run.progress(200, PATIENCE).await?;
    let at = some_follower(run).await?;
    let copy = run.dir.join("older-copy");
    kill_one(run, at).await?;
    damage::copy_dir(run.rig()?.store(at), &copy)?;
    run.rig()?.restart_dead().await?;
    run.progress(200, PATIENCE).await?;
    for older in [Some(copy), None] {
        kill_one(run, at).await?;
        let what = if older.is_some() {
            "what came after the copy"
        } else {
            "everything"
        };
        run.fault("lose", &[("node", &format!("n{at}")), ("what", what)]);
        let store = run.rig()?.store(at).to_owned();
        match &older {
            Some(copy) => {
                note_loss(run, at)?;
                damage::roll_back_dir(&store, copy)?;
            }
            None => wipe(run, at)?,
        }
        run.progress(50, PATIENCE).await?;
        run.rig()?.spawn(at)?;
        run.progress(50, PATIENCE).await?;
        refill_if_it_refused(run, at).await?;
        run.fault_over("lose");
        level(run, at).await?;
    }
    Ok(())
}

/// Waits until a node has what the leader had when this was called.
async fn level(run: &mut Run, at: usize) -> Result<(), Stop> {
    let leader = run.rig()?.leader().await?;
    let goal = super::durable(run, leader).await?;
    let begun = std::time::Instant::now();
    while super::durable(run, at).await? < goal {
        if begun.elapsed() > PATIENCE {
            return Err(Stop::Violated(format!(
                "n{at} is not filled up to {goal:?}"
            )));
        }
        run.sleep(std::time::Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn foreign(run: &mut Run) -> Result<(), Stop> {
    run.start(small_segments(run)).await?;
    let load = run.producers()?;
    run.begin(&load);
    run.progress(200, PATIENCE).await?;
    let at = some_follower(run).await?;
    run.fault("second-process", &[("node", &format!("n{at}"))]);
    second_process(run, at).await?;
    run.fault_over("second-process");
    let other = run.rig()?.leader().await?;
    run.rig()?.kill(&[at, other])?;
    run.fault("swap", &[]);
    let (one, two) = (
        run.rig()?.store(at).to_owned(),
        run.rig()?.store(other).to_owned(),
    );
    damage::swap_dirs(&one, &two, &run.dir.join("spare"))?;
    for at in [at, other] {
        refuses_to_start(run, at, &["belongs to"]).await?;
    }
    damage::swap_dirs(&one, &two, &run.dir.join("spare-back"))?;
    run.rig()?.restart_dead().await?;
    run.fault_over("swap");
    run.progress(100, PATIENCE).await
}

/// Another process with ports of its own on the directory of a running node.
async fn second_process(run: &mut Run, at: usize) -> Result<(), Stop> {
    let site = std::sync::Arc::new(Site::create(Placement::Loopback, 3)?);
    let dir = run.dir.join("second");
    std::fs::create_dir_all(&dir).map_err(RigError::io(dir.display().to_string()))?;
    let mut setup = Setup::new(&run.server, &dir);
    setup.stores = (0..3)
        .map(|_| run.rig().map(|rig| rig.store(at).to_owned()))
        .collect::<Result<_, _>>()?;
    let mut second = Rig::prepare(&site, &setup)?;
    second.spawn(at)?;
    let status = second.wait_end(at, ENDS_WITHIN).await?;
    let said = second.log_text(at)?;
    run.require(status.code().is_some_and(|code| code != 0), || {
        format!("a second process on the directory ended with {status}")
    });
    run.require(said.contains("in use"), || {
        format!("it does not say that the directory is in use: {said}")
    });
    run.progress(50, PATIENCE).await
}

async fn missing_old(run: &mut Run) -> Result<(), Stop> {
    run.start(small_segments(run)).await?;
    let mut load = run.producers()?;
    load.connections = 8;
    load.body = (1024, 4096);
    run.begin(&load);
    let at = some_follower(run).await?;
    while damage::segments(run.rig()?.store(at))?.len() < 4 {
        run.progress(100, PATIENCE).await?;
    }
    let old = damage::segments(run.rig()?.store(at))?.swap_remove(1);
    run.fault("remove", &[("file", &old.path.display().to_string())]);
    damage::remove(&old.path)?;
    // Wrong data is a violation; whether the file is still open there or not is the node's affair.
    let back = read_back(run, at).await?;
    run.figure("messages that could not be read", back.failed.len() as f64);
    run.progress(100, PATIENCE).await?;
    kill_one(run, at).await?;
    refuses_to_start(run, at, &["missing"]).await?;
    run.progress(100, PATIENCE).await?;
    wipe(run, at)?;
    run.rig()?.restart_dead().await?;
    run.fault_over("remove");
    run.progress(100, PATIENCE).await
}
