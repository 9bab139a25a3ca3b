//! Writes index files, checkpoints and tables beside the apply path, on a thread of its own.
//!
//! Nothing waits for it: until a segment's index file is there its items stay in memory, and a checkpoint
//! that was overtaken by a newer one is never written. In a simulation it works inline, in one order.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use quorumlog_raft::Position;
use quorumlog_raft::env::WriterMode;

use super::checkpoint::{self, Capture};
use super::index_file::{self, SealedRun};
use super::shared::Shared;
use super::tables::Tables;

/// Between two looks at what the tables should know, and between two tries at a file that failed.
const PAUSE: Duration = Duration::from_secs(3);

/// A segment was sealed: its index is to be written, then the checkpoint at its end.
pub(super) struct Sealed {
    pub segment: Position,
    pub end: Position,
    pub runs: Vec<SealedRun>,
    /// `None` when a newer one overtook it.
    pub checkpoint: Option<Capture>,
}

/// Directories the keeper writes to.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub checkpoints: PathBuf,
    /// Where the log's segments are.
    pub index: PathBuf,
}

/// The apply path's end of the keeper. Dropping it lets the keeper finish what waits.
pub(super) enum Keeper {
    Thread(Arc<Inbox>, Option<JoinHandle<()>>),
    Inline(Box<Worker>),
}

#[derive(Default)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    woken: Condvar,
}

#[derive(Default)]
struct Waiting {
    sealed: VecDeque<Sealed>,
    stopping: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper {
    pub(super) fn start(
        shared: Arc<Shared>,
        places: Places,
        tables: Option<Tables>,
        mode: WriterMode,
    ) -> io::Result<Keeper> {
        let mut worker = Worker {
            shared,
            places,
            tables,
            sealed: VecDeque::new(),
            failing: false,
        };
        match mode {
            WriterMode::Task => Ok(Keeper::Inline(Box::new(worker))),
            WriterMode::Thread => {
                let inbox = Arc::new(Inbox::default());
                let theirs = inbox.clone();
                let thread = std::thread::Builder::new()
                    .name("store-keeper".to_string())
                    .spawn(move || worker.run(&theirs))?;
                Ok(Keeper::Thread(inbox, Some(thread)))
            }
        }
    }

    /// Hands over a sealed segment. Returns at once.
    pub(super) fn sealed(&mut self, sealed: Sealed) {
        match self {
            Keeper::Thread(inbox, _) => {
                let mut waiting = inbox.lock();
                push(&mut waiting.sealed, sealed);
                inbox.woken.notify_one();
            }
            Keeper::Inline(worker) => push(&mut worker.sealed, sealed),
        }
    }

    /// In a simulation, does the work that was handed over. The state must not be locked.
    pub(super) fn work(&mut self) {
        if let Keeper::Inline(worker) = self
            && !worker.sealed.is_empty()
        {
            worker.write_sealed();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Keeper::Thread(inbox, thread) = self {
            inbox.lock().stopping = true;
            inbox.woken.notify_one();
            if let Some(thread) = thread.take()
                && thread.join().is_err()
            {
                tracing::error!("the thread that writes checkpoints had panicked");
            }
        }
    }
}

/// Adds a segment; checkpoints that still wait are overtaken by its own.
fn push(queue: &mut VecDeque<Sealed>, sealed: Sealed) {
    if sealed.checkpoint.is_some() {
        for overtaken in queue.iter_mut() {
            overtaken.checkpoint = None;
        }
    }
    queue.push_back(sealed);
}

pub(super) struct Worker {
    shared: Arc<Shared>,
    places: Places,
    tables: Option<Tables>,
    /// Oldest first. A checkpoint is written only when all index files before it are there.
    sealed: VecDeque<Sealed>,
    /// The last try failed; said once.
    failing: bool,
}

impl Worker {
    fn run(&mut self, inbox: &Inbox) {
        loop {
            let mut waiting = inbox.lock();
            if waiting.sealed.is_empty() && !waiting.stopping {
                waiting = inbox
                    .woken
                    .wait_timeout(waiting, PAUSE)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
            let stopping = waiting.stopping;
            for sealed in std::mem::take(&mut waiting.sealed) {
                push(&mut self.sealed, sealed);
            }
            drop(waiting);
            self.write_sealed();
            self.write_tables();
            if stopping {
                return;
            }
        }
    }

    fn write_sealed(&mut self) {
        let mut checkpoint = None;
        while let Some(sealed) = self.sealed.front_mut() {
            let written = index_file::write(
                &*self.shared.files,
                &self.places.index,
                sealed.segment,
                sealed.end,
                &sealed.runs,
            );
            match written {
                Ok(file) => self.shared.install_index(Arc::new(file)),
                Err(error) => return self.complain(&error.to_string()),
            }
            checkpoint = sealed.checkpoint.take().or(checkpoint);
            self.sealed.pop_front();
        }
        let Some(capture) = checkpoint else { return };
        match checkpoint::write(&*self.shared.files, &self.places.checkpoints, &capture) {
            Ok(()) => self.failing = false,
            Err(error) => {
                let place = self.places.checkpoints.display();
                self.complain(&format!("{place}: {error}"));
            }
        }
    }

    fn complain(&mut self, what: &str) {
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!("restarts will replay more of the log: {what}");
        }
    }

    fn write_tables(&mut self) {
        let Some(tables) = &self.tables else { return };
        let rows = {
            let mut state = self.shared.write();
            if state.changes.is_empty() {
                return;
            }
            state.take_changed_rows()
        };
        if let Err(error) = tables.write(&rows) {
            tracing::warn!("the tables are no longer written: {error}");
            self.tables = None;
        }
    }
}
