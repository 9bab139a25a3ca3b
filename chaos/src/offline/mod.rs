//! Reads a node's data directory without the node, and without a line of its code: from `docs/format.md`
//! alone. What it finds is compared between nodes (`compare`) and put into histories (`record`).
//!
//! Not read: `tables/`, checkpoints and entry tables, all of which are made again from the log. Queue
//! offsets are known only of a log that still has its beginning.

mod bytes;
mod compare;
mod index_file;
mod payload;
mod record;
mod replay;
mod segment;
mod small;

use std::io;
use std::path::{Path, PathBuf};

use ::bytes::Bytes;

use crate::history::Got;

pub use compare::{common, compare};
pub use index_file::{IndexFile, Item, Row};
pub use record::{dump, record};
pub use replay::{Replayed, Stored};
pub use segment::{Entry, Kind};
pub use small::{Identity, Mark, Vote};

use payload::{units, voters};
use replay::Replay;
use segment::{Segment, Stop};

/// Why a directory cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: {what}; without it nothing tells whose directory this is")]
    Damaged { path: PathBuf, what: String },
}

/// Something that is not as it should be; for it the node would not start, or not serve the entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub path: PathBuf,
    pub what: String,
}

/// What a data directory holds.
#[derive(Clone, Debug)]
pub struct NodeFiles {
    pub dir: PathBuf,
    pub identity: Identity,
    pub vote: Option<Vote>,
    /// Index of the last entry that was given up.
    pub purged: Option<u64>,
    /// The newest durable mark of the last segment.
    pub mark: Option<Mark>,
    /// All valid entries, without a gap.
    pub entries: Vec<Entry>,
    /// Voters by the last membership in the log.
    pub voters: Vec<u64>,
    /// First positions of the segments.
    pub segments: Vec<u64>,
    /// What the entries did to queues; `None` when the log's beginning is not there, or an entry cannot be
    /// read.
    pub replayed: Option<Replayed>,
    /// The index files that are there and whole.
    pub indexes: Vec<IndexFile>,
    /// Bytes behind the last entry that are not zero and were never reported durable.
    pub torn: u64,
    pub damage: Vec<Damage>,
    /// Index files that are not whole; the node makes them again.
    pub bad_indexes: Vec<Damage>,
}

impl NodeFiles {
    /// Index of the first entry that is there.
    pub fn first(&self) -> u64 {
        let after_purged = self.purged.map_or(0, |purged| purged + 1);
        self.entries
            .first()
            .map_or(after_purged, |entry| entry.index)
    }

    /// Index of the last entry.
    pub fn last(&self) -> Option<u64> {
        self.entries.last().map(|entry| entry.index)
    }

    pub fn entry(&self, index: u64) -> Option<&Entry> {
        let at = usize::try_from(index.checked_sub(self.first())?).ok()?;
        self.entries.get(at)
    }

    /// What the entries up to `upto` put into a queue, by offset. `None` where that is not known.
    pub fn queue(&self, topic: &str, queue: i32, upto: u64) -> Option<Vec<Got>> {
        let replayed = self.replayed.as_ref()?;
        let alive = |stored: &Stored| {
            !replayed.deleted.iter().any(|(index, topic, incarnation)| {
                *index <= upto && *topic == stored.topic && *incarnation == stored.incarnation
            })
        };
        let in_queue = replayed.stored.iter().filter(|stored| {
            stored.index <= upto && stored.queue == queue && &*stored.topic == topic
        });
        Some(
            in_queue
                .filter(|stored| alive(stored))
                .map(|stored| stored.got.clone())
                .collect(),
        )
    }
}

/// Reads the directory of a node that stands still. Changes nothing.
pub fn read(dir: &Path) -> Result<NodeFiles, OfflineError> {
    let identity = small::identity(&dir.join("node.id"))?;
    let mut files = NodeFiles {
        dir: dir.to_owned(),
        identity,
        vote: None,
        purged: None,
        mark: None,
        entries: Vec::new(),
        voters: Vec::new(),
        segments: Vec::new(),
        replayed: None,
        indexes: Vec::new(),
        torn: 0,
        damage: Vec::new(),
        bad_indexes: Vec::new(),
    };
    files.small_files()?;
    files.read_log()?;
    Ok(files)
}

impl NodeFiles {
    fn damaged(&mut self, path: &Path, what: impl Into<String>) {
        self.damage.push(Damage {
            path: path.to_owned(),
            what: what.into(),
        });
    }

    fn bad_index(&mut self, path: PathBuf, what: &str) {
        let what = what.to_owned();
        self.bad_indexes.push(Damage { path, what });
    }

