//! Bringing faults on, and ending them.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quorumlog_raft::Role;

use super::{Due, Process, RESTART_AFTER_MS, World};
use crate::disk::PLENTY;
use crate::host::{RESERVE, host_name};
use crate::plan::{CLIENTS, Fault, Kind, Node};

impl World<'_> {
    pub(super) fn begin(&mut self, number: usize) {
        let Fault { for_ms, kind, .. } = self.plan.faults[number].clone();
        self.trace
            .note(format_args!("begin {number} for {for_ms} ms: {kind:?}"));
        let end_ms = self.now_ms + for_ms;
        match kind {
            Kind::Crash(nodes) => {
                for node in nodes
                    .into_iter()
                    .filter(|node| self.up(*node))
                    .collect::<Vec<_>>()
                {
                    self.counts.crashes += 1;
                    self.process_goes(&self.seat(node));
                    self.at(end_ms, Due::Restart(node));
                }
            }
            Kind::PowerLoss { nodes, operations } => {
                for node in nodes
                    .into_iter()
                    .filter(|node| self.up(*node))
                    .collect::<Vec<_>>()
                {
                    self.seat(node).disk.cut_after(operations);
                    let latest_ms = end_ms;
                    self.processes
                        .insert(node, Process::LosingPower { latest_ms });
                    self.at(end_ms + RESTART_AFTER_MS, Due::Restart(node));
                }
            }
            Kind::Stop(node) => {
                if self.up(node) {
                    self.counts.stops += 1;
                    self.processes.insert(node, Process::Stopping);
                    self.seat(node).stop.notify_one();
                    self.at(end_ms + 1000, Due::Restart(node));
                }
            }
            Kind::Cut(_) | Kind::Hold(..) => {
                match kind {
                    Kind::Cut(_) => self.counts.partitions += 1,
                    _ => self.counts.holds += 1,
                }
                self.network.insert(number);
                self.apply_network();
            }
            Kind::Strand => self.strand(number),
            Kind::Latency(ms) => self.sim.set_max_message_latency(Duration::from_millis(ms)),
            Kind::ClockJump(node, ms) => {
                self.counts.clock_jumps += 1;
                self.seat(node)
                    .clock_offset
                    .fetch_add(ms, Ordering::Relaxed);
            }
            Kind::NearlyFull(node) => {
                self.counts.disk_faults += 1;
                self.seat(node).disk.set_space(RESERVE / 2, false);
            }
            Kind::Full(node) => {
                self.counts.disk_faults += 1;
                self.seat(node).disk.set_space(0, true);
            }
            Kind::Fail(node, op, skip) => {
                self.counts.disk_faults += 1;
                self.seat(node).disk.fail_after(op, skip);
            }
            Kind::Slow(node, ms) => {
                self.counts.disk_faults += 1;
                let ms = Duration::from_millis(ms);
                self.seat(node).disk.set_pace(ms, ms);
            }
        }
        self.at(end_ms, Due::End(number));
    }

    /// Cuts off whoever leads.
    fn strand(&mut self, number: usize) {
        let Some(node) = self.leader() else {
            return;
        };
        self.counts.stranded += 1;
        self.clocks.slow_down(node);
        self.trace.note(format_args!(
            "n{node} leads and is cut off, clocks {:?}",
            self.clocks.rates()
        ));
        self.stranded.insert(number, node);
        self.apply_network();
        self.reset(&self.plan.apart(node, 1));
    }

    /// The leader of the newest term.
    fn leader(&self) -> Option<Node> {
        let views = self.seats.iter().filter_map(|seat| {
            let running = seat.seen().running.clone()?;
            let view = running.group.view();
            let view = view.borrow();
            (view.role == Role::Leader).then_some((view.term, seat.node))
        });
        views.max().map(|(_, node)| node)
    }

    /// Undoes what does not end by itself.
    pub(super) fn end(&mut self, number: usize) {
        match self.plan.faults[number].kind.clone() {
            Kind::Cut(_) | Kind::Hold(..) => {
                self.trace.note(format_args!("end {number}"));
                self.network.remove(&number);
                self.apply_network();
                if let Kind::Cut(pairs) = &self.plan.faults[number].kind {
                    self.reset(pairs);
                }
            }
            Kind::Strand => {
                self.trace.note(format_args!("end {number}"));
                if let Some(node) = self.stranded.remove(&number) {
                    self.apply_network();
                    self.reset(&self.plan.apart(node, 1));
                }
            }
            Kind::Latency(_) => self.sim.set_max_message_latency(self.plan.latency.1),
            Kind::NearlyFull(node) | Kind::Full(node) => {
                self.seat(node).disk.set_space(PLENTY, false);
            }
            Kind::Slow(node, _) => {
                let (from, below) = self.plan.disk_pace;
                self.seat(node).disk.set_pace(from, below);
            }
            _ => {}
        }
    }

    /// Brings every link into the state that the faults that are on ask for.
    fn apply_network(&mut self) {
        let mut cuts = BTreeSet::new();
        let mut holds = BTreeSet::new();
        for number in &self.network {
            match &self.plan.faults[*number].kind {
                Kind::Cut(pairs) => cuts.extend(pairs.iter().copied()),
                Kind::Hold(a, b) => {
                    holds.insert((*a.min(b), *a.max(b)));
                }
                _ => {}
            }
        }
        for node in self.stranded.values() {
            cuts.extend(self.plan.apart(*node, 1));
        }
        let nodes = CLIENTS..=self.plan.nodes;
        for a in nodes.clone() {
            for b in nodes.clone().filter(|b| *b > a) {
                let (left, right) = (host_name(a), host_name(b));
                if holds.contains(&(a, b)) {
                    if self.held.insert((a, b)) {
                        self.sim.hold(left, right);
                    }
                    continue;
                }
                if self.held.remove(&(a, b)) {
                    self.sim.release(left.as_str(), right.as_str());
                }
                for (from, to, cut) in [
                    (&left, &right, cuts.contains(&(a, b))),
                    (&right, &left, cuts.contains(&(b, a))),
                ] {
                    match cut {
                        true => self.sim.partition_oneway(from.as_str(), to.as_str()),
                        false => self.sim.repair_oneway(from.as_str(), to.as_str()),
                    }
                }
            }
        }
    }

    /// Ends the connections between nodes that have lost messages.
    fn reset(&self, pairs: &[(Node, Node)]) {
        for (a, b) in pairs.iter().filter(|(a, b)| *a != CLIENTS && *b != CLIENTS) {
            let ip = |node: Node| self.seat(node).config.broker_ip.into();
            self.seats[0].breaks.reset(ip(*a), ip(*b));
        }
    }

    /// Ends all faults and starts all nodes.
    pub(super) fn heal(&mut self) {
        self.trace.note("heal");
        for number in 0..self.plan.faults.len() {
            self.end(number);
        }
        for seat in self.seats.clone() {
            if let Process::LosingPower { .. } = self.processes[&seat.node] {
                self.power_goes(&seat);
            }
            seat.disk.forget_failure();
        }
        self.due.clear();
        for node in 1..=self.plan.nodes {
            self.restart(node);
        }
    }
}
