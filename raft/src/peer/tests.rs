//! Links and sessions against each other, over pipes in memory and a made-up node.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use openraft::entry::EntryPayload;
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, StreamAppendResult, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};
use openraft::vote::{RaftLeaderId, RaftVote as _};
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, watch};

use super::network::Network;
use super::*;
use crate::env::{Net, PeerListener, PeerStream};
use crate::storage::entry::{LogEntry, Payload, RaftVote, TypeConfig, raft_log_id};
use crate::types::{EntryId, NodeId, Peer};

/// One listening address, in memory.
#[derive(Default)]
struct MemoryNet {
    listening: Mutex<Option<mpsc::UnboundedSender<DuplexStream>>>,
}

struct MemoryListener(tokio::sync::Mutex<mpsc::UnboundedReceiver<DuplexStream>>);

impl PeerListener for MemoryListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn PeerStream>>> {
        Box::pin(async move {
            match self.0.lock().await.recv().await {
                Some(stream) => Ok(Box::new(stream) as Box<dyn PeerStream>),
                None => std::future::pending().await,
            }
        })
    }
}

impl Net for MemoryNet {
    fn listen<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Box<dyn PeerListener>>> {
        Box::pin(async move {
            let (sender, receiver) = mpsc::unbounded_channel();
            *self.listening.lock().unwrap() = Some(sender);
            let listener = MemoryListener(tokio::sync::Mutex::new(receiver));
            Ok(Box::new(listener) as Box<dyn PeerListener>)
        })
    }

    fn connect<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Box<dyn PeerStream>>> {
        Box::pin(async move {
            let (near, far) = tokio::io::duplex(64 << 10);
            let listening = self.listening.lock().unwrap();
            let sent = listening.as_ref().map(|sender| sender.send(far));
            match sent {
                Some(Ok(())) => Ok(Box::new(near) as Box<dyn PeerStream>),
                _ => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }
}

/// A node that answers appends only while `open`, counts what it got, and grants votes by their kind.
struct Made {
    open: watch::Receiver<bool>,
    streamed: AtomicUsize,
    lost: AtomicUsize,
}

fn matched(request: &AppendEntriesRequest<TypeConfig>) -> StreamAppendResult<TypeConfig> {
    let last = request.entries.last().map(|entry| entry.id);
    Ok(last.or(request.prev_log_id))
}

/// The node behind the listener, shared with the test.
struct Shared(Arc<Made>);

impl Inbound for Shared {
    fn vote(
        &self,
        request: VoteRequest<TypeConfig>,
    ) -> BoxFuture<'static, Result<VoteResponse<TypeConfig>, String>> {
        Box::pin(async move { Ok(VoteResponse::new(request.vote, None, true)) })
    }

    fn pre_vote(
        &self,
        request: VoteRequest<TypeConfig>,
    ) -> BoxFuture<'static, Result<VoteResponse<TypeConfig>, String>> {
        Box::pin(async move { Ok(VoteResponse::new(request.vote, None, false)) })
    }

    fn append(
        &self,
        request: AppendEntriesRequest<TypeConfig>,
    ) -> BoxFuture<'static, Result<StreamAppendResult<TypeConfig>, String>> {
        Box::pin(async move { Ok(matched(&request)) })
    }

    fn stream(
        &self,
        requests: BoxStream<'static, AppendEntriesRequest<TypeConfig>>,
    ) -> BoxStream<'static, Result<StreamAppendResult<TypeConfig>, String>> {
        let made = self.0.clone();
        let open = made.open.clone();
        requests
            .map(move |request| {
                made.streamed.fetch_add(1, Ordering::SeqCst);
                request
            })
            // As the core does: requests are taken in ahead of their answers.
            .map(move |request| {
                let mut open = open.clone();
                async move {
                    let _ = open.wait_for(|open| *open).await.is_ok();
                    Ok(matched(&request))
                }
            })
            .buffered(64)
            .boxed()
    }

    fn transfer(
        &self,
        _request: TransferLeaderRequest<TypeConfig>,
    ) -> BoxFuture<'static, Result<TransferLeaderResponse<TypeConfig>, String>> {
        Box::pin(async { Err("not here".into()) })
    }

    fn standing(&self) -> Standing {
        Standing {
            incarnation: 4,
            unfilled: true,
            voted: Some((3, 1)),
            last: None,
            leads: None,
            full: false,
            peers: PeersTag::of(&BTreeMap::new()),
        }
    }

    fn call(&self, _from: NodeId, request: Bytes) -> BoxFuture<'static, Bytes> {
        Box::pin(async move { request })
    }

    fn lost(&self, from: NodeId) {
        assert_eq!(from, 1);
        self.0.lost.fetch_add(1, Ordering::SeqCst);
    }
}

struct Pair {
    made: Arc<Made>,
    gate: watch::Sender<bool>,
    network: Network,
    server: tokio::task::JoinHandle<()>,
}

/// Node 1's network, connected to a made-up node 2.
async fn pair() -> Pair {
    let net = Arc::new(MemoryNet::default());
    let (gate, open) = watch::channel(false);
    let made = Arc::new(Made {
        open,
        streamed: AtomicUsize::new(0),
        lost: AtomicUsize::new(0),
    });
    let peers: BTreeMap<NodeId, String> = [(1, "one".into()), (2, "two".into())].into();
    let identity = |node| Identity {
        group: "g".into(),
        node,
        incarnation: node,
        peers: peers.clone(),
    };
    let listener = net.listen("two").await.unwrap();
    let inbound = Arc::new(Shared(made.clone()));
    let server = tokio::spawn(serve(listener, identity(2), inbound));
    let link = Arc::new(Link::start(&identity(1), 2, "two".into(), net));
    link.connected().await.unwrap();
    Pair {
        made,
        gate,
        network: Network {
            links: Arc::new([(2, link)].into()),
        },
        server,
    }
}

