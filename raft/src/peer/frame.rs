//! Frames on a connection between nodes: length, CRC32C, kind, request id, payload.
//!
//! Owns the bytes around a payload and the bounded reading of them. What a payload means belongs to
//! `codec`.

use std::io;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::sabotage::{self, Sabotage};

/// Largest value of a frame's length field. An AppendEntries batch is at most about 1 MiB, or one entry
/// with a body of up to 4 MiB and 64 KiB around it; a call carries no more. 8 MiB leaves room for both.
pub(crate) const MAX_FRAME_BYTES: usize = 8 << 20;
/// Largest frame before the handshake is over.
pub(crate) const MAX_HANDSHAKE_BYTES: usize = 4 << 10;
/// Bytes before the payload: length 4, CRC 4, kind 1, flags 1, group 4, request id 8.
pub(crate) const HEADER_BYTES: usize = 22;
/// Bytes that the length field counts besides the payload: kind, flags, group, request id.
const COUNTED_HEADER_BYTES: usize = 14;
/// Frames up to this size are assembled in the staging buffer and copied out; larger ones get a buffer of
/// their own, so that a kept slice never holds more memory than its own frame.
const STAGED_BYTES: usize = 16 << 10;
const STAGING_BYTES: usize = 64 << 10;
/// First size of the buffer of a large frame. It doubles as bytes arrive, whatever length was announced.
const FIRST_GROWTH_BYTES: usize = 128 << 10;
/// Payload pieces below this are copied into the frame's head: cheaper than one more buffer to write.
const COPIED_PIECE_BYTES: usize = 2 << 10;

/// What a frame carries. The numbers are on the wire and are never used again for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Hello = 1,
    Welcome = 2,
    Reject = 3,
    Ping = 4,
    Pong = 5,
    Vote = 16,
    VoteAnswer = 17,
    PreVote = 18,
    PreVoteAnswer = 19,
    Append = 20,
    StreamAppend = 21,
    AppendAnswer = 22,
    Transfer = 23,
    TransferAnswer = 24,
    Standing = 25,
    StandingAnswer = 26,
    Call = 32,
    CallAnswer = 33,
    /// The request was understood but not carried out; nothing happened. The payload says why.
    Refused = 48,
    /// The request may have been carried out, but there is no result. The payload says why.
    Failed = 49,
}

impl Kind {
    const ALL: [Kind; 20] = [
        Kind::Hello,
        Kind::Welcome,
        Kind::Reject,
        Kind::Ping,
        Kind::Pong,
        Kind::Vote,
        Kind::VoteAnswer,
        Kind::PreVote,
        Kind::PreVoteAnswer,
        Kind::Append,
        Kind::StreamAppend,
        Kind::AppendAnswer,
        Kind::Transfer,
        Kind::TransferAnswer,
        Kind::Standing,
        Kind::StandingAnswer,
        Kind::Call,
        Kind::CallAnswer,
        Kind::Refused,
        Kind::Failed,
    ];

