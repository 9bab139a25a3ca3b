//! bincode behind a version byte: the encoding of commands, and of small values in files.
//!
//! Nothing else in the store names bincode. Values that must be read in place (records, queue items, the
//! dedup window) have fixed layouts of their own.

use bincode::Options;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Version of the encoding written today.
const VERSION: u8 = 1;

/// Why bytes cannot be decoded. No retry helps: a bug, damage, or a newer program wrote them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CodecError {
    #[error("no version byte")]
    Empty,
    #[error("encoding version {found} is not known (this program knows {VERSION})")]
    Version { found: u8 },
    #[error("not a valid value: {0}")]
    Value(String),
}

/// Encodes a value, version byte first.
pub(super) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bincode::DefaultOptions::new()
        .serialize_into(&mut bytes, value)
        .expect("plain data without a size limit always encodes into memory");
    bytes
}

/// Decodes exactly one value. Never allocates more than the bytes given can stand for.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let (&version, value) = bytes.split_first().ok_or(CodecError::Empty)?;
    if version != VERSION {
        return Err(CodecError::Version { found: version });
    }
    bincode::DefaultOptions::new()
        .with_limit(value.len() as u64)
        .deserialize(value)
        .map_err(|error| CodecError::Value(error.to_string()))
}
