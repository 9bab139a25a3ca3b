//! A group of real server processes on loopback: generated configuration, start, signals, restart, and who
//! leads. What is checked is the tests' own.

// Each test binary uses a part of it.
#![allow(dead_code)]

pub mod ports;
mod view;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quorumlog_chaos::checker::{self, Options, Report};
use quorumlog_chaos::history::Recorder;
use quorumlog_chaos::wire::{Connection, Pull, Record, Route, Topic};
use quorumlog_chaos::workload::{Drainer, Node, Producers, Readers};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::{Semaphore, SemaphorePermit};

use view::{View, agreed_leader, newest_leader};

/// The broker name of every test group.
pub const BROKER: &str = "broker-a";

/// Two groups at a time: more than that measures the machine.
static GROUPS: Semaphore = Semaphore::const_new(2);

/// How long a group may take to start, elect and serve. Generous: test machines are busy.
const SERVING_WITHIN: Duration = Duration::from_secs(30);
const REQUEST_WITHIN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// What differs from group to group.
#[derive(Clone, Debug)]
pub struct Setup {
    pub nodes: usize,
    /// Configuration lines beyond the usual ones; a key given here replaces the usual one.
    pub overrides: Vec<(String, String)>,
    /// The nodes' own directories, in order; made in the group's directory where none is given.
    pub stores: Vec<PathBuf>,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            nodes: 3,
            overrides: Vec::new(),
            stores: Vec::new(),
        }
    }
}

impl Setup {
    pub fn with(mut self, key: &str, value: &str) -> Setup {
        self.overrides.push((key.to_owned(), value.to_owned()));
        self
    }
}

/// One node: its ports and, while it runs, its process.
struct Member {
    name: String,
    listen: u16,
    name_server: u16,
    conf: PathBuf,
    log: PathBuf,
    process: Option<Child>,
}

/// A running group. Dropping it kills the processes; after a panic its files are kept and named.
pub struct Cluster {
    members: Vec<Member>,
    dir: Option<tempfile::TempDir>,
    _permit: SemaphorePermit<'static>,
}

impl Cluster {
    /// Three nodes with the usual configuration, serving.
    pub async fn start() -> Cluster {
        Cluster::start_with(Setup::default()).await
    }

    pub async fn start_with(setup: Setup) -> Cluster {
        let permit = GROUPS.acquire().await.expect("never closed");
        let dir = tempfile::Builder::new()
            .prefix("quorumlog-test-")
            .tempdir()
            .expect("a temporary directory");
        let blocks: Vec<u16> = (0..setup.nodes).map(|_| ports::block()).collect();
        let peers = (0..setup.nodes)
            .map(|at| format!("n{at}-127.0.0.1:{}", blocks[at] + 4))
            .collect::<Vec<_>>()
            .join(";");
        let members = (0..setup.nodes)
            .map(|at| Member::prepare(dir.path(), at, blocks[at], &peers, &setup))
            .collect();
        let mut cluster = Cluster {
            members,
            dir: Some(dir),
            _permit: permit,
        };
        for at in 0..setup.nodes {
            cluster.spawn(at);
        }
        cluster.wait_serving().await;
        cluster
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn dir(&self) -> &Path {
        self.dir.as_ref().expect("there until the drop").path()
    }

    /// Client address of a node.
    pub fn address(&self, at: usize) -> SocketAddr {
        loopback(self.members[at].listen)
    }

    pub fn name_server(&self, at: usize) -> SocketAddr {
        loopback(self.members[at].name_server)
    }

    /// All nodes as the workload names them.
    pub fn nodes(&self) -> Vec<Node> {
        (0..self.len()).map(|at| self.node(at)).collect()
    }

    pub fn node(&self, at: usize) -> Node {
        Node {
            name: self.members[at].name.clone(),
            address: self.address(at),
        }
    }

    pub fn is_running(&self, at: usize) -> bool {
        self.members[at].process.is_some()
    }

    /// A connection to a node.
    pub async fn connect(&self, at: usize) -> Connection {
        Connection::open(self.address(at), REQUEST_WITHIN)
            .await
            .unwrap_or_else(|error| panic!("node {at}: {error}"))
    }

    pub async fn connect_name_server(&self, at: usize) -> Connection {
        Connection::open(self.name_server(at), REQUEST_WITHIN)
            .await
            .unwrap_or_else(|error| panic!("name server of node {at}: {error}"))
    }

    pub async fn connect_leader(&self) -> Connection {
        self.connect(self.leader().await).await
    }

    /// Starts a node that is not running. Does not wait for it.
    pub fn spawn(&mut self, at: usize) {
        let member = &mut self.members[at];
        assert!(member.process.is_none(), "{} runs already", member.name);
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&member.log)
            .expect("the node's log file");
        let errors = log.try_clone().expect("the node's log file");
        let process = Command::new(env!("CARGO_BIN_EXE_quorumlog"))
            .arg("serve")
            .arg("-c")
            .arg(&member.conf)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .expect("the server's binary");
        member.process = Some(process);
    }

