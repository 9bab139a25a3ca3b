//! R1: the leader may open few files, and clients want all of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::probe::{Probe, compare, processor_share};
use crate::history::{KEPT, MAJORITY};
use crate::rig::{View, usage};
use crate::scenario::context::{PATIENCE, QUEUES, TOPIC};
use crate::scenario::{Run, Stop};
use crate::wire::{Connection, Message, SendOptions, SendOutcome};
use crate::workload::{Attempt, body};

const LIMIT: u64 = 64;
/// A node that holds almost as many already is left this many more.
const ROOM: u64 = 24;
const CONNECTS: usize = 500;
const LOOK: Duration = Duration::from_secs(3);
/// One log segment, bytes: small, so that the log needs new files meanwhile.
const SEGMENT: &str = "1048576";
/// Messages of 64 KiB: more than two segments.
const LARGE: usize = 40;
/// Accepting and closing takes a little of a processor; an accept loop that spins takes all of one.
const MORE_SHARE_MAX: f64 = 0.3;

pub async fn few_descriptors(run: &mut Run) -> Result<(), Stop> {
    run.start(run.setup().with("mappedFileSizeCommitLog", SEGMENT))
        .await?;
    let leader = run.rig()?.leader().await?;
    let (pid, address) = (run.rig()?.pid(leader)?, run.rig()?.address(leader));
    let mut old_clients = OldClients::connect(run, leader).await?;
    let probe = Probe::start(run, leader).await?;
    let quiet = probe.measure("before").await?;
    let share_before = processor_share(run, leader, LOOK).await?;
    let term = old_clients.view().await?.term;

    let held = run.rig()?.fds(leader)?;
    let limit = LIMIT.max(held + ROOM);
    run.figure("files open before", held as f64);
    run.figure("limit of open files", limit as f64);
    let name = run.rig()?.name(leader).to_owned();
    run.fault("few-descriptors", &[("node", &name), (MAJORITY, KEPT)]);
    let old_limit = usage::limit_files(pid, limit)?;
    run.on_heal(move || usage::limit_files(pid, old_limit).map(drop));
    let storm = Storm::start(address);
    run.sleep(LOOK).await;
    let open = run.rig()?.fds(leader)?;
    run.figure("files open meanwhile", open as f64);

    let share = processor_share(run, leader, LOOK).await?;
    let busy = probe.measure("while 500 clients connect").await?;
    compare(run, "while 500 clients connect", &quiet, &busy);
    run.figure("processor share before", share_before);
    run.figure("processor share meanwhile", share);
    run.require(share < share_before + MORE_SHARE_MAX, || {
        format!("the node used {share:.2} of a processor, {share_before:.2} before")
    });
    old_clients.write_segments(run).await?;
    rejoin(run, leader, &old_clients).await?;
    // On a busy machine a group may elect by itself; whoever leads, this node must still be part of the group.
    let now = old_clients.view().await?;
    run.figure("terms that passed", (now.term - term) as f64);
    run.require(!now.leader.is_empty(), || {
        format!("the node knows no leader: {now:?}")
    });
    let (served, turned_away) = storm.end().await;
    run.figure("connections of the storm", served as f64);
    run.figure("of these closed by the node", turned_away as f64);
    if served < CONNECTS as u64 {
        return Err(Stop::Invalid(format!(
            "only {served} connections were made"
        )));
    }

    usage::limit_files(pid, old_limit)?;
    run.fault_over("few-descriptors");
    recovers(run, leader).await?;
    probe.end(run).await
}

/// A connection that was there before, and messages over it.
struct OldClients {
    connection: Option<Connection>,
    node: crate::workload::Node,
}

impl OldClients {
    async fn connect(run: &mut Run, at: usize) -> Result<OldClients, Stop> {
        Ok(OldClients {
            connection: Some(run.rig()?.connect(at).await?),
            node: run.rig()?.node(at),
        })
    }

    async fn view(&self) -> Result<View, Stop> {
        let lost = || Stop::Violated("a connection from before the fault was lost".to_owned());
        let connection = self.connection.as_ref().ok_or_else(lost)?;
        let table = connection.runtime_info().await.map_err(|error| {
            Stop::Violated(format!("a connection from before the fault: {error}"))
        })?;
        View::read(&table).ok_or_else(|| Stop::Invalid("runtime info without raft".to_owned()))
    }

