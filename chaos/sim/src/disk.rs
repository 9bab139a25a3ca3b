//! A node's disk: files in memory that tell what is durable from what is not, and fail on demand.
//!
//! Stricter than a real one: a name is lost without a sync of its directory, and unsynced writes survive a
//! power loss in any subset of their sectors. A crash of the process alone loses nothing. Durable bytes can be
//! looked at from outside at any time, which is why this is not turmoil's file system: that one loses what was
//! not synced with every crash, keeps what it has made durable to itself, and keeps the pages of a failed sync.
//!
//! Here what it knows and how it is told to fail; `files` is what the node sees of it.

mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quorumlog_chaos::rng::Rng;

const SECTOR: usize = 512;

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    Write,
    Sync,
}

#[derive(Clone)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

#[derive(Clone, Default)]
struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Changes since the last sync, in order.
    pending: Vec<Change>,
}

#[derive(Clone)]
enum Naming {
    Put(PathBuf, usize),
    Gone(PathBuf),
    /// From, to: one step, in one directory.
    Moved(PathBuf, PathBuf),
}

struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    pending_names: Vec<Naming>,
    locked: BTreeSet<PathBuf>,
    /// Grows with every crash and power loss: handles of an earlier one are dead.
    epoch: u64,
    rng: Rng,
    /// Operations left until the power goes.
    power: Option<u64>,
    off: bool,
    /// The failure that was asked for: kind, and how many to let pass.
    failure: Option<(Op, u64)>,
    /// Failures that happened since the last start.
    failed: u64,
    free: u64,
    /// No space for new files or longer ones.
    full: bool,
    /// What each group of writes takes: from, below.
    pace: (Duration, Duration),
    /// Reads in a hundred that would have to wait for the disk.
    cold_percent: usize,
    syncs: u64,
}

/// The disk of one node. Clones share it.
#[derive(Clone)]
pub struct Disk(Arc<Mutex<State>>);

/// Free bytes of a disk with which nothing is wrong.
pub const PLENTY: u64 = 1 << 40;

