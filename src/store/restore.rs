//! Opening the state: the newest usable checkpoint, and the index files of the segments before it.
//!
//! An index file that is missing or damaged is made again by replaying the log up to its segment's end,
//! from an older checkpoint or from the beginning: which messages have a place depends on the state
//! (topics, dedup window), so a segment cannot be read by itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use quorumlog_raft::Position;
use quorumlog_raft::env::Files;
use quorumlog_raft::sabotage::{self, Sabotage};

use super::StoreError;
use super::apply::EntryContext;
use super::checkpoint;
use super::index_file::{self, IndexError, IndexFile};
use super::keeper::Places;
use super::log_bytes::LogBytes;
use super::queue::{Run, RunPlace};
use super::state::State;

/// First and end position of a segment.
type Segment = (Position, Position);

/// The state to go on from; empty when there is no usable checkpoint.
pub(super) fn restore(
    files: &dyn Files,
    log: &dyn LogBytes,
    places: &Places,
) -> Result<State, StoreError> {
    let io_error = |path: &Path| {
        let path = path.to_path_buf();
        move |source| StoreError::Io { path, source }
    };
    files
        .create_dir_all(&places.checkpoints)
        .map_err(io_error(&places.checkpoints))?;
    let ends =
        checkpoint::ends(files, &places.checkpoints).map_err(io_error(&places.checkpoints))?;
    let segments = log.segments();
    for &end in ends.iter().rev() {
        let Some(mut state) = load_checkpoint(files, places, &segments, end) else {
            continue;
        };
        let covered: Vec<Segment> = segments
            .iter()
            .copied()
            .filter(|segment| segment.1 <= end)
            .collect();
        let indexes = load_indexes(files, log, places, &covered, &ends)?;
        match attach(&mut state, &indexes) {
            Ok(()) => {
                if sabotage::on(Sabotage::EndsNotRestored) {
                    forget_ends(&mut state);
                }
                return Ok(state);
            }
            Err(what) => tracing::warn!(
                "the checkpoint at position {end} and the index files do not fit ({what}): \
                 trying an older one"
            ),
        }
    }
    begin_anew(&segments)
}

/// The empty state: right only where the log still begins at its beginning.
fn begin_anew(segments: &[Segment]) -> Result<State, StoreError> {
    match segments.first() {
        Some(&(first, _)) if first > 0 => Err(StoreError::Beginning { first }),
        _ => Ok(State::default()),
    }
}

/// A checkpoint that stands at the end of a segment of this log; `None` with a line in the log otherwise.
fn load_checkpoint(
    files: &dyn Files,
    places: &Places,
    segments: &[Segment],
    end: Position,
) -> Option<State> {
    if !segments.iter().any(|segment| segment.0 == end) {
        tracing::warn!("the checkpoint at position {end} is of another log: not used");
        return None;
    }
    match checkpoint::load(files, &places.checkpoints, end) {
        Ok(state) => Some(state),
        Err(error) => {
            tracing::warn!("the checkpoint at position {end} is not used: {error}");
            None
        }
    }
}

/// The index files of all these segments, oldest first; those that are of no use are made again.
fn load_indexes(
    files: &dyn Files,
    log: &dyn LogBytes,
    places: &Places,
    covered: &[Segment],
    checkpoints: &[Position],
) -> Result<Vec<Arc<IndexFile>>, StoreError> {
    let mut indexes = BTreeMap::new();
    let mut missing = Vec::new();
    for &(segment, end) in covered {
        match index_file::load(files, &places.index, segment, end) {
            Ok(file) => {
                indexes.insert(segment, Arc::new(file));
            }
            Err(error) => {
                tracing::warn!("an index file is made again from the log: {error}");
                missing.push((segment, end));
            }
        }
    }
    if !missing.is_empty() {
        for file in rebuild(files, log, places, covered, &missing, checkpoints)? {
            indexes.insert(file.segment, Arc::new(file));
        }
    }
    Ok(indexes.into_values().collect())
}

