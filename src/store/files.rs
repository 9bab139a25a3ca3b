//! Small helpers over the environment's files: whole-file reads and atomic replacement.

use std::io;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use quorumlog_raft::env::Files;

/// Ending of files that are being written; whatever has it may be removed.
pub(super) const UNFINISHED: &str = ".tmp";

/// Reads a whole file. The length is the file system's, not a peer's word.
pub(super) fn read_file(files: &dyn Files, path: &Path) -> io::Result<BytesMut> {
    let file = files.open(path, false)?;
    let length = file.len()? as usize;
    let mut bytes = BytesMut::with_capacity(length);
    while bytes.len() < length {
        let at = bytes.len();
        let read = file.read_at(&mut bytes, length - at, at as u64)?;
        if read == 0 {
            break;
        }
    }
    Ok(bytes)
}

/// Puts `parts` into a file that is either the old one or whole: written beside it, made durable, renamed.
/// The new name itself is durable only after a `sync_dir`.
pub(super) fn replace_file(files: &dyn Files, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let beside = unfinished(path);
    let file = files.open(&beside, true)?;
    let length = parts.iter().map(|part| part.len() as u64).sum();
    file.set_len(length)?;
    file.write_all_at(parts, 0)?;
    file.sync_data()?;
    files.rename(&beside, path)
}

/// Removes what an earlier run left unfinished in a directory; the other names, sorted.
pub(super) fn list_finished(files: &dyn Files, dir: &Path) -> io::Result<Vec<String>> {
    let mut names = files.list(dir)?;
    for name in names.iter().filter(|name| name.ends_with(UNFINISHED)) {
        files.remove(&dir.join(name))?;
    }
    names.retain(|name| !name.ends_with(UNFINISHED));
    Ok(names)
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    PathBuf::from(name)
}

/// Reads numbers from the front of bytes; `None` at the end.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }
}
