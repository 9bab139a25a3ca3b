//! The real files, network and clock: Linux system calls, TCP, and the operating system's time.
//!
//! Decides nothing about what is written where; that is `log`'s.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use futures_util::future::BoxFuture;
use rustix::fs::{Advice, FallocateFlags};
use rustix::io::{Errno, ReadWriteFlags};
use tokio::net::{TcpListener, TcpStream};

use super::{Clock, DirLock, Env, Files, LogFile, Net, PeerListener, PeerStream, WriterMode};

/// Buffers of one `pwritev`; the kernel's own bound (`IOV_MAX`).
const MAX_BUFFERS: usize = 1024;

pub(super) fn env() -> Env {
    Env {
        files: Arc::new(RealFiles),
        net: Arc::new(TcpNet),
        clock: Arc::new(SystemClock),
        writer: WriterMode::Thread,
    }
}

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFiles;

struct RealFile(File);

struct RealLock {
    /// Closing it releases the lock.
    _file: File,
}

impl DirLock for RealLock {}

impl LogFile for RealFile {
    fn write_all_at(&self, buffers: &[&[u8]], offset: u64) -> io::Result<()> {
        let mut offset = offset;
        let mut index = 0;
        let mut skip = 0;
        while index < buffers.len() {
            if skip == buffers[index].len() {
                index += 1;
                skip = 0;
                continue;
            }
            let slices: Vec<IoSlice<'_>> = std::iter::once(&buffers[index][skip..])
                .chain(buffers[index + 1..].iter().copied())
                .take(MAX_BUFFERS)
                .map(IoSlice::new)
                .collect();
            let written = match rustix::io::pwritev(&self.0, &slices, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            offset += written as u64;
            skip += written;
            while index < buffers.len() && skip >= buffers[index].len() {
                skip -= buffers[index].len();
                index += 1;
            }
        }
        Ok(())
    }

    fn read_at(&self, into: &mut BytesMut, len: usize, offset: u64) -> io::Result<usize> {
        let start = into.len();
        into.resize(start + len, 0);
        let mut done = 0;
        while done < len {
            match self
                .0
                .read_at(&mut into[start + done..], offset + done as u64)
            {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    into.truncate(start);
                    return Err(error);
                }
            }
        }
        into.truncate(start + done);
        Ok(done)
    }

    fn read_at_cached(
        &self,
        into: &mut BytesMut,
        len: usize,
        offset: u64,
    ) -> io::Result<Option<usize>> {
        let start = into.len();
        into.resize(start + len, 0);
        let result: io::Result<Option<usize>> = loop {
            let mut slices = [IoSliceMut::new(&mut into[start..])];
            match rustix::io::preadv2(&self.0, &mut slices, offset, ReadWriteFlags::NOWAIT) {
                Ok(read) => break Ok(Some(read)),
                Err(Errno::INTR) => {}
                // The file system may not know the flag: then it would have to wait.
                Err(Errno::AGAIN | Errno::OPNOTSUPP) => break Ok(None),
                Err(errno) => break Err(errno.into()),
            }
        };
        into.truncate(start + result.as_ref().map_or(0, |read| read.unwrap_or(0)));
        result
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn forget_cached(&self) -> io::Result<()> {
        Ok(rustix::fs::fadvise(&self.0, 0, None, Advice::DontNeed)?)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        loop {
            match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, len) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                // No preallocation here: a sparse file reads as zero too, it only writes slower.
                Err(Errno::OPNOTSUPP) if self.len()? < len => return self.set_len(len),
                Err(Errno::OPNOTSUPP) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

impl Files for RealFiles {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn LogFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(create)
            .truncate(false)
            .open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            // A name that is not UTF-8 is none of ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(RealLock { _file: file })),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

/// The operating system's clocks.
struct SystemClock;

impl Clock for SystemClock {
    fn wall_ms(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        }
    }

    fn now(&self) -> tokio::time::Instant {
        tokio::time::Instant::now()
    }
}

/// TCP, without Nagle's delay.
struct TcpNet;

struct Listener(TcpListener);

impl PeerListener for Listener {
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn PeerStream>>> {
        Box::pin(async move {
            let (stream, _) = self.0.accept().await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn PeerStream>)
        })
    }
}

impl Net for TcpNet {
    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn PeerListener>>> {
        Box::pin(async move {
            let listener = TcpListener::bind(address).await?;
            Ok(Box::new(Listener(listener)) as Box<dyn PeerListener>)
        })
    }

    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn PeerStream>>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn PeerStream>)
        })
    }
}
