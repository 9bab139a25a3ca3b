//! Histories that a correct broker could have produced, for the checker's own tests: a simulated log, a few
//! producers with retries, reads and commits, drains of three nodes at the end.

use std::collections::BTreeMap;

use crate::history::{Call, Event, Got, Reply, What};
use crate::rng::Rng;

pub const TOPIC: &str = "t";
pub const QUEUES: i32 = 2;
const SECOND: u64 = 1_000_000_000;
const PRODUCERS: usize = 4;

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Ok,
    /// Unknown, and stored when it pleases the log.
    InfoStored,
    InfoLost,
    Fail,
}

struct Attempt {
    op: u64,
    key: String,
    q: i32,
    fate: Fate,
    stored: Option<i64>,
}

/// The simulated broker and everything that happens to it.
pub struct Sim {
    rng: Rng,
    t: u64,
    ops: u64,
    pub events: Vec<Event>,
    log: Vec<Vec<Got>>,
    places: BTreeMap<String, i64>,
    late: Vec<(String, i32)>,
    offsets: BTreeMap<i32, i64>,
}

/// A good history with `messages` sends or a little more.
pub fn good(seed: u64, messages: usize) -> Vec<Event> {
    let mut sim = Sim {
        rng: Rng::new(seed),
        t: 0,
        ops: 0,
        events: Vec::new(),
        log: vec![Vec::new(); QUEUES as usize],
        places: BTreeMap::new(),
        late: Vec::new(),
        offsets: BTreeMap::new(),
    };
    sim.run(messages);
    sim.events
}

impl Sim {
    fn run(&mut self, messages: usize) {
        let mut busy: Vec<Option<Attempt>> = (0..PRODUCERS).map(|_| None).collect();
        let mut sent = 0;
        while sent < messages || busy.iter().any(Option::is_some) {
            let who = self.rng.below(PRODUCERS);
            match busy[who].take() {
                None if sent < messages => {
                    sent += 1;
                    let q = self.rng.below(QUEUES as usize) as i32;
                    busy[who] = Some(self.begin(who, format!("k{sent}"), q, 1));
                }
                None => {}
                Some(attempt) => busy[who] = self.step(who, attempt),
            }
            match self.rng.below(12) {
                0 => self.store_late(),
                1 => self.pull(),
                2 => self.max_offset(),
                3 => self.consumer_offset(),
                _ => {}
            }
        }
        self.drain_all();
    }

    fn begin(&mut self, who: usize, key: String, q: i32, attempt: u32) -> Attempt {
        let fate = match self.rng.below(10) {
            0 => Fate::InfoStored,
            1 => Fate::InfoLost,
            2 => Fate::Fail,
            _ => Fate::Ok,
        };
        let call = Call::Send {
            topic: TOPIC.to_owned(),
            q,
            hash: hash_of(&key),
            key: key.clone(),
            attempt,
            len: 10,
            to: "n0".to_owned(),
            timeout_ms: 3000,
        };
        let op = self.invoke(&format!("p{who}"), call);
        Attempt {
            op,
            key,
            q,
            fate,
            stored: None,
        }
    }

    /// Stores or completes an attempt; a retry comes back as the next attempt.
    fn step(&mut self, who: usize, mut attempt: Attempt) -> Option<Attempt> {
        let actor = format!("p{who}");
        if attempt.fate == Fate::Ok && attempt.stored.is_none() {
            attempt.stored = Some(self.store(&attempt.key, attempt.q));
            return Some(attempt);
        }
        let what = match attempt.fate {
            Fate::Ok => {
                let off = attempt.stored.expect("stored above");
                let pos = self.log[attempt.q as usize][off as usize].pos;
                What::Ok(Reply::Send {
                    q: attempt.q,
                    off,
                    pos: Some(pos),
                    code: 0,
                })
            }
            Fate::Fail => What::Fail {
                code: 1,
                remark: "[REFUSED] in-sync replicas not enough: no lease".to_owned(),
            },
            Fate::InfoStored | Fate::InfoLost => What::Info {
                code: None,
                why: "timeout".to_owned(),
            },
        };
        if attempt.fate == Fate::InfoStored {
            self.late.push((attempt.key.clone(), attempt.q));
        }
        self.complete(&actor, attempt.op, what);
        let again = attempt.fate != Fate::Ok && self.rng.percent(50);
        again.then(|| self.begin(who, attempt.key, attempt.q, 2))
    }