fn leader_vote() -> RaftVote {
    RaftVote::from_leader_id(RaftLeaderId::new(1, 1), true)
}

fn request(index: u64, bytes: usize) -> AppendEntriesRequest<TypeConfig> {
    let id = |index| raft_log_id(EntryId { term: 1, index });
    AppendEntriesRequest {
        vote: leader_vote(),
        prev_log_id: index.checked_sub(1).map(id),
        entries: vec![LogEntry {
            id: id(index),
            content: EntryPayload::Normal(Payload(Bytes::from(vec![7; bytes]))),
            position: 0,
        }],
        leader_commit: None,
    }
}

fn option() -> RPCOption {
    RPCOption::new(Duration::from_millis(50))
}

#[tokio::test]
async fn a_node_says_how_it_stands() {
    let pair = pair().await;
    let asked = pair.network.links[&2].standing(Duration::from_secs(20));
    assert_eq!(asked.await, Some(Shared(pair.made.clone()).standing()));
}

async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait)
        .await
        .unwrap();
}

#[tokio::test]
async fn appends_are_pipelined_up_to_the_window_and_answered_in_order() {
    let mut pair = pair().await;
    let mut client = pair.network.new_client(2, &Peer::default()).await;
    let requests = stream::iter((0..200).map(|index| request(index, 100)));
    let mut answers = client.stream_append(requests, option()).await.unwrap();
    let mut got = Vec::new();
    let all = async {
        while let Some(answer) = answers.next().await {
            got.push(answer.unwrap().unwrap().unwrap().index());
        }
    };
    let opened = async {
        until(|| pair.made.streamed.load(Ordering::SeqCst) == 64).await;
        // Give a wider window the chance to show.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(pair.made.streamed.load(Ordering::SeqCst), 64);
        pair.gate.send_replace(true);
    };
    tokio::join!(all, opened);
    assert_eq!(got, (0..200).collect::<Vec<u64>>());
}

#[tokio::test]
async fn heartbeats_and_votes_pass_while_appends_are_stuck() {
    let mut pair = pair().await;
    let mut bulk = pair.network.new_client(2, &Peer::default()).await;
    let requests = stream::iter((0..64).map(|index| request(index, 300_000)));
    let mut stuck = bulk.stream_append(requests, option()).await.unwrap();
    let waiting = tokio::time::timeout(Duration::from_millis(200), stuck.next()).await;
    assert!(waiting.is_err());
    let mut heart = pair.network.new_heartbeat_client(2, &Peer::default()).await;
    let mut beat = request(0, 0);
    beat.entries.clear();
    let beats = stream::iter([beat]);
    let option = RPCOption::new(Duration::from_secs(5));
    let mut answers = heart.stream_append(beats, option.clone()).await.unwrap();
    assert_eq!(answers.next().await.unwrap().unwrap().unwrap(), None);
    assert!(answers.next().await.is_none());
    let vote = RaftVote::from_leader_id(RaftLeaderId::new(2, 1), false);
    let asked = VoteRequest::new(vote, None);
    let voted = bulk_client(&mut pair)
        .await
        .vote(asked.clone(), option.clone())
        .await;
    assert!(voted.unwrap().vote_granted);
    let voted = bulk_client(&mut pair).await.pre_vote(asked, option).await;
    assert!(
        !voted.unwrap().vote_granted,
        "pre-votes are really asked for"
    );
}

async fn bulk_client(pair: &mut Pair) -> <Network as RaftNetworkFactory<TypeConfig>>::Network {
    pair.network.new_client(2, &Peer::default()).await
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_progress_ends_with_an_error() {
    let mut pair = pair().await;
    let mut client = pair.network.new_client(2, &Peer::default()).await;
    let requests = stream::iter([request(0, 10)]).chain(stream::pending());
    let mut answers = client.stream_append(requests, option()).await.unwrap();
    let before = tokio::time::Instant::now();
    let answer = answers.next().await.unwrap();
    assert!(answer.is_err(), "{answer:?}");
    assert!(before.elapsed() < Duration::from_secs(4));
    assert!(answers.next().await.is_none());
    drop(answers);
    // The next stream is not held up by the one given up.
    pair.gate.send_replace(true);
    let requests = stream::iter([request(0, 10)]);
    let mut answers = client.stream_append(requests, option()).await.unwrap();
    assert!(answers.next().await.unwrap().is_ok());
}

#[tokio::test]
async fn a_connection_that_ends_fails_everything_that_waits_on_it_at_once() {
    let mut pair = pair().await;
    let mut client = pair.network.new_client(2, &Peer::default()).await;
    let requests = stream::iter([request(0, 10)]).chain(stream::pending());
    let mut answers = client.stream_append(requests, option()).await.unwrap();
    let waiting = tokio::time::timeout(Duration::from_millis(100), answers.next()).await;
    assert!(waiting.is_err());
    pair.server.abort();
    let answer = tokio::time::timeout(Duration::from_secs(1), answers.next()).await;
    assert!(answer.unwrap().unwrap().is_err());
}

#[tokio::test]
async fn the_listener_says_when_a_node_is_gone() {
    let pair = pair().await;
    assert_eq!(pair.made.lost.load(Ordering::SeqCst), 0);
    let link = pair.network.links[&2].clone();
    let answer = link
        .call(Bytes::from_static(b"echo"), Duration::from_secs(5))
        .await;
    assert_eq!(answer.unwrap(), "echo");
    link.stop();
    until(|| pair.made.lost.load(Ordering::SeqCst) == 1).await;
}
