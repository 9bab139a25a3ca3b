//! What a seed means: sizes, timers, load and the schedule of faults. A pure function of the seed.

use std::time::Duration;

use quorumlog_chaos::rng::Rng;

use crate::clocks::{EVEN, FASTEST};
use crate::disk::Op;

/// Number of a node, from 1 on; [`CLIENTS`] stands for the host of all clients.
pub type Node = u64;
pub const CLIENTS: Node = 0;

/// Simulated time at the beginning in which nothing is hurt, so that a group can be founded.
const FOUNDING_MS: u64 = 1500;
/// Simulated time after the faults in which the group must serve again.
pub const HEALED_MS: u64 = 5000;

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub seed: u64,
    /// Nodes of the group.
    pub nodes: u64,
    /// Faults begin and end before this.
    pub safety_ms: u64,
    pub segment_bytes: u64,
    pub cache_bytes: usize,
    /// Of a message on the network, from and to.
    pub latency: (Duration, Duration),
    /// What a group of writes takes, from and below.
    pub disk_pace: (Duration, Duration),
    /// Reads in a hundred that must wait for the disk.
    pub cold_percent: usize,
    pub heartbeat: Duration,
    pub election: (Duration, Duration),
    pub queues: i32,
    pub producers: usize,
    /// Longest pause of a producer between two messages.
    pub think: Duration,
    /// Body lengths, from and below.
    pub body: (usize, usize),
    /// Attempts to send one message.
    pub attempts: u32,
    pub deduplication: bool,
    /// Followers answer pulls.
    pub follower_reads: bool,
    /// How fast each node's monotonic clock runs, from node 1 on, in thousandths of the network's time.
    pub clock_rates: Vec<u32>,
    pub faults: Vec<Fault>,
}

/// A fault and when it is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub at_ms: u64,
    pub for_ms: u64,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The processes end at once; the page cache survives. Restarted at the end.
    Crash(Vec<Node>),
    /// The power goes after each disk has done so many more operations. Restarted at the end.
    PowerLoss { nodes: Vec<Node>, operations: u64 },
    /// The node is told to stop: it hands leadership over. Restarted at the end.
    Stop(Node),
    /// Messages of these directions are lost.
    Cut(Vec<(Node, Node)>),
    /// Whoever leads is cut off from the other nodes, and the connections end; clients reach it, and its
    /// clock is now the slowest.
    Strand,
    /// Messages between two hosts wait, and arrive at the end.
    Hold(Node, Node),
    /// Messages take up to so many milliseconds.
    Latency(u64),
    /// A node's wall clock jumps by so many milliseconds, for ever.
    ClockJump(Node, i64),
    /// Less than the reserve is free.
    NearlyFull(Node),
    /// Nothing is free: files cannot be made or grow.
    Full(Node),
    /// One operation fails after so many of its kind. The node must end; it is restarted without power.
    Fail(Node, Op, u64),
    /// Each group of writes takes so many milliseconds.
    Slow(Node, u64),
}

const KINDS: usize = 14;