    fn small_files(&mut self) -> Result<(), OfflineError> {
        let path = self.dir.join("vote");
        match read_if_there(&path)?.map(|bytes| small::vote(&bytes)) {
            Some(Ok(vote)) => self.vote = vote,
            Some(Err(what)) => self.damaged(&path, what),
            None => self.damaged(&path, "missing"),
        }
        let path = self.dir.join("purged");
        match read_if_there(&path)?.map(|bytes| small::purged(&bytes)) {
            Some(Ok(purged)) => self.purged = purged,
            Some(Err(what)) => self.damaged(&path, what),
            None => {}
        }
        Ok(())
    }

    fn read_log(&mut self) -> Result<(), OfflineError> {
        let dir = self.dir.join("log");
        let names = names(&dir)?;
        let group = crc32c::crc32c(self.identity.group.as_bytes());
        let mut segments: Vec<Segment> = Vec::new();
        for first in names.iter().filter_map(|name| position(name, ".seg")) {
            let path = dir.join(format!("{first:020}.seg"));
            match Segment::open(path.clone(), read_file(&path)?, group) {
                Ok(segment) if segment.first == first => segments.push(segment),
                Ok(_) => self.damaged(&path, "the header is that of another segment"),
                Err(what) => self.damaged(&path, what),
            }
        }
        self.segments = segments.iter().map(|segment| segment.first).collect();
        self.walk(&segments);
        for first in names.iter().filter_map(|name| position(name, ".index")) {
            let path = dir.join(format!("{first:020}.index"));
            match index_file::parse(&read_file(&path)?) {
                Ok(index) if index.segment == first => self.indexes.push(index),
                Ok(_) => self.bad_index(path, "the index of another segment"),
                Err(what) => self.bad_index(path, what),
            }
        }
        Ok(())
    }

    /// Goes through all segments as long as they hang together.
    fn walk(&mut self, segments: &[Segment]) {
        let whole = segments
            .first()
            .is_some_and(|first| first.first == 0 && first.before.is_none());
        let mut replay = whole.then(Replay::default);
        let mut unreadable = None;
        for (at, segment) in segments.iter().enumerate() {
            let last = self.entries.last().map(|entry| (entry.term, entry.index));
            let follows = self
                .entries
                .last()
                .is_none_or(|entry| entry.end() == segment.first);
            if at > 0 && (!follows || last != segment.before) {
                self.damaged(&segment.path, "does not follow the segment before");
                break;
            }
            let limit = segments.get(at + 1).map(|next| next.first);
            let (entries, voters_now) = (&mut self.entries, &mut self.voters);
            let (end, stop) = segment.walk(limit, &mut |entry, payload| {
                entries.push(entry);
                match entry.kind {
                    Kind::Blank => {}
                    Kind::Membership => {
                        *voters_now = voters(&payload).unwrap_or_default();
                    }
                    Kind::Normal => match units(&payload) {
                        Ok(units) => {
                            if let Some(replay) = &mut replay {
                                replay.apply(&entry, units);
                            }
                        }
                        Err(what) => {
                            replay = None;
                            unreadable.get_or_insert((entry.index, what));
                        }
                    },
                }
            });
            self.ends(segment, limit, end, &stop);
        }
        if let (Some((index, what)), Some(last)) = (unreadable, segments.last()) {
            self.damaged(&last.path, format!("entry {index} cannot be read: {what}"));
        }
        self.replayed = replay.map(Replay::finish);
    }

    /// Judges the place where a segment's entries end.
    fn ends(&mut self, segment: &Segment, limit: Option<u64>, end: u64, stop: &Stop) {
        if let Some(limit) = limit {
            if end != limit {
                self.damaged(
                    &segment.path,
                    format!("position {end} in a sealed segment: {stop:?}"),
                );
            }
            return;
        }
        self.mark = segment.mark;
        match segment.mark {
            None => self.damaged(&segment.path, "both durable marks are damaged"),
            Some(mark) if end < mark.position => {
                let durable = mark.position;
                let what = format!("position {end}, before {durable}, which was durable: {stop:?}");
                self.damaged(&segment.path, what);
            }
            Some(_) => self.torn = segment.torn(end),
        }
    }
}

/// The position in a file's name, if it is one of that ending.
fn position(name: &str, ending: &str) -> Option<u64> {
    let digits = name.strip_suffix(ending)?;
    (digits.len() == 20).then(|| digits.parse().ok())?
}

/// Names in a directory, sorted.
fn names(dir: &Path) -> Result<Vec<String>, OfflineError> {
    let io = |source| OfflineError::Io {
        path: dir.to_owned(),
        source,
    };
    let mut names = Vec::new();
    for file in std::fs::read_dir(dir).map_err(io)? {
        names.push(file.map_err(io)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn read_file(path: &Path) -> Result<Bytes, OfflineError> {
    let io = |source| OfflineError::Io {
        path: path.to_owned(),
        source,
    };
    std::fs::read(path).map(Bytes::from).map_err(io)
}

fn read_if_there(path: &Path) -> Result<Option<Bytes>, OfflineError> {
    match read_file(path) {
        Err(OfflineError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        other => other.map(Some),
    }
}
