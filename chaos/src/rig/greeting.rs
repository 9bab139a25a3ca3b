//! The first words between two nodes, spoken by a stranger: what a node answers to a greeting that is not
//! one of its group's. Written from the format alone.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Both sides have two seconds for the handshake.
const ANSWER_WITHIN: Duration = Duration::from_secs(6);
const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const REJECT: u8 = 3;
const HEADER_BYTES: usize = 22;
/// A rejection is short; more is not read.
const PAYLOAD_MAX: usize = 4096;

/// Who the stranger says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    pub version: u16,
    pub group: String,
    pub from: u64,
    pub to: u64,
    pub incarnation: u64,
}

/// What the node answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Welcome,
    Reject(String),
    /// It closed the connection, without a word or with something else.
    Closed,
    Silence,
}

impl Greeting {
    /// The greeting as a frame.
    pub fn frame(&self) -> Vec<u8> {
        let mut payload = BytesMut::new();
        payload.put_slice(b"qlogpeer");
        payload.put_u16_le(self.version);
        put_number(&mut payload, self.group.len() as u64);
        payload.put_slice(self.group.as_bytes());
        for number in [self.from, self.to, self.incarnation] {
            put_number(&mut payload, number);
        }
        frame(HELLO, &payload)
    }
}

/// A frame of this kind: length, CRC-32C of all the rest, kind, flags, group, request id, payload.
pub fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::with_capacity(HEADER_BYTES + payload.len());
    out.put_u32_le((HEADER_BYTES - 8 + payload.len()) as u32);
    out.put_u32_le(0);
    out.put_u8(kind);
    out.put_u8(0);
    out.put_u32_le(0);
    out.put_u64_le(0);
    out.put_slice(payload);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&out[..4]), &out[8..]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
    out.to_vec()
}

/// Small numbers take one byte, larger ones a mark and two, four or eight.
fn put_number(out: &mut BytesMut, number: u64) {
    match number {
        0..=250 => out.put_u8(number as u8),
        251..=0xffff => {
            out.put_u8(251);
            out.put_u16_le(number as u16);
        }
        0x1_0000..=0xffff_ffff => {
            out.put_u8(252);
            out.put_u32_le(number as u32);
        }
        _ => {
            out.put_u8(253);
            out.put_u64_le(number);
        }
    }
}

/// Sends bytes to a node's peer port and reads its answer; the connection is given back when it was welcomed.
pub async fn say(to: SocketAddr, bytes: &[u8]) -> (Answer, Option<TcpStream>) {
    let exchange = async {
        let mut stream = TcpStream::connect(to).await.ok()?;
        stream.write_all(bytes).await.ok()?;
        let mut header = [0; HEADER_BYTES];
        stream.read_exact(&mut header).await.ok()?;
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let length = length.checked_sub(HEADER_BYTES - 8)?;
        let mut payload = vec![0; length.min(PAYLOAD_MAX)];
        stream.read_exact(&mut payload).await.ok()?;
        match header[8] {
            WELCOME => Some((Answer::Welcome, Some(stream))),
            REJECT => {
                let why = String::from_utf8_lossy(&payload).into_owned();
                Some((Answer::Reject(why), None))
            }
            _ => None,
        }
    };
    match tokio::time::timeout(ANSWER_WITHIN, exchange).await {
        Ok(answer) => answer.unwrap_or((Answer::Closed, None)),
        Err(_) => (Answer::Silence, None),
    }
}
