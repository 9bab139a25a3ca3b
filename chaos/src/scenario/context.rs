//! What a scenario works with: the group, its load, the history, seeded choices, and what it finds.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Stop;
use crate::checker;
use crate::history::{Event, FaultResult, QUORUM_LOSS, Recorder};
use crate::rig::{Network, Observer, Pulse, Rig, RigError, Setup, Site};
use crate::rng::Rng;
use crate::workload::{
    Committing, Drainer, Offsets, Probe, Produced, Producers, Readers, Reading, Steadily, Steady,
};

/// The topic of every scenario's load, and its queues.
pub const TOPIC: &str = "chaos";
pub const QUEUES: i32 = 4;
/// How long a load may take to make progress where nothing hinders it. Generous: machines are busy.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// What clients wait for an answer.
pub const CLIENT_LIMIT: Duration = Duration::from_secs(3);
/// `raftElectionTimeoutMax` of [`Run::calm_setup`].
const CALM_LEASE: Duration = Duration::from_millis(900);
const STEADY_EVERY: Duration = Duration::from_millis(20);
const READ_WITHIN: Duration = Duration::from_secs(1);

type Undo = Box<dyn FnOnce() -> Result<(), RigError>>;

/// A load that runs. Stopped by the runner, or by the scenario.
pub type Load = Produced;

/// One run of a scenario.
pub struct Run {
    pub seed: u64,
    /// Every choice of the scenario comes from here.
    pub rng: Rng,
    /// The run's directory.
    pub dir: PathBuf,
    pub server: PathBuf,
    pub site: Arc<Site>,
    pub recorder: Arc<Recorder>,
    /// What the checker may assume of the configuration.
    pub options: checker::Options,
    /// Log lines with a panic are expected, because the scenario causes one.
    pub panics_expected: bool,
    pub(super) rig: Option<Rig>,
    pub(super) loads: Vec<Load>,
    /// Also those that were stopped: their keys are taken.
    pub(super) loads_made: usize,
    pub(super) reading: Option<Reading>,
    pub(super) committing: Option<Committing>,
    pub(super) observer: Option<Observer>,
    pub(super) undo: Vec<Undo>,
    pub(super) kept: Vec<Box<dyn Any>>,
    pub(super) pulse: Option<Pulse>,
    /// The longest time by which a timer of this program was late.
    pub(super) stall: Duration,
    pub(super) findings: Vec<String>,
    pub(super) late: Vec<String>,
    pub(super) figures: BTreeMap<String, Vec<f64>>,
    /// Most descriptors of a node before the first fault.
    pub(super) fds_at_start: u64,
}

impl Run {
    /// The usual setup in the run's directory.
    pub fn setup(&self) -> Setup {
        Setup {
            recorder: Some(Arc::clone(&self.recorder)),
            ..Setup::new(&self.server, &self.dir)
        }
    }

    /// Starts the group, creates the topic, and begins to observe, to read from every node, and to commit and
    /// ask for offsets.
    pub async fn start(&mut self, setup: Setup) -> Result<(), Stop> {
        let rig = Rig::start(&self.site, &setup).await?;
        rig.create_topic(TOPIC, QUEUES).await?;
        for at in 0..rig.len() {
            self.fds_at_start = self.fds_at_start.max(rig.fds(at)?);
        }
        self.pulse = Some(Pulse::start());
        self.observer = Some(Observer::start(rig.nodes(), &self.recorder));
        let readers = Readers {
            nodes: rig.nodes(),
            topic: TOPIC.to_owned(),
            queues: QUEUES,
            timeout: READ_WITHIN,
        };
        self.reading = Some(readers.start(&self.recorder));
        let offsets = Offsets {
            nodes: rig.nodes(),
            topic: TOPIC.to_owned(),
            queues: QUEUES,
            timeout: CLIENT_LIMIT,
        };
        self.committing = Some(offsets.start(&self.recorder));
        self.rig = Some(rig);
        Ok(())
    }

    /// The usual setup with timers three times as long, for scenarios in which the leader must stay: a busy
    /// machine alone moves no leadership then.
    pub fn calm_setup(&mut self) -> Setup {
        self.options.lease = CALM_LEASE + CALM_LEASE / 3;
        let ms = |time: Duration| time.as_millis().to_string();
        self.setup()
            .with("raftHeartbeatInterval", "150")
            .with("raftElectionTimeoutMin", &ms(CALM_LEASE / 2))
            .with("raftElectionTimeoutMax", &ms(CALM_LEASE))
    }

    /// The usual setup, started, under the usual load, with `acknowledged` messages behind it.
    pub async fn start_loaded(&mut self, acknowledged: u64) -> Result<(), Stop> {
        let setup = self.setup();
        self.start_loaded_with(setup, acknowledged).await
    }

    /// The same with another setup.
    pub async fn start_loaded_with(&mut self, setup: Setup, acknowledged: u64) -> Result<(), Stop> {
        self.start(setup).await?;
        let load = self.producers()?;
        self.begin(&load);
        // Nothing was hurt yet: this is the machine's fault.
        let started = self.progress(acknowledged, PATIENCE).await;
        started.map_err(|stop| Stop::Invalid(format!("before any fault: {stop}")))
    }

    /// The group.
    pub fn rig(&mut self) -> Result<&mut Rig, Stop> {
        self.rig
            .as_mut()
            .ok_or_else(|| Stop::Invalid("the scenario has not started its group".to_owned()))
    }

    /// The network between the nodes; scenarios placed in namespaces have one.
    pub fn network(&self) -> Result<&Network, Stop> {
        self.site
            .network()
            .ok_or_else(|| Stop::Invalid("the scenario is not placed in namespaces".to_owned()))
    }

