//! Judges what a run left behind: a directory with its history, and, where they were kept, the nodes' own
//! directories.

use std::path::{Path, PathBuf};

use super::{Invariant, Options, Report, check};
use crate::history::{self, Event, HistoryError, WIPE, What};
use crate::offline::{self, NodeFiles, OfflineError};

/// The history in a run's directory.
pub const HISTORY: &str = "history.jsonl";
/// What the run was held to, as JSON; the defaults where it is missing, or lacks a field.
pub const OPTIONS: &str = "options.json";
/// Says in a node's directory whose it is.
const NODE_ID: &str = "node.id";
/// How deep below a run's directory nodes' directories are looked for.
const DEPTH: usize = 3;

/// Why a run cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error(transparent)]
    Files(#[from] OfflineError),
    #[error("{path}: {source}")]
    Options {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("{path}: {source}")]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> RunDirError {
    let path = path.to_owned();
    move |source| RunDirError::Io { path, source }
}

/// Keeps what a run is held to beside its history.
pub fn save_options(dir: &Path, options: &Options) -> Result<(), RunDirError> {
    let path = dir.join(OPTIONS);
    let text = serde_json::to_vec_pretty(options).map_err(|source| RunDirError::Options {
        path: path.clone(),
        source,
    })?;
    std::fs::write(&path, text).map_err(io(&path))
}

/// Checks the history in `dir`, and the files of all nodes that are found there: those must stand still.
pub fn run_dir(dir: &Path) -> Result<Report, RunDirError> {
    let options = options(&dir.join(OPTIONS))?;
    let events = history::read(&dir.join(HISTORY))?;
    let mut report = check(&events, &options);
    let mut places = Vec::new();
    nodes_below(dir, DEPTH, &mut places)?;
    let mut files = Vec::new();
    for place in &places {
        files.push(offline::read(place)?);
    }
    if !files.is_empty() {
        report.extend(judge(&files, &events));
    }
    Ok(report)
}

fn judge(files: &[NodeFiles], events: &[Event]) -> Vec<super::Violation> {
    let told = events.iter().filter_map(|event| match &event.what {
        What::Obs { table, .. } => table.get("raftCommitted")?.parse().ok(),
        _ => None,
    });
    // A disk that was lost holds nothing that was promised.
    let wiped = events
        .iter()
        .any(|event| matches!(&event.what, What::Start { fault, .. } if fault == WIPE));
    let committed: Option<u64> = told.max().filter(|_| !wiped);
    let mut found = offline::compare(files, committed);
    if wiped {
        found.retain(|violation| violation.invariant != Invariant::Durable);
    }
    found
}

fn options(path: &Path) -> Result<Options, RunDirError> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Options::default());
        }
        Err(error) => return Err(io(path)(error)),
    };
    serde_json::from_slice(&text).map_err(|source| RunDirError::Options {
        path: path.to_owned(),
        source,
    })
}

fn nodes_below(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), RunDirError> {
    if dir.join(NODE_ID).is_file() {
        found.push(dir.to_owned());
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    let mut below = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(io(dir))? {
        let entry = entry.map_err(io(dir))?;
        // Not through links: they may lead anywhere.
        if entry.file_type().map_err(io(dir))?.is_dir() {
            below.push(entry.path());
        }
    }
    below.sort();
    for dir in below {
        nodes_below(&dir, depth - 1, found)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::super::{Verdict, sample_group::good};
    use super::*;

    fn write(dir: &Path, events: &[Event]) {
        let mut text = String::new();
        for event in events {
            let line = serde_json::to_string(event).unwrap();
            writeln!(text, "{line}").unwrap();
        }
        std::fs::write(dir.join(HISTORY), text).unwrap();
    }

    #[test]
    fn a_directory_is_judged_by_the_options_it_keeps() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(
            run_dir(dir.path()),
            Err(RunDirError::History(HistoryError::Io { .. }))
        ));
        write(dir.path(), &good(1, 200));
        assert_eq!(run_dir(dir.path()).unwrap().verdict(), Verdict::Valid);
        let mut options = Options::default();
        options.floor.refused = 1;
        save_options(dir.path(), &options).unwrap();
        let verdict = run_dir(dir.path()).unwrap().verdict();
        assert!(matches!(verdict, Verdict::Invalid(_)), "{verdict}");
        std::fs::write(dir.path().join(OPTIONS), r#"{"deduplication": true}"#).unwrap();
        assert_eq!(run_dir(dir.path()).unwrap().verdict(), Verdict::Valid);
        std::fs::write(dir.path().join(OPTIONS), r#"{"deduplicate": true}"#).unwrap();
        let error = run_dir(dir.path()).unwrap_err().to_string();
        assert!(error.contains("options.json"), "{error}");
    }

    #[test]
    fn a_node_that_cannot_be_read_is_named() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &good(2, 200));
        let node = dir.path().join("nodes/n0");
        std::fs::create_dir_all(&node).unwrap();
        std::fs::write(node.join(NODE_ID), "QLNODEID").unwrap();
        let error = run_dir(dir.path()).unwrap_err().to_string();
        assert!(error.contains("n0/node.id"), "{error}");
    }
}
