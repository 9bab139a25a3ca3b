//! One node as a host of the simulation: the real group, state machine and broker over a simulated
//! environment, and what the run sees of them from outside.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use quorumlog::broker::Broker;
use quorumlog::broker::forward::ServiceSlot;
use quorumlog::broker::hold::Holds;
use quorumlog::config::Config;
use quorumlog::store::{Machine, Store, StoreOptions};
use quorumlog_raft::env::{Clock, Env, WriterMode};
use quorumlog_raft::group::{FlushMode, Timers};
use quorumlog_raft::{
    AppliedMark, Checkpoint, Committed, EntryId, Group, GroupConfig, LogReader, Position,
    StateMachine, Status,
};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use turmoil::net::TcpListener;

use crate::disk::Disk;
use crate::net::{self, Breaks, SimNet};
use crate::plan::{Node, Plan};
use crate::trace::Trace;

pub const CLIENT_PORT: u16 = 30911;
pub const PEER_PORT: u16 = 40911;
pub const DIR: &str = "/node";
/// Free bytes that nodes keep in reserve.
pub const RESERVE: u64 = 1 << 20;
/// When simulations take place: wall clock at their start, ms.
const WALL_START_MS: i64 = 1_700_000_000_000;

/// Name of a node's host.
pub fn host_name(node: Node) -> String {
    format!("n{node}")
}

/// Everything of a node that outlives its process.
pub struct Seat {
    pub node: Node,
    pub disk: Disk,
    pub config: Config,
    pub group: GroupConfig,
    /// Of the wall clock, ms.
    pub clock_offset: Arc<AtomicI64>,
    /// Tells the process to stop in good order.
    pub stop: Notify,
    pub trace: Arc<Trace>,
    /// Connections between all nodes.
    pub breaks: Arc<Breaks>,
    seen: Mutex<Seen>,
}

/// A running node's handles.
#[derive(Clone)]
pub struct Running {
    pub group: Group,
    pub store: Store,
    /// The first status after the start, before any message came.
    pub boot: Status,
}

/// One entry as a node has applied it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedEntry {
    pub id: EntryId,
    pub payload_position: Position,
    pub payload_bytes: u64,
    pub payload_hash: u64,
    pub end: Position,
}

/// What a node's process shows to the run; taken or cleared by it.
#[derive(Default)]
pub struct Seen {
    pub running: Option<Running>,
    /// What the process runs on, and whose clock it goes by.
    pub runtime: Option<Handle>,
    /// Since the last look, in order.
    pub applied: Vec<AppliedEntry>,
    /// The process has ended: why, and whether that was in good order.
    pub ended: Option<(String, bool)>,
}

impl Seat {
    pub fn new(
        plan: &Plan,
        node: Node,
        ips: &BTreeMap<Node, String>,
        breaks: Arc<Breaks>,
        trace: Arc<Trace>,
    ) -> Seat {
        let seed = plan.seed.wrapping_mul(31).wrapping_add(node);
        let disk = Disk::new(seed, plan.cold_percent);
        disk.set_pace(plan.disk_pace.0, plan.disk_pace.1);
        let config = config(plan, node, ips);
        Seat {
            node,
            disk,
            group: group_config(plan, &config),
            config,
            clock_offset: Arc::default(),
            stop: Notify::new(),
            breaks,
            trace,
            seen: Mutex::default(),
        }
    }

    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self, why: String, well: bool) {
        self.trace.note(format_args!("n{} ends: {why}", self.node));
        self.seen().ended.get_or_insert((why, well));
    }
}

fn config(plan: &Plan, node: Node, ips: &BTreeMap<Node, String>) -> Config {
    let peers: Vec<String> = ips
        .iter()
        .map(|(node, ip)| format!("n{}-{ip}:{PEER_PORT}", node - 1))
        .collect();
    let text = format!(
        "brokerName = sim\nbrokerIP1 = {}\nlistenPort = {CLIENT_PORT}\nnamesrvListenPort = 0\n\
         storePathRootDir = {DIR}\nenableDLegerCommitLog = true\ndLegerGroup = sim\ndLegerPeers = {}\n\
         dLegerSelfId = n{}\nslaveReadEnable = {}\ndiskReserveBytes = {RESERVE}\nwriteFronts = false\n\
         raftHeartbeatInterval = {}\nraftElectionTimeoutMin = {}\nraftElectionTimeoutMax = {}\n\
         brokerDeduplication = {}\nmessageDelayLevel = 1s 2s\n",
        ips[&node],
        peers.join(";"),
        node - 1,
        plan.follower_reads,
        plan.heartbeat.as_millis(),
        plan.election.0.as_millis(),
        plan.election.1.as_millis(),
        plan.deduplication,
    );
    Config::parse(&text, "sim").expect("the simulation's own configuration is right")
}

