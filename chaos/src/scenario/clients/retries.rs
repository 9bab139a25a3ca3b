//! R9: sends whose result stays unknown, sent again under the same key: answers that come too late, a majority
//! that stands still, and a leader that dies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::history::Recorder;
use crate::scenario::context::{PATIENCE, QUEUES, TOPIC};
use crate::scenario::{Run, Stop};
use crate::wire::{Connection, Message, SendOptions, SendOutcome};
use crate::workload::{Attempt, Node, body};

const CUT: usize = 200;
/// Senders that have one message each on the way.
const LANES: usize = 40;
/// How long they send before the fault.
const UNDER_WAY: Duration = Duration::from_millis(500);
const SEND_WITHIN: Duration = Duration::from_secs(3);
/// Long enough for every answer.
const LONG: Duration = Duration::from_secs(10);
/// Too short for an answer most of the time.
const CUT_AFTER: Duration = Duration::from_millis(1);

pub async fn retry_after_unknown(run: &mut Run) -> Result<(), Stop> {
    run.start(run.setup()).await?;
    let mut messages = cut_answers(run).await?;
    messages += standing_majority(run).await?;
    messages += dying_leader(run).await?;
    run.rig()?.restart_dead().await?;
    let records = run.drain().await?;
    let barriers = QUEUES as u64;
    run.figure("messages", messages as f64);
    run.require(records == messages + barriers, || {
        format!("{} records of {messages} messages", records - barriers)
    });
    Ok(())
}

/// A message on its way to being there, attempt by attempt.
struct Sending {
    actor: String,
    message: Message,
    nodes: Vec<Node>,
    recorder: Arc<Recorder>,
    attempts: u32,
}

impl Sending {
    fn new(recorder: &Arc<Recorder>, nodes: &[Node], number: usize, what: &str) -> Sending {
        let key = format!("{what}-{number}");
        Sending {
            actor: format!("{what}{number}"),
            message: Message::new(
                TOPIC,
                (number % QUEUES as usize) as i32,
                &key,
                body(&key, 200),
            ),
            nodes: nodes.to_vec(),
            recorder: Arc::clone(recorder),
            attempts: 0,
        }
    }

    async fn attempt(
        &mut self,
        at: usize,
        within: Duration,
        connection: &mut Option<Connection>,
    ) -> SendOutcome {
        self.attempts += 1;
        let attempt = Attempt {
            actor: &self.actor,
            node: &self.nodes[at],
            message: &self.message,
            number: self.attempts,
            options: &SendOptions {
                timeout: Some(within),
                ..SendOptions::default()
            },
        };
        attempt.send(&self.recorder, connection).await
    }