    /// Makes the log take new files while none are to be had for clients.
    async fn write_segments(&mut self, run: &mut Run) -> Result<(), Stop> {
        let mut refused = 0;
        for number in 0..LARGE {
            let key = format!("large-{number}");
            let queue = (number % QUEUES as usize) as i32;
            let message = Message::new(TOPIC, queue, &key, body(&key, 64 * 1024));
            let attempt = Attempt {
                actor: "large",
                node: &self.node,
                message: &message,
                number: 1,
                options: &SendOptions {
                    timeout: Some(PATIENCE),
                    ..SendOptions::default()
                },
            };
            match attempt.send(&run.recorder, &mut self.connection).await {
                SendOutcome::Ok(_) => {}
                SendOutcome::Fail { .. } | SendOutcome::Info { code: Some(_), .. } => refused += 1,
                SendOutcome::Info { code: None, why } => {
                    return Err(Stop::Violated(format!(
                        "an open connection was lost: {why}"
                    )));
                }
            }
        }
        run.figure("large messages refused", f64::from(refused));
        run.require(refused < LARGE as i32 / 4, || {
            format!("{refused} of {LARGE} messages over an open connection were refused")
        });
        Ok(())
    }
}

/// A restarted follower is let in by the leader and catches up, whatever the clients take.
async fn rejoin(run: &mut Run, leader: usize, old: &OldClients) -> Result<(), Stop> {
    let all = run.rig()?.len();
    let follower = (leader + 1) % all;
    let name = run.rig()?.name(follower).to_owned();
    run.fault("kill-follower", &[("node", &name), (MAJORITY, KEPT)]);
    run.rig()?.kill(&[follower])?;
    let begun = Instant::now();
    run.rig()?.spawn(follower)?;
    let goal = old.view().await?.committed;
    let address = run.rig()?.address(follower);
    let caught_up = |view: View| view.applied >= goal;
    while !View::of(address, Duration::from_secs(1))
        .await
        .is_ok_and(caught_up)
    {
        if begun.elapsed() > PATIENCE {
            return Err(Stop::Violated(format!(
                "{name} did not catch up within {PATIENCE:?} while clients took the leader's descriptors"
            )));
        }
        run.sleep(Duration::from_millis(50)).await;
    }
    run.figure(
        "ms until a restarted follower had caught up",
        begun.elapsed().as_millis() as f64,
    );
    run.fault_over("kill-follower");
    Ok(())
}

/// With its descriptors back the node serves as many new clients as before.
async fn recovers(run: &mut Run, leader: usize) -> Result<(), Stop> {
    let begun = Instant::now();
    let mut open = Vec::new();
    while open.len() < 100 {
        let asked = match run.rig()?.connect(leader).await {
            Ok(connection) => connection.runtime_info().await.map(|_| connection).ok(),
            Err(_) => None,
        };
        open.extend(asked);
        if begun.elapsed() > PATIENCE {
            return Err(Stop::Violated(format!(
                "{} new clients were served within {PATIENCE:?} of the fault's end",
                open.len()
            )));
        }
    }
    run.figure(
        "ms until 100 new clients were served",
        begun.elapsed().as_millis() as f64,
    );
    Ok(())
}

/// Clients that connect and come again whenever they are turned away.
struct Storm {
    tasks: JoinSet<()>,
    made: Arc<AtomicU64>,
    closed: Arc<AtomicU64>,
}

impl Storm {
    fn start(to: SocketAddr) -> Storm {
        let made = Arc::new(AtomicU64::new(0));
        let closed = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..CONNECTS {
            let (made, closed) = (Arc::clone(&made), Arc::clone(&closed));
            tasks.spawn(async move {
                loop {
                    if let Ok(mut stream) = TcpStream::connect(to).await {
                        made.fetch_add(1, Ordering::Relaxed);
                        // Nothing was asked, so anything that comes is the end.
                        let _end = stream.read(&mut [0; 1]).await;
                        closed.fetch_add(1, Ordering::Relaxed);
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            });
        }
        Storm {
            tasks,
            made,
            closed,
        }
    }

    /// Ends it; returns the connections made and those that the node closed.
    async fn end(mut self) -> (u64, u64) {
        self.tasks.shutdown().await;
        (
            self.made.load(Ordering::Relaxed),
            self.closed.load(Ordering::Relaxed),
        )
    }
}
