//! What clients asked, what came back, what nodes said of themselves and which faults were on, as JSON
//! lines stamped by one monotonic clock. The format and its reading; writing is `recorder`'s, and what a
//! history means is the checker's.

mod recorder;
#[cfg(test)]
mod tests;

pub use recorder::Recorder;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Fault name of the time in which no majority is alive; [`Recorder::fault_start`] when the last node that
/// the majority needed is certainly gone, [`Recorder::fault_end`] before it is started again.
pub const QUORUM_LOSS: &str = "quorum-loss";

/// Fault name for a node whose data directory was emptied or replaced by another one: what it had shown of
/// its log before says nothing about the time after. Its argument is [`NODE`].
pub const WIPE: &str = "wipe";

/// Argument of a fault that is done to one node: its name, as [`What::Obs`] has it.
pub const NODE: &str = "node";

/// Argument of a fault that leaves a majority connected and healthy; its value is [`KEPT`]. Writing must
/// then go on during the fault (I-21).
pub const MAJORITY: &str = "majority";
pub const KEPT: &str = "kept";

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Nanoseconds since the history began.
    pub t: u64,
    /// Who: one actor is one connection's or one loop's sequence.
    pub a: String,
    /// Which operation; unique in a history. Observations and faults have numbers, too.
    pub op: u64,
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ev", rename_all = "snake_case")]
pub enum What {
    /// An operation is about to be sent.
    Invoke(Call),
    /// It succeeded.
    Ok(Reply),
    /// It certainly did not happen, and never will.
    Fail { code: i32, remark: String },
    /// Unknown; `code` when a reply came.
    Info { code: Option<i32>, why: String },
    /// A node's own view of itself.
    Obs {
        node: String,
        table: BTreeMap<String, String>,
    },
    /// A fault began, or should have begun.
    Start {
        fault: String,
        args: BTreeMap<String, String>,
        #[serde(default)]
        result: FaultResult,
    },
    /// A fault ended: the one of that name that began last and has no end yet.
    End { fault: String },
    /// All faults are ended and all nodes were started: from here on the group must recover by itself.
    Heal,
    /// A node's process is about to be started.
    Boot { node: String },
    /// A node's process ended. `expected`: by the run's own doing, or as the fault at hand demands.
    Exit {
        node: String,
        status: String,
        expected: bool,
    },
    /// A node's log as an offline reader found it in the files of a node that stands still.
    Dump { node: String, log: LogDump },
}

/// What became of the attempt to bring a fault on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultResult {
    #[default]
    Installed,
    /// It was not brought on, for a known reason.
    Skipped,
    /// It may be on.
    Indeterminate,
}

/// A node's log in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogDump {
    /// Term of the node's newest vote.
    pub vote_term: u64,
    /// Whom it voted for in that term.
    pub voted_for: Option<u64>,
    /// The one voted for is known to have been elected.
    pub elected: bool,
    /// Last index that the node itself had noted as committed.
    pub committed: Option<u64>,
    /// Index of the first entry that is there.
    pub first: u64,
    /// The first index of each term: `[term, index]`, ascending.
    pub terms: Vec<(u64, u64)>,
    /// One hash for each entry from `first` on, over its term, index and payload.
    pub hashes: Vec<u64>,
    /// Keys of the client messages in entries that the reader did not know to be committed.
    pub unsure: Vec<String>,
    /// Bytes behind the last whole entry that are not zero: a torn tail.
    pub torn: u64,
}

impl LogDump {
    /// Index of the last entry; `None` when there is none.
    pub fn last(&self) -> Option<u64> {
        (self.first + self.hashes.len() as u64)
            .checked_sub(1)
            .filter(|_| !self.hashes.is_empty())
    }

    /// Term and hash of the entry at `index`.
    pub fn entry(&self, index: u64) -> Option<(u64, u64)> {
        let at = usize::try_from(index.checked_sub(self.first)?).ok()?;
        let hash = *self.hashes.get(at)?;
        let runs = self.terms.partition_point(|(_, first)| *first <= index);
        let (term, _) = self.terms.get(runs.checked_sub(1)?)?;
        Some((*term, hash))
    }
}

