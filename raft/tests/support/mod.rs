//! Groups of real nodes in one process: real files and sockets, a network that can be cut.
#![allow(dead_code)]

pub mod disks;
pub mod net;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quorumlog_raft::env::Env;
use quorumlog_raft::group::{FlushMode, Timers};
use quorumlog_raft::{
    AppliedMark, Committed, EntryId, Group, GroupConfig, NodeId, PeerService, ProposeError, Role,
    StateMachine,
};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use self::disks::{Free, TestFiles};
use self::net::{Cuts, TestNet};

/// Long enough for anything that should happen soon, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// A machine that remembers what it applied and answers with the index.
#[derive(Clone, Default)]
pub struct Recorder {
    pub applied: Arc<Mutex<Vec<(EntryId, Bytes)>>>,
    /// A payload that makes the machine panic.
    pub poison: Option<Bytes>,
}

impl Recorder {
    pub fn payloads(&self) -> Vec<Bytes> {
        let applied = self.applied.lock().unwrap();
        applied.iter().map(|(_, payload)| payload.clone()).collect()
    }

    pub fn entries(&self) -> Vec<(EntryId, Bytes)> {
        self.applied.lock().unwrap().clone()
    }
}

impl StateMachine for Recorder {
    fn restored(&self) -> Option<AppliedMark> {
        None
    }

    fn apply(&mut self, entry: &Committed) -> Bytes {
        assert_ne!(Some(&entry.payload), self.poison.as_ref(), "poisoned");
        let mut applied = self.applied.lock().unwrap();
        applied.push((entry.id, entry.payload.clone()));
        Bytes::copy_from_slice(&entry.id.index.to_le_bytes())
    }

    fn advance(&mut self, _entry: &Committed) {}
}

/// A service that answers with the caller, this node, and the request; or only after a delay.
pub struct Echo {
    pub node: NodeId,
}

impl PeerService for Echo {
    fn call(&self, from: NodeId, request: Bytes) -> BoxFuture<'static, Bytes> {
        let node = self.node;
        Box::pin(async move {
            if let Some(ms) = request.strip_prefix(b"sleep ") {
                let ms = std::str::from_utf8(ms).unwrap().parse().unwrap();
                sleep(Duration::from_millis(ms)).await;
            }
            let text = format!("{from}>{node}:");
            Bytes::from([text.as_bytes(), &request].concat())
        })
    }
}

/// A node that runs.
pub struct Node {
    pub group: Group,
    pub machine: Recorder,
    pub fatal: Arc<Mutex<Option<String>>>,
}

/// The nodes of one group and what they live on.
pub struct Cluster {
    pub dir: TempDir,
    pub cuts: Arc<Cuts>,
    pub peers: BTreeMap<NodeId, String>,
    pub nodes: BTreeMap<NodeId, Node>,
    pub poison: Option<Bytes>,
    /// Free bytes of each node's disk; without end at first.
    pub free: BTreeMap<NodeId, Free>,
    /// Free bytes below which a node refuses.
    pub disk_reserve: u64,
    pub timers: Timers,
}

fn plenty() -> Free {
    Arc::new(AtomicU64::new(u64::MAX))
}

/// Addresses that nobody uses now.
pub fn free_addresses(count: usize) -> Vec<String> {
    let listeners: Vec<std::net::TcpListener> = (0..count)
        .map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    listeners
        .iter()
        .map(|listener| listener.local_addr().unwrap().to_string())
        .collect()
}

pub fn config(
    dir: &Path,
    group: &str,
    node: NodeId,
    peers: &BTreeMap<NodeId, String>,
) -> GroupConfig {
    GroupConfig {
        group: group.into(),
        node,
        peers: peers.clone(),
        listen: peers[&node].clone(),
        dir: dir.join(format!("node{node}")),
        segment_bytes: 4 << 20,
        flush: FlushMode::Sync,
        timers: Timers::default(),
        disk_reserve: 0,
        cache_bytes: 8 << 20,
        accept_empty: false,
    }
}

impl Cluster {
    /// Addresses and a directory for `count` nodes, none of which runs yet.
    pub fn new(count: u64) -> Cluster {
        let peers: BTreeMap<NodeId, String> = (1..).zip(free_addresses(count as usize)).collect();
        let cuts = Arc::new(Cuts::new(&peers));
        Cluster {
            dir: tempfile::tempdir().unwrap(),
            cuts,
            peers,
            nodes: BTreeMap::new(),
            poison: None,
            free: (1..=count).map(|node| (node, plenty())).collect(),
            disk_reserve: 0,
            timers: Timers::default(),
        }
    }

    /// As [`Cluster::new`], with timers under which no leader is lost although the machine is busy.
    pub fn calm(count: u64) -> Cluster {
        let mut cluster = Cluster::new(count);
        cluster.timers = Timers {
            heartbeat: Duration::from_millis(200),
            election_min: Duration::from_millis(500),
            election_max: Duration::from_millis(2000),
        };
        cluster
    }