    fn store(&mut self, key: &str, q: i32) -> i64 {
        if let Some(off) = self.places.get(key) {
            return *off;
        }
        let pos = self.log.iter().map(Vec::len).sum::<usize>() as i64 * 100;
        let queue = &mut self.log[q as usize];
        let off = queue.len() as i64;
        queue.push(Got {
            off,
            key: key.to_owned(),
            hash: hash_of(key),
            pos,
        });
        self.places.insert(key.to_owned(), off);
        off
    }

    fn store_late(&mut self) {
        if let Some((key, q)) = self.late.pop() {
            self.store(&key, q);
        }
    }

    fn pull(&mut self) {
        let q = self.rng.below(QUEUES as usize);
        let from = self.rng.below(self.log[q].len() + 1);
        let (topic, node) = (TOPIC.to_owned(), "n0".to_owned());
        let call = Call::Pull {
            topic,
            q: q as i32,
            from_off: from as i64,
            node,
            linear: true,
            filtered: false,
        };
        let op = self.invoke("c", call);
        let max = self.log[q].len();
        let next = (from + 4).min(max);
        let got = self.log[q][from..next].to_vec();
        let code = if got.is_empty() { 19 } else { 0 };
        let reply = Reply::Pull {
            code,
            got,
            next: next as i64,
            min: 0,
            max: max as i64,
        };
        self.complete("c", op, What::Ok(reply));
    }

    fn max_offset(&mut self) {
        let q = self.rng.below(QUEUES as usize) as i32;
        let (topic, node) = (TOPIC.to_owned(), "n0".to_owned());
        let linear = true;
        let op = self.invoke(
            "m",
            Call::MaxOffset {
                topic,
                q,
                node,
                linear,
            },
        );
        let off = Some(self.log[q as usize].len() as i64);
        self.complete("m", op, What::Ok(Reply::Offset { off }));
    }

    fn consumer_offset(&mut self) {
        let q = self.rng.below(QUEUES as usize) as i32;
        let (group, topic, node) = ("g".to_owned(), TOPIC.to_owned(), "n0".to_owned());
        if self.rng.percent(50) {
            let off = self.rng.below(1000) as i64;
            let call = Call::CommitOffset {
                group,
                topic,
                q,
                off,
                node,
            };
            let op = self.invoke("o", call);
            let unknown = self.rng.percent(20);
            if !unknown || self.rng.percent(50) {
                self.offsets.insert(q, off);
            }
            let what = if unknown {
                What::Info {
                    code: None,
                    why: "timeout".to_owned(),
                }
            } else {
                What::Ok(Reply::CommitOffset)
            };
            self.complete("o", op, what);
        } else {
            let call = Call::QueryOffset {
                group,
                topic,
                q,
                node,
                linear: true,
            };
            let op = self.invoke("o", call);
            let off = self.offsets.get(&q).copied();
            self.complete("o", op, What::Ok(Reply::Offset { off }));
        }
    }

    fn drain_all(&mut self) {
        // What is still under way may land or not.
        while self.rng.percent(50) {
            self.store_late();
        }
        self.t += 10 * SECOND;
        for node in ["n0", "n1", "n2"] {
            for q in 0..QUEUES {
                let call = Call::Drain {
                    topic: TOPIC.to_owned(),
                    q,
                    node: node.to_owned(),
                    last: true,
                };
                let actor = format!("drain-{node}");
                let op = self.invoke(&actor, call);
                let got = self.log[q as usize].clone();
                let max = got.len() as i64;
                self.complete(&actor, op, What::Ok(Reply::Drain { got, min: 0, max }));
            }
        }
    }

    fn invoke(&mut self, actor: &str, call: Call) -> u64 {
        self.ops += 1;
        let op = self.ops;
        self.complete(actor, op, What::Invoke(call));
        op
    }

    fn complete(&mut self, actor: &str, op: u64, what: What) {
        self.t += 1_000 + self.rng.below(1_000_000) as u64;
        self.events.push(Event {
            t: self.t,
            a: actor.to_owned(),
            op,
            what,
        });
    }
}

pub fn hash_of(key: &str) -> u64 {
    key.bytes()
        .fold(7, |hash, byte| hash * 31 + u64::from(byte))
}
