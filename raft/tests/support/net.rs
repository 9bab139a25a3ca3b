//! The real network with links that can be cut, each direction by itself, without either side noticing.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quorumlog_raft::NodeId;
use quorumlog_raft::env::{Net, PeerListener, PeerStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Which directions carry nothing. Shared by all nodes of a group.
pub struct Cuts {
    nodes: BTreeMap<String, NodeId>,
    cut: Mutex<BTreeSet<(NodeId, NodeId)>>,
}

impl Cuts {
    pub fn new(peers: &BTreeMap<NodeId, String>) -> Cuts {
        Cuts {
            nodes: peers.iter().map(|(id, at)| (at.clone(), *id)).collect(),
            cut: Mutex::default(),
        }
    }

    /// Nothing goes from `from` to `to` any more.
    pub fn cut_one_way(&self, from: NodeId, to: NodeId) {
        self.cut.lock().unwrap().insert((from, to));
    }

    /// Cuts a node off from all others.
    pub fn isolate(&self, node: NodeId) {
        for other in self.nodes.values().filter(|other| **other != node) {
            self.cut_one_way(node, *other);
            self.cut_one_way(*other, node);
        }
    }

    pub fn heal(&self) {
        self.cut.lock().unwrap().clear();
    }

    fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.cut.lock().unwrap().contains(&(from, to))
    }
}

pub struct TestNet {
    me: NodeId,
    real: Arc<dyn Net>,
    cuts: Arc<Cuts>,
}

impl TestNet {
    pub fn new(me: NodeId, real: Arc<dyn Net>, cuts: Arc<Cuts>) -> TestNet {
        TestNet { me, real, cuts }
    }
}

impl Net for TestNet {
    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn PeerListener>>> {
        self.real.listen(address)
    }

    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn PeerStream>>> {
        Box::pin(async move {
            let to = self.cuts.nodes[address];
            while self.cuts.is_cut(self.me, to) || self.cuts.is_cut(to, self.me) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            let stream = self.real.connect(address).await?;
            let stream = CutStream {
                from: self.me,
                to,
                cuts: self.cuts.clone(),
                stream,
                read_later: None,
                write_later: None,
            };
            Ok(Box::new(stream) as Box<dyn PeerStream>)
        })
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A dialed connection. Both directions of it pass here.
struct CutStream {
    from: NodeId,
    to: NodeId,
    cuts: Arc<Cuts>,
    stream: Box<dyn PeerStream>,
    read_later: Option<Pin<Box<Sleep>>>,
    write_later: Option<Pin<Box<Sleep>>>,
}

/// Ready when the direction carries data.
fn passes(
    cuts: &Cuts,
    from: NodeId,
    to: NodeId,
    later: &mut Option<Pin<Box<Sleep>>>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    while cuts.is_cut(from, to) {
        let sleep = later.get_or_insert_with(|| Box::pin(tokio::time::sleep(LOOK_EVERY)));
        std::task::ready!(sleep.as_mut().poll(cx));
        *later = None;
    }
    Poll::Ready(())
}

impl AsyncRead for CutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        std::task::ready!(passes(
            &this.cuts,
            this.to,
            this.from,
            &mut this.read_later,
            cx
        ));
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        if read.is_ready() && this.cuts.is_cut(this.to, this.from) {
            // Cut while it waited: what arrived is lost, and with it the connection.
            buf.set_filled(before);
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        read
    }
}

impl AsyncWrite for CutStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        std::task::ready!(passes(
            &this.cuts,
            this.from,
            this.to,
            &mut this.write_later,
            cx
        ));
        Pin::new(&mut this.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
