//! Frames: cutting a byte stream into them, and writing them.

use std::fmt::Display;

use bytes::{BufMut, Bytes, BytesMut};

use super::codes::response;
use super::header::{Ext, FLAG_RESPONSE, Header, read_binary, read_json, write_string};

/// RocketMQ's bound for a whole frame, length word included (`com.rocketmq.remoting.frameMaxLength`).
pub const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// `version` in what we send: V5_3_3. Clients refuse SQL92 subscriptions to brokers below V4_1_0.
pub const VERSION: i32 = 479;

/// Longest remark that is sent, bytes; longer ones are cut. Some quote what a client sent.
const REMARK_BYTES_MAX: usize = 4096;
/// Longest header: its length has 24 bits.
const HEADER_BYTES_MAX: usize = (1 << 24) - 1;

const LENGTH_BYTES: usize = 4;
/// Length word, and the word of serialize type and header length.
const PREFIX_BYTES: usize = 8;

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
    /// Only of [`Frame::decode_whole`]: the bytes are not exactly one frame.
    #[error("{found} bytes where one whole frame was expected")]
    NotWhole { found: usize },
}

/// What the first eight bytes of a frame say.
#[derive(Clone, Copy)]
struct Prefix {
    /// Of the whole frame, length word included.
    frame_bytes: usize,
    serialize_type: u8,
    header_bytes: usize,
}

const SERIALIZE_JSON: u8 = 0;
const SERIALIZE_ROCKETMQ: u8 = 1;

/// Checks as much of a frame's prefix as has arrived, so that a bad one is refused at its first bad byte.
fn prefix(bytes: &[u8]) -> Result<Option<Prefix>, FrameError> {
    let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let frame_bytes = u64::from(u32::from_be_bytes(*length)) + LENGTH_BYTES as u64;
    if frame_bytes > FRAME_BYTES_MAX as u64 {
        return Err(FrameError::TooLong(frame_bytes));
    }
    let frame_bytes = frame_bytes as usize;
    if frame_bytes < PREFIX_BYTES {
        return Err(FrameError::TooShort(frame_bytes as u64));
    }
    let Some(serialize_type) = bytes.get(LENGTH_BYTES).copied() else {
        return Ok(None);
    };
    if serialize_type != SERIALIZE_JSON && serialize_type != SERIALIZE_ROCKETMQ {
        return Err(FrameError::SerializeType(serialize_type));
    }
    let Some([.., a, b, c]) = bytes.first_chunk::<PREFIX_BYTES>() else {
        return Ok(None);
    };
    let header_bytes = u32::from_be_bytes([0, *a, *b, *c]) as usize;
    if header_bytes > frame_bytes - PREFIX_BYTES {
        return Err(FrameError::HeaderTooLong {
            header: header_bytes,
            frame: frame_bytes,
        });
    }
    Ok(Some(Prefix {
        frame_bytes,
        serialize_type,
        header_bytes,
    }))
}

