//! The measuring half alone: any RocketMQ-compatible group is probed while somebody else does the damage, by hand or by
//! hook commands, and everything is read back at the end.

mod told;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::discover::{self, Found};
use super::given::run_shell;
use super::judge::{Judged, judge};
use super::load::{Load, query_offset};
use super::probe::Probe;
use super::report::Drill;
use super::roles::watch_roles;
use super::scene::{DrillError, QUEUES, create_topic};
use super::tape::{Role, Tape, index};
use crate::history::Recorder;
use crate::wire::{Connection, WireError};
use crate::workload::{Drainer, Node};

/// What to watch, and for how long.
#[derive(Clone, Debug)]
pub struct Watch {
    /// `HOST:PORT;HOST:PORT`
    pub name_servers: String,
    /// Needed when the cluster has several.
    pub broker: Option<String>,
    /// Must not exist yet; by default a new name.
    pub topic: Option<String>,
    pub length: Duration,
    /// Commands that do damage, spread evenly over the time.
    pub hooks: Vec<String>,
    /// Sends of the probe in a second, over all nodes.
    pub rate: u32,
    pub timeout: Duration,
    pub seed: u64,
    pub out: PathBuf,
}

/// Why nothing was watched, or it came to no end.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("`{0}` is no name server; give --namesrv HOST:PORT, several with `;` between")]
    NameServer(String),
    #[error("no name server answers: {0}")]
    Unreachable(String),
    #[error("which broker? There are: {0}. Name one with --broker")]
    Which(String),
    #[error("broker {0} has no master in the route; is the group whole?")]
    NoMaster(String),
    #[error(transparent)]
    Drill(#[from] DrillError),
    #[error("the master at the end, {node}: {source}")]
    Master { node: String, source: WireError },
    #[error("after {0:?} no write was acknowledged yet; is the group whole?")]
    NoService(Duration),
}

/// What was watched.
pub struct Watched {
    pub drill: Drill,
    pub broker: String,
    pub nodes: Vec<Node>,
    /// It says of itself what quorumlog's nodes say, and promises what they promise.
    pub quorumlog: bool,
}

const SERVICE_WITHIN: Duration = Duration::from_secs(60);
const ROUTE_EVERY: Duration = Duration::from_millis(250);
const REQUEST_WITHIN: Duration = Duration::from_secs(5);
/// For a group to come back at the end, and for queues to be built.
const SETTLE: Duration = Duration::from_secs(90);
/// Shorter times without an acknowledgement are no outage; without hooks, outages are taken for the damage.
const OUTAGE: u64 = 200_000_000;

/// Watches a group. `progress` is told what happens.
pub async fn watch(what: &Watch, mut progress: impl FnMut(&str)) -> Result<Watched, WatchError> {
    let servers = discover::name_servers(&what.name_servers)?;
    let found = discover::find(&servers, what.broker.as_deref()).await?;
    let quorumlog = is_quorumlog(&found).await;
    progress(&format!(
        "broker {} with {} nodes, master {}",
        found.broker,
        found.nodes.len(),
        found.nodes[found.master].name
    ));
    let topic = match &what.topic {
        Some(topic) => topic.clone(),
        None => format!("drill_watch_{}_{}", std::process::id(), what.seed),
    };
    let master_only = [found.nodes[found.master].clone()];
    create_topic(&master_only, &topic, QUEUES).await?;
    let path = what.out.join("history-watch-1.jsonl");
    let recorder = Arc::new(Recorder::create(&path).map_err(DrillError::from)?);
    let tape = Arc::new(Tape::new());
    let (masters, master) = watch::channel(found.master);
    let mut tasks = JoinSet::new();
    tasks.spawn(follow(
        servers,
        found.clone(),
        masters,
        Arc::clone(&tape),
        quorumlog,
    ));
    let _roles = quorumlog.then(|| watch_roles(&found.nodes, &tape, &recorder));
    let (probe, load) = clients(what, &found, &topic, quorumlog, &master);
    let probing = probe.start(0, &tape, &recorder);
    let loading = load.start(&recorder);
    let served = wait_service(&tape).await;
    let spans = match served {
        true => run_hooks(what, &tape, &recorder, &mut progress).await,
        false => Vec::new(),
    };
    probing.stop().await;
    loading.stop().await;
    if !served {
        return Err(WatchError::NoService(SERVICE_WITHIN));
    }
    progress("reading everything back");
    let until = tape.now();
    let mut judged = Judged::default();
    let judgement = read_back(&found, &topic, &master, &recorder, quorumlog, &mut judged).await;
    tasks.shutdown().await;
    let reason = judgement.err().map(|error| error.to_string());
    let mut promises = judged.promises(|id| quorumlog || id != "refusals");
    if !quorumlog {
        for promise in promises.iter_mut().filter(|promise| promise.id == "rpo") {
            promise.text = "Every acknowledged message is there, at the master".to_owned();
        }
    }
    let judgement = (judged.totals, promises, reason);
    let drill =
        tape.look(|measured| told::report(what, &found, measured, &spans, until, judgement));
    Ok(Watched {
        drill,
        broker: found.broker,
        nodes: found.nodes,
        quorumlog,
    })
}

