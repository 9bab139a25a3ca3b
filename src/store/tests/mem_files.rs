//! Files in memory, which can be damaged, cold, or full.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::BytesMut;
use quorumlog_raft::env::{DirLock, Files, LogFile};

#[derive(Default)]
pub struct MemFile {
    bytes: Mutex<Vec<u8>>,
    cold: Arc<AtomicBool>,
}

impl LogFile for MemFile {
    fn write_all_at(&self, buffers: &[&[u8]], offset: u64) -> io::Result<()> {
        let mut bytes = self.bytes.lock().unwrap();
        let all = buffers.concat();
        let end = offset as usize + all.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(&all);
        Ok(())
    }

    fn read_at(&self, into: &mut BytesMut, len: usize, offset: u64) -> io::Result<usize> {
        let bytes = self.bytes.lock().unwrap();
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let read = &rest[..len.min(rest.len())];
        into.extend_from_slice(read);
        Ok(read.len())
    }

    fn read_at_cached(
        &self,
        into: &mut BytesMut,
        len: usize,
        offset: u64,
    ) -> io::Result<Option<usize>> {
        if self.cold.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.read_at(into, len, offset).map(Some)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.bytes.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }
}

/// Files in memory.
#[derive(Default)]
pub struct MemFiles {
    files: Mutex<BTreeMap<PathBuf, Arc<MemFile>>>,
    pub cold: Arc<AtomicBool>,
    /// Every write fails.
    pub full: AtomicBool,
}

struct NoLock;
impl DirLock for NoLock {}

impl MemFiles {
    pub fn names(&self, ending: &str) -> Vec<PathBuf> {
        let files = self.files.lock().unwrap();
        let names = files
            .keys()
            .filter(|path| path.to_string_lossy().ends_with(ending));
        names.cloned().collect()
    }

    pub fn bytes(&self, path: &Path) -> Vec<u8> {
        self.files.lock().unwrap()[path]
            .bytes
            .lock()
            .unwrap()
            .clone()
    }

    pub fn flip(&self, path: &Path, byte: usize) {
        let files = self.files.lock().unwrap();
        let mut bytes = files[path].bytes.lock().unwrap();
        let byte = byte % bytes.len();
        bytes[byte] ^= 1;
    }

    pub fn cut(&self, path: &Path, length: usize) {
        let files = self.files.lock().unwrap();
        let mut bytes = files[path].bytes.lock().unwrap();
        let length = length % bytes.len();
        bytes.truncate(length);
    }
}

fn not_found() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl Files for MemFiles {
    fn create_dir_all(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn LogFile>> {
        let mut files = self.files.lock().unwrap();
        if create {
            if self.full.load(Ordering::Relaxed) {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            let file = MemFile {
                cold: self.cold.clone(),
                ..MemFile::default()
            };
            files.entry(path.to_path_buf()).or_insert(Arc::new(file));
        }
        Ok(files.get(path).ok_or_else(not_found)?.clone())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let files = self.files.lock().unwrap();
        let inside = files.keys().filter(|file| file.parent() == Some(path));
        Ok(inside
            .map(|file| file.file_name().unwrap().to_string_lossy().into_owned())
            .collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.files.lock().unwrap();
        let file = files.remove(from).ok_or_else(not_found)?;
        files.insert(to.to_path_buf(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = self.files.lock().unwrap().remove(path);
        removed.map(|_| ()).ok_or_else(not_found)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.files.lock().unwrap().contains_key(path))
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, _path: &Path) -> io::Result<Box<dyn DirLock>> {
        Ok(Box::new(NoLock))
    }

    fn free_bytes(&self, _path: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}
