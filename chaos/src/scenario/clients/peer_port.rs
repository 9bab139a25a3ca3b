//! Calls to the port between the nodes from somebody who is no node: greetings with wrong names, requests
//! without a greeting, and noise. Written from the format's description alone.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::rig::BROKER;
use crate::rng::Rng;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const REJECT: u8 = 3;
const PING: u8 = 4;
/// Vote, pre-vote, append, stream append, transfer, call.
const REQUESTS: [u8; 6] = [16, 18, 20, 21, 23, 32];
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// What a node answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Welcome,
    /// With the reason it gave.
    Rejected(String),
    Closed,
    Other(u8),
    Silent,
}

impl Answer {
    pub fn is_refusal(&self) -> bool {
        matches!(self, Answer::Rejected(_) | Answer::Closed)
    }
}

/// A call and what it pretends.
pub struct Call {
    pub what: String,
    pub bytes: Vec<u8>,
}

/// Calls of somebody who is no member of the group, to the node with id `to`.
pub fn of_strangers(to: u64, rng: &mut Rng) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut add = |what: String, bytes: Vec<u8>| calls.push(Call { what, bytes });
    let member = to % 3 + 1;
    for (what, payload) in [
        ("a node that is not in the group", hello(1, BROKER, 77, to)),
        (
            "a node of another group",
            hello(1, "other-group", member, to),
        ),
        ("the node itself", hello(1, BROKER, to, to)),
        ("a caller of another node", hello(1, BROKER, member, 99)),
        ("another version", hello(2, BROKER, member, to)),
        ("a greeting without its magic", vec![0; 40]),
        ("an empty greeting", Vec::new()),
    ] {
        add(what.to_owned(), frame(HELLO, &payload));
    }
    for kind in REQUESTS {
        let mut body = vec![0; 64];
        rng.fill(&mut body);
        add(
            format!("request {kind} without a greeting"),
            frame(kind, &body),
        );
        // A request right behind a greeting that is not accepted.
        let both = [frame(HELLO, &hello(1, BROKER, 77, to)), frame(kind, &body)].concat();
        add(format!("request {kind} behind a stranger's greeting"), both);
    }
    add("a ping without a greeting".to_owned(), frame(PING, &[]));
    let mut damaged = frame(HELLO, &hello(1, BROKER, member, to));
    damaged[30] ^= 1;
    add("a damaged greeting".to_owned(), damaged);
    for length in [0, 13, 0x7fff_ffff, u32::MAX] {
        let bytes = [&u32::to_le_bytes(length)[..], &[0; 60]].concat();
        add(format!("a length of {length:#x}"), bytes);
    }
    let mut noise = vec![0; 1 << 20];
    rng.fill(&mut noise);
    add("1 MiB of noise".to_owned(), noise);
    calls
}

/// The greeting of a member: what a node lets in.
pub fn of_member(from: u64, to: u64) -> Vec<u8> {
    frame(HELLO, &hello(1, BROKER, from, to))
}

/// Sends the bytes over a connection of its own and says what came back first.
pub async fn call(to: SocketAddr, bytes: &[u8]) -> std::io::Result<Answer> {
    let mut stream = tokio::time::timeout(ANSWER_WITHIN, TcpStream::connect(to)).await??;
    let answer = async {
        // The node may close while it is still being written to.
        let _closed = stream.write_all(bytes).await;
        let mut head = [0; 22];
        if stream.read_exact(&mut head).await.is_err() {
            return Answer::Closed;
        }
        let counted = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let mut reason = vec![0; counted.saturating_sub(14).min(512)];
        let read = stream.read_exact(&mut reason).await;
        match (head[8], read) {
            (REJECT, Ok(_)) => Answer::Rejected(String::from_utf8_lossy(&reason).into_owned()),
            (WELCOME, _) => Answer::Welcome,
            (_, Err(_)) => Answer::Closed,
            (kind, Ok(_)) => Answer::Other(kind),
        }
    };
    let answer = tokio::time::timeout(ANSWER_WITHIN, answer).await;
    Ok(answer.unwrap_or(Answer::Silent))
}

/// Length (of what follows the checksum), CRC-32C of everything else, kind, flags, group, request id, payload.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::to_le_bytes((14 + payload.len()) as u32);
    let mut rest = vec![kind, 0];
    rest.extend(0_u32.to_le_bytes());
    rest.extend(1_u64.to_le_bytes());
    rest.extend(payload);
    let checksum = crc32c(&[&length[..], &rest].concat());
    [&length[..], &checksum.to_le_bytes(), &rest].concat()
}

/// Magic, version, then group, sender, receiver and run of the sender with numbers of variable length.
fn hello(version: u16, group: &str, from: u64, to: u64) -> Vec<u8> {
    let mut out = b"qlogpeer".to_vec();
    out.extend(version.to_le_bytes());
    // Numbers below 251 are one byte.
    out.push(group.len() as u8);
    out.extend(group.as_bytes());
    out.extend([from as u8, to as u8, 9]);
    out
}

/// CRC-32 with the Castagnoli polynomial, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = crc & 1;
            crc >>= 1;
            if carry == 1 {
                crc ^= 0x82f6_3b78;
            }
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_published_one() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_frame_counts_what_is_behind_its_checksum() {
        let made = frame(HELLO, b"abc");
        assert_eq!(made.len(), 25);
        assert_eq!(made[0], 17);
        assert_eq!((made[8], &made[22..]), (HELLO, &b"abc"[..]));
    }
}
