//! A node's disk: files in memory that tell what is durable from what is not, and fail on demand.
//!
//! Stricter than a real one: a name is lost without a sync of its directory, and unsynced writes survive a
//! power loss in any subset of their sectors. A crash of the process alone loses nothing. Durable bytes can be
//! looked at from outside at any time, which is why this is not turmoil's file system: that one loses what was
//! not synced with every crash, keeps what it has made durable to itself, and keeps the pages of a failed sync.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use quorumlog_chaos::rng::Rng;
use quorumlog_raft::env::{DirLock, Files, LogFile};

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

struct DiskFile {
    disk: Disk,
    inode: usize,
    epoch: u64,
}

struct DiskLock {
    disk: Disk,
    path: PathBuf,
    epoch: u64,
}

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

impl Files for Disk {
    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        let state = self.state();
        state.alive(state.epoch)
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn LogFile>> {
        let mut state = self.state();
        let epoch = state.epoch;
        state.alive(epoch)?;
        if create && !state.names.contains_key(path) {
            state.change(epoch)?;
            state.space()?;
            state.inodes.push(Inode::default());
            let inode = state.inodes.len() - 1;
            state.name(Naming::Put(path.to_path_buf(), inode));
        }
        let inode = state.inode(path)?;
        Ok(Arc::new(DiskFile {
            disk: self.clone(),
            inode,
            epoch,
        }))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        state.alive(state.epoch)?;
        let inside = state
            .names
            .keys()
            .filter(|name| name.parent() == Some(path));
        Ok(inside
            .filter_map(|name| Some(name.file_name()?.to_str()?.to_string()))
            .collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let epoch = state.epoch;
        state.change(epoch)?;
        state.inode(from)?;
        state.name(Naming::Moved(from.to_path_buf(), to.to_path_buf()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let epoch = state.epoch;
        state.change(epoch)?;
        state.inode(path)?;
        state.name(Naming::Gone(path.to_path_buf()));
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.state();
        state.alive(state.epoch)?;
        Ok(state.names.contains_key(path) || state.names.keys().any(|name| name.starts_with(path)))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let epoch = state.epoch;
        state.change(epoch)?;
        let pending = std::mem::take(&mut state.pending_names);
        for naming in pending {
            let (Naming::Put(name, _) | Naming::Gone(name) | Naming::Moved(_, name)) = &naming;
            if name.parent() == Some(path) {
                apply_naming(&mut state.durable_names, &naming);
            } else {
                state.pending_names.push(naming);
            }
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        let mut state = self.state();
        state.alive(state.epoch)?;
        if !state.locked.insert(path.to_path_buf()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(DiskLock {
            disk: self.clone(),
            path: path.to_path_buf(),
            epoch: state.epoch,
        }))
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(self.state().free)
    }

    fn write_time(&self) -> Duration {
        let mut state = self.state();
        let (from, below) = state.pace;
        let range = below.saturating_sub(from).as_micros() as usize;
        from + Duration::from_micros(state.rng.below(range) as u64)
    }
}

impl DirLock for DiskLock {}

impl Drop for DiskLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.epoch == self.epoch {
            state.locked.remove(&self.path);
        }
    }
}

impl DiskFile {
    fn resize(&self, len: impl FnOnce(&Inode) -> usize) -> io::Result<()> {
        let mut state = self.disk.state();
        state.change(self.epoch)?;
        let inode = &state.inodes[self.inode];
        let (before, len) = (inode.now.len(), len(inode));
        if len > before {
            state.space()?;
        }
        let inode = &mut state.inodes[self.inode];
        inode.now.resize(len, 0);
        inode.pending.push(Change::SetLen(len));
        Ok(())
    }
}

impl LogFile for DiskFile {
    fn write_all_at(&self, buffers: &[&[u8]], offset: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.change(self.epoch)?;
        state.injected(Op::Write)?;
        let (offset, bytes) = (offset as usize, buffers.concat());
        if offset + bytes.len() > state.inodes[self.inode].now.len() {
            state.space()?;
        }
        let inode = &mut state.inodes[self.inode];
        write(&mut inode.now, offset, &bytes);
        inode.pending.push(Change::Write { offset, bytes });
        Ok(())
    }

    fn read_at(&self, into: &mut BytesMut, len: usize, offset: u64) -> io::Result<usize> {
        let state = self.disk.state();
        state.alive(self.epoch)?;
        let bytes = &state.inodes[self.inode].now;
        let start = bytes.len().min(offset as usize);
        let end = bytes.len().min(start + len);
        into.extend_from_slice(&bytes[start..end]);
        Ok(end - start)
    }

    fn read_at_cached(
        &self,
        into: &mut BytesMut,
        len: usize,
        offset: u64,
    ) -> io::Result<Option<usize>> {
        {
            let mut state = self.disk.state();
            let percent = state.cold_percent;
            if state.rng.percent(percent) {
                return Ok(None);
            }
        }
        self.read_at(into, len, offset).map(Some)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.change(self.epoch)?;
        let injected = state.injected(Op::Sync);
        let inode = &mut state.inodes[self.inode];
        let pending = std::mem::take(&mut inode.pending);
        // As Linux does it: after an error the pages count as clean, what was in them is never written.
        injected?;
        for change in &pending {
            apply(&mut inode.durable, change);
        }
        state.syncs += 1;
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.resize(|inode| inode.now.len().max(len as usize))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.resize(|_| len as usize)
    }

    fn len(&self) -> io::Result<u64> {
        let state = self.disk.state();
        state.alive(self.epoch)?;
        Ok(state.inodes[self.inode].now.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(disk: &Disk, name: &str) -> Arc<dyn LogFile> {
        disk.open(Path::new(name), true).unwrap()
    }

    #[test]
    fn a_crash_loses_nothing_and_a_power_loss_what_was_not_synced() {
        let path = Path::new("/d/f");
        for seed in 0..50 {
            let disk = Disk::new(seed, 0);
            let written = file(&disk, "/d/f");
            written.write_all_at(&[b"synced"], 0).unwrap();
            written.sync_data().unwrap();
            disk.sync_dir(Path::new("/d")).unwrap();
            written.write_all_at(&[b"not yet"], 6).unwrap();
            assert_eq!(disk.durable(path, 0, 6).unwrap(), b"synced");
            assert_eq!(disk.durable(path, 0, 13), None);
            disk.crash();
            assert!(written.sync_data().is_err(), "a handle of the dead process");
            assert_eq!(disk.bytes(path, 0, 13).unwrap(), b"syncednot yet");
            disk.lose_power();
            assert_eq!(disk.bytes(path, 0, 6).unwrap(), b"synced");
        }
    }

    #[test]
    fn a_name_is_lost_without_a_sync_of_its_directory() {
        let lost = (0..50).any(|seed| {
            let disk = Disk::new(seed, 0);
            file(&disk, "/d/f").sync_data().unwrap();
            disk.lose_power();
            !disk.exists(Path::new("/d/f")).unwrap()
        });
        assert!(lost);
    }

    #[test]
    fn the_pages_of_a_failed_sync_are_never_written() {
        let disk = Disk::new(1, 0);
        let written = file(&disk, "/d/f");
        disk.sync_dir(Path::new("/d")).unwrap();
        written.write_all_at(&[b"lost"], 0).unwrap();
        disk.fail_after(Op::Sync, 0);
        assert!(written.sync_data().is_err());
        written.sync_data().unwrap();
        assert_eq!(disk.failed(), 1);
        assert_eq!(disk.bytes(Path::new("/d/f"), 0, 4).unwrap(), b"lost");
        disk.lose_power();
        assert_eq!(disk.bytes(Path::new("/d/f"), 0, 4), None);
    }

    #[test]
    fn the_power_goes_between_two_operations() {
        let disk = Disk::new(1, 0);
        let written = file(&disk, "/d/f");
        disk.cut_after(1);
        written.write_all_at(&[b"x"], 0).unwrap();
        assert!(!disk.is_off());
        assert!(written.sync_data().is_err());
        assert!(disk.is_off());
    }

    #[test]
    fn the_segment_that_covers_a_position_is_found_by_its_name() {
        let disk = Disk::new(1, 0);
        for name in [
            "/d/log/000.seg",
            "/d/log/050.seg",
            "/d/log/050.idx",
            "/d/other",
        ] {
            file(&disk, name);
        }
        let dir = Path::new("/d/log");
        let find = |name| disk.last_up_to(dir, name, false);
        assert_eq!(find("049.seg").as_deref(), Some("000.seg"));
        assert_eq!(find("050.seg").as_deref(), Some("050.seg"));
        assert_eq!(find("999.seg").as_deref(), Some("050.seg"));
        assert_eq!(disk.last_up_to(dir, "999.seg", true), None);
    }
}
