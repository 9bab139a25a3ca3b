//! Building one node: log, store, group, broker, in the order in which each needs the other.

use std::sync::Arc;

use quorumlog_raft::env::Env;
use quorumlog_raft::group::{FlushMode, Timers};
use quorumlog_raft::{Group, GroupConfig, LogReader};

use super::CliError;
use crate::broker::Broker;
use crate::broker::forward::ServiceSlot;
use crate::broker::hold::Holds;
use crate::config::Config;
use crate::store::{Machine, Store, StoreOptions};

/// Bytes of recent entries kept in memory: what a follower that is a little behind reads again.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

/// Starts the group and the broker over it. The broker answers its peers from then on; its doors are the
/// caller's. `accept_empty`: see [`GroupConfig::accept_empty`].
pub(super) async fn start(config: Config, accept_empty: bool) -> Result<Arc<Broker>, CliError> {
    let env = Env::real();
    let holds = Arc::new(Holds::default());
    let slot = ServiceSlot::default();
    let options = StoreOptions {
        dir: config.dir.clone(),
        env: env.clone(),
    };
    // The state needs the opened log, the group needs the state.
    let (opened, store) = std::sync::mpsc::sync_channel(1);
    let arrivals = holds.clone();
    let open = move |log: LogReader| -> Result<Machine, String> {
        let (store, machine) = Store::open(options, log).map_err(|e| e.to_string())?;
        store.watch_arrivals(arrivals);
        // The receiver lives until the group has started.
        let _ = opened.send(store);
        Ok(machine)
    };
    let service = Arc::new(slot.clone());
    let group = Group::start_over(group_config(&config, accept_empty), env, open, service)
        .await
        .map_err(|e| CliError::new(e.to_string()))?;
    let store = store
        .try_recv()
        .map_err(|_| CliError::new("the group started without its state"))?;
    let broker = Broker::start(config, group, store, holds);
    slot.set(&broker);
    Ok(broker)
}

fn group_config(config: &Config, accept_empty: bool) -> GroupConfig {
    GroupConfig {
        group: config.group.name.clone(),
        node: config.group.node,
        peers: config.group.peers.clone(),
        listen: config.peer_listen(),
        dir: config.dir.clone(),
        segment_bytes: config.segment_bytes,
        flush: match config.sync_flush {
            true => FlushMode::Sync,
            false => FlushMode::Async {
                interval: config.flush_interval,
            },
        },
        timers: Timers {
            heartbeat: config.heartbeat,
            election_min: config.election_min,
            election_max: config.election_max,
        },
        disk_reserve: config.disk_reserve,
        cache_bytes: CACHE_BYTES,
        accept_empty,
    }
}