    fn from_byte(byte: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A frame as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub kind: Kind,
    pub id: u64,
    pub payload: Bytes,
}

/// A frame ready to be written: its pieces in order. Large payloads are not copied.
#[derive(Clone, Debug)]
pub(crate) struct OutFrame {
    pub pieces: Vec<Bytes>,
    pub bytes: usize,
}

impl OutFrame {
    /// Puts a frame together. `TooLarge` when the payload would exceed [`MAX_FRAME_BYTES`].
    pub(crate) fn new(
        kind: Kind,
        id: u64,
        head: &[u8],
        body: &[Bytes],
    ) -> Result<OutFrame, FrameError> {
        let payload = head.len() + body.iter().map(Bytes::len).sum::<usize>();
        let counted = COUNTED_HEADER_BYTES + payload;
        let length = u32::try_from(counted)
            .ok()
            .filter(|_| counted <= MAX_FRAME_BYTES)
            .ok_or(FrameError::TooLarge {
                length: counted as u64,
                limit: MAX_FRAME_BYTES,
            })?;
        let mut first = BytesMut::with_capacity(HEADER_BYTES + head.len());
        first.put_u32_le(length);
        first.put_u32_le(0);
        first.put_u8(kind as u8);
        first.put_u8(0);
        first.put_u32_le(0);
        first.put_u64_le(id);
        first.put_slice(head);
        let mut crc = crc32c::crc32c_append(crc32c::crc32c(&first[..4]), &first[8..]);
        for piece in body {
            crc = crc32c::crc32c_append(crc, piece);
        }
        first[4..8].copy_from_slice(&crc.to_le_bytes());
        Ok(OutFrame {
            pieces: join_small(first, body),
            bytes: HEADER_BYTES + payload,
        })
    }
}

/// Copies small pieces together and leaves large ones as they are.
fn join_small(first: BytesMut, body: &[Bytes]) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    let mut open = first;
    for piece in body {
        if piece.len() < COPIED_PIECE_BYTES {
            open.put_slice(piece);
            continue;
        }
        if !open.is_empty() {
            pieces.push(std::mem::take(&mut open).freeze());
        }
        pieces.push(piece.clone());
    }
    if !open.is_empty() {
        pieces.push(open.freeze());
    }
    pieces
}

/// Why a connection cannot be read on. The connection is useless afterwards.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("nothing arrived for {0:?}")]
    Silent(Duration),
    #[error("the other side closed the connection inside a frame")]
    Cut,
    #[error("frame of {length} bytes announced, at most {limit} are allowed (first bytes {first})")]
    Length {
        length: u64,
        limit: usize,
        first: FirstBytes,
    },
    #[error("frame of {length} bytes, at most {limit} can be sent")]
    TooLarge { length: u64, limit: usize },
    #[error("checksum {found:08x} instead of {expected:08x} (first bytes {first})")]
    Checksum {
        expected: u32,
        found: u32,
        first: FirstBytes,
    },
    #[error("unknown {what} {value} (first bytes {first})")]
    Unknown {
        what: &'static str,
        value: u64,
        first: FirstBytes,
    },
}

impl FrameError {
    /// True when the bytes themselves were wrong, as opposed to a connection that ended.
    pub(crate) fn is_malformed(&self) -> bool {
        matches!(
            self,
            FrameError::Length { .. } | FrameError::Checksum { .. } | FrameError::Unknown { .. }
        )
    }
}

/// The first bytes of something malformed, for the log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FirstBytes(Vec<u8>);

impl FirstBytes {
    pub(crate) fn of(bytes: &[u8]) -> FirstBytes {
        FirstBytes(bytes[..bytes.len().min(16)].to_vec())
    }
}

impl std::fmt::Display for FirstBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for byte in &self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Length of the whole frame (header included) that begins with these four bytes.
fn frame_bytes(prefix: &[u8], limit: usize) -> Result<usize, FrameError> {
    let length = le_u32(prefix) as usize;
    if length < COUNTED_HEADER_BYTES || length > limit {
        return Err(FrameError::Length {
            length: length as u64,
            limit,
            first: FirstBytes::of(prefix),
        });
    }
    Ok(length + HEADER_BYTES - COUNTED_HEADER_BYTES)
}

/// Checks one whole frame and says what it is.
fn check(frame: &[u8]) -> Result<(Kind, u64), FrameError> {
    let first = || FirstBytes::of(frame);
    let expected = crc32c::crc32c_append(crc32c::crc32c(&frame[..4]), &frame[8..]);
    let found = le_u32(&frame[4..]);
    // N13: nothing that was damaged on its way is believed.
    if found != expected && !sabotage::on(Sabotage::FrameUnchecked) {
        return Err(FrameError::Checksum {
            expected,
            found,
            first: first(),
        });
    }
    let unknown = |what, value: u64| FrameError::Unknown {
        what,
        value,
        first: first(),
    };
    let kind = Kind::from_byte(frame[8]).ok_or_else(|| unknown("kind", u64::from(frame[8])))?;
    // Kept for later versions; a sender of this version writes zero.
    if frame[9] != 0 {
        return Err(unknown("flags", u64::from(frame[9])));
    }
    let group = le_u32(&frame[10..]);
    if group != 0 {
        return Err(unknown("group number", u64::from(group)));
    }
    let mut id = [0; 8];
    id.copy_from_slice(&frame[14..HEADER_BYTES]);
    Ok((kind, u64::from_le_bytes(id)))
}

