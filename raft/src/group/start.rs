//! Putting a node together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use openraft::{Config, SnapshotPolicy};
use rand::Rng;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::death::{self, OnFatal};
use super::forgotten::forgotten;
use super::inbound::{Ear, RaftInbound};
use super::newcomer::Newcomer;
use super::proposal::Budget;
use super::room::Room;
use super::{Group, GroupConfig, Inner, StartError, bootstrap, view};
use crate::env::{Env, WriterMode, random};
use crate::log::{Log, LogReader, OpenError, Options};
use crate::peer::{self, Identity, Link, Links, Network, PeersTag};
use crate::sabotage::{self, Sabotage};
use crate::storage::{LogStore, Machine};
use crate::types::{PeerService, StateMachine};

/// Makes the state machine from the recovered log.
pub(super) type MakeMachine =
    Box<dyn FnOnce(LogReader) -> Result<Box<dyn StateMachine>, String> + Send>;

/// Everything [`Group::start_with`] does.
pub(super) async fn start(
    config: GroupConfig,
    env: Env,
    make: MakeMachine,
    service: Arc<dyn PeerService>,
    on_fatal: OnFatal,
) -> Result<Group, StartError> {
    check(&config)?;
    if let Some(warning) = sabotage::warning().map_err(StartError::Config)? {
        tracing::warn!("{warning}");
    }
    let raft_config = raft_config(&config)?;
    let log = open_log(&config, &env).await?;
    check_vote(&config, &log)?;
    take_at_its_word(&config, &log).await?;
    let machine = make_machine(make, log.reader(), &env).await?;
    let listener = env.net.listen(&config.listen).await;
    let listener = listener.map_err(|source| StartError::Listen {
        address: config.listen.clone(),
        source,
    })?;
    let core = |error: &dyn std::fmt::Display| StartError::Core(error.to_string());
    let machine = Machine::new(log.clone(), machine).map_err(|error| core(&error))?;
    let applied = machine.applied();
    let us = identity(&config);
    let links = links(&us, &env);
    let tag = PeersTag::of(&config.peers);
    let newcomer = Newcomer::new(config.node, log.clone(), links.clone(), tag);
    let newcomer = Arc::new(newcomer);
    let network = Network {
        links: links.clone(),
    };
    let store = LogStore::new(log.clone());
    let raft = super::RaftNode::new(config.node, raft_config, network, store, machine)
        .await
        .map_err(|error| core(&error))?;

    let (heard, heard_by) = watch::channel(None);
    let (view, view_of) = watch::channel(view::unknown(config.node));
    let room = Arc::new(Room::new(log.clone(), config.clone()));
    room.look(&env);
    let stopping = Arc::new(AtomicBool::new(false));
    let inbound = Arc::new(RaftInbound {
        raft: raft.clone(),
        service: service.clone(),
        ear: Arc::new(Ear::new(heard)),
        view: view_of.clone(),
        newcomer: newcomer.clone(),
        room: room.clone(),
        log: log.clone(),
        incarnation: us.incarnation,
        peers: tag,
        lease: config.timers.election_max,
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(peer::serve(listener, us, inbound));
    tasks.spawn(view::follow(
        raft.clone(),
        applied.clone(),
        heard_by.clone(),
        view,
    ));
    let asking = newcomer.clone();
    tasks.spawn(async move { asking.run().await });
    tasks.spawn(bootstrap::found(
        raft.clone(),
        config.clone(),
        newcomer.clone(),
        heard_by,
    ));
    tasks.spawn(bootstrap::compare_peers(links.clone(), tag));
    tasks.spawn(room.clone().watch(env.clone()));
    tasks.spawn(
        room.clone()
            .ask(raft.clone(), links.clone(), view_of.clone()),
    );
    tasks.spawn(campaign(raft.clone(), newcomer, config.timers.election_max));
    let dying = death::wait(raft.clone(), log.fatal());
    tasks.spawn(end_with(dying, stopping.clone(), on_fatal));
    let inner = Inner {
        metrics: raft.metrics(),
        config,
        env,
        raft,
        log,
        links,
        service,
        applied,
        view: view_of,
        room,
        budget: Budget::new(),
        stopping,
        tasks: Mutex::new(tasks),
    };
    Ok(Group {
        inner: Arc::new(inner),
    })
}

fn check(config: &GroupConfig) -> Result<(), StartError> {
    let wrong = |text: String| Err(StartError::Config(text));
    if config.group.is_empty() || config.group.len() > 255 {
        return wrong("dLegerGroup must have 1 to 255 bytes".into());
    }
    if !config.peers.contains_key(&config.node) {
        return wrong(format!(
            "dLegerSelfId names node {}, which is not among dLegerPeers",
            config.node
        ));
    }
    Ok(())
}

/// Lets this node campaign once no leader can have a lease that rests on an answer of the process before, and
/// nothing that it promised is missing.
async fn campaign(raft: super::RaftNode, newcomer: Arc<Newcomer>, lease: Duration) {
    tokio::time::sleep(lease).await;
    newcomer.free().await;
    raft.runtime_config().elect(true);
}

/// openraft's settings. What is not the default, and why:
fn raft_config(config: &GroupConfig) -> Result<Arc<Config>, StartError> {
    let ms = |duration: Duration| duration.as_millis() as u64;
    let timers = config.timers;
    let settings = Config {
        cluster_name: config.group.clone(),
        heartbeat_interval: ms(timers.heartbeat),
        election_timeout_min: ms(timers.election_min),
        // Also the leader's lease.
        election_timeout_max: ms(timers.election_max),
        // Otherwise a node that was cut off deposes a healthy leader when it comes back.
        enable_pre_vote: Some(!sabotage::on(Sabotage::NoPreVote)), // I-22
        // A restarted leader that has lost its tail would hand out the same log ids again: the logs diverge
        // without any error.
        enable_leader_restore: Some(sabotage::on(Sabotage::LeaderRestored)), // I-15
        // A restarted node must not campaign within the lease of a leader it answered before; see `campaign`.
        enable_elect: config.peers.len() == 1 || sabotage::on(Sabotage::NoRestartLease),
        // A leader whose answers are lost stops its heartbeats for a while, so that the others can elect.
        quorum_loss_probe_interval: Some(2 * ms(timers.election_max)),
        // A node that lost its log (an emptied data directory, or its tail with the power when flushing is
        // asynchronous) is filled again. Otherwise its leader waits for it to have what it had, for ever.
        allow_log_reversion: Some(true),
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        // Bytes are bounded by the log store, which reads about 1 MiB at a time.
        max_payload_entries: 300,
        api_channel_size: Some(1024),
        // Steps of 50 ms: a node that is back is filled soon.
        backoff: "50ms 100ms 150ms ...500ms".into(),
        install_snapshot_timeout: 10_000,
        ..Config::default()
    };
    let settings = settings
        .validate()
        .map_err(|error| StartError::Config(error.to_string()))?;
    Ok(Arc::new(settings))
}

fn check_vote(config: &GroupConfig, log: &Log) -> Result<(), StartError> {
    let voted = log.vote().map(|vote| vote.term);
    let logged = log.appended().map(|last| last.term);
    match forgotten(voted, logged) {
        None => Ok(()),
        Some(what) => {
            let path = config.dir.join("vote");
            Err(OpenError::Vote { path, what }.into())
        }
    }
}

/// A node that is alone has nobody to ask: an empty directory of its own is all there is.
async fn take_at_its_word(config: &GroupConfig, log: &Log) -> Result<(), StartError> {
    if !log.unfilled() || !(config.accept_empty || config.peers.len() == 1) {
        return Ok(());
    }
    if config.peers.len() > 1 {
        tracing::warn!(
            node = config.node,
            "--accept-empty: this node's emptied directory is taken as missing nothing"
        );
    }
    let path = config.dir.clone();
    let io = |source| StartError::Log(OpenError::Io { path, source });
    log.set_filled().await.map_err(io)
}

async fn open_log(config: &GroupConfig, env: &Env) -> Result<Log, StartError> {
    let options = Options {
        dir: config.dir.clone(),
        group: config.group.clone(),
        node: config.node,
        segment_bytes: config.segment_bytes,
        cache_bytes: config.cache_bytes,
        reserve: config.disk_reserve / 2,
        flush: config.flush,
    };
    if env.writer == WriterMode::Task {
        return Ok(Log::open(options, env)?);
    }
    let env = env.clone();
    let opened = tokio::task::spawn_blocking(move || Log::open(options, &env)).await;
    Ok(opened.map_err(|error| StartError::Core(error.to_string()))??)
}

async fn make_machine(
    make: MakeMachine,
    log: LogReader,
    env: &Env,
) -> Result<Box<dyn StateMachine>, StartError> {
    if env.writer == WriterMode::Task {
        return make(log).map_err(StartError::State);
    }
    let made = tokio::task::spawn_blocking(move || make(log)).await;
    made.map_err(|error| StartError::Core(error.to_string()))?
        .map_err(StartError::State)
}

fn identity(config: &GroupConfig) -> Identity {
    Identity {
        group: config.group.clone(),
        node: config.node,
        // Any number that differs from the one of the run before.
        incarnation: random::thread_rng().next_u64(),
        peers: config.peers.clone(),
    }
}

fn links(us: &Identity, env: &Env) -> Links {
    let others = us.peers.iter().filter(|(node, _)| **node != us.node);
    let links: BTreeMap<_, _> = others
        .map(|(node, address)| {
            let link = Link::start(us, *node, address.clone(), env.net.clone());
            (*node, Arc::new(link))
        })
        .collect();
    Arc::new(links)
}

async fn end_with(
    dying: impl Future<Output = String>,
    stopping: Arc<AtomicBool>,
    on_fatal: OnFatal,
) {
    let reason = dying.await;
    // A node that is told to stop ends its core, too.
    if !stopping.load(Ordering::Acquire) {
        on_fatal(reason);
    }
}
