//! What clients asked, what came back and which faults were on, as JSON lines stamped by one monotonic
//! clock. Writing and reading only; what a history means is the checker's.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Fault name of the time in which no majority is alive; [`Recorder::fault_start`] when the last node that
/// the majority needed is certainly gone, [`Recorder::fault_end`] before it is started again.
pub const QUORUM_LOSS: &str = "quorum-loss";

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
    /// A fault began.
    Start {
        fault: String,
        args: BTreeMap<String, String>,
    },
    /// A fault ended.
    End { fault: String },
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

/// Writes one history; shared by all actors of a run.
pub struct Recorder {
    path: PathBuf,
    begun: Instant,
    sink: Mutex<Sink>,
}

struct Sink {
    file: BufWriter<File>,
    ops: u64,
    /// The first error; nothing is written behind it.
    failed: Option<std::io::Error>,
}

impl Recorder {
    pub fn create(path: &Path) -> Result<Recorder, HistoryError> {
        let file = File::create(path).map_err(|source| HistoryError::Io {
            path: path.to_owned(),
            source,
        })?;
        Ok(Recorder {
            path: path.to_owned(),
            begun: Instant::now(),
            sink: Mutex::new(Sink {
                file: BufWriter::with_capacity(1 << 20, file),
                ops: 0,
                failed: None,
            }),
        })
    }

    /// Nanoseconds since the history began.
    pub fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Records that an operation is about to be sent; returns its number. Call it before sending.
    pub fn invoke(&self, actor: &str, call: Call) -> u64 {
        self.write(actor, None, What::Invoke(call))
    }

    /// Records how an operation ended. Call it after the reply.
    pub fn complete(&self, actor: &str, op: u64, what: What) {
        self.write(actor, Some(op), what);
    }

    pub fn observe(&self, node: &str, table: BTreeMap<String, String>) {
        let node = node.to_owned();
        self.write("adm", None, What::Obs { node, table });
    }

    pub fn fault_start(&self, fault: &str, args: &[(&str, &str)]) -> u64 {
        let args = args
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let fault = fault.to_owned();
        self.write("nem", None, What::Start { fault, args })
    }

    pub fn fault_end(&self, fault: &str) {
        let fault = fault.to_owned();
        self.write("nem", None, What::End { fault });
    }

    /// Flushes, and reads back everything written so far.
    pub fn events(&self) -> Result<Vec<Event>, HistoryError> {
        let mut sink = self.sink();
        let failed = match sink.failed.take() {
            Some(error) => Err(error),
            None => sink.file.flush(),
        };
        drop(sink);
        failed.map_err(|source| HistoryError::Io {
            path: self.path.clone(),
            source,
        })?;
        read(&self.path)
    }

    fn sink(&self) -> MutexGuard<'_, Sink> {
        self.sink.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, actor: &str, op: Option<u64>, what: What) -> u64 {
        let mut sink = self.sink();
        let op = op.unwrap_or_else(|| {
            sink.ops += 1;
            sink.ops
        });
        // Stamped under the lock: lines are in the order of their times.
        let event = Event {
            t: self.now(),
            a: actor.to_owned(),
            op,
            what,
        };
        if sink.failed.is_none() {
            let written = serde_json::to_writer(&mut sink.file, &event)
                .map_err(std::io::Error::from)
                .and_then(|()| sink.file.write_all(b"\n"));
            sink.failed = written.err();
        }
        op
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn send(key: &str) -> Call {
        Call::Send {
            topic: "t".to_owned(),
            q: 3,
            key: key.to_owned(),
            attempt: 1,
            hash: u64::MAX,
            len: 5,
            to: "n0".to_owned(),
            timeout_ms: 3000,
        }
    }

    #[test]
    fn what_is_written_is_read_back_in_the_order_of_its_times() {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(&dir.path().join("h.jsonl")).unwrap();
        let first = recorder.invoke("p0", send("k0"));
        let second = recorder.invoke("p1", send("k1"));
        let reply = Reply::Send {
            q: 3,
            off: 0,
            pos: Some(7),
            code: 0,
        };
        recorder.complete("p1", second, What::Ok(reply));
        recorder.complete(
            "p0",
            first,
            What::Info {
                code: None,
                why: "closed".to_owned(),
            },
        );
        recorder.fault_start(QUORUM_LOSS, &[("node", "n1")]);
        recorder.fault_end(QUORUM_LOSS);
        recorder.observe("n0", BTreeMap::from([("raftTerm".into(), "3".into())]));
        let got = Got::from((1, "k".to_owned(), 2, 3));
        recorder.complete(
            "d",
            9,
            What::Ok(Reply::Drain {
                got: vec![got],
                min: 0,
                max: 2,
            }),
        );
        let events = recorder.events().unwrap();
        assert_eq!(events.len(), 8);
        assert!(events.is_sorted_by_key(|event| event.t));
        assert_eq!(events[0].what, What::Invoke(send("k0")));
        let line = serde_json::to_string(&events[2]).unwrap();
        assert!(
            line.contains(r#""ev":"ok","f":"send","q":3,"off":0"#),
            "{line}"
        );
        let line = serde_json::to_string(&events[7]).unwrap();
        assert!(line.contains(r#""got":[[1,"k",2,3]]"#), "{line}");
    }

    #[test]
    fn recovery_counts_only_sends_begun_after_the_fault() {
        let event = |t, op, what| Event {
            t,
            a: "p".to_owned(),
            op,
            what,
        };
        let reply = Reply::Send {
            q: 0,
            off: 0,
            pos: None,
            code: 0,
        };
        let events = [
            event(10, 1, What::Invoke(send("a"))),
            event(21, 1, What::Ok(reply.clone())),
            event(25, 2, What::Invoke(send("b"))),
            event(90, 2, What::Ok(reply)),
        ];
        assert_eq!(recovery_ns(&events, 20), Some(70));
        assert_eq!(recovery_ns(&events, 26), None);
    }

    #[test]
    fn a_broken_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("h.jsonl");
        std::fs::write(&path, "{\"t\":1}\n").unwrap();
        assert!(matches!(
            read(&path),
            Err(HistoryError::Line { line: 1, .. })
        ));
    }
}