/// Makes the missing index files again: replays the log from the newest checkpoint before the first of
/// them, on a state of its own.
fn rebuild(
    files: &dyn Files,
    log: &dyn LogBytes,
    places: &Places,
    covered: &[Segment],
    missing: &[Segment],
    checkpoints: &[Position],
) -> Result<Vec<IndexFile>, StoreError> {
    let (Some(&(first, _)), Some(&(last, _))) = (missing.first(), missing.last()) else {
        return Ok(Vec::new());
    };
    let base = checkpoints.iter().rev().filter(|&&end| end <= first);
    let base = base
        .filter_map(|&end| load_checkpoint(files, places, covered, end))
        .next();
    let mut state = match base {
        Some(state) => state,
        None => begin_anew(covered)?,
    };
    let mut made = Vec::new();
    for &(segment, end) in covered {
        if segment < state.applied_end() || segment > last {
            continue;
        }
        state.segment = segment;
        replay_segment(log, &mut state, segment, end)?;
        let runs = state.seal(end);
        if missing.contains(&(segment, end)) {
            let file = index_file::write(files, &places.index, segment, end, &runs)?;
            made.push(file);
        }
    }
    Ok(made)
}

/// Applies the entries of a sealed segment.
fn replay_segment(
    log: &dyn LogBytes,
    state: &mut State,
    segment: Position,
    end: Position,
) -> Result<(), StoreError> {
    let mut failed = None;
    let mut grown = Vec::new();
    log.scan(segment, end, &mut |entry| {
        if entry.payload.is_empty() || failed.is_some() {
            return;
        }
        grown.clear();
        let mut context = EntryContext {
            payload_position: entry.payload_position,
            grown: &mut grown,
        };
        if let Err(error) = state.apply(&entry.payload, &mut context) {
            failed = Some(StoreError::Damaged {
                position: entry.payload_position + error.at as u64,
                what: error.to_string(),
            });
        }
    })?;
    failed.map_or(Ok(()), Err)
}

/// Tells the queues where their messages are, and checks that there is no hole.
fn attach(state: &mut State, indexes: &[Arc<IndexFile>]) -> Result<(), String> {
    for file in indexes {
        for (number, row) in file.rows.iter().enumerate() {
            // Rows of topics that were deleted since stay in the files.
            let Some(topic) = state.topics.by_name_mut(&row.topic) else {
                continue;
            };
            if topic.incarnation != row.incarnation {
                continue;
            }
            if let Some(queue) = topic.queues.get_mut(&row.queue) {
                queue.runs.push(Run {
                    segment: file.segment,
                    first: row.first,
                    count: row.count,
                    first_position: row.first_position,
                    place: RunPlace::File(file.clone(), number),
                });
            }
        }
    }
    for topic in state.topics.sorted() {
        for (id, queue) in &topic.queues {
            let mut reached = queue.min;
            for run in &queue.runs {
                if run.first != reached {
                    return Err(format!(
                        "{}/{id} goes on at {} after {reached}",
                        topic.name, run.first
                    ));
                }
                reached += run.count as i64;
            }
            if reached != queue.next() {
                return Err(format!(
                    "{}/{id} ends at {reached}, not at {}",
                    topic.name,
                    queue.next()
                ));
            }
        }
    }
    Ok(())
}

/// Never: a queue goes on where it ended (I-5).
fn forget_ends(state: &mut State) {
    for topic in state.topics.iter_mut() {
        for queue in topic.queues.values_mut() {
            queue.active_first = 0;
        }
    }
}

impl From<IndexError> for StoreError {
    fn from(error: IndexError) -> StoreError {
        match error {
            IndexError::Io { path, source } => StoreError::Io { path, source },
            IndexError::Damaged { path, what } => StoreError::Index { path, what },
        }
    }
}
