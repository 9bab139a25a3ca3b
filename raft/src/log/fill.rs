//! `unfilled`: stands in a directory that was made empty, until the node has again what it may have promised
//! from an earlier one.
//!
//! Only whether the file is there counts. It is the first file that counts in a directory and is made before
//! `node.id`, so no crash leaves a directory of this node's that looks filled and is not.

use std::path::Path;

use super::OpenError;
use crate::env::Files;

/// For whoever looks into the directory.
const TEXT: &[u8] =
    b"This node's directory was made empty. It votes with care until it has been filled.\n";

pub(crate) fn stands(files: &dyn Files, path: &Path) -> Result<bool, OpenError> {
    files
        .exists(path)
        .map_err(|source| OpenError::io(path, source))
}

/// Makes the file; it is durable when this returns.
pub(crate) fn make(files: &dyn Files, path: &Path) -> Result<(), OpenError> {
    let io = |source| OpenError::io(path, source);
    let file = files.open(path, true).map_err(io)?;
    file.set_len(0).map_err(io)?;
    file.write_all_at(&[TEXT], 0).map_err(io)?;
    file.sync_data().map_err(io)?;
    sync_parent(files, path).map_err(io)
}

/// Removes the file; durable when this returns.
pub(crate) fn remove(files: &dyn Files, path: &Path) -> std::io::Result<()> {
    files.remove(path)?;
    sync_parent(files, path)
}

fn sync_parent(files: &dyn Files, path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(dir) => files.sync_dir(dir),
        None => Ok(()),
    }
}
