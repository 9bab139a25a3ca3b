//! Histories of a group that a correct one could have produced, for the checker's own tests: three nodes
//! with logs, kills that lose what was not durable, elections, cut tails, observations, dumps at the end.

use std::collections::BTreeMap;

use crate::history::{Call, Event, FaultResult, Got, KEPT, LogDump, MAJORITY, NODE, Reply, What};
use crate::rng::Rng;

pub const TOPIC: &str = "t";
pub const NODES: [&str; 3] = ["n0", "n1", "n2"];
const STEP_NS: u64 = 5_000_000;
const ENTRY_BYTES: u64 = 100;

#[derive(Clone, Copy, PartialEq)]
struct Entry {
    term: u64,
    hash: u64,
}

#[derive(Clone, Default)]
struct Node {
    up: bool,
    life: u64,
    term: u64,
    voted_for: Option<u64>,
    leader: Option<u64>,
    log: Vec<Entry>,
    durable: usize,
    committed: usize,
    applied: usize,
    ready: bool,
}

/// The simulated group and everything that happens to it.
struct Sim {
    rng: Rng,
    t: u64,
    ops: u64,
    events: Vec<Event>,
    nodes: Vec<Node>,
    hashes: u64,
    /// Sends under way: (operation, key, index in the log).
    open: Vec<(u64, String, usize)>,
    queue: Vec<Got>,
}

/// A good history of `steps` steps, then healing, quiet, last drains and dumps of all nodes.
pub fn good(seed: u64, steps: usize) -> Vec<Event> {
    let mut sim = Sim {
        rng: Rng::new(seed),
        t: 0,
        ops: 0,
        events: Vec::new(),
        nodes: vec![Node::default(); NODES.len()],
        hashes: 0,
        open: Vec::new(),
        queue: Vec::new(),
    };
    for at in 0..NODES.len() {
        sim.boot(at);
    }
    sim.elect();
    for _ in 0..steps {
        sim.step();
    }
    sim.heal();
    sim.stop_all();
    sim.events
}

impl Sim {
    fn step(&mut self) {
        self.t += STEP_NS;
        match self.rng.below(40) {
            0..=9 => self.send(),
            10..=24 => self.replicate(),
            25..=36 => self.observe(),
            37 => self.kill(),
            38 => self.boot_dead(),
            _ => self.elect(),
        }
    }

    fn push(&mut self, a: &str, op: Option<u64>, what: What) -> u64 {
        let op = op.unwrap_or_else(|| {
            self.ops += 1;
            self.ops
        });
        self.t += 1;
        let (t, a) = (self.t, a.to_owned());
        self.events.push(Event { t, a, op, what });
        op
    }

    fn leader(&self) -> Option<usize> {
        (0..self.nodes.len()).find(|at| {
            let node = &self.nodes[*at];
            node.up && node.leader == Some(*at as u64)
        })
    }

    fn entry(&mut self, term: u64) -> Entry {
        self.hashes += 1;
        let hash = self.hashes.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Entry { term, hash }
    }

    fn send(&mut self) {
        let Some(leader) = self.leader() else { return };
        let entry = self.entry(self.nodes[leader].term);
        self.nodes[leader].log.push(entry);
        let key = format!("k{}", entry.hash);
        let call = Call::Send {
            topic: TOPIC.to_owned(),
            q: 0,
            key: key.clone(),
            attempt: 1,
            hash: entry.hash,
            len: 10,
            to: NODES[leader].to_owned(),
            timeout_ms: 3000,
        };
        let op = self.push("p", None, What::Invoke(call));
        self.open.push((op, key, self.nodes[leader].log.len() - 1));
    }

    /// Everybody who is up takes the leader's log over, makes it durable, and what a majority has is
    /// committed and acknowledged.
    fn replicate(&mut self) {
        let Some(leader) = self.leader() else { return };
        let of = self.nodes[leader].clone();
        for at in 0..self.nodes.len() {
            let lags = at != leader && self.rng.percent(30);
            let node = &mut self.nodes[at];
            if !node.up || lags {
                continue;
            }
            let new_term = node.term != of.term;
            (node.term, node.voted_for) = (of.term, of.voted_for);
            node.leader = of.leader;
            node.ready &= !new_term;
            node.log.clone_from(&of.log);
            if self.rng.percent(80) {
                node.durable = node.log.len();
            }
            node.durable = node.durable.min(node.log.len());
        }
        self.commit(leader);
    }