    /// A recorded client of one node; `actor` must be unique in the run.
    pub fn probe(&mut self, actor: &str, at: usize) -> Result<Probe, Stop> {
        let node = self.rig()?.node(at);
        Ok(Probe::new(actor, node, TOPIC, CLIENT_LIMIT, &self.recorder))
    }

    /// The history so far.
    pub fn events(&self) -> Result<Vec<Event>, Stop> {
        Ok(self.recorder.events()?)
    }

    /// A load over all nodes, its keys not used before in this run. Change it, then [`Run::begin`] it.
    pub fn producers(&mut self) -> Result<Producers, Stop> {
        let nodes = self.rig()?.nodes();
        let mut load = Producers::new(nodes, TOPIC, QUEUES);
        load.seed = self.rng.next_u64();
        load.prefix = format!("l{}p", self.loads_made);
        self.loads_made += 1;
        Ok(load)
    }

    /// Starts a load that runs until the end of the run, or until [`Run::stop_load`].
    pub fn begin(&mut self, load: &Producers) {
        self.loads.push(load.start(&self.recorder));
    }

    /// Sends to one node every 20 ms from now on, whatever becomes of the sends before. The scenario stops it.
    pub fn begin_steady(&mut self, at: usize) -> Result<Steadily, Stop> {
        let steady = Steady {
            node: self.rig()?.node(at),
            topic: TOPIC.to_owned(),
            queues: QUEUES,
            every: STEADY_EVERY,
            timeout: CLIENT_LIMIT,
            prefix: format!("s{}n{at}", self.loads_made),
        };
        self.loads_made += 1;
        Ok(steady.start(&self.recorder))
    }

    /// Acknowledged messages of the load that was begun last.
    pub fn acknowledged(&self) -> u64 {
        self.loads.last().map_or(0, Load::acknowledged)
    }

    /// Waits until the load that was begun last has `more` messages acknowledged. It is a violation when that
    /// takes longer than `within`: call it only where the group must make progress.
    pub async fn progress(&mut self, more: u64, within: Duration) -> Result<(), Stop> {
        let Some(load) = self.loads.last() else {
            return Err(Stop::Invalid(
                "there is no load to make progress".to_owned(),
            ));
        };
        match load.progress(more, within).await {
            true => Ok(()),
            false => Err(Stop::Late(format!(
                "fewer than {more} messages were acknowledged within {within:?}"
            ))),
        }
    }

    /// Stops all loads; each attempt comes to its end. Returns the acknowledged messages.
    pub async fn stop_load(&mut self) -> u64 {
        let mut acknowledged = 0;
        for load in self.loads.drain(..) {
            acknowledged += load.stop().await;
        }
        acknowledged
    }

    /// Reads everything from every node into the history, as the runner does at the end; the loads must be
    /// stopped. For scenarios with several rounds.
    pub async fn drain(&mut self) -> Result<u64, Stop> {
        let drainer = Drainer::new(self.rig()?.nodes(), TOPIC, QUEUES);
        Ok(drainer.drain_all(&self.recorder).await?)
    }

    /// Records that a fault took hold; returns the time of it, nanoseconds since the history began. Call it
    /// right before the fault is done where it is done in a moment (a kill), so that recovery is not measured
    /// too short.
    pub fn fault(&self, name: &str, args: &[(&str, &str)]) -> u64 {
        let t = self.recorder.now();
        self.recorder.fault_start(name, args);
        t
    }

    /// Records that a fault could not be done.
    pub fn fault_skipped(&self, name: &str, why: &str) {
        self.recorder
            .fault(name, &[("why", why)], FaultResult::Skipped);
    }

    /// Records that nobody knows whether a fault took hold; the run is invalid.
    pub fn fault_indeterminate(&self, name: &str, why: &str) {
        self.recorder
            .fault(name, &[("why", why)], FaultResult::Indeterminate);
    }

    /// Records that a fault is over.
    pub fn fault_over(&self, name: &str) {
        self.recorder.fault_end(name);
    }

    /// Records that no majority is left: call it when the last node that it needed is certainly gone.
    pub fn quorum_lost(&self) {
        self.recorder.fault_start(QUORUM_LOSS, &[]);
    }

    /// Records that a majority may be there again: call it before anything is healed.
    pub fn quorum_back(&self) {
        self.recorder.fault_end(QUORUM_LOSS);
    }

    /// Notes a violation when `holds` is false, and goes on.
    pub fn require(&mut self, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.findings.push(text());
        }
    }

    /// Notes that something took too long when `holds` is false, and goes on.
    pub fn require_in_time(&mut self, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.late.push(text());
        }
    }

    /// A number for the report; a name may come many times.
    pub fn figure(&mut self, name: &str, value: f64) {
        self.figures.entry(name.to_owned()).or_default().push(value);
    }

    /// Has `undo` done when the run is healed, whatever happens until then; the last one first.
    pub fn on_heal(&mut self, undo: impl FnOnce() -> Result<(), RigError> + 'static) {
        self.undo.push(Box::new(undo));
    }

    /// Keeps a thing until the group's processes are gone (the disks they write to).
    pub fn keep(&mut self, thing: impl Any) {
        self.kept.push(Box::new(thing));
    }

    pub async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // The processes first, then what they stand on.
        self.rig = None;
        for undo in self.undo.drain(..).rev() {
            // Only a run that was broken off comes here with something to undo; it has its error already.
            let _undone = undo();
        }
        self.kept.clear();
    }
}
