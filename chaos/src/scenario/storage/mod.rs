//! What disks, file systems and operators do to a node's files (D1 to D25). One file per kind; here is what they
//! share: disks to stand on, power cuts, and starts that must be refused.

mod damage;
mod directory;
mod errors;
mod full;
mod power;
mod readback;
mod slow;
mod tail;
mod trial;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::context::Run;
use super::{Scenario, Stop};
use crate::history::{NODE, WIPE};
use crate::rig::disk::{Disk, DiskHome, Kind};
use crate::rig::{Rig, RigError, Setup};

/// The scenarios, in the order of the catalogue.
pub const FAMILIES: [&[Scenario]; 7] = [
    power::SCENARIOS,
    tail::SCENARIOS,
    damage::SCENARIOS,
    directory::SCENARIOS,
    full::SCENARIOS,
    errors::SCENARIOS,
    slow::SCENARIOS,
];

/// How long a node may take to end by itself or to refuse a start.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
/// Small segments, so that a run of seconds has sealed ones, index files and checkpoints.
const SEGMENT_BYTES: &str = "1048576";
/// Room that the broker keeps free, far below what a test disk has.
const RESERVE_BYTES: &str = "33554432";

/// The usual setup with small segments.
fn small_segments(run: &Run) -> Setup {
    run.setup()
        .with("mappedFileSizeCommitLog", SEGMENT_BYTES)
        .with("diskReserveBytes", RESERVE_BYTES)
}

/// A disk for each node.
struct Disks {
    all: Vec<Disk>,
    _home: DiskHome,
}

impl Disks {
    /// Makes them, and has them kept until the nodes are gone.
    fn create(run: &mut Run, nodes: usize, kind: Kind) -> Result<Arc<Disks>, Stop> {
        Disks::create_with(run, nodes, |home, name| Disk::create(home, name, kind))
    }

    fn create_with(
        run: &mut Run,
        nodes: usize,
        make: impl Fn(&Path, &str) -> Result<Disk, RigError>,
    ) -> Result<Arc<Disks>, Stop> {
        let home = DiskHome::create()?;
        let all = (0..nodes)
            .map(|at| make(home.path(), &format!("n{at}")))
            .collect::<Result<_, _>>()?;
        let disks = Arc::new(Disks { all, _home: home });
        run.keep(Arc::clone(&disks));
        Ok(disks)
    }

    /// The usual setup with small segments, each node on its disk.
    fn setup(&self, run: &Run) -> Setup {
        let mut setup = small_segments(run);
        setup.stores = self.all.iter().map(|disk| store(disk.path())).collect();
        setup
    }

    /// Cuts the power of nodes: at one moment nothing runs any more, and nothing more reaches the disks. The
    /// disks have power again when this returns; the nodes do not run.
    fn cut_power(&self, rig: &mut Rig, nodes: &[usize]) -> Result<(), RigError> {
        // A node that stands still cannot notice that its disk fails and say so.
        for at in nodes
            .iter()
            .filter(|at| !rig.is_paused(**at))
            .copied()
            .collect::<Vec<_>>()
        {
            rig.pause(at)?;
        }
        for at in nodes {
            self.all[*at].cut()?;
        }
        rig.kill(nodes)?;
        for at in nodes {
            self.all[*at].power_on()?;
        }
        Ok(())
    }
}

/// Not the mount point itself: its `lost+found` is nobody's.
fn store(mount: &Path) -> std::path::PathBuf {
    mount.join("store")
}

/// Starts a node that must refuse: it ends by itself, not by a signal, with a status that is not 0, and what it
/// says has all of `words`.
async fn refuses_to_start(run: &mut Run, at: usize, words: &[&str]) -> Result<(), Stop> {
    let rig = run.rig()?;
    let before = rig.log_text(at)?.len();
    rig.spawn(at)?;
    let status = match rig.wait_end(at, ENDS_WITHIN).await {
        Ok(status) => status,
        Err(RigError::Lasting { node, .. }) => {
            return Err(Stop::Violated(format!("{node} starts on damaged files")));
        }
        Err(error) => return Err(error.into()),
    };
    let name = rig.name(at).to_owned();
    let said = rig.log_text(at)?.split_off(before);
    run.require(status.code().is_some_and(|code| code != 0), || {
        format!("{name} refused its files with {status}")
    });
    for word in words {
        run.require(said.contains(word), || {
            format!("{name} refused its files without naming {word:?}: {said}")
        });
    }
    Ok(())
}

/// Waits until a node that must end by itself has done so; returns what it said since `before`, a length of its log.
async fn ends_by_itself(run: &mut Run, at: usize, before: usize) -> Result<String, Stop> {
    let rig = run.rig()?;
    let status = rig.wait_end(at, ENDS_WITHIN).await?;
    let name = rig.name(at).to_owned();
    let said = rig.log_text(at)?.split_off(before);
    run.require(status.code().is_some_and(|code| code != 0), || {
        format!("{name} ended with {status}")
    });
    Ok(said)
}

/// Kills a node and waits until the others have a leader again.
async fn kill_one(run: &mut Run, at: usize) -> Result<(), Stop> {
    let rig = run.rig()?;
    rig.kill(&[at])?;
    rig.wait_serving().await?;
    Ok(())
}

/// Tells the checker that a node that does not run has lost what it had shown: its files are about to be emptied or
/// replaced.
fn note_loss(run: &mut Run, at: usize) -> Result<(), Stop> {
    let name = run.rig()?.name(at).to_owned();
    run.fault(WIPE, &[(NODE, &name)]);
    run.fault_over(WIPE);
    Ok(())
}

/// Empties the directory of a node that does not run.
fn wipe(run: &mut Run, at: usize) -> Result<(), Stop> {
    note_loss(run, at)?;
    Ok(crate::rig::damage::wipe_dir(run.rig()?.store(at))?)
}

/// A node that does not lead, by the scenario's own choice.
async fn some_follower(run: &mut Run) -> Result<usize, Stop> {
    let followers = run.rig()?.followers().await?;
    let at = run.rng.below(followers.len());
    followers
        .get(at)
        .copied()
        .ok_or_else(|| Stop::Invalid("no node follows".to_owned()))
}

/// The last index that a node had durable, as it said itself.
async fn durable(run: &mut Run, at: usize) -> Result<Option<u64>, Stop> {
    let views = run.rig()?.views().await;
    let view = views.into_iter().find(|(node, _)| *node == at);
    Ok(view.and_then(|(_, view)| view?.durable))
}