impl Disk {
    /// `seed` decides how long writes take, what is cold, and what survives a power loss.
    pub fn new(seed: u64, cold_percent: usize) -> Disk {
        Disk(Arc::new(Mutex::new(State {
            inodes: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
            locked: BTreeSet::new(),
            epoch: 0,
            rng: Rng::new(seed),
            power: None,
            off: false,
            failure: None,
            failed: 0,
            free: PLENTY,
            full: false,
            pace: (Duration::ZERO, Duration::ZERO),
            cold_percent,
            syncs: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Each group of writes takes a time from the first to below the second.
    pub fn set_pace(&self, from: Duration, below: Duration) {
        self.state().pace = (from, below);
    }

    /// How much is free, and whether new space is refused.
    pub fn set_space(&self, free: u64, full: bool) {
        let mut state = self.state();
        state.free = free;
        state.full = full;
    }

    /// Lets `skip` operations of this kind pass, then fails one.
    pub fn fail_after(&self, op: Op, skip: u64) {
        self.state().failure = Some((op, skip));
    }

    /// Takes back a failure that was asked for and has not come.
    pub fn forget_failure(&self) {
        self.state().failure = None;
    }

    /// The power goes after `operations` more.
    pub fn cut_after(&self, operations: u64) {
        self.state().power = Some(operations);
    }

    /// The power has gone.
    pub fn is_off(&self) -> bool {
        self.state().off
    }

    /// Failures that were injected since the node started last.
    pub fn failed(&self) -> u64 {
        self.state().failed
    }

    /// Successful syncs of files.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// The process is gone: its handles and locks are dead, everything it wrote is there.
    pub fn crash(&self) {
        self.state().restart();
    }

    /// The power is gone: what was not synced survives in part, or not at all.
    pub fn lose_power(&self) {
        let mut state = self.state();
        let state = &mut *state;
        let keep = state.rng.below(state.pending_names.len() + 1);
        let survivors: Vec<Naming> = state.pending_names.drain(..).take(keep).collect();
        for naming in survivors {
            apply_naming(&mut state.durable_names, &naming);
        }
        state.names = state.durable_names.clone();
        for at in 0..state.inodes.len() {
            let mut inode = std::mem::take(&mut state.inodes[at]);
            // All lost, all kept, or any mixture.
            let mood = state.rng.below(3);
            for change in std::mem::take(&mut inode.pending) {
                survive(&mut inode.durable, &change, mood, &mut state.rng);
            }
            inode.now = inode.durable.clone();
            state.inodes[at] = inode;
        }
        state.restart();
    }

    /// Durable bytes of a file whose name is durable.
    pub fn durable(&self, path: &Path, offset: usize, len: usize) -> Option<Vec<u8>> {
        let state = self.state();
        let inode = &state.inodes[*state.durable_names.get(path)?];
        Some(inode.durable.get(offset..offset + len)?.to_vec())
    }

    /// Bytes of a file as they read now.
    pub fn bytes(&self, path: &Path, offset: usize, len: usize) -> Option<Vec<u8>> {
        let state = self.state();
        let inode = &state.inodes[*state.names.get(path)?];
        Some(inode.now.get(offset..offset + len)?.to_vec())
    }

    /// The last name in `dir` that is not greater than `name`: durable names, or those there are now.
    pub fn last_up_to(&self, dir: &Path, name: &str, durable: bool) -> Option<String> {
        let state = self.state();
        let names = match durable {
            true => &state.durable_names,
            false => &state.names,
        };
        let suffix = name.rsplit_once('.').map_or("", |(_, suffix)| suffix);
        names
            .range(..=dir.join(name))
            .rev()
            .take_while(|(path, _)| path.parent() == Some(dir))
            .filter_map(|(path, _)| path.file_name()?.to_str())
            .find(|found| found.rsplit_once('.').is_some_and(|(_, end)| end == suffix))
            .map(str::to_string)
    }
}

fn apply_naming(names: &mut BTreeMap<PathBuf, usize>, naming: &Naming) {
    match naming {
        Naming::Put(path, inode) => {
            names.insert(path.clone(), *inode);
        }
        Naming::Gone(path) => {
            names.remove(path);
        }
        Naming::Moved(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
    }
}

fn write(into: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if into.len() < offset + bytes.len() {
        into.resize(offset + bytes.len(), 0);
    }
    into[offset..offset + bytes.len()].copy_from_slice(bytes);
}

fn apply(image: &mut Vec<u8>, change: &Change) {
    match change {
        Change::SetLen(len) => image.resize(*len, 0),
        Change::Write { offset, bytes } => write(image, *offset, bytes),
    }
}

/// Applies of one unsynced change what the power loss has left.
fn survive(image: &mut Vec<u8>, change: &Change, mood: usize, rng: &mut Rng) {
    let mut survives = || match mood {
        0 => false,
        1 => true,
        _ => rng.percent(50),
    };
    match change {
        Change::SetLen(len) => {
            if survives() {
                image.resize(*len, 0);
            }
        }
        Change::Write { offset, bytes } => {
            let mut at = 0;
            while at < bytes.len() {
                let sector_end = (offset + at) / SECTOR * SECTOR + SECTOR - offset;
                let end = sector_end.min(bytes.len());
                if survives() {
                    write(image, offset + at, &bytes[at..end]);
                }
                at = end;
            }
        }
    }
}

fn power_is_off() -> io::Error {
    io::Error::other("the power is off")
}

impl State {
    fn restart(&mut self) {
        self.epoch += 1;
        self.locked.clear();
        self.failure = None;
        self.failed = 0;
        self.power = None;
        self.off = false;
    }

    fn alive(&self, epoch: u64) -> io::Result<()> {
        if self.off || epoch != self.epoch {
            return Err(power_is_off());
        }
        Ok(())
    }

    /// One operation that changes something: the power may go before it.
    fn change(&mut self, epoch: u64) -> io::Result<()> {
        self.alive(epoch)?;
        match &mut self.power {
            Some(0) => {
                self.off = true;
                Err(power_is_off())
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Fails the operation when that was asked for.
    fn injected(&mut self, op: Op) -> io::Result<()> {
        match &mut self.failure {
            Some((which, 0)) if *which == op => {
                self.failure = None;
                self.failed += 1;
                Err(io::Error::other(format!("injected failure: {op:?}")))
            }
            Some((which, skip)) if *which == op => {
                *skip -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn space(&mut self) -> io::Result<()> {
        if self.full {
            self.failed += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn inode(&self, path: &Path) -> io::Result<usize> {
        let inode = self.names.get(path).copied();
        inode.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn name(&mut self, naming: Naming) {
        apply_naming(&mut self.names, &naming);
        self.pending_names.push(naming);
    }
}

#[cfg(test)]
mod tests;
