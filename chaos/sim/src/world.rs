//! One run: the hosts, the schedule of faults, a look after every step, and at the end what a healed group
//! must be able to do.

mod faults;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use turmoil::Sim;

use crate::clients::{self, Signals};
use crate::clocks::Clocks;
use crate::counts::Counts;
use crate::host::{self, Seat, host_name};
use crate::judge;
use crate::net::Breaks;
use crate::plan::{CLIENTS, Node, Plan};
use crate::trace::Trace;
use crate::watch::{Verdict, Violation, Watch, broken};

/// One step.
pub const TICK: Duration = Duration::from_millis(1);
/// A node that ended by itself is started again after this long.
const RESTART_AFTER_MS: u64 = 300;
/// Messages that must be acknowledged by a healed group, and within what time.
const FRESH: u64 = 20;
const SERVES_WITHIN_MS: u64 = 6000;
/// How long the last requests of stopped clients may take, and the nodes to agree without new writes.
const CLIENTS_STOP_WITHIN_MS: u64 = 6000;
const CONVERGES_WITHIN_MS: u64 = 5000;

/// A run that is over.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub violation: Option<Violation>,
    pub counts: Counts,
}

/// A change that is due.
#[derive(Clone, Debug)]
enum Due {
    Begin(usize),
    End(usize),
    Restart(Node),
}

/// Whether a node's process is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    Up,
    /// The power goes as soon as its disk says so, at the latest at that time.
    LosingPower {
        latest_ms: u64,
    },
    Stopping,
    Down,
}

pub struct World<'a> {
    plan: Arc<Plan>,
    sim: Sim<'a>,
    pub seats: Vec<Arc<Seat>>,
    pub trace: Arc<Trace>,
    signals: Arc<Signals>,
    watch: Watch,
    processes: BTreeMap<Node, Process>,
    due: BTreeMap<(u64, u64), Due>,
    due_number: u64,
    /// Faults of the network that are on, by their number.
    network: BTreeSet<usize>,
    held: BTreeSet<(Node, Node)>,
    clocks: Clocks,
    /// Leaders that are cut off, by the number of the fault.
    stranded: BTreeMap<usize, Node>,
    counts: Counts,
    now_ms: u64,
}

/// Runs a plan to its end or to the first violation.
pub fn run(plan: Plan, trace: Arc<Trace>) -> Outcome {
    let mut world = World::new(plan, trace);
    let verdict = world.live();
    if let Err(violation) = &verdict {
        world.trace.note(format_args!("violation: {violation:?}"));
    }
    world.counts.simulated_ms = world.now_ms;
    world.counts.leader_changes = world.watch.leader_changes;
    world.counts.truncations = world.watch.truncations;
    world.counts.entries = world.watch.entries() as u64;
    world.counts.pulled = world.signals.pulled.load(Ordering::Relaxed);
    Outcome {
        violation: verdict.err(),
        counts: world.counts,
    }
}

