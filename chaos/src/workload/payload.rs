//! Message bodies that describe themselves: key and length in front, bytes derived from the key, a CRC at
//! the end. A damaged, cut or swapped body is seen without knowing what was sent.

use bytes::{BufMut, Bytes, BytesMut};

use crate::rng::Rng;

/// Why a body is not one of ours, or no longer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    #[error("no header")]
    Header,
    #[error("{got} bytes instead of {expected}")]
    Length { expected: usize, got: usize },
    #[error("byte {0} differs")]
    Byte(usize),
}

/// The body of the message `key`: `len` bytes, or more if its header needs them.
pub fn body(key: &str, len: usize) -> Bytes {
    let head = key.len() + 1 + 8;
    let len = len.max(head + 4);
    let mut out = BytesMut::with_capacity(len);
    out.put_slice(key.as_bytes());
    out.put_u8(0);
    out.put_u64(len as u64);
    let mut filler = vec![0; len - head - 4];
    Rng::new(hash(key.as_bytes())).fill(&mut filler);
    out.put_slice(&filler);
    let crc = crc32fast::hash(&out);
    out.put_u32(crc);
    out.freeze()
}

/// The key that a body says it has, if every byte is as it was made.
pub fn key_of(got: &[u8]) -> Result<String, PayloadError> {
    let end = got
        .iter()
        .position(|byte| *byte == 0)
        .ok_or(PayloadError::Header)?;
    let key = std::str::from_utf8(&got[..end]).map_err(|_| PayloadError::Header)?;
    let word = got.get(end + 1..end + 9).ok_or(PayloadError::Header)?;
    let word = <[u8; 8]>::try_from(word).map_err(|_| PayloadError::Header)?;
    let expected = usize::try_from(u64::from_be_bytes(word)).map_err(|_| PayloadError::Header)?;
    if got.len() != expected {
        return Err(PayloadError::Length {
            expected,
            got: got.len(),
        });
    }
    let made = body(key, expected);
    match made.iter().zip(got).position(|(made, got)| made != got) {
        Some(at) => Err(PayloadError::Byte(at)),
        None => Ok(key.to_owned()),
    }
}

/// FNV-1a, 64 bits: what histories keep of a body.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_tells_its_key_and_any_damage() {
        let made = body("p0-17", 100);
        assert_eq!(made.len(), 100);
        assert_eq!(key_of(&made), Ok("p0-17".to_owned()));
        for at in 0..made.len() {
            let mut damaged = made.to_vec();
            damaged[at] ^= 0x10;
            assert!(key_of(&damaged).is_err(), "byte {at}");
            assert!(key_of(&made[..at]).is_err(), "cut at {at}");
        }
        assert_eq!(key_of(&body("k", 0)), Ok("k".to_owned()));
    }
}
