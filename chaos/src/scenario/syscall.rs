//! A node that dies at a chosen system call: right before each kind of call that changes a file (P5).

use std::time::Duration;

use super::context::{PATIENCE, Run};
use super::{Floor, Scenario, Stop, Tier};
use crate::rig::doctor::Facility;
use crate::rig::trace::killed_at;
use crate::rig::{Launch, Placement, RigError};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "syscall-kill",
        rows: &["P5"],
        about: "A node that is killed right before its first, second, or a later write, sync, rename, unlink or truncation starts again with everything",
        needs: &[Facility::Strace],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(500, 12),
        run: |run| Box::pin(syscall_kill(run, &[1, 2], 1)),
    },
    Scenario {
        name: "syscall-kill-each",
        rows: &["P5"],
        about: "The same for each of the first twelve calls of each kind, and three later ones",
        needs: &[Facility::Strace],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Release,
        floor: Floor::of(500, 60),
        run: |run| {
            Box::pin(syscall_kill(
                run,
                &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
                3,
            ))
        },
    },
];

/// Every call by which the server changes its files, and how far up a later one is chosen.
const CALLS: [(&str, usize); 8] = [
    ("pwritev", 400),
    ("pwrite64", 60),
    ("fdatasync", 400),
    ("fsync", 20),
    ("rename", 12),
    ("unlink", 12),
    ("ftruncate", 12),
    ("fallocate", 12),
];
/// A node that has not come to the call by then does not come to it.
const REACHED_WITHIN: Duration = Duration::from_secs(8);

async fn syscall_kill(run: &mut Run, first: &[usize], later: usize) -> Result<(), Stop> {
    // Small segments and big messages: files are made, renamed and removed all the time.
    let setup = run.setup().with("mappedFileSizeCommitLog", "1048576");
    run.start(setup).await?;
    let mut load = run.producers()?;
    load.body = (1_024, 16_384);
    run.begin(&load);
    run.progress(100, PATIENCE).await?;
    for (syscall, most) in CALLS {
        let mut calls = first.to_vec();
        for _ in 0..later {
            calls.push(first.len() + 1 + run.rng.below(most));
        }
        for nth in calls {
            kill_at(run, syscall, nth).await?;
        }
    }
    Ok(())
}

/// One node, restarted so that it dies at its `nth` call, then restarted for good.
async fn kill_at(run: &mut Run, syscall: &str, nth: usize) -> Result<(), Stop> {
    let nodes = run.rig()?.len();
    let at = run.rng.below(nodes);
    let rig = run.rig()?;
    rig.kill(&[at])?;
    *rig.launch_mut(at) = killed_at(syscall, nth);
    rig.spawn(at)?;
    let ended = rig.wait_end(at, REACHED_WITHIN).await;
    *rig.launch_mut(at) = Launch::default();
    let name = format!("kill-at-{syscall}");
    match ended {
        Ok(status) => {
            let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
            run.require(killed, || {
                format!("n{at} ended with {status} at {syscall} {nth}")
            });
            run.fault(&name, &[("nth", &nth.to_string())]);
        }
        Err(RigError::Lasting { .. }) => {
            run.fault_skipped(&name, &format!("call {nth} was never reached"));
            run.rig()?.kill(&[at])?;
        }
        Err(error) => return Err(error.into()),
    }
    run.rig()?.restart_dead().await?;
    run.fault_over(&name);
    run.progress(5, PATIENCE).await
}
