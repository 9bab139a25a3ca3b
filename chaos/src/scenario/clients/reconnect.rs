//! R7: the leader dies with a thousand clients attached, and all of them come to the others at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::history::Recorder;
use crate::rng::Rng;
use crate::scenario::context::{PATIENCE, QUEUES, TOPIC};
use crate::scenario::{Run, Stop};
use crate::wire::{Connection, Message, SendOptions, SendOutcome};
use crate::workload::{Attempt, Node, body};

const CLIENTS: usize = 1000;
const AT_ONCE: usize = 50;
const SEND_WITHIN: Duration = Duration::from_secs(3);
/// How much longer than after a kill under a light load of the same run it may take until the first client writes
/// again, and what is always allowed. The goal on a quiet machine is 0.7 s.
const FACTOR_MAX: f64 = 4.0;
const FLOOR: Duration = Duration::from_secs(15);
/// For all clients.
const ALL_WITHIN: Duration = Duration::from_secs(60);
/// Between two attempts of a client, at first and at most; each is lengthened by up to as much again.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(640);

pub async fn thundering_reconnect(run: &mut Run) -> Result<(), Stop> {
    let usual = kill_under_light_load(run).await?;
    let leader = run.rig()?.leader().await?;
    let nodes = run.rig()?.nodes();
    let mut clients = attach(run, leader, &nodes).await?;
    let fds = run.rig()?.fds(leader)?;
    run.figure("files that the leader had open", fds as f64);
    run.require(fds >= CLIENTS as u64, || {
        format!("the leader holds only {fds} files")
    });

    let killed = Instant::now();
    run.fault("kill-leader", &[("node", &nodes[leader].name)]);
    run.rig()?.kill(&[leader])?;
    let mut back: Vec<Back> = Vec::new();
    while let Some(ended) = clients.join_next().await {
        let ended = ended.map_err(|error| Stop::Invalid(format!("a client: {error}")))?;
        match ended {
            Ok(client) => back.push(client),
            Err(why) => run.require(false, || why),
        }
    }
    run.require(back.len() == CLIENTS, || {
        format!(
            "{} of {CLIENTS} clients write again within {ALL_WITHIN:?}",
            back.len()
        )
    });
    let mut times: Vec<Duration> = back
        .iter()
        .map(|back| back.at.duration_since(killed))
        .collect();
    times.sort();
    for percent in [0, 50, 99, 100] {
        let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        let time = times.get(at).copied().unwrap_or_default();
        run.figure(
            &format!("ms until {percent} % of the clients wrote again"),
            time.as_millis() as f64,
        );
    }
    let first = times.first().copied().unwrap_or(ALL_WITHIN);
    let factor = first.as_secs_f64() / usual.as_secs_f64().max(1e-3);
    run.figure("factor of 1,000 clients", (factor * 100.0).round() / 100.0);
    run.require(first <= usual.mul_f64(FACTOR_MAX).max(FLOOR), || {
        format!("the first client wrote again after {first:?}, a light load after {usual:?}")
    });
    let not_let_in: u32 = back.iter().map(|back| back.not_let_in).sum();
    let attempts: u32 = back.iter().map(|back| back.attempts).sum();
    run.figure("attempts to send again", f64::from(attempts));
    run.figure(
        "connections that a living node did not take",
        f64::from(not_let_in),
    );
    run.require(not_let_in == 0, || {
        format!("{not_let_in} connections to living nodes were not taken")
    });
    Ok(())
}

/// How long it takes on this machine, now, until four clients write again.
async fn kill_under_light_load(run: &mut Run) -> Result<Duration, Stop> {
    run.start_loaded(100).await?;
    let leader = run.rig()?.leader().await?;
    let name = run.rig()?.name(leader).to_owned();
    run.fault("kill-leader-light", &[("node", &name)]);
    let killed = Instant::now();
    run.rig()?.kill(&[leader])?;
    // More than can have been on the way.
    run.progress(10, ALL_WITHIN).await?;
    let usual = killed.elapsed();
    run.figure(
        "ms until a light load wrote again",
        usual.as_millis() as f64,
    );
    run.fault_over("kill-leader-light");
    run.rig()?.restart_dead().await?;
    run.progress(50, ALL_WITHIN).await?;
    run.stop_load().await;
    Ok(usual)
}

