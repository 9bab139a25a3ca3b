//! The first two frames of a connection: who is calling, and whether it is let in.
//!
//! The magic, the format version in front of the greeting, and the form of a refusal never change, so
//! that two versions of the program can tell each other what is wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use bincode::Options;
use bytes::{BufMut, Bytes};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::frame::{
    FirstBytes, Frame, FrameError, FrameReader, Kind, MAX_HANDSHAKE_BYTES, OutFrame,
};
use crate::sabotage::{self, Sabotage};
use crate::types::NodeId;

/// Both sides have this long for the whole handshake.
pub(crate) const HANDSHAKE_BOUND: Duration = Duration::from_secs(2);
/// Version of everything after the handshake. Nodes of different versions do not talk.
pub(crate) const FORMAT_VERSION: u16 = 2;
const MAGIC: [u8; 8] = *b"qlogpeer";
const MAX_REASON_BYTES: usize = 512;

/// Who this node is, and whom it knows.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub group: String,
    pub node: NodeId,
    /// Changes with each start of the process: tells a restarted node from a second connection.
    pub incarnation: u64,
    /// Every node of the group (this one too) and its address.
    pub peers: BTreeMap<NodeId, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub group: String,
    pub from: NodeId,
    pub to: NodeId,
    pub incarnation: u64,
}

#[derive(Serialize, Deserialize)]
struct Welcome {
    incarnation: u64,
}

/// Why a connection did not come about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("no handshake within {HANDSHAKE_BOUND:?}")]
    Slow,
    #[error("the connection was closed during the handshake")]
    Closed,
    #[error("not a quorumlog peer (first bytes {0})")]
    Foreign(FirstBytes),
    /// The other side does not want us.
    #[error("{0}")]
    Rejected(String),
    /// We do not want the other side.
    #[error("refused: {0}")]
    Refused(String),
}

impl HandshakeError {
    /// True when the other side sent bytes that no node of ours sends.
    pub(crate) fn is_malformed(&self) -> bool {
        match self {
            HandshakeError::Frame(error) => error.is_malformed(),
            HandshakeError::Foreign(_) => true,
            _ => false,
        }
    }
}

/// What a greeting says, before it is believed.
#[derive(Debug, PartialEq, Eq)]
enum Greeting {
    Hello(Hello),
    OtherVersion(u16),
}

/// Whether to let the sender of `hello` in; the text is sent back and logged there.
fn admit(greeting: &Greeting, us: &Identity) -> Result<(), String> {
    let hello = match greeting {
        Greeting::OtherVersion(version) => {
            return Err(format!(
                "peer format version {version} here meets {FORMAT_VERSION} at node {}: run the same \
                 version of the program on all nodes",
                us.node
            ));
        }
        // N12: nothing is taken from another group, or by another node than was meant.
        Greeting::Hello(_) if sabotage::on(Sabotage::HelloUnchecked) => return Ok(()),
        Greeting::Hello(hello) => hello,
    };
    if hello.group != us.group {
        return Err(format!(
            "this is node {} of group {:?}, not of {:?}: check dLegerGroup and dLegerPeers",
            us.node, us.group, hello.group
        ));
    }
    if hello.to != us.node {
        return Err(format!(
            "this is node {}, not node {}: check dLegerPeers and dLegerSelfId",
            us.node, hello.to
        ));
    }
    if hello.from == us.node {
        return Err(format!(
            "this is node {} too: two nodes have the same dLegerSelfId",
            us.node
        ));
    }
    if !us.peers.contains_key(&hello.from) {
        return Err(format!(
            "node {} does not know node {}: check dLegerPeers",
            us.node, hello.from
        ));
    }
    Ok(())
}

fn options() -> impl Options {
    bincode::DefaultOptions::new().with_limit(MAX_HANDSHAKE_BYTES as u64)
}