/// An operation. `linear` marks reads that asked the leader and may not be stale.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "f", rename_all = "snake_case")]
pub enum Call {
    /// One attempt to send the message `key`; attempts of one message share key, hash and length.
    Send {
        topic: String,
        /// Negative: any.
        q: i32,
        key: String,
        attempt: u32,
        hash: u64,
        len: usize,
        to: String,
        timeout_ms: u64,
    },
    /// `filtered`: not all messages of the queue are asked for.
    Pull {
        topic: String,
        q: i32,
        from_off: i64,
        node: String,
        linear: bool,
        filtered: bool,
    },
    /// Everything a node has of a queue. `last`: after all faults and sends, of a node that caught up.
    Drain {
        topic: String,
        q: i32,
        node: String,
        last: bool,
    },
    MaxOffset {
        topic: String,
        q: i32,
        node: String,
        linear: bool,
    },
    MinOffset {
        topic: String,
        q: i32,
        node: String,
        linear: bool,
    },
    CommitOffset {
        group: String,
        topic: String,
        q: i32,
        off: i64,
        node: String,
    },
    QueryOffset {
        group: String,
        topic: String,
        q: i32,
        node: String,
        linear: bool,
    },
}

/// The result of an operation that succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "f", rename_all = "snake_case")]
pub enum Reply {
    Send {
        q: i32,
        off: i64,
        pos: Option<i64>,
        code: i32,
    },
    Pull {
        code: i32,
        got: Vec<Got>,
        next: i64,
        min: i64,
        max: i64,
    },
    Drain {
        got: Vec<Got>,
        min: i64,
        max: i64,
    },
    /// Of [`Call::MaxOffset`], [`Call::MinOffset`] and [`Call::QueryOffset`]; `None`: no offset known.
    Offset {
        off: Option<i64>,
    },
    CommitOffset,
}

/// A message as somebody read it: `[off, key, hash, pos]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(i64, String, u64, i64)", into = "(i64, String, u64, i64)")]
pub struct Got {
    pub off: i64,
    pub key: String,
    pub hash: u64,
    pub pos: i64,
}

impl From<(i64, String, u64, i64)> for Got {
    fn from((off, key, hash, pos): (i64, String, u64, i64)) -> Got {
        Got {
            off,
            key,
            hash,
            pos,
        }
    }
}

impl From<Got> for (i64, String, u64, i64) {
    fn from(got: Got) -> Self {
        (got.off, got.key, got.hash, got.pos)
    }
}

/// Why a history cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error("{path}: {source}")]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path} line {line}: {source}")]
    Line {
        path: PathBuf,
        line: usize,
        source: serde_json::Error,
    },
}

/// Reads one history.
pub fn read(path: &Path) -> Result<Vec<Event>, HistoryError> {
    let io = |source| HistoryError::Io {
        path: path.to_owned(),
        source,
    };
    let mut events = Vec::new();
    for (at, line) in BufReader::new(File::open(path).map_err(io)?)
        .lines()
        .enumerate()
    {
        let event =
            serde_json::from_str(&line.map_err(io)?).map_err(|source| HistoryError::Line {
                path: path.to_owned(),
                line: at + 1,
                source,
            })?;
        events.push(event);
    }
    Ok(events)
}

/// Time from the start of a fault to the completion of the first send that was begun after it and succeeded,
/// nanoseconds; `None` when none did.
pub fn recovery_ns(events: &[Event], fault_start: u64) -> Option<u64> {
    let mut begun = BTreeMap::new();
    for event in events {
        match &event.what {
            What::Invoke(Call::Send { .. }) => {
                begun.insert(event.op, event.t);
            }
            What::Ok(Reply::Send { .. })
                if begun.get(&event.op).is_some_and(|t| *t >= fault_start) =>
            {
                return Some(event.t - fault_start);
            }
            _ => {}
        }
    }
    None
}
