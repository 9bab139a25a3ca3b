//! What one node asks another, and the answer, as bytes: a version, a bincode header, and the client's frame
//! as it came.

use std::net::SocketAddrV4;

use bincode::Options;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::store::NodeInfo;

const VERSION: u8 = 2;
/// Bound of the bincode header.
const HEADER_BYTES_MAX: usize = 4096;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Handle the frame that follows as if its client had come to you.
    Client {
        client: SocketAddrV4,
        front: bool,
        budget_ms: u32,
    },
    /// Write what the asking node says of itself into the log.
    Announce(NodeInfo),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The reply to the client, encoded, its opaque intact, and the index of the last entry that the asked node
    /// had applied when it replied: the reply shows nothing newer.
    Frame {
        applied: u64,
        frame: Bytes,
    },
    /// The asked node cannot serve it now, and has done nothing.
    NotLeading,
    Done,
}

/// Why bytes from a peer cannot be read: the nodes run different versions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("{0} bytes are too few")]
    Short(usize),
    #[error("format version {0}; this node speaks {VERSION}")]
    Version(u8),
    #[error("unreadable: {0}")]
    Header(String),
    #[error("answer of kind {0}")]
    Kind(u8),
}

fn codec() -> impl Options {
    bincode::DefaultOptions::new().with_limit(HEADER_BYTES_MAX as u64)
}

impl Ask {
    pub fn encode(&self, frame: &[u8]) -> Bytes {
        // Every text in it is an address of ours, checked at start.
        let header = codec()
            .serialize(self)
            .expect("the header of a passed request is below its bound");
        let mut out = BytesMut::with_capacity(3 + header.len() + frame.len());
        out.put_u8(VERSION);
        out.put_u16(header.len() as u16);
        out.put_slice(&header);
        out.put_slice(frame);
        out.freeze()
    }

    /// The question, and the frame behind it.
    pub fn decode(mut bytes: Bytes) -> Result<(Ask, Bytes), WireError> {
        if bytes.len() < 3 {
            return Err(WireError::Short(bytes.len()));
        }
        let version = bytes.get_u8();
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let len = usize::from(bytes.get_u16());
        if bytes.len() < len {
            return Err(WireError::Short(bytes.len()));
        }
        let header = bytes.split_to(len);
        let ask = codec()
            .deserialize(&header)
            .map_err(|error| WireError::Header(error.to_string()))?;
        Ok((ask, bytes))
    }
}

const KIND_FRAME: u8 = 0;
const KIND_NOT_LEADING: u8 = 1;
const KIND_DONE: u8 = 2;

impl Answer {
    pub fn encode(&self) -> Bytes {
        let (kind, applied, frame): (u8, Option<u64>, &[u8]) = match self {
            Answer::Frame { applied, frame } => (KIND_FRAME, Some(*applied), frame),
            Answer::NotLeading => (KIND_NOT_LEADING, None, &[]),
            Answer::Done => (KIND_DONE, None, &[]),
        };
        let mut out = BytesMut::with_capacity(10 + frame.len());
        out.put_u8(VERSION);
        out.put_u8(kind);
        if let Some(applied) = applied {
            out.put_u64(applied);
        }
        out.put_slice(frame);
        out.freeze()
    }

    pub fn decode(mut bytes: Bytes) -> Result<Answer, WireError> {
        if bytes.len() < 2 {
            return Err(WireError::Short(bytes.len()));
        }
        let version = bytes.get_u8();
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        match bytes.get_u8() {
            KIND_FRAME if bytes.len() > 8 => Ok(Answer::Frame {
                applied: bytes.get_u64(),
                frame: bytes,
            }),
            KIND_NOT_LEADING => Ok(Answer::NotLeading),
            KIND_DONE => Ok(Answer::Done),
            kind => Err(WireError::Kind(kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks() -> Vec<Ask> {
        vec![
            Ask::Client {
                client: "10.0.0.9:4000".parse().unwrap(),
                front: true,
                budget_ms: 1500,
            },
            Ask::Announce(NodeInfo {
                node: 2,
                address: "127.0.0.1:10911".to_string(),
                front_address: "127.0.0.1:10912".to_string(),
                namesrv_address: "127.0.0.1:9876".to_string(),
                slave_read: false,
            }),
        ]
    }

    #[test]
    fn questions_and_answers_come_out_as_they_went_in() {
        for ask in asks() {
            let bytes = ask.encode(b"frame");
            assert_eq!(
                Ask::decode(bytes).unwrap(),
                (ask, Bytes::from_static(b"frame"))
            );
        }
        for answer in [
            Answer::Frame {
                applied: u64::MAX - 1,
                frame: Bytes::from_static(b"reply"),
            },
            Answer::NotLeading,
            Answer::Done,
        ] {
            assert_eq!(Answer::decode(answer.encode()).unwrap(), answer);
        }
    }

    #[test]
    fn what_is_cut_short_or_of_another_version_is_an_error() {
        let whole = asks()[0].encode(b"");
        for end in 0..whole.len() {
            assert!(Ask::decode(whole.slice(..end)).is_err(), "cut at {end}");
        }
        let mut other = whole.to_vec();
        other[0] = 9;
        assert_eq!(Ask::decode(other.into()), Err(WireError::Version(9)));
        assert_eq!(
            Answer::decode(Bytes::from_static(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 7])),
            Err(WireError::Kind(0)),
            "a frame is never empty"
        );
        assert_eq!(
            Answer::decode(Bytes::from_static(&[2])),
            Err(WireError::Short(1))
        );
    }
}
