//! What a run leaves behind: the history of its clients, and a trace of everything, hashed line by line. Two
//! runs of one seed have the same trace.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quorumlog_chaos::history::{Call, Event, What};

/// Shared by everything in a run.
pub struct Trace(Mutex<State>);

struct State {
    /// Simulated time of the newest line, ns. Each event has a time of its own: the order in which things
    /// happened is the order of their times.
    last: u64,
    ops: u64,
    events: Vec<Event>,
    /// FNV-1a.
    hash: u64,
    lines: u64,
    file: Option<BufWriter<File>>,
    failed: Option<std::io::Error>,
}

impl Trace {
    /// `file`: where to write the lines, too.
    pub fn new(file: Option<&Path>) -> std::io::Result<Trace> {
        let file = file.map(File::create).transpose()?;
        Ok(Trace(Mutex::new(State {
            last: 0,
            ops: 0,
            events: Vec::new(),
            hash: 0xcbf2_9ce4_8422_2325,
            lines: 0,
            file: file.map(BufWriter::new),
            failed: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the time where no host runs.
    pub fn tick(&self, elapsed: Duration) {
        let mut state = self.state();
        state.last = state.last.max(nanos(elapsed));
    }

    /// A line about the run.
    pub fn note(&self, line: impl Display) {
        let mut state = self.state();
        let time = state.now();
        state.line(format_args!("{time} {line}"));
    }

    /// An operation is about to be sent; returns its number.
    pub fn invoke(&self, actor: &str, call: Call) -> u64 {
        let mut state = self.state();
        state.ops += 1;
        let op = state.ops;
        state.event(actor, op, What::Invoke(call));
        op
    }

    /// An operation has ended.
    pub fn complete(&self, actor: &str, op: u64, what: What) {
        self.state().event(actor, op, what);
    }

    /// The history so far.
    pub fn events(&self) -> Vec<Event> {
        self.state().events.clone()
    }

    /// Hash and number of the lines so far.
    pub fn digest(&self) -> (u64, u64) {
        let state = self.state();
        (state.hash, state.lines)
    }

    /// Writes everything out; the first error on the way.
    pub fn finish(&self) -> std::io::Result<()> {
        let mut state = self.state();
        if let Some(error) = state.failed.take() {
            return Err(error);
        }
        state.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl State {
    fn now(&mut self) -> u64 {
        let now = turmoil::sim_elapsed().map_or(0, nanos);
        self.last = now.max(self.last + 1);
        self.last
    }

    fn event(&mut self, actor: &str, op: u64, what: What) {
        let event = Event {
            t: self.now(),
            a: actor.to_owned(),
            op,
            what,
        };
        match serde_json::to_string(&event) {
            Ok(line) => self.line(line),
            Err(error) => self.failed = Some(error.into()),
        }
        self.events.push(event);
    }

    fn line(&mut self, line: impl Display) {
        let line = format!("{line}\n");
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.lines += 1;
        if self.failed.is_none()
            && let Some(file) = &mut self.file
        {
            self.failed = file.write_all(line.as_bytes()).err();
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lines_have_equal_hashes_and_times_never_repeat() {
        let run = |text: &str| {
            let trace = Trace::new(None).unwrap();
            trace.note("begin");
            trace.note(text);
            trace.complete(
                "a",
                1,
                What::Info {
                    code: None,
                    why: text.to_owned(),
                },
            );
            let events = trace.events();
            assert_eq!(events[0].t, 3);
            trace.digest()
        };
        assert_eq!(run("x"), run("x"));
        assert_ne!(run("x"), run("y"));
    }
}