    fn commit(&mut self, leader: usize) {
        let of = self.nodes[leader].clone();
        let mut durable: Vec<usize> = (0..self.nodes.len())
            .map(|at| self.common(at, &of.log).min(self.nodes[at].durable))
            .collect();
        durable.sort_unstable();
        let on_majority = durable[1];
        // Only an entry of its own term commits by count.
        if on_majority == 0 || of.log[on_majority - 1].term != of.term {
            return;
        }
        for at in 0..self.nodes.len() {
            let knows = at == leader || self.rng.percent(70);
            let node = &mut self.nodes[at];
            if node.up && node.term == of.term && node.leader == of.leader && knows {
                node.committed = node.committed.max(on_majority.min(node.log.len()));
                node.applied = node.committed;
                node.ready = true;
            }
        }
        self.acknowledge(leader);
    }

    /// How much of its log a node shares with `log`.
    fn common(&self, at: usize, log: &[Entry]) -> usize {
        let own = &self.nodes[at].log;
        own.iter().zip(log).take_while(|(a, b)| a == b).count()
    }

    fn acknowledge(&mut self, leader: usize) {
        let node = self.nodes[leader].clone();
        let mut still = Vec::new();
        for (op, key, at) in std::mem::take(&mut self.open) {
            let own = node
                .log
                .get(at)
                .filter(|entry| key == format!("k{}", entry.hash));
            match own {
                Some(entry) if at < node.applied => {
                    let off = self.queue.len() as i64;
                    let pos = (at as u64 * ENTRY_BYTES) as i64;
                    let hash = entry.hash;
                    self.queue.push(Got {
                        off,
                        key,
                        hash,
                        pos,
                    });
                    let reply = Reply::Send {
                        q: 0,
                        off,
                        pos: Some(pos),
                        code: 0,
                    };
                    self.push("p", Some(op), What::Ok(reply));
                    self.tail(leader, off);
                }
                Some(_) => still.push((op, key, at)),
                // Cut by another leader.
                None => {
                    let why = "connection closed".to_owned();
                    self.push("p", Some(op), What::Info { code: None, why });
                }
            }
        }
        self.open = still;
    }

    /// A reader is shown the newest message by a node.
    fn tail(&mut self, at: usize, off: i64) {
        let (topic, node) = (TOPIC.to_owned(), NODES[at].to_owned());
        let call = Call::Pull {
            topic,
            q: 0,
            from_off: off,
            node,
            linear: false,
            filtered: false,
        };
        let actor = format!("tail-{}-{}", NODES[at], self.nodes[at].life);
        let op = self.push(&actor, None, What::Invoke(call));
        let got = vec![self.queue[off as usize].clone()];
        let reply = Reply::Pull {
            code: 0,
            got,
            next: off + 1,
            min: 0,
            max: off + 1,
        };
        self.push(&actor, Some(op), What::Ok(reply));
    }

    fn observe(&mut self) {
        for (at, name) in NODES.iter().enumerate() {
            let node = self.nodes[at].clone();
            if !node.up {
                continue;
            }
            let text = |value: Option<u64>| value.map(|v| v.to_string()).unwrap_or_default();
            let last = |count: usize| text((count as u64).checked_sub(1));
            let role = match node.leader {
                Some(leader) if leader == at as u64 => "leader",
                _ => "follower",
            };
            let table = [
                ("raftNode", at.to_string()),
                ("raftRole", role.to_owned()),
                ("raftTerm", node.term.to_string()),
                ("raftVotedFor", text(node.voted_for)),
                ("raftLeader", text(node.leader)),
                ("raftReady", node.ready.to_string()),
                ("raftAppended", last(node.log.len())),
                ("raftDurable", last(node.durable)),
                ("raftCommitted", last(node.committed)),
                ("raftApplied", last(node.applied)),
                ("commitLogMinOffset", "0".to_owned()),
                (
                    "commitLogMaxOffset",
                    (node.applied as u64 * ENTRY_BYTES).to_string(),
                ),
                ("bootTimestamp", format!("{at}-{}", node.life)),
                ("procFds", "40".to_owned()),
            ];
            let table: BTreeMap<String, String> = table
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect();
            let node = (*name).to_owned();
            self.push("adm", None, What::Obs { node, table });
        }
    }

