//! A file system in memory that fails on demand and loses what was not synced when the power is cut.
//!
//! For tests. Stricter than real ones: a new file's name is lost without a sync of its directory, and
//! unsynced writes survive in any subset of their sectors.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::BytesMut;

use super::{DirLock, Files, LogFile};

const SECTOR: usize = 512;

/// What can be made to fail, and is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    Write,
    Sync,
    /// `set_len` and `allocate`.
    Resize,
    /// Names: create, rename, remove.
    Name,
    SyncDir,
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
enum Rename {
    Put(PathBuf, usize),
    Gone(PathBuf),
    /// From, to: one step, in one directory.
    Moved(PathBuf, PathBuf),
}

#[derive(Clone, Default)]
struct Disk {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    pending_names: Vec<Rename>,
    locked: BTreeSet<PathBuf>,
    /// Grows with every power cut: handles of an earlier one are dead.
    epoch: u64,
    seed: u64,
    counts: BTreeMap<Op, u64>,
    /// The one failure that was asked for: kind, how many to let pass.
    failure: Option<(Op, u64)>,
    /// Changes left until the power goes.
    power: Option<u64>,
    off: bool,
    /// What a failed sync left in memory stays there.
    stubborn: bool,
    /// Free bytes, if they are bounded. Only asked for and compared with, not counted down.
    free: Option<u64>,
}

/// The file system. Clones share it.
#[derive(Clone, Default)]
pub struct FaultyFiles(Arc<Mutex<Disk>>);

struct FaultyFile {
    disk: FaultyFiles,
    inode: usize,
    epoch: u64,
}

struct FaultyLock {
    disk: FaultyFiles,
    path: PathBuf,
    epoch: u64,
}