fn hello_frame(hello: &Hello) -> Result<OutFrame, FrameError> {
    let mut payload = MAGIC.to_vec();
    payload.put_u16_le(FORMAT_VERSION);
    // A group's name is far below the limit; if it were not, the receiver says what is wrong.
    let body = options().serialize(hello).unwrap_or_default();
    payload.extend(body);
    OutFrame::new(Kind::Hello, 0, &payload, &[])
}

fn read_hello(frame: &Frame) -> Result<Greeting, HandshakeError> {
    let payload: &Bytes = &frame.payload;
    let foreign = || HandshakeError::Foreign(FirstBytes::of(payload));
    if frame.kind != Kind::Hello || payload.len() < 10 || payload[..8] != MAGIC {
        return Err(foreign());
    }
    let version = u16::from_le_bytes([payload[8], payload[9]]);
    if version != FORMAT_VERSION {
        return Ok(Greeting::OtherVersion(version));
    }
    let hello = options()
        .deserialize(&payload[10..])
        .map_err(|_| foreign())?;
    Ok(Greeting::Hello(hello))
}

async fn send<W: AsyncWrite + Unpin>(to: &mut W, frame: &OutFrame) -> Result<(), HandshakeError> {
    for piece in &frame.pieces {
        to.write_all(piece).await.map_err(FrameError::Io)?;
    }
    to.flush().await.map_err(FrameError::Io)?;
    Ok(())
}

async fn receive<R: AsyncRead + Unpin>(from: &mut FrameReader<R>) -> Result<Frame, HandshakeError> {
    from.next().await?.ok_or(HandshakeError::Closed)
}

/// A reader with the bounds that hold before the other side is known.
pub(crate) fn reader<R: AsyncRead + Unpin>(from: R) -> FrameReader<R> {
    FrameReader::new(from, MAX_HANDSHAKE_BYTES, HANDSHAKE_BOUND)
}

/// The calling side. Returns the other node's incarnation.
pub(crate) async fn greet<R, W>(
    from: &mut FrameReader<R>,
    to: &mut W,
    hello: &Hello,
) -> Result<u64, HandshakeError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let exchange = async {
        send(to, &hello_frame(hello)?).await?;
        let answer = receive(from).await?;
        let foreign = || HandshakeError::Foreign(FirstBytes::of(&answer.payload));
        match answer.kind {
            Kind::Welcome => {
                let welcome: Welcome = options()
                    .deserialize(&answer.payload)
                    .map_err(|_| foreign())?;
                Ok(welcome.incarnation)
            }
            Kind::Reject => {
                let reason = &answer.payload[..answer.payload.len().min(MAX_REASON_BYTES)];
                let reason = String::from_utf8_lossy(reason).into_owned();
                Err(HandshakeError::Rejected(reason))
            }
            _ => Err(foreign()),
        }
    };
    tokio::time::timeout(HANDSHAKE_BOUND, exchange)
        .await
        .unwrap_or(Err(HandshakeError::Slow))
}

/// The accepting side. Returns who called.
pub(crate) async fn welcome<R, W>(
    from: &mut FrameReader<R>,
    to: &mut W,
    us: &Identity,
) -> Result<Hello, HandshakeError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let exchange = async {
        let greeting = read_hello(&receive(from).await?)?;
        match (admit(&greeting, us), greeting) {
            (Ok(()), Greeting::Hello(hello)) => {
                let body = Welcome {
                    incarnation: us.incarnation,
                };
                let body = options().serialize(&body).unwrap_or_default();
                send(to, &OutFrame::new(Kind::Welcome, 0, &body, &[])?).await?;
                Ok(hello)
            }
            (admitted, _) => {
                let mut reason = admitted.err().unwrap_or_default();
                reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
                send(to, &OutFrame::new(Kind::Reject, 0, reason.as_bytes(), &[])?).await?;
                Err(HandshakeError::Refused(reason))
            }
        }
    };
    tokio::time::timeout(HANDSHAKE_BOUND, exchange)
        .await
        .unwrap_or(Err(HandshakeError::Slow))
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
