//! Frames: cutting a byte stream into them, and writing them.

use bytes::{Bytes, BytesMut};

use super::header::{Ext, Header};

/// RocketMQ's bound for a whole frame, length word included (`com.rocketmq.remoting.frameMaxLength`).
pub const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// One frame, decoded. `body` and the header's texts are slices of the receive buffer.
#[derive(Clone, Debug)]
pub struct Frame {
    pub header: Header,
    pub body: Bytes,
    /// The whole frame as it arrived, length word included: what a follower passes to the leader.
    pub raw: Bytes,
}

/// Why a stream of bytes cannot be cut into frames. The connection must be closed: the stream has no
/// later point at which it could be picked up again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("frame of {0} bytes; allowed are {FRAME_BYTES_MAX}")]
    TooLong(u64),
    #[error("frame of {0} bytes cannot hold a header")]
    TooShort(u64),
    #[error("header of {header} bytes in a frame of {frame}")]
    HeaderTooLong { header: usize, frame: usize },
    #[error("unknown header serialize type {0}")]
    SerializeType(u8),
    #[error("header cannot be read: {0}")]
    Header(String),
}

#[allow(clippy::todo, unused_variables)]
impl Frame {
    /// Takes the next whole frame off the front of `buffer`. `Ok(None)`: more bytes are needed. Looks at
    /// nothing beyond what has arrived and allocates nothing for what was announced; refuses a bad length
    /// as soon as its bytes are there.
    pub fn decode(buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        todo!()
    }

    /// As [`Frame::decode`] for exactly one frame that is already complete (passed on by a peer).
    pub fn decode_whole(raw: Bytes) -> Result<Frame, FrameError> {
        todo!()
    }
}

/// A reply being built. The code has no default on purpose.
#[derive(Clone, Debug)]
pub struct Reply {
    pub code: i32,
    pub opaque: i32,
    pub remark: Option<String>,
    pub ext: Ext,
    pub body: Bytes,
}

#[allow(clippy::todo, unused_variables)]
impl Reply {
    pub fn new(code: i32, opaque: i32) -> Reply {
        Reply {
            code,
            opaque,
            remark: None,
            ext: Ext::new(),
            body: Bytes::new(),
        }
    }

    pub fn with_remark(mut self, remark: impl Into<String>) -> Reply {
        self.remark = Some(remark.into());
        self
    }

    /// Adds an ext field (sent as a JSON string, always).
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Reply {
        self.ext.push(name, value.to_string());
        self
    }

    pub fn with_body(mut self, body: impl Into<Bytes>) -> Reply {
        self.body = body.into();
        self
    }

    /// Appends the frame up to and excluding the body, which the caller sends right behind (uncopied).
    /// JSON header, flag 1, language JAVA, version 479 (V5_3_3), `extFields` always present.
    pub fn encode_head(&self, out: &mut BytesMut) {
        todo!()
    }

    /// The whole frame in one buffer (for small replies and for passing back to a peer).
    pub fn encode(&self, out: &mut BytesMut) {
        self.encode_head(out);
        out.extend_from_slice(&self.body);
    }
}

/// Appends a request of ours (server to client, or a tool's) as a frame. `flag` 2 marks one-way.
#[allow(clippy::todo, unused_variables)]
pub fn encode_request(
    code: i32,
    opaque: i32,
    flag: i32,
    ext: &Ext,
    body: &[u8],
    out: &mut BytesMut,
) {
    todo!()
}