    /// Starts every node that is not running and waits until the group serves.
    pub async fn restart_dead(&mut self) {
        for at in 0..self.len() {
            if !self.is_running(at) {
                self.spawn(at);
            }
        }
        self.wait_serving().await;
    }

    /// Kills nodes at once (SIGKILL to all before the first is waited for).
    pub fn kill(&mut self, nodes: &[usize]) {
        for at in nodes {
            self.signal(*at, Signal::KILL);
        }
        for at in nodes {
            if let Some(mut process) = self.members[*at].process.take() {
                process.wait().expect("the node's end");
            }
        }
    }

    /// SIGSTOP: the node stands still, its connections stay.
    pub fn pause(&self, at: usize) {
        self.signal(at, Signal::STOP);
    }

    /// SIGCONT.
    pub fn resume(&self, at: usize) {
        self.signal(at, Signal::CONT);
    }

    /// SIGTERM, and how the node ended.
    pub async fn terminate(&mut self, at: usize) -> ExitStatus {
        self.signal(at, Signal::TERM);
        let begun = Instant::now();
        loop {
            let member = &mut self.members[at];
            let process = member.process.as_mut().expect("a running node");
            if let Some(status) = process.try_wait().expect("the node's end") {
                member.process = None;
                return status;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(15),
                "{} does not stop by SIGTERM",
                member.name
            );
            tokio::time::sleep(POLL).await;
        }
    }

    fn signal(&self, at: usize, signal: Signal) {
        let process = self.members[at].process.as_ref().expect("a running node");
        kill_process(Pid::from_child(process), signal).expect("a signal to an own child");
    }