fn group_config(plan: &Plan, config: &Config) -> GroupConfig {
    GroupConfig {
        group: config.group.name.clone(),
        node: config.group.node,
        peers: config.group.peers.clone(),
        listen: config.peer_listen(),
        dir: config.dir.clone(),
        segment_bytes: plan.segment_bytes,
        flush: FlushMode::Sync,
        timers: Timers {
            heartbeat: plan.heartbeat,
            election_min: plan.election.0,
            election_max: plan.election.1,
        },
        disk_reserve: RESERVE,
        cache_bytes: plan.cache_bytes,
        accept_empty: false,
    }
}

/// The process of a node: from start until it is told to stop or cannot go on. A host whose software has
/// returned cannot be crashed, so it never returns.
pub async fn run(seat: Arc<Seat>) -> turmoil::Result {
    seat.seen().runtime = Some(Handle::current());
    match start(&seat).await {
        Ok(broker) => {
            let group = broker.group.clone();
            tokio::select! {
                biased;
                () = seat.stop.notified() => {
                    group.shutdown().await;
                    seat.ended("told to stop".to_string(), true);
                }
                served = serve(broker) => seat.ended(format!("the door: {served:?}"), false),
            }
        }
        Err(why) => seat.ended(format!("cannot start: {why}"), false),
    }
    std::future::pending().await
}

async fn serve(broker: Arc<Broker>) -> std::io::Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", CLIENT_PORT)).await?;
    net::serve(listener, broker).await
}

async fn start(seat: &Arc<Seat>) -> Result<Arc<Broker>, String> {
    seat.trace.note(format_args!("n{} starts", seat.node));
    let env = Env {
        files: Arc::new(seat.disk.clone()),
        net: Arc::new(SimNet {
            us: seat.config.broker_ip.into(),
            breaks: seat.breaks.clone(),
        }),
        clock: Arc::new(SimClock(seat.clock_offset.clone())),
        writer: WriterMode::Task,
    };
    let holds = Arc::new(Holds::default());
    let slot = ServiceSlot::default();
    let options = StoreOptions {
        dir: PathBuf::from(DIR),
        env: env.clone(),
    };
    let (opened, store) = std::sync::mpsc::sync_channel(1);
    let arrivals = holds.clone();
    let witness = seat.clone();
    let open = move |log: LogReader| -> Result<Witnessed, String> {
        let (store, machine) = Store::open(options, log).map_err(|error| error.to_string())?;
        store.watch_arrivals(arrivals);
        let _taken_below = opened.send(store);
        Ok(Witnessed {
            machine,
            seat: witness,
        })
    };
    let dying = seat.clone();
    let on_fatal = Box::new(move |why: String| dying.ended(why, false));
    let service = Arc::new(slot.clone());
    let group = Group::start_over_with(seat.group.clone(), env, open, service, on_fatal)
        .await
        .map_err(|error| error.to_string())?;
    let boot = group.status().await;
    let store = store.try_recv().map_err(|error| error.to_string())?;
    seat.seen().running = Some(Running {
        group: group.clone(),
        store: store.clone(),
        boot,
    });
    let broker = Broker::start(seat.config.clone(), group, store, holds);
    slot.set(&broker);
    Ok(broker)
}

/// The simulation's time, and a node's own idea of the time of day.
struct SimClock(Arc<AtomicI64>);

impl Clock for SimClock {
    fn wall_ms(&self) -> i64 {
        let elapsed = turmoil::sim_elapsed().unwrap_or_default().as_millis() as i64;
        WALL_START_MS + elapsed + self.0.load(Ordering::Relaxed)
    }

    fn now(&self) -> tokio::time::Instant {
        tokio::time::Instant::now()
    }
}

/// The state machine, with a note of everything it is given.
struct Witnessed {
    machine: Machine,
    seat: Arc<Seat>,
}

impl Witnessed {
    fn note(&self, entry: &Committed) {
        self.seat.seen().applied.push(AppliedEntry {
            id: entry.id,
            payload_position: entry.payload_position,
            payload_bytes: entry.payload.len() as u64,
            payload_hash: quorumlog_chaos::workload::hash(&entry.payload),
            end: entry.mark.end,
        });
    }
}

impl StateMachine for Witnessed {
    fn restored(&self) -> Option<AppliedMark> {
        self.machine.restored()
    }

    fn apply(&mut self, entry: &Committed) -> Bytes {
        let result = self.machine.apply(entry);
        self.note(entry);
        result
    }

    fn advance(&mut self, entry: &Committed) {
        self.machine.advance(entry);
        self.note(entry);
    }

    fn checkpoint(&mut self) -> Option<Checkpoint> {
        self.machine.checkpoint()
    }

    fn install(&mut self, checkpoint: &Checkpoint) -> bool {
        self.machine.install(checkpoint)
    }
}
