//! Bytes that are no request, over a bare socket, and what the other side makes of them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What the server did with some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    Closed,
    Replied,
    /// Neither an answer nor an end.
    Silent,
}

/// Sends bytes over a new connection and waits for an answer or the end. With `hang_up` nothing more follows,
/// so that the server cannot wait for the rest of a frame either. An error: no connection.
pub async fn poke(
    to: SocketAddr,
    bytes: &[u8],
    hang_up: bool,
    within: Duration,
) -> io::Result<Reaction> {
    let mut stream = tokio::time::timeout(within, TcpStream::connect(to)).await??;
    let reaction = async {
        // The server may close while it is still being written to.
        let _closed = stream.write_all(bytes).await;
        if hang_up {
            let _closed = stream.shutdown().await;
        }
        match stream.read(&mut [0; 1024]).await {
            Ok(0) | Err(_) => Reaction::Closed,
            Ok(_) => Reaction::Replied,
        }
    };
    let reaction = tokio::time::timeout(within, reaction).await;
    Ok(reaction.unwrap_or(Reaction::Silent))
}

/// A frame of any header kind and any header, its lengths right.
pub fn frame_bytes(kind: u8, header: &[u8], body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(((4 + header.len() + body.len()) as u32).to_be_bytes());
    out.extend((u32::from(kind) << 24 | header.len() as u32).to_be_bytes());
    out.extend(header);
    out.extend(body);
    out
}