    /// `count` running nodes.
    pub async fn start(count: u64) -> Cluster {
        let mut cluster = Cluster::new(count);
        for node in 1..=count {
            cluster.start_node(node).await;
        }
        cluster
    }

    pub fn config(&self, node: NodeId) -> GroupConfig {
        GroupConfig {
            disk_reserve: self.disk_reserve,
            timers: self.timers,
            ..config(self.dir.path(), "g", node, &self.peers)
        }
    }

    pub fn env(&self, node: NodeId) -> Env {
        let mut env = Env::real();
        env.files = Arc::new(TestFiles {
            real: env.files,
            free: self.free.get(&node).cloned().unwrap_or_else(plenty),
        });
        env.net = Arc::new(TestNet::new(node, env.net, self.cuts.clone()));
        env
    }

    pub async fn start_node(&mut self, node: NodeId) {
        self.start_node_with(node, self.config(node)).await;
    }

    pub async fn start_node_with(&mut self, node: NodeId, config: GroupConfig) {
        let machine = Recorder {
            poison: self.poison.clone(),
            ..Recorder::default()
        };
        let fatal = Arc::new(Mutex::new(None));
        let said = fatal.clone();
        let group = Group::start_with(
            config,
            self.env(node),
            machine.clone(),
            Arc::new(Echo { node }),
            Box::new(move |reason| {
                said.lock().unwrap().get_or_insert(reason);
            }),
        )
        .await
        .unwrap();
        let node_ = Node {
            group,
            machine,
            fatal,
        };
        self.nodes.insert(node, node_);
    }

    /// From now on so many bytes of a node's disk are free.
    pub fn set_free(&self, node: NodeId, bytes: u64) {
        self.free[&node].store(bytes, Ordering::SeqCst);
    }

    /// Nodes 1 and 2 found the group without node 3, on an operator's word that it has no data.
    pub async fn start_two_of_three(&mut self) {
        for node in [1, 2] {
            let mut config = self.config(node);
            config.accept_empty = true;
            self.start_node_with(node, config).await;
        }
    }

    /// Stops a node in good order.
    pub async fn stop_node(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.remove(&node) {
            node.group.shutdown().await;
        }
    }

    pub fn group(&self, node: NodeId) -> &Group {
        &self.nodes[&node].group
    }

    /// The node that leads and takes writes, as soon as there is one among the running nodes.
    pub async fn leader(&self) -> NodeId {
        self.leader_among(&self.nodes.keys().copied().collect::<Vec<_>>())
            .await
    }

    pub async fn leader_among(&self, nodes: &[NodeId]) -> NodeId {
        let until = Instant::now() + PATIENCE;
        loop {
            for node in nodes {
                if self.group(*node).gate().is_ok() {
                    return *node;
                }
            }
            assert!(Instant::now() < until, "no leader among {nodes:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Proposes on `node` and waits for the result.
    pub async fn write(&self, node: NodeId, payload: &[u8]) -> Result<Bytes, ProposeError> {
        let proposal = self
            .group(node)
            .propose(Bytes::copy_from_slice(payload))
            .await?;
        timeout(PATIENCE, proposal.result()).await.unwrap()
    }

    /// Writes until a leader acknowledges it; on a busy machine leaders come and go. It may then be there twice.
    pub async fn acknowledge(&self, payload: &[u8]) {
        let until = Instant::now() + PATIENCE;
        loop {
            let leader = self.leader().await;
            match self.write(leader, payload).await {
                Ok(_) => return,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
        }
    }

    /// The first bytes of what a node applied, each once, in the order in which they came first.
    pub fn numbers(&self, node: NodeId) -> Vec<u8> {
        let mut numbers = Vec::new();
        for payload in self.nodes[&node].machine.payloads() {
            if !numbers.contains(&payload[0]) {
                numbers.push(payload[0]);
            }
        }
        numbers
    }

    /// Waits until every running node has applied the numbers below `end`.
    pub async fn all_have(&self, end: u8) {
        for node in self.nodes.keys() {
            eventually(&format!("node {node} has the numbers below {end}"), || {
                self.numbers(*node).len() >= usize::from(end)
            })
            .await;
            assert!(self.numbers(*node).into_iter().eq(0..end), "node {node}");
        }
    }

    /// Waits until every running node has applied `count` payloads.
    pub async fn all_applied(&self, count: usize) {
        for (id, node) in &self.nodes {
            eventually(&format!("node {id} applies {count}"), || {
                node.machine.payloads().len() >= count
            })
            .await;
        }
    }

    pub fn assert_all_the_same(&self) {
        let mut all = self.nodes.iter();
        let (first, node) = all.next().unwrap();
        let expected = node.machine.entries();
        for (other, node) in all {
            assert!(
                node.machine.entries() == expected,
                "nodes {first} and {other} differ"
            );
        }
    }

    pub fn role(&self, node: NodeId) -> Role {
        self.group(node).view().borrow().role
    }
}

/// Waits until `condition` holds.
pub async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "{what}: not within {PATIENCE:?}");
        sleep(Duration::from_millis(5)).await;
    }
}
