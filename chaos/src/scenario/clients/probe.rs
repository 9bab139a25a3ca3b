//! The other client: it works all the time while its neighbours misbehave, checks that it gets back what it
//! sent, and says how long each round took.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::rig::usage;
use crate::scenario::{Run, Stop};
use crate::wire::{Connection, Message, Pull, SendOptions, SendOutcome, WireError};

const TOPIC: &str = "neighbour";
const PAUSE: Duration = Duration::from_millis(2);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Percentiles and how much slower they may be than in the quiet part of the same run. The catalogue asks for a
/// factor of 2; on a machine that does other things, too, the times of equal work vary by more. The figures say
/// what was measured, the bounds what is certainly wrong.
const FACTORS_MAX: [(usize, f64); 2] = [(50, 4.0), (99, 10.0)];
/// Rounds that make a measurement.
const ROUNDS: usize = 60;
const ROUNDS_WITHIN: Duration = Duration::from_secs(90);
/// Times below this are not told apart.
const FLOOR: Duration = Duration::from_millis(25);

/// Times of rounds, sorted.
pub struct Rounds(Vec<Duration>);

impl Rounds {
    /// The time that `percent` of the rounds did not exceed; zero when there are none.
    pub fn percentile(&self, percent: usize) -> Duration {
        let at = self.0.len() * percent / 100;
        let found = self.0.get(at).or(self.0.last());
        found.copied().unwrap_or_default()
    }
}

/// A running client.
pub struct Probe {
    times: Arc<Mutex<Vec<Duration>>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<u64, String>>,
}

impl Probe {
    /// Starts it on node `at`.
    pub async fn start(run: &mut Run, at: usize) -> Result<Probe, Stop> {
        run.rig()?.create_topic(TOPIC, 1).await?;
        let connection = run.rig()?.connect(at).await?.with_timeout(ANSWER_WITHIN);
        let times = Arc::new(Mutex::new(Vec::new()));
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(work(connection, Arc::clone(&times), stopped));
        Ok(Probe { times, stop, task })
    }

    /// Measures from now on, for as many rounds as a measurement needs. It is a violation when the client does
    /// not get that far.
    pub async fn measure(&self, what: &str) -> Result<Rounds, Stop> {
        self.take();
        self.rounds(ROUNDS, what).await
    }

    /// Requires that the client goes on now.
    pub async fn goes_on(&self, what: &str) -> Result<(), Stop> {
        self.take();
        self.rounds(10, what).await.map(drop)
    }

    async fn rounds(&self, count: usize, what: &str) -> Result<Rounds, Stop> {
        let begun = Instant::now();
        while self.count() < count {
            if begun.elapsed() > ROUNDS_WITHIN || self.task.is_finished() {
                let got = self.count();
                let text = format!("{what}: the other client made {got} of {count} rounds");
                return Err(Stop::Violated(text));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(self.take())
    }

    fn count(&self) -> usize {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.len()
    }

    /// The rounds since the last call.
    pub fn take(&self) -> Rounds {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let mut times = std::mem::take(&mut *times);
        times.sort();
        Rounds(times)
    }

    /// Ends it. It is a violation when it was hurt.
    pub async fn end(self, run: &mut Run) -> Result<(), Stop> {
        self.stop.send_replace(true);
        let ended = self.task.await;
        let ended = ended.map_err(|error| Stop::Invalid(format!("the other client: {error}")))?;
        match ended {
            Ok(refused) => {
                run.figure("sends of the other client refused", refused as f64);
                Ok(())
            }
            Err(why) => Err(Stop::Violated(format!("the other client was hurt: {why}"))),
        }
    }
}

/// Rounds of a send and the pull of it. A refusal is an answer (the group may elect meanwhile); a lost
/// connection, silence or a wrong message is not. Returns the refusals.
async fn work(
    connection: Connection,
    times: Arc<Mutex<Vec<Duration>>>,
    stopped: watch::Receiver<bool>,
) -> Result<u64, String> {
    let (mut number, mut refused) = (0_u64, 0);
    while !*stopped.borrow() {
        number += 1;
        let key = format!("neighbour-{number}");
        let message = Message::new(TOPIC, 0, &key, key.clone());
        let begun = Instant::now();
        match connection.send(&message, &SendOptions::default()).await {
            SendOutcome::Ok(stored) => {
                let pull = Pull::new("neighbours", TOPIC, 0, stored.offset);
                match connection.pull(&pull).await {
                    Ok(pulled)
                        if pulled.records.first().and_then(|each| each.key()) == Some(&key) =>
                    {
                        let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
                        times.push(begun.elapsed());
                    }
                    // The node may not know yet that it leads no more, or not have applied it yet.
                    Ok(pulled) if pulled.records.is_empty() => refused += 1,
                    Err(WireError::Code { .. }) => refused += 1,
                    other => return Err(format!("{key} came back as {other:?}")),
                }
            }
            SendOutcome::Fail { .. } | SendOutcome::Info { code: Some(_), .. } => refused += 1,
            SendOutcome::Info { code: None, why } => return Err(format!("{key}: {why}")),
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(refused)
}

/// Notes how much slower the other client was, and requires that it was not far slower.
pub fn compare(run: &mut Run, what: &str, quiet: &Rounds, busy: &Rounds) {
    for (percent, factor_max) in FACTORS_MAX {
        let (before, meanwhile) = (quiet.percentile(percent), busy.percentile(percent));
        let factor = meanwhile.as_secs_f64() / before.as_secs_f64().max(1e-6);
        let name = format!("p{percent} of the other client, factor {what}");
        run.figure(&name, (factor * 100.0).round() / 100.0);
        run.require(meanwhile <= before.max(FLOOR).mul_f64(factor_max), || {
            format!("{what}: p{percent} of the other client went from {before:?} to {meanwhile:?}")
        });
    }
}

/// The share of one processor that node `at` used during `time`.
pub async fn processor_share(run: &mut Run, at: usize, time: Duration) -> Result<f64, Stop> {
    let pid = run.rig()?.pid(at)?;
    let (before, begun) = (usage::processor_time(pid)?, Instant::now());
    run.sleep(time).await;
    let used = usage::processor_time(pid)?.saturating_sub(before);
    Ok(used.as_secs_f64() / begun.elapsed().as_secs_f64())
}

/// Requires that a node grew by less than `max` bytes since `before`; notes by how much.
pub fn bounded_growth(
    run: &mut Run,
    what: &str,
    at: usize,
    before: u64,
    max: u64,
) -> Result<u64, Stop> {
    let grown = run.rig()?.resident(at)?.saturating_sub(before);
    run.figure(&format!("MiB grown, {what}"), (grown >> 10) as f64 / 1024.0);
    run.require(grown < max, || {
        format!(
            "{what}: the node grew by {} MiB, bound {} MiB",
            grown >> 20,
            max >> 20
        )
    });
    Ok(grown)
}
