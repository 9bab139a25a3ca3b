//! `node.id`: which node of which group a data directory belongs to.

use std::path::Path;

use bytes::BytesMut;

use super::OpenError;
use super::codec::{u32_at, u64_at};
use crate::env::Files;
use crate::types::NodeId;

/// The newest format of the data directory this program knows.
pub const FORMAT: u32 = 1;
const MAGIC: &[u8; 8] = b"QLNODEID";
const FIXED: usize = 28;
const MAX_NAME: usize = 255;

/// Who a data directory belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub group: String,
    pub node: NodeId,
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {} of group {}", self.node, self.group)
    }
}

/// Reads the file. `Ok(None)`: there is none.
pub(crate) fn read(files: &dyn Files, path: &Path) -> Result<Option<Identity>, OpenError> {
    let io = |source| OpenError::io(path, source);
    if !files.exists(path).map_err(io)? {
        return Ok(None);
    }
    let mut bytes = BytesMut::new();
    let file = files.open(path, false).map_err(io)?;
    file.read_at(&mut bytes, FIXED + MAX_NAME, 0).map_err(io)?;
    let damaged = || OpenError::Damaged {
        path: path.to_path_buf(),
        offset: 0,
        entry: "identity".to_string(),
        durable: 0,
    };
    if bytes.len() < FIXED || &bytes[..8] != MAGIC {
        return Err(damaged());
    }
    let version = u32_at(&bytes, 12);
    if version > FORMAT {
        return Err(OpenError::Version {
            path: path.to_path_buf(),
            found: version,
            known: FORMAT,
        });
    }
    let len = u32_at(&bytes, 24) as usize;
    if len > MAX_NAME
        || bytes.len() != FIXED + len
        || crc32c::crc32c(&bytes[12..]) != u32_at(&bytes, 8)
    {
        return Err(damaged());
    }
    let group = String::from_utf8(bytes[FIXED..].to_vec()).map_err(|_| damaged())?;
    Ok(Some(Identity {
        group,
        node: u64_at(&bytes, 16),
    }))
}

/// Writes the file; it is there as a whole and durable when this returns.
pub(crate) fn write(files: &dyn Files, path: &Path, identity: &Identity) -> Result<(), OpenError> {
    let io = |source| OpenError::io(path, source);
    let bytes = encode(identity);
    let temporary = path.with_extension("tmp");
    let file = files.open(&temporary, true).map_err(io)?;
    file.set_len(0).map_err(io)?;
    file.write_all_at(&[&bytes], 0).map_err(io)?;
    file.sync_data().map_err(io)?;
    files.rename(&temporary, path).map_err(io)?;
    match path.parent() {
        Some(dir) => files.sync_dir(dir).map_err(io),
        None => Ok(()),
    }
}

fn encode(identity: &Identity) -> Vec<u8> {
    let name = identity.group.as_bytes();
    let mut bytes = vec![0; FIXED];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[12..16].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[16..24].copy_from_slice(&identity.node.to_le_bytes());
    bytes[24..28].copy_from_slice(&(name.len() as u32).to_le_bytes());
    bytes.extend_from_slice(name);
    let crc = crc32c::crc32c(&bytes[12..]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
}
