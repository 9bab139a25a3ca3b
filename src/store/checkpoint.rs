//! The small state at a segment boundary, in a checked file, so that a restart replays only what follows.
//!
//! `<dir>/checkpoint/<end position>.ckpt`: header with magic, version, lengths and CRCs; the small state
//! (`codec`); the dedup window. The places of messages are not in it: they are in the index files of the
//! segments before. A damaged or missing checkpoint costs time, never messages.

use std::io;
use std::path::{Path, PathBuf};

use bytes::BufMut;
use quorumlog_raft::env::Files;
use quorumlog_raft::sabotage::{self, Sabotage};
use quorumlog_raft::{AppliedMark, Position};
use serde::{Deserialize, Serialize};

use super::changes::Changes;
use super::codec;
use super::command::TopicConfig;
use super::dedup::Window;
use super::files::{Fields, list_finished, read_file, replace_file};
use super::queue::Queue;
use super::state::{Small, State, Topic, Topics};

const MAGIC: [u8; 8] = *b"QLCHECK\n";
const VERSION: u32 = 1;
const ENDING: &str = ".ckpt";
/// Checkpoints kept.
const KEPT: usize = 3;

/// A topic with the ends of its queues, by id: (queue, first, next) queue offset.
#[derive(Debug, Serialize, Deserialize)]
struct TopicRow {
    config: TopicConfig,
    incarnation: u64,
    queues: Vec<(i32, i64, i64)>,
}

#[derive(Serialize)]
struct BodyOut<'a> {
    mark: &'a AppliedMark,
    small: &'a Small,
    topics: Vec<TopicRow>,
}

#[derive(Deserialize)]
struct BodyIn {
    mark: AppliedMark,
    small: Small,
    topics: Vec<TopicRow>,
}

/// The state as bytes, taken under its lock, to be written when there is time.
pub(super) struct Capture {
    /// Position after the last entry in it.
    pub end: Position,
    body: Vec<u8>,
    window: Vec<u8>,
}

impl Capture {
    /// `None` while nothing was applied.
    pub(super) fn of(state: &State) -> Option<Capture> {
        let mark = state.mark.as_ref()?;
        let topics = state.topics.sorted().into_iter().map(|topic| TopicRow {
            config: topic.config.clone(),
            incarnation: topic.incarnation,
            queues: topic
                .queues
                .iter()
                .map(|(&id, queue)| (id, queue.min, queue.next()))
                .collect(),
        });
        let mut window = Vec::new();
        match sabotage::on(Sabotage::WindowNotKept) {
            true => Window::new().encode(&mut window), // I-4: retries are recognised after a restart.
            false => state.window.encode(&mut window),
        }
        Some(Capture {
            end: mark.end,
            body: codec::encode(&BodyOut {
                mark,
                small: &state.small,
                topics: topics.collect(),
            }),
            window,
        })
    }

    /// The file's bytes in two parts: header and small state, window.
    fn parts(&self) -> (Vec<u8>, &[u8]) {
        let mut front = Vec::with_capacity(64 + self.body.len());
        front.put_slice(&MAGIC);
        front.put_u32_le(VERSION);
        front.put_u64_le(self.end);
        front.put_u64_le(self.body.len() as u64);
        front.put_u64_le(self.window.len() as u64);
        front.put_u32_le(crc32c::crc32c(&self.body));
        front.put_u32_le(crc32c::crc32c(&self.window));
        front.put_u32_le(crc32c::crc32c(&front));
        front.put_slice(&self.body);
        (front, &self.window)
    }

    /// All bytes, to be compared.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> Vec<u8> {
        let (mut front, window) = self.parts();
        front.extend_from_slice(window);
        front
    }
}

/// Writes a checkpoint durably, then removes all but the newest few.
pub(super) fn write(files: &dyn Files, dir: &Path, capture: &Capture) -> io::Result<()> {
    let (front, window) = capture.parts();
    replace_file(files, &path(dir, capture.end), &[&front, window])?;
    files.sync_dir(dir)?;
    for old in ends(files, dir)?.iter().rev().skip(KEPT) {
        files.remove(&path(dir, *old))?;
    }
    Ok(())
}

fn path(dir: &Path, end: Position) -> PathBuf {
    dir.join(format!("{end:020}{ENDING}"))
}

/// End positions of the checkpoints that are there, oldest first.
pub(super) fn ends(files: &dyn Files, dir: &Path) -> io::Result<Vec<Position>> {
    let mut ends: Vec<Position> = list_finished(files, dir)?
        .iter()
        .filter_map(|name| name.strip_suffix(ENDING)?.parse().ok())
        .collect();
    ends.sort_unstable();
    Ok(ends)
}

/// Why a checkpoint is of no use; an older one may be.
#[derive(Debug, thiserror::Error)]
pub(super) enum CheckpointError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Damaged(&'static str),
    #[error("the small state cannot be read: {0}")]
    Codec(#[from] codec::CodecError),
}

/// The state of a checkpoint. Its queues know their ends, but not yet where their messages are.
pub(super) fn load(files: &dyn Files, dir: &Path, end: Position) -> Result<State, CheckpointError> {
    let bytes = read_file(files, &path(dir, end))?;
    let (body, window) = split(&bytes, end).map_err(CheckpointError::Damaged)?;
    let body: BodyIn = codec::decode(body)?;
    let window = Window::decode(window).ok_or(CheckpointError::Damaged("the window is cut"))?;
    if body.mark.end != end {
        return Err(CheckpointError::Damaged("its mark has another position"));
    }
    let mut topics = Topics::default();
    for row in body.topics {
        if topics.by_name(&row.config.name).is_some() {
            return Err(CheckpointError::Damaged("it has a topic twice"));
        }
        let mut topic = Topic::new(row.config, row.incarnation);
        for (id, min, next) in row.queues {
            topic
                .queues
                .insert(id, Queue::sealed(min, next, Vec::new()));
        }
        topics.insert(topic);
    }
    Ok(State {
        topics,
        small: body.small,
        window,
        segment: end,
        mark: Some(body.mark),
        changes: Changes::default(),
    })
}

/// Checks a file's bytes; the small state and the window in it.
fn split(bytes: &[u8], end: Position) -> Result<(&[u8], &[u8]), &'static str> {
    const SHORT: &str = "cut short";
    let mut fields = Fields(bytes);
    if fields.array() != Some(MAGIC) {
        return Err("not a checkpoint");
    }
    if fields.u32() != Some(VERSION) {
        return Err("a version that this program does not know");
    }
    let found_end = fields.u64().ok_or(SHORT)?;
    let body = fields.u64().ok_or(SHORT)?;
    let window = fields.u64().ok_or(SHORT)?;
    let body_crc = fields.u32().ok_or(SHORT)?;
    let window_crc = fields.u32().ok_or(SHORT)?;
    let checked = bytes.len() - fields.0.len();
    if fields.u32() != Some(crc32c::crc32c(&bytes[..checked])) {
        return Err("the CRC of the header is wrong");
    }
    if found_end != end {
        return Err("made for another position");
    }
    let length = |length: u64| usize::try_from(length).map_err(|_| SHORT);
    let body = fields.take(length(body)?).ok_or(SHORT)?;
    let window = fields.take(length(window)?).ok_or(SHORT)?;
    if !fields.0.is_empty() {
        return Err("bytes behind its end");
    }
    if crc32c::crc32c(body) != body_crc || crc32c::crc32c(window) != window_crc {
        return Err("the CRC of its content is wrong");
    }
    Ok((body, window))
}
