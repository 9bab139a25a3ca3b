//! Everything outside the process that the log touches: files, peer connections, time.
//!
//! Production uses [`real`]; tests and the simulation bring their own. Nothing else in this crate may call
//! `std::fs`, open a socket or read a clock.

#[cfg(any(test, feature = "testing"))]
pub mod faulty;
pub mod random;
pub mod real;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite};

/// A file opened for positioned reads and writes. Shared between the log writer and readers.
#[allow(clippy::len_without_is_empty)] // Whether a file is empty is never the question here.
pub trait LogFile: Send + Sync {
    /// Writes all the buffers, in order, starting at `offset`. Completes short writes and retries `EINTR`;
    /// any other error leaves the written range undefined.
    fn write_all_at(&self, buffers: &[&[u8]], offset: u64) -> io::Result<()>;
    /// Reads up to `len` bytes at `offset` onto the end of `into`; fewer only at the end of the file.
    fn read_at(&self, into: &mut BytesMut, len: usize, offset: u64) -> io::Result<usize>;
    /// As [`LogFile::read_at`], but only if it need not wait for the disk. `Ok(None)`: it would have to.
    fn read_at_cached(
        &self,
        into: &mut BytesMut,
        len: usize,
        offset: u64,
    ) -> io::Result<Option<usize>>;
    /// Makes everything written so far durable (data and the metadata needed to read it back). An error is
    /// final: the caller must not try again (the kernel may have dropped the dirty pages).
    fn sync_data(&self) -> io::Result<()>;
    /// Lets the next reads see what is on the disk, and what is still to be written, instead of what a failed sync
    /// has left in memory. Where that cannot be asked for, nothing happens.
    fn forget_cached(&self) -> io::Result<()> {
        Ok(())
    }
    /// Reserves space so that later writes within `len` bytes need no new allocation. Bytes read as zero.
    fn allocate(&self, len: u64) -> io::Result<()>;
    fn set_len(&self, len: u64) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
}

/// A held lock of a data directory; released when dropped or when the process ends, however it ends.
pub trait DirLock: Send + Sync {}

/// A file system.
pub trait Files: Send + Sync + 'static {
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Opens for reading and writing; `create` makes the file when it is missing.
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn LogFile>>;
    /// Names in a directory, sorted.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Makes created, renamed and removed names in the directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Takes the exclusive lock of a lock file. `WouldBlock` when another process holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>>;
    /// Free bytes of the file system that holds `path`.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;
    /// How long the log writer waits before each group of writes. Only asked in [`WriterMode::Task`], where
    /// nothing else would take time.
    fn write_time(&self) -> Duration {
        Duration::ZERO
    }
}

/// Monotonic and wall time. Safety rests on the monotonic clock only.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch; may jump.
    fn wall_ms(&self) -> i64;
    fn now(&self) -> tokio::time::Instant;
}

/// A connection between two nodes.
pub trait PeerStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> PeerStream for T {}

/// A listening socket of the peer network.
pub trait PeerListener: Send + Sync + 'static {
    fn accept(&self) -> futures_util::future::BoxFuture<'_, io::Result<Box<dyn PeerStream>>>;
}

/// The peer network.
pub trait Net: Send + Sync + 'static {
    fn listen<'a>(
        &'a self,
        address: &'a str,
    ) -> futures_util::future::BoxFuture<'a, io::Result<Box<dyn PeerListener>>>;
    fn connect<'a>(
        &'a self,
        address: &'a str,
    ) -> futures_util::future::BoxFuture<'a, io::Result<Box<dyn PeerStream>>>;
}

/// Where the log writer runs, and everything else that waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterMode {
    /// A thread of its own (production).
    Thread,
    /// A task on the runtime that syncs inline (simulation: no threads, one order of events).
    Task,
}

impl WriterMode {
    /// Runs what may wait for the disk: on a thread that may block, or in simulation as a task.
    pub fn spawn_blocking<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        match self {
            WriterMode::Thread => tokio::task::spawn_blocking(work),
            WriterMode::Task => tokio::spawn(async move { work() }),
        }
    }
}

/// The outside world of one node.
#[derive(Clone)]
pub struct Env {
    pub files: Arc<dyn Files>,
    pub net: Arc<dyn Net>,
    pub clock: Arc<dyn Clock>,
    pub writer: WriterMode,
}

impl Env {
    /// The real world.
    pub fn real() -> Env {
        real::env()
    }
}