impl Frame {
    /// Takes the next whole frame off the front of `buffer`. `Ok(None)`: more bytes are needed. Looks at
    /// nothing beyond what has arrived and allocates nothing for what was announced; refuses a bad length
    /// as soon as its bytes are there.
    pub fn decode(buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        match prefix(buffer)? {
            Some(prefix) if buffer.len() >= prefix.frame_bytes => {
                let raw = buffer.split_to(prefix.frame_bytes).freeze();
                Frame::read(raw, prefix).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// As [`Frame::decode`] for exactly one frame that is already complete (passed on by a peer).
    pub fn decode_whole(raw: Bytes) -> Result<Frame, FrameError> {
        match prefix(&raw)? {
            Some(prefix) if prefix.frame_bytes == raw.len() => Frame::read(raw, prefix),
            _ => Err(FrameError::NotWhole { found: raw.len() }),
        }
    }

    fn read(raw: Bytes, prefix: Prefix) -> Result<Frame, FrameError> {
        let header_end = PREFIX_BYTES + prefix.header_bytes;
        let header = raw.slice(PREFIX_BYTES..header_end);
        let header = match prefix.serialize_type {
            SERIALIZE_JSON => read_json(header),
            _ => read_binary(header),
        };
        Ok(Frame {
            header: header.map_err(FrameError::Header)?,
            body: raw.slice(header_end..),
            raw,
        })
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
    pub fn with(mut self, name: &'static str, value: impl Display) -> Reply {
        self.ext.push(name, value);
        self
    }

    pub fn with_body(mut self, body: impl Into<Bytes>) -> Reply {
        self.body = body.into();
        self
    }

    /// Appends the frame up to and excluding the body, which the caller sends right behind (uncopied).
    /// JSON header, flag 1, language JAVA, version 479 (V5_3_3), `extFields` always present.
    ///
    /// A remark above 4 KiB is cut. A header that would not fit into its 24 bits of length (the ids of a
    /// batch of hundreds of thousands) is replaced by one of code 1 that says so.
    ///
    /// # Panics
    /// When the body is 4 GiB or longer.
    pub fn encode_head(&self, out: &mut BytesMut) {
        let head = Head {
            code: self.code,
            opaque: self.opaque,
            flag: FLAG_RESPONSE,
            remark: self.remark.as_deref(),
            ext: &self.ext,
            body_bytes: self.body.len(),
        };
        if !head.write(out) {
            let substitute = Head {
                code: response::SYSTEM_ERROR,
                remark: Some("the header of the reply is too long"),
                ext: &Ext::new(),
                ..head
            };
            let written = substitute.write(out);
            assert!(written, "a header without fields is short");
        }
    }

    /// The whole frame in one buffer (for small replies and for passing back to a peer).
    pub fn encode(&self, out: &mut BytesMut) {
        self.encode_head(out);
        out.extend_from_slice(&self.body);
    }
}

/// Appends a request of ours (server to client, or a tool's) as a frame. `flag` 2 marks one-way.
///
/// # Panics
/// When header or body are too long for a frame's length fields (16 MiB, 4 GiB).
pub fn encode_request(
    code: i32,
    opaque: i32,
    flag: i32,
    ext: &Ext,
    body: &[u8],
    out: &mut BytesMut,
) {
    let head = Head {
        code,
        opaque,
        flag,
        remark: None,
        ext,
        body_bytes: body.len(),
    };
    let written = head.write(out);
    assert!(written, "header of a request of ours too long");
    out.extend_from_slice(body);
}

/// All of a frame but its body.
#[derive(Clone, Copy)]
struct Head<'a> {
    code: i32,
    opaque: i32,
    flag: i32,
    remark: Option<&'a str>,
    ext: &'a Ext,
    body_bytes: usize,
}

impl Head<'_> {
    /// Appends prefix and header, or nothing and returns `false` when the header is too long.
    fn write(&self, out: &mut BytesMut) -> bool {
        let start = out.len();
        out.reserve(512);
        out.put_bytes(0, PREFIX_BYTES);
        self.write_header(out);
        let header_bytes = out.len() - start - PREFIX_BYTES;
        if header_bytes > HEADER_BYTES_MAX {
            out.truncate(start);
            return false;
        }
        let rest_bytes = LENGTH_BYTES + header_bytes + self.body_bytes;
        let rest_bytes = u32::try_from(rest_bytes).expect("bodies are bounded far below 4 GiB");
        out[start..start + LENGTH_BYTES].copy_from_slice(&rest_bytes.to_be_bytes());
        // The byte above the 24 bits of length is the serialize type: 0, JSON.
        let header_bytes = header_bytes as u32;
        out[start + LENGTH_BYTES..start + PREFIX_BYTES]
            .copy_from_slice(&header_bytes.to_be_bytes());
        true
    }

    /// Keys in RocketMQ's (alphabetical) order.
    fn write_header(&self, out: &mut BytesMut) {
        let mut number = itoa::Buffer::new();
        out.put_slice(b"{\"code\":");
        out.put_slice(number.format(self.code).as_bytes());
        out.put_slice(b",\"extFields\":{");
        for (index, (name, value)) in self.ext.iter().enumerate() {
            if index > 0 {
                out.put_u8(b',');
            }
            write_string(out, name);
            out.put_u8(b':');
            write_string(out, value);
        }
        out.put_slice(b"},\"flag\":");
        out.put_slice(number.format(self.flag).as_bytes());
        out.put_slice(b",\"language\":\"JAVA\",\"opaque\":");
        out.put_slice(number.format(self.opaque).as_bytes());
        if let Some(remark) = self.remark {
            out.put_slice(b",\"remark\":");
            write_string(out, cut(remark, REMARK_BYTES_MAX));
        }
        out.put_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
        out.put_slice(number.format(VERSION).as_bytes());
        out.put_u8(b'}');
    }
}

/// The longest front of `text` with at most `bytes_max` bytes that ends between characters.
fn cut(text: &str, bytes_max: usize) -> &str {
    if text.len() <= bytes_max {
        return text;
    }
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests;
