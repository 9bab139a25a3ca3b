//! Where drills take place: a throw-away group on this machine, in network namespaces and on disks of its own where the
//! machine allows it, or a given group.

use std::path::PathBuf;
use std::sync::Arc;

use quorumlog_chaos::drill::report::{Drill, Place};
use quorumlog_chaos::drill::{Drilled, Given, Group, GroupError, Kind, Settings, drill, skipped};
use quorumlog_chaos::rig::{Placement, Site, disk, remove_leftovers};
use tokio::signal::unix::{SignalKind, signal};

use super::{places_of, terminal};
use crate::cli::CliError;

const NODES: usize = 3;

type Staged = (Vec<Drill>, String, Vec<Place>);

/// Runs the drills on groups that are made for them.
pub(super) fn on_throw_away(
    kinds: &[Kind],
    settings: &Settings,
    loopback: bool,
) -> Result<Staged, CliError> {
    let root = rustix::process::geteuid().is_root() && !loopback;
    if root {
        clean_up();
    }
    let site = Arc::new(site(root)?);
    let what = match site.placement() {
        Placement::Loopback => "a throw-away group of three nodes on loopback",
        Placement::Namespaces => "a throw-away group of three nodes in network namespaces",
    };
    let server = std::env::current_exe()
        .map_err(|error| CliError::new(format!("this program cannot find itself: {error}")))?;
    let stage = Stage {
        site: Arc::clone(&site),
        server,
        disks: root,
    };
    let outcome = site
        .block_on(async || interruptible(stage.all(kinds, settings)).await)
        .map_err(|error| CliError::new(error.to_string()))?;
    let (drills, nodes) = outcome?;
    Ok((drills, what.to_owned(), nodes))
}

/// Runs the drills on a given group, whose owner has agreed.
pub(super) fn on_given(
    given: Given,
    kinds: &[Kind],
    settings: &Settings,
) -> Result<Vec<Drill>, CliError> {
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| CliError::new(format!("the runtime cannot be started: {error}")))?;
    let work = async {
        let mut drills = Vec::new();
        let mut group = Some(Group::given(given));
        for kind in kinds {
            let Some(now) = group.take() else {
                let reason = "the group was not whole after the drill before".to_owned();
                drills.push(told(skipped(*kind, reason)));
                continue;
            };
            let drilled = one(*kind, now, settings).await;
            drills.push(drilled.drill);
            group = drilled.whole.then_some(drilled.group);
        }
        Ok(drills)
    };
    runtime.block_on(interruptible(work))
}

/// Namespaces where they can be made, so that the network can be hurt, too.
fn site(root: bool) -> Result<Site, CliError> {
    if root {
        match Site::create(Placement::Namespaces, NODES) {
            Ok(site) => return Ok(site),
            Err(error) => println!("no network namespaces: {error}"),
        }
    }
    Site::create(Placement::Loopback, NODES).map_err(|error| CliError::new(error.to_string()))
}

/// Removes what killed runs left behind.
fn clean_up() {
    for removed in [remove_leftovers(), disk::remove_leftover_disks()] {
        match removed {
            Ok(names) if names.is_empty() => {}
            Ok(names) => println!("removed what an earlier run left: {}", names.join(", ")),
            Err(error) => println!("what an earlier run left cannot be removed: {error}"),
        }
    }
}

/// The work, or an error when somebody interrupts it. Dropping the work ends the group.
async fn interruptible<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let handler =
        |kind| signal(kind).map_err(|error| CliError::new(format!("no signal handler: {error}")));
    let mut interrupt = handler(SignalKind::interrupt())?;
    let mut terminate = handler(SignalKind::terminate())?;
    tokio::select! {
        done = work => done,
        _ = interrupt.recv() => Err(CliError::new("interrupted")),
        _ = terminate.recv() => Err(CliError::new("interrupted")),
    }
}

struct Stage {
    site: Arc<Site>,
    server: PathBuf,
    /// Disks of their own may be made.
    disks: bool,
}

/// A group with its files.
struct Standing {
    group: Group,
    disks: bool,
    dir: tempfile::TempDir,
}

impl Stage {
    async fn all(
        &self,
        kinds: &[Kind],
        settings: &Settings,
    ) -> Result<(Vec<Drill>, Vec<Place>), CliError> {
        let mut standing: Option<Standing> = None;
        let mut drills = Vec::new();
        let mut nodes = Vec::new();
        for kind in kinds {
            let disks = self.disks && needs_disks(*kind);
            let now = match standing.take() {
                Some(standing) if standing.disks == disks => standing,
                // The old one ends before the new one begins.
                other => {
                    drop(other);
                    self.group(disks)
                        .await
                        .map_err(|error| CliError::new(error.to_string()))?
                }
            };
            nodes = places_of(&now.group);
            let drilled = one(*kind, now.group, settings).await;
            drills.push(drilled.drill);
            if drilled.whole {
                standing = Some(Standing {
                    group: drilled.group,
                    disks,
                    dir: now.dir,
                });
            }
        }
        Ok((drills, nodes))
    }

    async fn group(&self, disks: bool) -> Result<Standing, GroupError> {
        let dir = tempfile::Builder::new()
            .prefix("quorumlog-drill-")
            .tempdir()
            .map_err(|source| quorumlog_chaos::rig::RigError::Io {
                what: "a temporary directory".to_owned(),
                source,
            })?;
        let group = Group::throw_away(&self.site, &self.server, dir.path(), disks).await?;
        Ok(Standing { group, disks, dir })
    }
}

fn needs_disks(kind: Kind) -> bool {
    matches!(kind, Kind::PowerCut | Kind::DiskFull | Kind::SlowDisk)
}

async fn one(kind: Kind, group: Group, settings: &Settings) -> Drilled {
    println!("\n{kind}: {}", kind.what());
    let repeat = settings.repeat;
    let drilled = drill(kind, group, settings, |run| {
        println!("  {}", terminal::run_line(run, repeat));
    })
    .await;
    Drilled {
        drill: told(drilled.drill),
        ..drilled
    }
}

fn told(drill: Drill) -> Drill {
    println!("{}", terminal::drill_lines(&drill));
    drill
}
