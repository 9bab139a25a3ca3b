//! The end of every run: heal everything, see the group come together and make progress, stop the load, read
//! every queue from every node, and look at the nodes themselves.

use std::path::Path;
use std::time::Duration;

use super::Stop;
use super::context::{PATIENCE, Run};
use crate::rig::{Rig, RigError};

/// Messages that a healed group must acknowledge.
const PROGRESS: u64 = 50;
/// Descriptors that a node may have more at the end than at the start, beside one for each file of its log.
const MORE_FDS: u64 = 32;
const RESIDENT_MAX: u64 = 1 << 30;
const THREADS_MAX: u64 = 64;
/// Closed connections are noticed within this time.
const CONNECTIONS_END_WITHIN: Duration = Duration::from_secs(5);

/// Heals, drains and looks; returns what went wrong. Violations that were found otherwise are in the run.
pub async fn finish(run: &mut Run) -> Vec<Stop> {
    let mut errors = Vec::new();
    let healed = heal(run).await;
    let whole = healed.is_ok();
    errors.extend(healed.err());
    if whole {
        errors.extend(progress(run).await.err());
    }
    run.stop_load().await;
    if let Some(reading) = run.reading.take() {
        reading.stop().await;
    }
    if let Some(committing) = run.committing.take() {
        let answered = committing.stop().await;
        run.figure("offset requests answered", answered as f64);
    }
    if whole {
        errors.extend(run.drain().await.err());
    }
    if let Some(observer) = run.observer.take() {
        observer.stop().await;
    }
    if let Some(pulse) = run.pulse.take() {
        run.stall = pulse.stop().await;
        run.figure(
            "ms by which the clients' timers were late",
            run.stall.as_millis() as f64,
        );
    }
    errors.extend(look(run, whole).await.err());
    errors
}

/// Undoes every fault: the last one first, then paused nodes go on and dead ones are started.
async fn heal(run: &mut Run) -> Result<(), Stop> {
    let mut first = Ok(());
    while let Some(undo) = run.undo.pop() {
        let undone = undo();
        if first.is_ok() {
            first = undone;
        }
    }
    first?;
    let rig = run.rig()?;
    for at in 0..rig.len() {
        if rig.is_paused(at) {
            rig.resume(at)?;
        }
    }
    // Notes the ends of nodes that died by themselves, so that they are started again.
    rig.unexpected_ends()?;
    rig.restart_dead().await?;
    run.recorder.heal();
    Ok(())
}

/// The healed group acknowledges messages (I-20), of a load of its own where the scenario has none.
async fn progress(run: &mut Run) -> Result<(), Stop> {
    let load = run.producers()?;
    run.begin(&load);
    run.progress(PROGRESS, PATIENCE).await
}

/// Unexpected ends, panics, and what the nodes hold at the end (I-22).
async fn look(run: &mut Run, whole: bool) -> Result<(), Stop> {
    let (panics_expected, fds_at_start) = (run.panics_expected, run.fds_at_start);
    let rig = run.rig()?;
    let mut found = Vec::new();
    for ended in rig.unexpected_ends()? {
        found.push(format!(
            "{} ended with {} and nobody asked it to",
            ended.node, ended.status
        ));
    }
    for at in 0..rig.len() {
        let log = rig.log_text(at)?;
        let panics = log.lines().filter(|line| line.contains("panicked at"));
        if !panics_expected {
            found.extend(panics.map(|line| format!("{} panicked: {line}", rig.name(at))));
        }
        if whole && rig.is_running(at) {
            found.extend(holds_too_much(rig, at, fds_at_start).await?);
        }
    }
    for text in found {
        run.require(false, || text);
    }
    Ok(())
}

async fn holds_too_much(
    rig: &Rig,
    at: usize,
    fds_at_start: u64,
) -> Result<Option<String>, RigError> {
    let begun = std::time::Instant::now();
    let name = rig.name(at);
    let limit = fds_at_start + MORE_FDS + segments(&rig.store(at).join("log"))?;
    while rig.fds(at)? > limit {
        if begun.elapsed() > CONNECTIONS_END_WITHIN {
            let fds = rig.fds(at)?;
            return Ok(Some(format!(
                "{name} has {fds} open files, {fds_at_start} at the start; {limit} are explained"
            )));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (resident, threads) = (rig.resident(at)?, rig.threads(at)?);
    Ok((resident > RESIDENT_MAX || threads > THREADS_MAX)
        .then(|| format!("{name} holds {resident} bytes of memory and {threads} threads")))
}

/// Segments of a log; a node keeps them open.
fn segments(log: &Path) -> Result<u64, RigError> {
    let failed = |source| RigError::Io {
        what: log.display().to_string(),
        source,
    };
    let mut segments = 0;
    for entry in std::fs::read_dir(log).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        segments += u64::from(
            Path::new(&name)
                .extension()
                .is_some_and(|kind| kind == "seg"),
        );
    }
    Ok(segments)
}