    /// Resident memory of a node, bytes.
    pub fn resident(&self, at: usize) -> u64 {
        let process = self.members[at].process.as_ref().expect("a running node");
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.id()))
            .expect("the node's status");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("VmRSS");
        let kib: u64 = line
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .expect("a number");
        kib * 1024
    }

    /// Waits until one running node leads and all running nodes say so.
    pub async fn wait_serving(&mut self) {
        let begun = Instant::now();
        loop {
            self.assert_alive();
            let views = self.views().await;
            if agreed_leader(&views).is_some() {
                return;
            }
            assert!(
                begun.elapsed() < SERVING_WITHIN,
                "the group does not serve after {SERVING_WITHIN:?}: {views:?}"
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// Which node leads. Waits for one.
    pub async fn leader(&self) -> usize {
        let begun = Instant::now();
        loop {
            let views = self.views().await;
            if let Some(at) = newest_leader(&views) {
                return at;
            }
            assert!(
                begun.elapsed() < SERVING_WITHIN,
                "nobody leads after {SERVING_WITHIN:?}: {views:?}"
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// Does any running node say now that it leads?
    pub async fn anyone_leads(&self) -> bool {
        newest_leader(&self.views().await).is_some()
    }

    /// Running nodes that do not lead.
    pub async fn followers(&self) -> Vec<usize> {
        let leader = self.leader().await;
        (0..self.len())
            .filter(|at| *at != leader && self.is_running(*at))
            .collect()
    }

    fn assert_alive(&mut self) {
        for member in &mut self.members {
            if let Some(process) = &mut member.process
                && let Some(status) = process.try_wait().expect("the node's end")
            {
                let log = std::fs::read_to_string(&member.log).unwrap_or_default();
                panic!("{} ended with {status}:\n{}", member.name, tail(&log));
            }
        }
    }

    /// What each running node says of the group.
    async fn views(&self) -> Vec<(usize, Option<View>)> {
        let mut views = Vec::new();
        for at in 0..self.len() {
            if self.is_running(at) {
                views.push((at, View::of(self.address(at)).await));
            }
        }
        views
    }

    /// Creates a topic at the leader and waits until every running node routes it.
    pub async fn create_topic(&self, name: &str, queues: i32) {
        let begun = Instant::now();
        let topic = Topic::new(name, queues);
        loop {
            let created = self.connect_leader().await.create_topic(&topic).await;
            match created {
                Ok(()) => break,
                Err(error) => assert!(begun.elapsed() < SERVING_WITHIN, "topic {name}: {error}"),
            }
            tokio::time::sleep(POLL).await;
        }
        for at in (0..self.len()).filter(|at| self.is_running(*at)) {
            self.wait_route(at, name).await;
        }
    }

    /// The route of a topic as a node's name server tells it, once it does.
    pub async fn wait_route(&self, at: usize, topic: &str) -> Route {
        self.wait_route_where(at, topic, |_| true).await
    }

    /// The route of a topic once it is as `ready` wants it: a node learns of the others by and by.
    pub async fn wait_route_where(
        &self,
        at: usize,
        topic: &str,
        ready: impl Fn(&Route) -> bool,
    ) -> Route {
        let name_server = self.connect_name_server(at).await;
        let begun = Instant::now();
        loop {
            let answer = name_server.route(topic).await;
            match answer {
                Ok(route) if ready(&route) => return route,
                answer => assert!(
                    begun.elapsed() < SERVING_WITHIN,
                    "node {at} does not route {topic} as expected: {answer:?}"
                ),
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// A history in the group's directory.
    pub fn recorder(&self) -> Arc<Recorder> {
        let path = self.dir().join("history.jsonl");
        Arc::new(Recorder::create(&path).expect("a history file"))
    }

    pub fn producers(&self, topic: &str, queues: i32) -> Producers {
        Producers::new(self.nodes(), topic, queues)
    }

    /// Readers that follow the topic on every node.
    pub fn readers(&self, topic: &str, queues: i32) -> Readers {
        Readers {
            nodes: self.nodes(),
            topic: topic.to_owned(),
            queues,
            timeout: Duration::from_secs(1),
        }
    }

    /// Drains the topic from every node, checks the history, and requires it to be green.
    pub async fn drain_and_check(
        &self,
        recorder: &Recorder,
        topic: &str,
        queues: i32,
        options: &Options,
    ) -> Report {
        Drainer::new(self.nodes(), topic, queues)
            .drain_all(recorder)
            .await
            .unwrap_or_else(|error| panic!("drain: {error}"));
        let events = recorder.events().expect("the history");
        let report = checker::check(&events, options);
        assert!(report.is_green(), "{report}");
        println!("{topic}: {report}");
        report
    }
}

/// Everything in a queue from `offset` on, waiting until there are `count` records.
pub async fn read_at_least(
    connection: &Connection,
    pull: Pull,
    count: usize,
    within: Duration,
) -> Vec<Record> {
    let begun = Instant::now();
    let mut pull = pull;
    let mut records = Vec::new();
    while records.len() < count {
        assert!(
            begun.elapsed() < within,
            "{} of {count} records in {} {} after {within:?}",
            records.len(),
            pull.topic,
            pull.queue
        );
        match connection.pull(&pull).await {
            Ok(pulled) if !pulled.records.is_empty() => {
                pull.offset = pulled.next;
                records.extend(pulled.records);
            }
            Ok(_) | Err(_) => tokio::time::sleep(POLL).await,
        }
    }
    records
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some(mut process) = member.process.take() {
                // Both fail only for a process that has ended already.
                let _ended = process.kill();
                let _ended = process.wait();
            }
        }
        if !std::thread::panicking() {
            return;
        }
        if let Some(dir) = self.dir.take() {
            let path = dir.keep();
            eprintln!("the group's files are kept in {}", path.display());
            for member in &self.members {
                let log = std::fs::read_to_string(&member.log).unwrap_or_default();
                eprintln!("--- {} ---\n{}", member.log.display(), tail(&log));
            }
        }
    }
}

impl Member {
    fn prepare(dir: &Path, at: usize, port: u16, peers: &str, setup: &Setup) -> Member {
        let name = format!("n{at}");
        let store = setup
            .stores
            .get(at)
            .cloned()
            .unwrap_or_else(|| dir.join(&name));
        std::fs::create_dir_all(&store).expect("the node's directory");
        let mut lines: BTreeMap<String, String> = [
            ("brokerClusterName", "DefaultCluster".to_owned()),
            ("brokerName", BROKER.to_owned()),
            ("brokerIP1", "127.0.0.1".to_owned()),
            ("listenPort", port.to_string()),
            ("namesrvListenPort", (port + 3).to_string()),
            ("storePathRootDir", store.display().to_string()),
            ("enableDLegerCommitLog", "true".to_owned()),
            ("dLegerGroup", BROKER.to_owned()),
            ("dLegerPeers", peers.to_owned()),
            ("dLegerSelfId", name.clone()),
            ("slaveReadEnable", "true".to_owned()),
            ("autoCreateTopicEnable", "true".to_owned()),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
        lines.extend(setup.overrides.iter().cloned());
        let conf = dir.join(format!("{name}.conf"));
        let mut file = File::create(&conf).expect("the node's configuration");
        for (key, value) in &lines {
            writeln!(file, "{key}={value}").expect("the node's configuration");
        }
        Member {
            listen: port,
            name_server: port + 3,
            conf,
            log: dir.join(format!("{name}.log")),
            process: None,
            name,
        }
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
