//! A TCP proxy that flips single bits: damage that the kernel's checksums do not see, because it is done
//! between two connections.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::RigError;
use crate::rng::Rng;

/// Chunks below this are left alone: a flip shall hit more than a sign of life.
const CHUNK_MIN: usize = 64;

/// A proxy in front of one address. Dropping it ends its connections.
pub struct Proxy {
    shared: Arc<Shared>,
    _task: JoinSet<()>,
}

struct Shared {
    /// Flips still to be done.
    armed: AtomicU64,
    flipped: AtomicU64,
    connections: AtomicU64,
    rng: Mutex<Rng>,
}

impl Proxy {
    /// Listens at `listen` and passes everything on to `to`.
    pub async fn start(listen: SocketAddr, to: SocketAddr, seed: u64) -> Result<Proxy, RigError> {
        let listener = TcpListener::bind(listen)
            .await
            .map_err(RigError::io(format!("a proxy at {listen}")))?;
        let shared = Arc::new(Shared {
            armed: AtomicU64::new(0),
            flipped: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            rng: Mutex::new(Rng::new(seed)),
        });
        let mut task = JoinSet::new();
        task.spawn(accept(listener, to, Arc::clone(&shared)));
        Ok(Proxy {
            shared,
            _task: task,
        })
    }

    /// Flips one bit of the next large enough chunk, in either direction.
    pub fn flip_once(&self) {
        self.shared.armed.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back what was ordered and has not been done.
    pub fn disarm(&self) {
        self.shared.armed.store(0, Ordering::Relaxed);
    }

    pub fn flipped(&self) -> u64 {
        self.shared.flipped.load(Ordering::Relaxed)
    }

    /// Connections so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, to: SocketAddr, shared: Arc<Shared>) {
    let mut passing = JoinSet::new();
    // A failed accept ends the proxy; the nodes behind it are then cut off, which a scenario sees.
    while let Ok((client, _)) = listener.accept().await {
        while passing.try_join_next().is_some() {}
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(&shared);
        passing.spawn(async move {
            if let Ok(server) = TcpStream::connect(to).await {
                pass_both(client, server, &shared).await;
            }
        });
    }
}

/// Until either side closes; then both are closed.
async fn pass_both(client: TcpStream, server: TcpStream, shared: &Shared) {
    for stream in [&client, &server] {
        // Only latency depends on it.
        let _late = stream.set_nodelay(true);
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = pass(from_client, to_server, shared) => {}
        () = pass(from_server, to_client, shared) => {}
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared) {
    let mut chunk = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        shared.damage(&mut chunk[..read]);
        if to.write_all(&chunk[..read]).await.is_err() {
            return;
        }
    }
}

impl Shared {
    fn damage(&self, chunk: &mut [u8]) {
        if chunk.len() < CHUNK_MIN {
            return;
        }
        let take = |armed: u64| armed.checked_sub(1);
        let armed = self
            .armed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if armed.is_err() {
            return;
        }
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let (byte, bit) = (rng.below(chunk.len()), rng.below(8));
        chunk[byte] ^= 1 << bit;
        self.flipped.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_bit_is_flipped_for_each_order_and_none_without() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = server.local_addr().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listen = free.local_addr().unwrap();
        drop(free);
        let proxy = Proxy::start(listen, to, 1).await.unwrap();
        let mut client = TcpStream::connect(listen).await.unwrap();
        let (mut peer, _) = server.accept().await.unwrap();
        for (orders, wrong_bits) in [(0, 0), (1, 1)] {
            for _ in 0..orders {
                proxy.flip_once();
            }
            client.write_all(&[7; 1000]).await.unwrap();
            let mut arrived = [0; 1000];
            peer.read_exact(&mut arrived).await.unwrap();
            let wrong: u32 = arrived.iter().map(|byte| (byte ^ 7).count_ones()).sum();
            assert_eq!(wrong, wrong_bits);
        }
        assert_eq!((proxy.flipped(), proxy.connections()), (1, 1));
    }
}
