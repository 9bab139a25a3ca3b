//! Writes one history: to a file stamped by this machine's monotonic clock, or to memory stamped by the
//! caller's clock, for runs in simulated time.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::{Call, Event, FaultResult, HistoryError, LogDump, What, read};

/// Writes one history; shared by all actors of a run.
pub struct Recorder {
    clock: Clock,
    sink: Mutex<Sink>,
}

/// Nanoseconds since the history began; must never go back.
type Clock = Box<dyn Fn() -> u64 + Send + Sync>;

struct Sink {
    ops: u64,
    to: To,
}

enum To {
    File {
        path: PathBuf,
        file: BufWriter<File>,
        /// The first error; nothing is written behind it.
        failed: Option<std::io::Error>,
    },
    Memory(Vec<Event>),
}

impl fmt::Debug for Recorder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Recorder")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// Keeps the history in a file that is made anew.
    pub fn create(path: &Path) -> Result<Recorder, HistoryError> {
        let file = File::create(path).map_err(|source| HistoryError::Io {
            path: path.to_owned(),
            source,
        })?;
        let begun = Instant::now();
        let clock = move || u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok(Recorder::new(
            Box::new(clock),
            To::File {
                path: path.to_owned(),
                file: BufWriter::with_capacity(1 << 20, file),
                failed: None,
            },
        ))
    }

    /// Keeps the history in memory. `clock` gives nanoseconds since the history began and never goes back;
    /// it is called under the recorder's lock and must not call the recorder.
    pub fn in_memory(clock: impl Fn() -> u64 + Send + Sync + 'static) -> Recorder {
        Recorder::new(Box::new(clock), To::Memory(Vec::new()))
    }

    fn new(clock: Clock, to: To) -> Recorder {
        let sink = Mutex::new(Sink { ops: 0, to });
        Recorder { clock, sink }
    }

    /// Nanoseconds since the history began.
    pub fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Records that an operation is about to be sent; returns its number. Call it before sending.
    pub fn invoke(&self, actor: &str, call: Call) -> u64 {
        self.write(actor, None, What::Invoke(call))
    }

    /// Records how an operation ended. Call it after the reply.
    pub fn complete(&self, actor: &str, op: u64, what: What) {
        self.write(actor, Some(op), what);
    }

    /// Records what a node said of itself. Observations of one node must be made one after the other: asked
    /// for only when the one before was recorded.
    pub fn observe(&self, node: &str, table: BTreeMap<String, String>) {
        let node = node.to_owned();
        self.write("adm", None, What::Obs { node, table });
    }

    pub fn fault_start(&self, fault: &str, args: &[(&str, &str)]) -> u64 {
        self.fault(fault, args, FaultResult::Installed)
    }

    /// Records the attempt to bring a fault on.
    pub fn fault(&self, fault: &str, args: &[(&str, &str)], result: FaultResult) -> u64 {
        let args = args
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let fault = fault.to_owned();
        let start = What::Start {
            fault,
            args,
            result,
        };
        self.write("nem", None, start)
    }

    pub fn fault_end(&self, fault: &str) {
        let fault = fault.to_owned();
        self.write("nem", None, What::End { fault });
    }

    /// Records that all faults are ended and all nodes were started.
    pub fn heal(&self) {
        self.write("nem", None, What::Heal);
    }

    /// Records that a node's process is about to be started.
    pub fn boot(&self, node: &str) {
        let node = node.to_owned();
        self.write("nem", None, What::Boot { node });
    }

    /// Records how a node's process ended.
    pub fn exit(&self, node: &str, status: &str, expected: bool) {
        let (node, status) = (node.to_owned(), status.to_owned());
        let exit = What::Exit {
            node,
            status,
            expected,
        };
        self.write("nem", None, exit);
    }

    /// Records what an offline reader found in the files of a node that stands still.
    pub fn dump(&self, node: &str, log: LogDump) {
        let node = node.to_owned();
        self.write("offline", None, What::Dump { node, log });
    }

    /// Everything recorded so far; from a file that is flushed and read back.
    pub fn events(&self) -> Result<Vec<Event>, HistoryError> {
        let mut sink = self.sink();
        let path = match &mut sink.to {
            To::Memory(events) => return Ok(events.clone()),
            To::File { path, file, failed } => {
                let flushed = match failed.take() {
                    Some(error) => Err(error),
                    None => file.flush(),
                };
                let path = path.clone();
                match flushed {
                    Ok(()) => path,
                    Err(source) => return Err(HistoryError::Io { path, source }),
                }
            }
        };
        drop(sink);
        read(&path)
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
        match &mut sink.to {
            To::Memory(events) => events.push(event),
            To::File { failed, .. } if failed.is_some() => {}
            To::File { file, failed, .. } => {
                let written = serde_json::to_writer(&mut *file, &event)
                    .map_err(std::io::Error::from)
                    .and_then(|()| file.write_all(b"\n"));
                *failed = written.err();
            }
        }
        op
    }
}
