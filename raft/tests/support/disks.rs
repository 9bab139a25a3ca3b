//! The real file system, with free space as the test says it is.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quorumlog_raft::env::{DirLock, Files, LogFile};

/// Free bytes of a node's disk.
pub type Free = Arc<AtomicU64>;

pub struct TestFiles {
    pub real: Arc<dyn Files>,
    pub free: Free,
}

impl Files for TestFiles {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.real.create_dir_all(path)
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn LogFile>> {
        self.real.open(path, create)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.real.list(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.real.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.real.remove(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.real.exists(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.real.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        self.real.lock(path)
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(self.free.load(Ordering::SeqCst))
    }
}