impl Plan {
    /// The plan of `seed`, for at least `seconds` of simulated time.
    pub fn new(seed: u64, seconds: u64) -> Plan {
        let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x51ed_270b);
        let ms = |from: usize, below: usize, rng: &mut Rng| {
            Duration::from_millis((from + rng.below(below - from)) as u64)
        };
        let nodes = if rng.percent(15) { 5 } else { 3 };
        let safety_ms = (seconds * 1000).saturating_sub(HEALED_MS).max(FOUNDING_MS);
        let latency_to = *pick(&[1, 2, 5, 15], &mut rng);
        let pace_to = *pick(&[1, 3, 10, 30], &mut rng);
        let heartbeat = *pick(&[30, 50], &mut rng);
        let body_to = *pick(&[120, 400, 3000], &mut rng);
        let mut plan = Plan {
            seed,
            nodes,
            safety_ms,
            segment_bytes: *pick(&[16 << 10, 64 << 10, 256 << 10], &mut rng),
            cache_bytes: *pick(&[4 << 10, 64 << 10, 1 << 20], &mut rng),
            latency: (Duration::ZERO, Duration::from_millis(latency_to)),
            disk_pace: (Duration::ZERO, Duration::from_millis(pace_to)),
            cold_percent: *pick(&[0, 10, 50], &mut rng),
            heartbeat: Duration::from_millis(heartbeat),
            election: (
                Duration::from_millis(heartbeat * 3),
                Duration::from_millis(heartbeat * 6),
            ),
            queues: 1 + rng.below(4) as i32,
            producers: 2 + rng.below(5),
            think: ms(5, 120, &mut rng),
            body: (40, body_to),
            attempts: 1 + rng.below(4) as u32,
            deduplication: rng.percent(80),
            follower_reads: rng.percent(60),
            clock_rates: vec![EVEN; nodes as usize],
            faults: Vec::new(),
        };
        // Now and then nothing is hurt: what fails then needs no fault.
        if !seed.is_multiple_of(50) {
            plan.faults = plan.schedule(&mut rng);
            plan.skew(&mut Rng::new(seed.wrapping_mul(0xd605_1a2b_9c4f_e377)));
        }
        plan
    }

    /// Whether the clocks run at different rates.
    pub fn is_skewed(&self) -> bool {
        self.clock_rates.iter().any(|rate| *rate != EVEN)
    }

    /// Lets the clocks of every third seed run apart, often as far as they may, and strands leaders. From a
    /// source of its own: what else a seed means does not depend on it.
    fn skew(&mut self, rng: &mut Rng) {
        if !rng.percent(33) {
            return;
        }
        let one_slow = rng.percent(50);
        let slowest = if one_slow { 3 * FASTEST / 4 } else { EVEN };
        for rate in &mut self.clock_rates {
            *rate = slowest + rng.below((FASTEST - slowest + 1) as usize) as u32;
        }
        if one_slow {
            let node = rng.below(self.clock_rates.len());
            self.clock_rates[node] = EVEN;
        }
        if rng.percent(50) {
            self.faults.clear();
        }
        for _ in 0..2 + rng.below(6) {
            let for_ms = 400 + rng.below(1200) as u64;
            let latest = (self.safety_ms - FOUNDING_MS).saturating_sub(for_ms);
            if latest == 0 {
                continue;
            }
            self.faults.push(Fault {
                at_ms: FOUNDING_MS + rng.below(latest as usize) as u64,
                for_ms,
                kind: Kind::Strand,
            });
        }
        self.faults.sort_by_key(|fault| fault.at_ms);
    }

    /// Phases, some without faults, some with several at a time.
    fn schedule(&self, rng: &mut Rng) -> Vec<Fault> {
        // Each seed knows some kinds only: what always happens together hides what happens alone.
        let known: Vec<usize> = (0..KINDS).filter(|_| rng.percent(55)).collect();
        let mut faults = Vec::new();
        let mut begin = FOUNDING_MS;
        while begin < self.safety_ms && !known.is_empty() {
            let length = (600 + rng.below(2400) as u64).min(self.safety_ms - begin);
            let count = if rng.percent(25) { 0 } else { 1 + rng.below(3) };
            for _ in 0..count {
                let at_ms = begin + rng.below(length as usize) as u64;
                let longest = *pick(&[50, 400, 1500, 4000], rng);
                let for_ms = (10 + rng.below(longest) as u64).min(self.safety_ms - at_ms);
                let kind = self.kind(*pick(&known, rng), rng);
                faults.push(Fault {
                    at_ms,
                    for_ms,
                    kind,
                });
            }
            begin += length;
        }
        faults.sort_by_key(|fault| fault.at_ms);
        faults
    }

    fn kind(&self, which: usize, rng: &mut Rng) -> Kind {
        let one = |rng: &mut Rng| 1 + rng.below(self.nodes as usize) as u64;
        match which {
            0 => Kind::Crash(self.some(rng)),
            1 | 2 => {
                let most = *pick(&[1, 8, 60], rng);
                Kind::PowerLoss {
                    nodes: self.some(rng),
                    operations: rng.below(most) as u64,
                }
            }
            3 => Kind::Stop(one(rng)),
            4 => Kind::Cut(self.around(one(rng), rng)),
            5 => Kind::Cut(self.one_way(one(rng), rng)),
            6 => Kind::Cut(self.bridge(one(rng))),
            7 => {
                let node = one(rng);
                let others: Vec<Node> = (CLIENTS..=self.nodes).filter(|n| *n != node).collect();
                Kind::Hold(node, *pick(&others, rng))
            }
            8 => Kind::Latency(20 + rng.below(230) as u64),
            9 => {
                let far = *pick(&[50, 5_000, 86_400_000], rng);
                Kind::ClockJump(one(rng), rng.below(2 * far) as i64 - far as i64)
            }
            10 => match rng.percent(50) {
                true => Kind::NearlyFull(one(rng)),
                false => Kind::Full(one(rng)),
            },
            11 => Kind::Fail(one(rng), Op::Write, rng.below(50) as u64),
            12 => Kind::Fail(one(rng), Op::Sync, rng.below(50) as u64),
            _ => Kind::Slow(one(rng), 20 + rng.below(1500) as u64),
        }
    }

    /// One node, a majority, or all.
    fn some(&self, rng: &mut Rng) -> Vec<Node> {
        let count = match rng.below(10) {
            0..6 => 1,
            6..8 => self.nodes / 2 + 1,
            _ => self.nodes,
        };
        let mut nodes: Vec<Node> = (1..=self.nodes).collect();
        while nodes.len() as u64 > count {
            let gone = rng.below(nodes.len());
            nodes.remove(gone);
        }
        nodes
    }

    /// Both directions between a node and all others; sometimes the clients, too.
    fn around(&self, node: Node, rng: &mut Rng) -> Vec<(Node, Node)> {
        let first = if rng.percent(30) { CLIENTS } else { 1 };
        self.apart(node, first)
    }

    /// Both directions between a node and all others from `first` on.
    pub fn apart(&self, node: Node, first: Node) -> Vec<(Node, Node)> {
        let others = (first..=self.nodes).filter(|other| *other != node);
        others
            .flat_map(|other| [(node, other), (other, node)])
            .collect()
    }

    /// What a node says is lost, or what it is told.
    fn one_way(&self, node: Node, rng: &mut Rng) -> Vec<(Node, Node)> {
        let deaf = rng.percent(50);
        let others = (1..=self.nodes).filter(|other| *other != node);
        others
            .map(|other| if deaf { (other, node) } else { (node, other) })
            .collect()
    }

    /// Two halves that only `node` connects.
    fn bridge(&self, node: Node) -> Vec<(Node, Node)> {
        let rest: Vec<Node> = (1..=self.nodes).filter(|other| *other != node).collect();
        let (left, right) = rest.split_at(rest.len() / 2);
        let pairs = left.iter().flat_map(|a| right.iter().map(|b| (*a, *b)));
        pairs.flat_map(|(a, b)| [(a, b), (b, a)]).collect()
    }
}

