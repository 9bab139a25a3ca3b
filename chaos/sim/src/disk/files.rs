//! The disk as the log uses it: names, files and the lock of a directory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use quorumlog_raft::env::{DirLock, Files, LogFile};

use super::{Change, Disk, Inode, Naming, Op, apply, apply_naming, write};

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