fn le_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Reads frames. Every wait for bytes is bounded; memory grows with what arrived.
pub(crate) struct FrameReader<R> {
    from: R,
    limit: usize,
    silence: Duration,
    staging: Vec<u8>,
    /// The unread part of `staging` is `staging[start..]`.
    start: usize,
    /// A large frame in the making, and its whole length.
    large: Option<(Vec<u8>, usize)>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// A reader that accepts frames up to `limit` and gives up when nothing arrives for `silence`.
    pub(crate) fn new(from: R, limit: usize, silence: Duration) -> FrameReader<R> {
        FrameReader {
            from,
            limit,
            silence,
            staging: Vec::new(),
            start: 0,
            large: None,
        }
    }

    pub(crate) fn set_bounds(&mut self, limit: usize, silence: Duration) {
        self.limit = limit;
        self.silence = silence;
    }

    /// The next frame; `None` when the other side closed the connection between two frames. May be
    /// dropped and called again without losing bytes.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(Some(frame));
            }
            if self.fill().await? == 0 {
                let between = self.large.is_none() && self.start == self.staging.len();
                return if between {
                    Ok(None)
                } else {
                    Err(FrameError::Cut)
                };
            }
        }
    }

    /// Takes a whole frame out of what has arrived, if there is one.
    fn take(&mut self) -> Result<Option<Frame>, FrameError> {
        if let Some((bytes, whole)) = &self.large {
            if bytes.len() < *whole {
                return Ok(None);
            }
            let (kind, id) = check(bytes)?;
            let bytes = self.large.take().map(|(bytes, _)| Bytes::from(bytes));
            return Ok(bytes.map(|bytes| Frame {
                kind,
                id,
                payload: bytes.slice(HEADER_BYTES..),
            }));
        }
        let arrived = &self.staging[self.start..];
        if arrived.len() < 4 {
            return Ok(None);
        }
        let whole = frame_bytes(arrived, self.limit)?;
        if arrived.len() >= whole {
            let frame = &arrived[..whole];
            let (kind, id) = check(frame)?;
            let payload = Bytes::copy_from_slice(&frame[HEADER_BYTES..]);
            self.start += whole;
            return Ok(Some(Frame { kind, id, payload }));
        }
        if whole > STAGED_BYTES {
            self.large = Some((arrived.to_vec(), whole));
            self.start = self.staging.len();
        }
        Ok(None)
    }

    /// Waits for more bytes; 0 at the end of the connection.
    async fn fill(&mut self) -> Result<usize, FrameError> {
        let silence = self.silence;
        let read = async {
            if let Some((bytes, whole)) = &mut self.large {
                let missing = *whole - bytes.len();
                if bytes.len() == bytes.capacity() {
                    bytes.reserve_exact(missing.min(bytes.len().max(FIRST_GROWTH_BYTES)));
                }
                let room = missing.min(bytes.capacity() - bytes.len());
                return self.from.read_buf(&mut bytes.limit(room)).await;
            }
            self.staging.drain(..self.start);
            self.start = 0;
            let wanted = STAGING_BYTES.min(self.limit + HEADER_BYTES);
            if self.staging.capacity() < wanted {
                self.staging.reserve_exact(wanted - self.staging.len());
            }
            let room = self.staging.capacity() - self.staging.len();
            self.from
                .read_buf(&mut (&mut self.staging).limit(room))
                .await
        };
        match tokio::time::timeout(silence, read).await {
            Ok(read) => Ok(read?),
            Err(_) => Err(FrameError::Silent(silence)),
        }
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