/// A client that wrote again.
struct Back {
    at: Instant,
    attempts: u32,
    not_let_in: u32,
}

/// Connects all clients to the leader; each has a message acknowledged there. The tasks end when the client
/// has written again after the leader's death.
async fn attach(
    run: &mut Run,
    leader: usize,
    nodes: &[Node],
) -> Result<JoinSet<Result<Back, String>>, Stop> {
    let mut clients = JoinSet::new();
    let mut id = 0;
    while id < CLIENTS {
        let mut arriving = JoinSet::new();
        for _ in 0..AT_ONCE.min(CLIENTS - id) {
            let client = Client {
                actor: format!("c{id}"),
                queue: (id % QUEUES as usize) as i32,
                nodes: nodes.to_vec(),
                leader,
                rng: Rng::new(run.seed.wrapping_mul(1_000_003).wrapping_add(id as u64)),
                recorder: Arc::clone(&run.recorder),
            };
            arriving.spawn(client.arrive());
            id += 1;
        }
        for arrived in arriving.join_all().await {
            let (client, connection) = arrived.map_err(Stop::Invalid)?;
            clients.spawn(client.leader_dies(connection));
        }
    }
    Ok(clients)
}

struct Client {
    actor: String,
    queue: i32,
    nodes: Vec<Node>,
    leader: usize,
    rng: Rng,
    recorder: Arc<Recorder>,
}

impl Client {
    fn message(&self, what: &str) -> Message {
        let key = format!("{}-{what}", self.actor);
        Message::new(TOPIC, self.queue, &key, body(&key, 100))
    }

    async fn send(
        &self,
        message: &Message,
        at: usize,
        number: u32,
        connection: &mut Option<Connection>,
    ) -> SendOutcome {
        let attempt = Attempt {
            actor: &self.actor,
            node: &self.nodes[at],
            message,
            number,
            options: &SendOptions {
                timeout: Some(SEND_WITHIN),
                ..SendOptions::default()
            },
        };
        attempt.send(&self.recorder, connection).await
    }

    async fn arrive(self) -> Result<(Client, Connection), String> {
        let begun = Instant::now();
        let message = self.message("before");
        let mut connection = None;
        for number in 1.. {
            let outcome = self
                .send(&message, self.leader, number, &mut connection)
                .await;
            match (outcome, connection.take()) {
                (SendOutcome::Ok(_), Some(open)) => return Ok((self, open)),
                (outcome, _) if begun.elapsed() > PATIENCE => {
                    return Err(format!("{} cannot begin: {outcome:?}", self.actor));
                }
                (_, open) => connection = open,
            }
        }
        Err(format!("{} cannot begin", self.actor))
    }

    /// Waits for the end of its connection, then sends to the other nodes in turn until one takes it.
    async fn leader_dies(mut self, connection: Connection) -> Result<Back, String> {
        if !connection.wait_closed(PATIENCE).await {
            return Err(format!("{} did not see the leader's end", self.actor));
        }
        drop(connection);
        let begun = Instant::now();
        let message = self.message("after");
        let mut at = self.leader;
        let (mut not_let_in, mut number) = (0, 0);
        let mut pause = PAUSE_MIN;
        while begun.elapsed() < ALL_WITHIN {
            at = (at + 1) % self.nodes.len();
            if at == self.leader {
                continue;
            }
            number += 1;
            match self.send(&message, at, number, &mut None).await {
                SendOutcome::Ok(_) => {
                    return Ok(Back {
                        at: Instant::now(),
                        attempts: number,
                        not_let_in,
                    });
                }
                SendOutcome::Fail { code: -1, .. } => not_let_in += 1,
                SendOutcome::Fail { .. } | SendOutcome::Info { .. } => {}
            }
            let jitter = Duration::from_millis(self.rng.below(pause.as_millis() as usize) as u64);
            tokio::time::sleep(pause + jitter).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        Err(format!(
            "{} did not write again within {ALL_WITHIN:?}",
            self.actor
        ))
    }
}
