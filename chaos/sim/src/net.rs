//! The peer network and the clients' port on turmoil's TCP.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use quorumlog::broker::{Broker, Origin, Request};
use quorumlog::net::connection::ReplyTo;
use quorumlog::protocol::frame::Frame;
use quorumlog_raft::env::{Net, PeerListener, PeerStream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use turmoil::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use turmoil::net::{TcpListener, TcpStream};

/// Connections between nodes, of one of them.
pub struct SimNet {
    pub us: IpAddr,
    pub breaks: Arc<Breaks>,
}

/// All connections between nodes, so that a lossy link can end them. turmoil's TCP sends nothing twice: after a
/// loss a connection would stay open and deliver nothing, as no real one does.
#[derive(Default)]
pub struct Breaks(Mutex<Vec<(IpAddr, IpAddr, Weak<Break>)>>);

#[derive(Default)]
struct Break {
    broken: AtomicBool,
    reader: Mutex<Option<Waker>>,
    writer: Mutex<Option<Waker>>,
}

impl Breaks {
    fn add(&self, us: IpAddr, them: IpAddr) -> Arc<Break> {
        let one = Arc::new(Break::default());
        let mut all = lock(&self.0);
        all.retain(|(_, _, known)| known.strong_count() > 0);
        all.push((us, them, Arc::downgrade(&one)));
        one
    }

    /// Resets all connections between two nodes.
    pub fn reset(&self, a: IpAddr, b: IpAddr) {
        let between = |from: &IpAddr, to: &IpAddr| (*from, *to) == (a, b) || (*from, *to) == (b, a);
        let all: Vec<Arc<Break>> = lock(&self.0)
            .iter()
            .filter(|(from, to, _)| between(from, to))
            .filter_map(|(_, _, one)| one.upgrade())
            .collect();
        for one in all {
            one.broken.store(true, Ordering::Relaxed);
            let wakers = [lock(&one.reader).take(), lock(&one.writer).take()];
            wakers.into_iter().flatten().for_each(Waker::wake);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Break {
    /// Fails when the connection was reset; otherwise wakes the task when it is.
    fn check(&self, side: &Mutex<Option<Waker>>, cx: &Context<'_>) -> io::Result<()> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        *lock(side) = Some(cx.waker().clone());
        Ok(())
    }
}

/// A stream that can be reset from outside.
struct Breakable {
    stream: TcpStream,
    breaks: Arc<Break>,
}

impl AsyncRead for Breakable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.breaks.check(&self.breaks.reader, cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Breakable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.breaks.check(&self.breaks.writer, cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

struct Listener {
    listener: TcpListener,
    us: IpAddr,
    breaks: Arc<Breaks>,
}

impl PeerListener for Listener {
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn PeerStream>>> {
        Box::pin(async move {
            let (stream, from) = self.listener.accept().await?;
            let breaks = self.breaks.add(self.us, from.ip());
            Ok(Box::new(Breakable { stream, breaks }) as Box<dyn PeerStream>)
        })
    }
}

impl Net for SimNet {
    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn PeerListener>>> {
        Box::pin(async move {
            let listener = Listener {
                listener: TcpListener::bind(address).await?,
                us: self.us,
                breaks: self.breaks.clone(),
            };
            Ok(Box::new(listener) as Box<dyn PeerListener>)
        })
    }

    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn PeerStream>>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            let breaks = self.breaks.add(self.us, stream.peer_addr()?.ip());
            Ok(Box::new(Breakable { stream, breaks }) as Box<dyn PeerStream>)
        })
    }
}

/// Serves clients at a port until the node ends: real frames, handed to the broker's dispatch. Stands where
/// the broker's own listeners stand in production; their limits are not under test here.
pub async fn serve(listener: TcpListener, broker: Arc<Broker>) -> io::Result<()> {
    loop {
        let (stream, from) = listener.accept().await?;
        let (read, write) = stream.into_split();
        let (replies, queued) = mpsc::unbounded_channel();
        tokio::spawn(write_replies(write, queued));
        tokio::spawn(read_requests(read, from, broker.clone(), replies));
    }
}

async fn read_requests(
    mut read: OwnedReadHalf,
    from: SocketAddr,
    broker: Arc<Broker>,
    replies: mpsc::UnboundedSender<oneshot::Receiver<Bytes>>,
) {
    let SocketAddr::V4(client) = from else { return };
    let mut buffer = BytesMut::new();
    loop {
        match Frame::decode(&mut buffer) {
            Ok(Some(frame)) => {
                // A connection that cannot be written to any more is not read from, either.
                let Ok(()) = replies.send(handle(&broker, client, frame)) else {
                    return;
                };
                continue;
            }
            Ok(None) => {}
            Err(_) => return,
        }
        match read.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

fn handle(broker: &Arc<Broker>, client: SocketAddrV4, frame: Frame) -> oneshot::Receiver<Bytes> {
    let (reply, replied) = oneshot::channel();
    broker.handle(Request {
        frame,
        origin: Origin {
            client,
            front: false,
            forwarded_by: None,
            connection: None,
            arrived: Instant::now(),
        },
        reply: ReplyTo::Peer(reply),
    });
    replied
}

/// Each client here has one request under way at a time: replies in the order of the requests are enough.
async fn write_replies(
    mut write: OwnedWriteHalf,
    mut queued: mpsc::UnboundedReceiver<oneshot::Receiver<Bytes>>,
) {
    while let Some(replied) = queued.recv().await {
        // A handler that dropped its request without a word leaves the client to its own time limit.
        if let Ok(frame) = replied.await
            && write.write_all(&frame).await.is_err()
        {
            return;
        }
    }
}