    /// Sends again until it is acknowledged, at all nodes in turn.
    async fn settle(&mut self, first: usize) -> Result<(), String> {
        let begun = Instant::now();
        let mut at = first;
        while begun.elapsed() < PATIENCE {
            let outcome = self.attempt(at, SEND_WITHIN, &mut None).await;
            if matches!(outcome, SendOutcome::Ok(_)) {
                return Ok(());
            }
            at = (at + 1) % self.nodes.len();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(format!(
            "{} was not acknowledged within {PATIENCE:?}",
            self.message.key
        ))
    }
}

fn is_unknown(outcome: &SendOutcome) -> bool {
    matches!(outcome, SendOutcome::Info { .. })
}

/// The connection is dropped before the answer comes; the retry goes to another node.
async fn cut_answers(run: &mut Run) -> Result<u64, Stop> {
    let nodes = run.rig()?.nodes();
    run.fault("cut-answers", &[]);
    let mut unknown = 0;
    for number in 0..CUT {
        let at = number % nodes.len();
        let mut sending = Sending::new(&run.recorder, &nodes, number, "cut");
        let mut connection = Some(run.rig()?.connect(at).await?);
        let outcome = sending.attempt(at, CUT_AFTER, &mut connection).await;
        drop(connection);
        if matches!(outcome, SendOutcome::Ok(_)) {
            continue;
        }
        unknown += u32::from(is_unknown(&outcome));
        let settled = sending.settle((at + 1) % nodes.len()).await;
        run.require(settled.is_ok(), || format!("{settled:?}"));
    }
    run.fault_over("cut-answers");
    enough(run, "cut off", unknown, 50)?;
    Ok(CUT as u64)
}

/// A lane's end: how many messages it sent, the last of them, and what became of that one at first.
type LaneEnd = (u64, Sending, SendOutcome);

/// Senders to the leader, each until its first send that is not acknowledged.
async fn lanes(
    run: &mut Run,
    nodes: &[Node],
    leader: usize,
    what: &'static str,
) -> Result<JoinSet<LaneEnd>, Stop> {
    let mut tasks = JoinSet::new();
    for lane in 0..LANES {
        let mut connection = Some(run.rig()?.connect(leader).await?);
        let (nodes, recorder) = (nodes.to_vec(), Arc::clone(&run.recorder));
        let what = format!("{what}{lane}");
        tasks.spawn(async move {
            let mut number = 0;
            loop {
                let mut sending = Sending::new(&recorder, &nodes, number, &what);
                number += 1;
                let outcome = sending.attempt(leader, LONG, &mut connection).await;
                if !matches!(outcome, SendOutcome::Ok(_)) {
                    return (number as u64, sending, outcome);
                }
            }
        });
    }
    Ok(tasks)
}

/// Sends again what was not acknowledged; returns all messages and the unknown ones.
async fn settle_all(run: &mut Run, ended: Vec<LaneEnd>, first: usize) -> (u64, u32) {
    let (mut messages, mut unknown) = (0, 0);
    for (sent, mut sending, outcome) in ended {
        messages += sent;
        unknown += u32::from(is_unknown(&outcome));
        let settled = sending.settle(first).await;
        run.require(settled.is_ok(), || format!("{settled:?}"));
    }
    (messages, unknown)
}

/// Both followers stand still with sends on the way: these are proposed and not committed in time.
async fn standing_majority(run: &mut Run) -> Result<u64, Stop> {
    const NAMES: [&str; 3] = ["standing-a", "standing-b", "standing-c"];
    let nodes = run.rig()?.nodes();
    let (mut unknown, mut messages) = (0, 0);
    for what in NAMES {
        run.rig()?.wait_serving().await?;
        let leader = run.rig()?.leader().await?;
        let mut tasks = lanes(run, &nodes, leader, what).await?;
        run.sleep(UNDER_WAY).await;
        run.fault("pause-followers", &[]);
        let followers: Vec<usize> = (0..nodes.len()).filter(|at| *at != leader).collect();
        for at in &followers {
            run.rig()?.pause(*at)?;
        }
        let mut ended = Vec::new();
        while let Some(end) = tasks.join_next().await {
            ended.push(end.map_err(|error| Stop::Invalid(format!("a sender: {error}")))?);
        }
        for at in &followers {
            run.rig()?.resume(*at)?;
        }
        run.fault_over("pause-followers");
        let (more, more_unknown) = settle_all(run, ended, leader).await;
        messages += more;
        unknown += more_unknown;
    }
    enough(run, "with a standing majority", unknown, LANES as u32 / 4)?;
    Ok(messages)
}

/// The leader is killed with sends on the way.
async fn dying_leader(run: &mut Run) -> Result<u64, Stop> {
    let nodes = run.rig()?.nodes();
    run.rig()?.wait_serving().await?;
    let leader = run.rig()?.leader().await?;
    let tasks = lanes(run, &nodes, leader, "dying").await?;
    run.sleep(UNDER_WAY).await;
    run.fault("kill-leader", &[("node", &nodes[leader].name)]);
    run.rig()?.kill(&[leader])?;
    let ended = tasks.join_all().await;
    let (messages, unknown) = settle_all(run, ended, (leader + 1) % nodes.len()).await;
    enough(run, "when the leader died", unknown, LANES as u32 / 4)?;
    Ok(messages)
}

/// Without unknown results nothing was tried.
fn enough(run: &mut Run, what: &str, unknown: u32, least: u32) -> Result<(), Stop> {
    run.figure(&format!("unknown results, {what}"), f64::from(unknown));
    match unknown >= least {
        true => Ok(()),
        false => Err(Stop::Invalid(format!(
            "{what}: only {unknown} results were unknown"
        ))),
    }
}