impl FaultyFiles {
    /// `seed` decides what survives power cuts.
    pub fn new(seed: u64) -> FaultyFiles {
        let files = FaultyFiles::default();
        files.disk().seed = seed;
        files
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        match self.0.lock() {
            Ok(disk) => disk,
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    /// From now on so many bytes are free; `None`: more than anybody asks for.
    pub fn set_free(&self, free: Option<u64>) {
        self.disk().free = free;
    }

    /// A copy of everything as it reads now, all of it durable, with nothing locked or failing.
    pub fn fork(&self) -> FaultyFiles {
        let mut disk = self.disk().clone();
        for inode in &mut disk.inodes {
            inode.durable = inode.now.clone();
            inode.pending.clear();
        }
        disk.durable_names = disk.names.clone();
        disk.pending_names.clear();
        disk.locked.clear();
        disk.failure = None;
        disk.power = None;
        disk.off = false;
        disk.counts.clear();
        FaultyFiles(Arc::new(Mutex::new(disk)))
    }

    /// Changes what decides about the next power cuts.
    pub fn reseed(&self, seed: u64) {
        self.disk().seed = seed;
    }

    /// Lets `skip` operations of this kind pass, then fails one of them.
    pub fn fail_after(&self, op: Op, skip: u64) {
        self.disk().failure = Some((op, skip));
    }

    /// Cuts the power after `changes` more operations of any kind.
    pub fn cut_after(&self, changes: u64) {
        self.disk().power = Some(changes);
    }

    /// Loses what was not synced and lets new handles be opened. Old handles and locks are dead.
    pub fn power_cycle(&self) {
        let mut disk = self.disk();
        let keep = disk.random() as usize % (disk.pending_names.len() + 1);
        let survivors: Vec<Rename> = disk.pending_names.drain(..).take(keep).collect();
        for change in survivors {
            apply_name(&mut disk.durable_names, &change);
        }
        disk.names = disk.durable_names.clone();
        for at in 0..disk.inodes.len() {
            let pending = std::mem::take(&mut disk.inodes[at].pending);
            let mut image = std::mem::take(&mut disk.inodes[at].durable);
            // All lost, all kept, or any mixture.
            let mood = disk.random() % 3;
            for change in pending {
                disk.survive(&mut image, change, mood);
            }
            disk.inodes[at].now = image.clone();
            disk.inodes[at].durable = image;
        }
        disk.epoch += 1;
        disk.locked.clear();
        disk.failure = None;
        disk.power = None;
        disk.off = false;
    }

    /// From now on [`LogFile::forget_cached`] has no effect, as on some file systems.
    pub fn keep_cached(&self) {
        self.disk().stubborn = true;
    }

    /// How many operations of this kind were tried.
    pub fn count(&self, op: Op) -> u64 {
        self.disk().counts.get(&op).copied().unwrap_or(0)
    }

    /// A file's bytes as they read now.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let disk = self.disk();
        let inode = *disk.names.get(path)?;
        Some(disk.inodes[inode].now.clone())
    }

    /// Replaces a file's bytes behind everybody's back; durable.
    pub fn put(&self, path: &Path, bytes: Vec<u8>) {
        let mut disk = self.disk();
        let inode = match disk.names.get(path) {
            Some(inode) => *inode,
            None => {
                disk.inodes.push(Inode::default());
                let inode = disk.inodes.len() - 1;
                disk.names.insert(path.to_path_buf(), inode);
                disk.durable_names.insert(path.to_path_buf(), inode);
                inode
            }
        };
        disk.inodes[inode] = Inode {
            now: bytes.clone(),
            durable: bytes,
            pending: Vec::new(),
        };
    }
}

fn apply_name(names: &mut BTreeMap<PathBuf, usize>, change: &Rename) {
    match change {
        Rename::Put(path, inode) => {
            names.insert(path.clone(), *inode);
        }
        Rename::Gone(path) => {
            names.remove(path);
        }
        Rename::Moved(from, to) => {
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

impl Disk {
    fn random(&mut self) -> u64 {
        // SplitMix64.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn survives(&mut self, mood: u64) -> bool {
        match mood {
            0 => false,
            1 => true,
            _ => self.random().is_multiple_of(2),
        }
    }

    fn survive(&mut self, image: &mut Vec<u8>, change: Change, mood: u64) {
        match change {
            Change::SetLen(len) => {
                if self.survives(mood) {
                    image.resize(len, 0);
                }
            }
            Change::Write { offset, bytes } => {
                let mut at = 0;
                while at < bytes.len() {
                    let sector_end = (offset + at) / SECTOR * SECTOR + SECTOR - offset;
                    let end = sector_end.min(bytes.len());
                    if self.survives(mood) {
                        write(image, offset + at, &bytes[at..end]);
                    }
                    at = end;
                }
            }
        }
    }

    /// Counts an operation and fails it when it is its turn.
    fn attempt(&mut self, op: Op, epoch: u64) -> io::Result<()> {
        *self.counts.entry(op).or_default() += 1;
        self.alive(epoch)?;
        match &mut self.power {
            Some(0) => {
                self.off = true;
                return Err(io::Error::other("the power is off"));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        match &mut self.failure {
            Some((which, 0)) if *which == op => {
                self.failure = None;
                Err(io::Error::other(format!("injected failure: {op:?}")))
            }
            Some((which, skip)) if *which == op => {
                *skip -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn alive(&self, epoch: u64) -> io::Result<()> {
        if self.off || epoch != self.epoch {
            return Err(io::Error::other("the power is off"));
        }
        Ok(())
    }

    fn inode(&self, path: &Path) -> io::Result<usize> {
        self.names
            .get(path)
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&mut self, change: Rename) {
        apply_name(&mut self.names, &change);
        self.pending_names.push(change);
    }
}

impl Files for FaultyFiles {
    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        let disk = self.disk();
        disk.alive(disk.epoch)
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn LogFile>> {
        let mut disk = self.disk();
        let epoch = disk.epoch;
        disk.alive(epoch)?;
        if create && !disk.names.contains_key(path) {
            disk.attempt(Op::Name, epoch)?;
            disk.inodes.push(Inode::default());
            let inode = disk.inodes.len() - 1;
            disk.rename(Rename::Put(path.to_path_buf(), inode));
        }
        let inode = disk.inode(path)?;
        Ok(Arc::new(FaultyFile {
            disk: self.clone(),
            inode,
            epoch,
        }))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let disk = self.disk();
        disk.alive(disk.epoch)?;
        Ok(disk
            .names
            .keys()
            .filter(|name| name.parent() == Some(path))
            .filter_map(|name| Some(name.file_name()?.to_str()?.to_string()))
            .collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        let epoch = disk.epoch;
        disk.attempt(Op::Name, epoch)?;
        disk.inode(from)?;
        disk.rename(Rename::Moved(from.to_path_buf(), to.to_path_buf()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        let epoch = disk.epoch;
        disk.attempt(Op::Name, epoch)?;
        disk.inode(path)?;
        disk.rename(Rename::Gone(path.to_path_buf()));
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let disk = self.disk();
        disk.alive(disk.epoch)?;
        Ok(disk.names.contains_key(path) || disk.names.keys().any(|name| name.starts_with(path)))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        let epoch = disk.epoch;
        disk.attempt(Op::SyncDir, epoch)?;
        let pending = std::mem::take(&mut disk.pending_names);
        for change in pending {
            let (Rename::Put(name, _) | Rename::Gone(name) | Rename::Moved(_, name)) = &change;
            if name.parent() == Some(path) {
                apply_name(&mut disk.durable_names, &change);
            } else {
                disk.pending_names.push(change);
            }
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        let mut disk = self.disk();
        disk.alive(disk.epoch)?;
        if !disk.locked.insert(path.to_path_buf()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(FaultyLock {
            disk: self.clone(),
            path: path.to_path_buf(),
            epoch: disk.epoch,
        }))
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(self.disk().free.unwrap_or(u64::MAX))
    }
}

impl DirLock for FaultyLock {}

impl Drop for FaultyLock {
    fn drop(&mut self) {
        let mut disk = self.disk.disk();
        if disk.epoch == self.epoch {
            disk.locked.remove(&self.path);
        }
    }
}

impl FaultyFile {
    fn change(&self, op: Op, change: impl FnOnce(&mut Inode) -> Change) -> io::Result<()> {
        let mut disk = self.disk.disk();
        disk.attempt(op, self.epoch)?;
        let inode = &mut disk.inodes[self.inode];
        let change = change(inode);
        match &change {
            Change::SetLen(len) => inode.now.resize(*len, 0),
            Change::Write { offset, bytes } => write(&mut inode.now, *offset, bytes),
        }
        inode.pending.push(change);
        Ok(())
    }
}

impl LogFile for FaultyFile {
    fn write_all_at(&self, buffers: &[&[u8]], offset: u64) -> io::Result<()> {
        self.change(Op::Write, |_| Change::Write {
            offset: offset as usize,
            bytes: buffers.concat(),
        })
    }

    fn read_at(&self, into: &mut BytesMut, len: usize, offset: u64) -> io::Result<usize> {
        let disk = self.disk.disk();
        disk.alive(self.epoch)?;
        let bytes = &disk.inodes[self.inode].now;
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
        self.read_at(into, len, offset).map(Some)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.disk.disk();
        let attempted = disk.attempt(Op::Sync, self.epoch);
        let off = disk.off;
        let inode = &mut disk.inodes[self.inode];
        if attempted.is_err() && !off {
            // As Linux does it: the pages count as clean and can still be read, but what was in them is never
            // written, also not by a later sync.
            inode
                .pending
                .retain(|change| matches!(change, Change::SetLen(_)));
        }
        attempted?;
        for change in std::mem::take(&mut inode.pending) {
            match change {
                Change::SetLen(len) => inode.durable.resize(len, 0),
                Change::Write { offset, bytes } => write(&mut inode.durable, offset, &bytes),
            }
        }
        Ok(())
    }

    fn forget_cached(&self) -> io::Result<()> {
        let mut disk = self.disk.disk();
        disk.alive(self.epoch)?;
        if disk.stubborn {
            return Ok(());
        }
        let inode = &mut disk.inodes[self.inode];
        inode.now = inode.durable.clone();
        for change in &inode.pending {
            match change {
                Change::SetLen(len) => inode.now.resize(*len, 0),
                Change::Write { offset, bytes } => write(&mut inode.now, *offset, bytes),
            }
        }
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let now = self.len()?;
        let free = self.disk.disk().free;
        if free.is_some_and(|free| len.saturating_sub(now) > free) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.change(Op::Resize, |inode| {
            Change::SetLen(inode.now.len().max(len as usize))
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Op::Resize, |_| Change::SetLen(len as usize))
    }

    fn len(&self) -> io::Result<u64> {
        let disk = self.disk.disk();
        disk.alive(self.epoch)?;
        Ok(disk.inodes[self.inode].now.len() as u64)
    }
}