    fn kill(&mut self) {
        let at = self.rng.below(self.nodes.len());
        if !self.nodes[at].up || self.nodes.iter().filter(|node| node.up).count() < 3 {
            return;
        }
        let args = [(NODE, NODES[at]), (MAJORITY, KEPT)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let (fault, result) = ("kill".to_owned(), FaultResult::Installed);
        self.push(
            "nem",
            None,
            What::Start {
                fault,
                args,
                result,
            },
        );
        self.exit(at);
    }

    fn exit(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.up = false;
        node.log.truncate(node.durable);
        node.leader = None;
        let status = "signal 9".to_owned();
        let (node, expected) = (NODES[at].to_owned(), true);
        self.push(
            "nem",
            None,
            What::Exit {
                node,
                status,
                expected,
            },
        );
    }

    fn boot(&mut self, at: usize) {
        let node = NODES[at].to_owned();
        self.push("nem", None, What::Boot { node });
        let node = &mut self.nodes[at];
        node.up = true;
        node.life += 1;
        (node.committed, node.applied, node.ready) = (0, 0, false);
    }

    fn boot_dead(&mut self) {
        let Some(at) = (0..self.nodes.len()).find(|at| !self.nodes[*at].up) else {
            return;
        };
        let fault = "kill".to_owned();
        self.boot(at);
        self.push("nem", None, What::End { fault });
    }

    /// The one with the newest log of those that are up wins the next term, and begins it with an entry.
    fn elect(&mut self) {
        let up: Vec<usize> = (0..self.nodes.len())
            .filter(|at| self.nodes[*at].up)
            .collect();
        if up.len() < 2 {
            return;
        }
        let term = 1 + self.nodes.iter().map(|node| node.term).max().unwrap_or(0);
        let newest = |at: &&usize| {
            let log = &self.nodes[**at].log;
            (log.last().map_or(0, |entry| entry.term), log.len())
        };
        let winner = *up.iter().max_by_key(newest).unwrap_or(&up[0]);
        for at in up {
            let node = &mut self.nodes[at];
            (node.term, node.voted_for) = (term, Some(winner as u64));
            node.leader = (at == winner).then_some(winner as u64);
            node.ready = false;
        }
        let blank = self.entry(term);
        self.nodes[winner].log.push(blank);
    }

    fn heal(&mut self) {
        self.boot_dead();
        self.elect();
        self.push("nem", None, What::Heal);
        for _ in 0..40 {
            self.t += STEP_NS;
            if self.leader().is_some() && self.rng.percent(30) {
                self.send();
            }
            self.replicate();
            self.observe();
        }
        let leader = self.leader().expect("just elected");
        let of = self.nodes[leader].clone();
        for node in &mut self.nodes {
            let life = node.life;
            *node = Node { life, ..of.clone() };
            node.durable = node.log.len();
        }
        self.commit(leader);
        for node in &mut self.nodes {
            (node.committed, node.applied, node.ready) = (of.log.len(), of.log.len(), true);
        }
        self.observe();
        self.t += 31_000_000_000;
    }

    fn stop_all(&mut self) {
        for node in NODES {
            let call = Call::Drain {
                topic: TOPIC.to_owned(),
                q: 0,
                node: node.to_owned(),
                last: true,
            };
            let actor = format!("drain-{node}");
            let op = self.push(&actor, None, What::Invoke(call));
            let got = self.queue.clone();
            let max = got.len() as i64;
            self.push(
                &actor,
                Some(op),
                What::Ok(Reply::Drain { got, min: 0, max }),
            );
        }
        for at in 0..self.nodes.len() {
            self.exit(at);
        }
        for (at, name) in NODES.iter().enumerate() {
            let node = &self.nodes[at];
            let mut terms: Vec<(u64, u64)> = Vec::new();
            for (index, entry) in node.log.iter().enumerate() {
                if terms.last().is_none_or(|(term, _)| *term != entry.term) {
                    terms.push((entry.term, index as u64));
                }
            }
            let log = LogDump {
                vote_term: node.term,
                voted_for: node.voted_for,
                elected: true,
                terms,
                hashes: node.log.iter().map(|entry| entry.hash).collect(),
                ..LogDump::default()
            };
            let node = (*name).to_owned();
            self.push("offline", None, What::Dump { node, log });
        }
    }
}