impl World<'_> {
    fn new(plan: Plan, trace: Arc<Trace>) -> Self {
        quorumlog_raft::env::random::seed_this_thread(plan.seed ^ 0x0072_6166_7400);
        let mut sim = turmoil::Builder::new()
            .rng_seed(plan.seed)
            .tick_duration(TICK)
            .simulation_duration(Duration::from_secs(1 << 30))
            .min_message_latency(plan.latency.0)
            .max_message_latency(plan.latency.1)
            .tcp_capacity(1024)
            .build();
        let plan = Arc::new(plan);
        let ips: BTreeMap<Node, IpAddr> = (1..=plan.nodes)
            .map(|node| (node, sim.lookup(host_name(node))))
            .collect();
        let texts = ips
            .iter()
            .map(|(node, ip)| (*node, ip.to_string()))
            .collect();
        let breaks = Arc::new(Breaks::default());
        let seats: Vec<Arc<Seat>> = (1..=plan.nodes)
            .map(|node| {
                let seat = Seat::new(&plan, node, &texts, breaks.clone(), trace.clone());
                Arc::new(seat)
            })
            .collect();
        for seat in &seats {
            let seat = seat.clone();
            sim.host(host_name(seat.node), move || host::run(seat.clone()));
        }
        let signals = Arc::new(Signals::default());
        let addresses = Arc::new(ips.into_iter().collect());
        let load = clients::run(plan.clone(), addresses, trace.clone(), signals.clone());
        sim.client(host_name(CLIENTS), load);
        let mut world = World {
            sim,
            seats,
            trace,
            signals,
            watch: Watch::default(),
            processes: (1..=plan.nodes).map(|node| (node, Process::Up)).collect(),
            due: BTreeMap::new(),
            due_number: 0,
            network: BTreeSet::new(),
            held: BTreeSet::new(),
            clocks: Clocks::new(&plan.clock_rates),
            stranded: BTreeMap::new(),
            counts: Counts::default(),
            now_ms: 0,
            plan: plan.clone(),
        };
        for (number, fault) in plan.faults.iter().enumerate() {
            world.at(fault.at_ms, Due::Begin(number));
        }
        world
    }

    fn at(&mut self, ms: u64, due: Due) {
        self.due_number += 1;
        self.due.insert((ms, self.due_number), due);
    }

    /// Safety, then liveness.
    fn live(&mut self) -> Verdict {
        while self.now_ms < self.plan.safety_ms {
            self.step()?;
        }
        self.heal();
        self.until("I-20 a healed group serves", SERVES_WITHIN_MS, FRESH)?;
        let least = self.plan.safety_ms + crate::plan::HEALED_MS;
        while self.now_ms < least {
            self.step()?;
        }
        self.signals.stop.store(true, Ordering::Relaxed);
        let late = self.now_ms + CLIENTS_STOP_WITHIN_MS;
        while !self.signals.stopped.load(Ordering::Relaxed) {
            if self.now_ms > late {
                return broken("I-11 every request ends", "clients still wait");
            }
            self.step()?;
        }
        let late = self.now_ms + CONVERGES_WITHIN_MS;
        while let Err(why) = self.converged() {
            if self.now_ms > late {
                let states: Vec<String> = self.seats.iter().map(|seat| state_of(seat)).collect();
                let evidence = format!("{why}; {states:?}");
                return broken("I-20 all nodes come to agree without new writes", evidence);
            }
            self.step()?;
        }
        judge::judge(&self.plan, &self.seats, &self.trace, &mut self.counts)
    }

    /// Steps until `fresh` more messages are acknowledged.
    fn until(&mut self, what: &str, within_ms: u64, fresh: u64) -> Verdict {
        let acknowledged = |world: &Self| world.signals.acknowledged.load(Ordering::Relaxed);
        let (goal, late) = (acknowledged(self) + fresh, self.now_ms + within_ms);
        while acknowledged(self) < goal {
            if self.now_ms > late {
                let states: Vec<String> = self.seats.iter().map(|seat| state_of(seat)).collect();
                let missing = goal - acknowledged(self);
                let evidence = format!("{missing} of {fresh} acknowledgements missing: {states:?}");
                return broken(what, evidence);
            }
            self.step()?;
        }
        Ok(())
    }

    /// All nodes are up and have applied all there is; or what is different.
    fn converged(&self) -> Result<(), String> {
        use futures_util::FutureExt;
        let mut states = Vec::new();
        for seat in &self.seats {
            let running = seat.seen().running.clone();
            let status = running.and_then(|running| running.group.status().now_or_never());
            let Some(status) = status else {
                return Err(format!("n{} is not up", seat.node));
            };
            states.push((status.appended, status.committed, status.applied));
        }
        let first = states[0];
        let same = states.iter().all(|state| *state == first);
        match same && first.0 == first.1 && first.1 == first.2 {
            true => Ok(()),
            false => Err(format!("(appended, committed, applied): {states:?}")),
        }
    }

    fn step(&mut self) -> Verdict {
        self.now_ms += TICK.as_millis() as u64;
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > self.now_ms {
                break;
            }
            match entry.remove() {
                Due::Begin(number) => self.begin(number),
                Due::End(number) => self.end(number),
                Due::Restart(node) => self.restart(node),
            }
        }
        self.clocks.step(&self.seats);
        let stepped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.sim.step()));
        self.trace.tick(self.sim.elapsed());
        match stepped {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return broken("I-22 no host fails", error.to_string()),
            Err(_) => {
                let text = crate::panics::last().unwrap_or_default();
                return broken("I-22 nothing panics", text);
            }
        }
        self.watch.look(&self.seats)?;
        self.processes_that_end()
    }

    /// Ends what has lost its power or cannot go on.
    fn processes_that_end(&mut self) -> Verdict {
        for seat in self.seats.clone() {
            let node = seat.node;
            let ended = seat.seen().ended.clone();
            match self.processes[&node] {
                Process::Down => {}
                Process::LosingPower { latest_ms } => {
                    if seat.disk.is_off() || self.now_ms >= latest_ms || ended.is_some() {
                        self.power_goes(&seat);
                    }
                }
                Process::Up | Process::Stopping => match ended {
                    None => {}
                    Some((_, true)) => self.process_goes(&seat),
                    Some((why, false)) if seat.disk.failed() > 0 => {
                        self.counts.ended_by_disk += 1;
                        self.trace
                            .note(format_args!("n{node} ended by its disk: {why}"));
                        self.power_goes(&seat);
                        self.at(self.now_ms + RESTART_AFTER_MS, Due::Restart(node));
                    }
                    Some((why, false)) => {
                        return broken(
                            "I-22 a node ends only when its disk fails",
                            format!("n{node}: {why}"),
                        );
                    }
                },
            }
        }
        Ok(())
    }

    fn power_goes(&mut self, seat: &Arc<Seat>) {
        self.counts.power_losses += 1;
        self.trace.note(format_args!("n{} loses power", seat.node));
        self.watch.process_ends(seat);
        seat.disk.lose_power();
        self.remove(seat);
    }

    fn process_goes(&mut self, seat: &Arc<Seat>) {
        self.trace
            .note(format_args!("n{}'s process is gone", seat.node));
        self.watch.process_ends(seat);
        seat.disk.crash();
        self.remove(seat);
    }

    /// The disk has forgotten the process already: nothing it does while it is taken down has an effect.
    fn remove(&mut self, seat: &Arc<Seat>) {
        self.sim.crash(host_name(seat.node));
        let mut seen = seat.seen();
        let running = seen.running.take();
        seen.runtime = None;
        seen.applied.clear();
        seen.ended = None;
        drop(seen);
        drop(running);
        self.processes.insert(seat.node, Process::Down);
    }

    fn restart(&mut self, node: Node) {
        match self.processes[&node] {
            Process::Down => {
                self.processes.insert(node, Process::Up);
                self.sim.bounce(host_name(node));
            }
            Process::Up => {}
            // Its last process has not ended yet.
            Process::Stopping | Process::LosingPower { .. } => {
                self.at(self.now_ms + RESTART_AFTER_MS, Due::Restart(node));
            }
        }
    }

    fn seat(&self, node: Node) -> Arc<Seat> {
        self.seats[node as usize - 1].clone()
    }

    fn up(&self, node: Node) -> bool {
        self.processes[&node] == Process::Up
    }
}

fn state_of(seat: &Seat) -> String {
    use futures_util::FutureExt;
    let running = seat.seen().running.clone();
    match running.and_then(|running| running.group.status().now_or_never()) {
        Some(status) => format!(
            "n{} {:?} term {} leader {:?} ready {} appended {:?} committed {:?} applied {:?} matched {:?}",
            status.node,
            status.role,
            status.term,
            status.leader,
            status.ready,
            status.appended,
            status.committed,
            status.applied,
            status
                .replicas
                .iter()
                .map(|replica| (replica.node, replica.matched))
                .collect::<Vec<_>>()
        ),
        None => format!("n{} is not up", seat.node),
    }
}