/// One of some values.
fn pick<'a, T>(values: &'a [T], rng: &mut Rng) -> &'a T {
    &values[rng.below(values.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_one_plan_and_others_are_others() {
        assert_eq!(Plan::new(7, 20), Plan::new(7, 20));
        assert_ne!(Plan::new(7, 20), Plan::new(8, 20));
    }

    #[test]
    fn every_fault_ends_before_the_group_must_be_whole() {
        for seed in 0..500 {
            let plan = Plan::new(seed, 20);
            assert_eq!(plan.safety_ms, 15_000);
            assert!(plan.faults.is_sorted_by_key(|fault| fault.at_ms));
            for fault in &plan.faults {
                assert!(fault.at_ms >= FOUNDING_MS, "{fault:?}");
                assert!(fault.at_ms + fault.for_ms <= plan.safety_ms, "{fault:?}");
            }
        }
    }

    #[test]
    fn a_few_hundred_seeds_know_every_kind_of_fault_alone_and_overlapping() {
        let plans: Vec<Plan> = (0..300).map(|seed| Plan::new(seed, 20)).collect();
        let all: Vec<&Fault> = plans.iter().flat_map(|plan| &plan.faults).collect();
        let any = |is: fn(&Kind) -> bool| all.iter().any(|fault| is(&fault.kind));
        assert!(any(
            |kind| matches!(kind, Kind::Crash(nodes) if nodes.len() == 1)
        ));
        assert!(any(
            |kind| matches!(kind, Kind::PowerLoss { nodes, .. } if nodes.len() >= 3)
        ));
        assert!(any(|kind| matches!(kind, Kind::Stop(_))));
        assert!(any(
            |kind| matches!(kind, Kind::Cut(cuts) if cuts.len() == 2)
        ));
        assert!(any(|kind| matches!(kind, Kind::Hold(..))));
        assert!(any(|kind| matches!(kind, Kind::Latency(_))));
        assert!(any(
            |kind| matches!(kind, Kind::ClockJump(_, ms) if *ms < -10_000)
        ));
        assert!(any(|kind| matches!(kind, Kind::NearlyFull(_))));
        assert!(any(|kind| matches!(kind, Kind::Full(_))));
        assert!(any(|kind| matches!(kind, Kind::Fail(_, Op::Write, _))));
        assert!(any(|kind| matches!(kind, Kind::Fail(_, Op::Sync, _))));
        assert!(any(|kind| matches!(kind, Kind::Slow(..))));
        assert!(any(|kind| matches!(kind, Kind::Strand)));
        assert!(
            plans.iter().any(|plan| plan.faults.is_empty()),
            "an undisturbed seed"
        );
        let overlap = |plan: &Plan| {
            let pairs = plan.faults.windows(2);
            pairs
                .into_iter()
                .any(|two| two[0].at_ms + two[0].for_ms > two[1].at_ms)
        };
        assert!(plans.iter().any(overlap));
    }

    #[test]
    fn the_clocks_of_a_third_of_the_seeds_run_apart_by_twice_at_most() {
        let plans = (0..300).map(|seed| Plan::new(seed, 20));
        let skewed: Vec<Plan> = plans.filter(Plan::is_skewed).collect();
        assert!((70..130).contains(&skewed.len()), "{}", skewed.len());
        for plan in &skewed {
            assert_eq!(plan.clock_rates.len() as u64, plan.nodes);
            let in_bounds = |rate: &u32| (EVEN..=FASTEST).contains(rate);
            assert!(plan.clock_rates.iter().all(in_bounds), "{plan:?}");
        }
        // One that is slow, and all others fast enough to make an end of a lease before it does.
        let fast = |plan: &&Plan| {
            plan.clock_rates
                .iter()
                .filter(|rate| **rate >= 1500)
                .count()
        };
        let apart = skewed
            .iter()
            .filter(|plan| fast(plan) as u64 == plan.nodes - 1);
        assert!(apart.count() > 30);
    }

    #[test]
    fn a_bridge_leaves_only_the_bridge() {
        let plan = Plan {
            nodes: 3,
            ..Plan::new(1, 20)
        };
        assert_eq!(plan.bridge(2), [(1, 3), (3, 1)]);
        let plan = Plan {
            nodes: 5,
            ..Plan::new(1, 20)
        };
        assert_eq!(plan.bridge(1).len(), 8);
    }
}