async fn is_quorumlog(found: &Found) -> bool {
    let Ok(open) = Connection::open(found.nodes[found.master].address, REQUEST_WITHIN).await else {
        return false;
    };
    open.runtime_info()
        .await
        .is_ok_and(|table| table.contains_key("raftRole"))
}

fn clients(
    what: &Watch,
    found: &Found,
    topic: &str,
    quorumlog: bool,
    master: &watch::Receiver<usize>,
) -> (Probe, Load) {
    let probe = Probe {
        nodes: found.nodes.clone(),
        topic: topic.to_owned(),
        queues: QUEUES,
        rate: what.rate,
        timeout: what.timeout,
        prefix: "probe".to_owned(),
        linear_reads: quorumlog,
    };
    let load = Load {
        nodes: found.nodes.clone(),
        topic: topic.to_owned(),
        queues: QUEUES,
        seed: what.seed,
        prefix: "c".to_owned(),
        linear_offsets: quorumlog,
        // Only a master keeps what RocketMQ's consumers commit.
        master: (!quorumlog).then(|| master.clone()),
    };
    (probe, load)
}

/// Asks the name servers again and again who is master.
async fn follow(
    servers: Vec<SocketAddr>,
    found: Found,
    masters: watch::Sender<usize>,
    tape: Arc<Tape>,
    quorumlog: bool,
) {
    loop {
        if let Ok(now) = discover::find(&servers, Some(&found.broker)).await {
            let name = &now.nodes[now.master].name;
            if let Some(at) = found.nodes.iter().position(|node| node.name == *name) {
                masters.send_if_modified(|master| std::mem::replace(master, at) != at);
                for node in (0..found.nodes.len()).filter(|_| !quorumlog) {
                    let role = if node == at {
                        Role::Leader
                    } else {
                        Role::Follower
                    };
                    tape.role(index(node), role, 0);
                }
            }
        }
        sleep(ROUTE_EVERY).await;
    }
}

async fn wait_service(tape: &Tape) -> bool {
    let until = Instant::now() + SERVICE_WITHIN;
    while Instant::now() < until {
        if tape.acknowledged_since(0) {
            return true;
        }
        sleep(Duration::from_millis(20)).await;
    }
    false
}

/// Lets the time pass, running the hooks; gives their spans.
async fn run_hooks(
    what: &Watch,
    tape: &Tape,
    recorder: &Recorder,
    progress: &mut impl FnMut(&str),
) -> Vec<usize> {
    let begun = Instant::now();
    let pause = what.length / (what.hooks.len() as u32 + 1);
    let mut spans = Vec::new();
    for (number, hook) in (1u32..).zip(&what.hooks) {
        sleep_until(begun + pause * number).await;
        progress(&format!("hook: {hook}"));
        recorder.fault_start("hook", &[("command", hook)]);
        let span = tape.start(&format!("hook: {hook}"), &[]);
        let ran = run_shell(hook).await;
        tape.took_effect(span);
        tape.end(span);
        recorder.fault_end("hook");
        if let Err(error) = ran {
            progress(&error.to_string());
        }
        spans.push(span);
    }
    sleep_until(begun + what.length).await;
    spans
}

/// Reads everything back: from every node where each promises to have it, else from the master.
async fn read_back(
    found: &Found,
    topic: &str,
    master: &watch::Receiver<usize>,
    recorder: &Recorder,
    quorumlog: bool,
    judged: &mut Judged,
) -> Result<(), WatchError> {
    let master = found.nodes[*master.borrow()].clone();
    let nodes = match quorumlog {
        true => found.nodes.clone(),
        false => vec![master.clone()],
    };
    let mut drainer = Drainer::new(nodes, topic, QUEUES);
    drainer.settle = SETTLE;
    drainer
        .drain_all(recorder)
        .await
        .map_err(DrillError::from)?;
    let offsets = async {
        let open = Connection::open(master.address, REQUEST_WITHIN).await?;
        for queue in 0..QUEUES {
            query_offset(recorder, "last-offsets", &master, &open, topic, queue, true).await?;
        }
        Ok(())
    };
    offsets.await.map_err(|source| WatchError::Master {
        node: master.name.clone(),
        source,
    })?;
    let events = recorder.events().map_err(DrillError::from)?;
    judge(&events, quorumlog, judged);
    Ok(())
}
