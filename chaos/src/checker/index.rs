//! The history joined once: attempts with their outcomes by message key, everything read by queue, and the
//! other operations with their results. Decides nothing.

use std::collections::{BTreeMap, HashMap};

use crate::history::{Call, Event, FaultResult, Got, QUORUM_LOSS, Reply, What};

/// A queue: topic and queue id.
pub type Queue<'a> = (&'a str, i32);

/// How an operation ended.
#[derive(Clone, Copy, Debug)]
pub enum End<'a> {
    Ok(&'a Reply),
    Fail {
        code: i32,
        remark: &'a str,
    },
    Info {
        code: Option<i32>,
        why: &'a str,
    },
    /// The history has no end of it.
    Open,
}

/// One operation with its end.
#[derive(Clone, Copy, Debug)]
pub struct Op<'a> {
    pub id: u64,
    pub actor: &'a str,
    pub call: &'a Call,
    pub invoke: u64,
    /// `u64::MAX` when open.
    pub done: u64,
    pub end: End<'a>,
}

/// An acknowledgement of a send.
#[derive(Clone, Copy, Debug)]
pub struct Ack<'a> {
    pub queue: Queue<'a>,
    pub off: i64,
    pub pos: Option<i64>,
}

impl<'a> Op<'a> {
    /// Where a send was acknowledged, if it is one that was.
    pub fn ack(&self) -> Option<Ack<'a>> {
        let Call::Send { topic, .. } = self.call else {
            return None;
        };
        match self.end {
            End::Ok(Reply::Send { q, off, pos, .. }) => Some(Ack {
                queue: (topic, *q),
                off: *off,
                pos: *pos,
            }),
            _ => None,
        }
    }

    pub fn failed(&self) -> bool {
        matches!(self.end, End::Fail { .. })
    }
}

/// A message as its producer meant it.
#[derive(Debug)]
pub struct Message<'a> {
    pub key: &'a str,
    pub topic: &'a str,
    pub hash: u64,
    pub attempts: Vec<Op<'a>>,
}

impl Message<'_> {
    /// When the first attempt began that may have stored it; `None`: all were refused.
    pub fn first_invoke(&self) -> Option<u64> {
        self.attempts
            .iter()
            .filter(|attempt| !attempt.failed())
            .map(|attempt| attempt.invoke)
            .min()
    }

    /// May an attempt have put it in this queue?
    pub fn meant_for(&self, queue: Queue<'_>) -> bool {
        self.topic == queue.0
            && self.attempts.iter().any(|attempt| match attempt.call {
                Call::Send { q, .. } => *q < 0 || *q == queue.1,
                _ => false,
            })
    }
}

/// A record that somebody read.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub queue: Queue<'a>,
    pub got: &'a Got,
    pub node: &'a str,
    pub op: u64,
    pub done: u64,
}

/// A complete read of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Drain<'a> {
    pub queue: Queue<'a>,
    pub node: &'a str,
    pub invoke: u64,
    pub last: bool,
    pub got: &'a [Got],
    pub min: i64,
    pub max: i64,
}

/// A span of time without a majority; `end` is `u64::MAX` when it never ended.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    pub start: u64,
    pub end: u64,
}

/// The joined history.
#[derive(Debug, Default)]
pub struct Index<'a> {
    pub messages: Vec<Message<'a>>,
    by_key: HashMap<&'a str, usize>,
    pub seen: Vec<Seen<'a>>,
    pub drains: Vec<Drain<'a>>,
    /// All operations but sends, in the order of their invocation.
    pub reads: Vec<Op<'a>>,
    pub losses: Vec<Loss>,
    /// Time of the last event.
    pub end: u64,
}

impl<'a> Index<'a> {
    pub fn build(events: &'a [Event]) -> Index<'a> {
        let mut index = Index {
            end: events.iter().map(|event| event.t).max().unwrap_or(0),
            ..Index::default()
        };
        for op in join(events) {
            match op.call {
                Call::Send {
                    topic, key, hash, ..
                } => index.add_attempt(topic, key, *hash, op),
                _ => index.add_read(op),
            }
        }
        index.losses = losses(events);
        index
    }

    pub fn message(&self, key: &str) -> Option<&Message<'a>> {
        self.by_key.get(key).map(|at| &self.messages[*at])
    }

    pub fn sends(&self) -> impl Iterator<Item = &Op<'a>> {
        self.messages.iter().flat_map(|message| &message.attempts)
    }

    fn add_attempt(&mut self, topic: &'a str, key: &'a str, hash: u64, op: Op<'a>) {
        let at = *self.by_key.entry(key).or_insert_with(|| {
            self.messages.push(Message {
                key,
                topic,
                hash,
                attempts: Vec::new(),
            });
            self.messages.len() - 1
        });
        let message = &mut self.messages[at];
        assert!(
            message.topic == topic && message.hash == hash,
            "the workload sent two different messages with the key {key}"
        );
        message.attempts.push(op);
    }

    fn add_read(&mut self, op: Op<'a>) {
        self.reads.push(op);
        let (queue, node, got): (Queue<'a>, &str, &'a [Got]) = match (op.call, op.end) {
            (Call::Pull { topic, q, node, .. }, End::Ok(Reply::Pull { got, .. })) => {
                ((topic, *q), node, got)
            }
            (
                Call::Drain {
                    topic,
                    q,
                    node,
                    last,
                },
                End::Ok(Reply::Drain { got, min, max }),
            ) => {
                self.drains.push(Drain {
                    queue: (topic, *q),
                    node,
                    invoke: op.invoke,
                    last: *last,
                    got,
                    min: *min,
                    max: *max,
                });
                ((topic, *q), node, got)
            }
            _ => return,
        };
        self.seen.extend(got.iter().map(|got| Seen {
            queue,
            got,
            node,
            op: op.id,
            done: op.done,
        }));
    }
}

/// Invocations with their ends, in the order of invocation.
fn join(events: &[Event]) -> Vec<Op<'_>> {
    let mut ops: Vec<Op<'_>> = Vec::new();
    let mut open: HashMap<u64, usize> = HashMap::new();
    for event in events {
        let end = match &event.what {
            What::Invoke(call) => {
                open.insert(event.op, ops.len());
                ops.push(Op {
                    id: event.op,
                    actor: &event.a,
                    call,
                    invoke: event.t,
                    done: u64::MAX,
                    end: End::Open,
                });
                continue;
            }
            What::Ok(reply) => End::Ok(reply),
            What::Fail { code, remark } => End::Fail {
                code: *code,
                remark,
            },
            What::Info { code, why } => End::Info { code: *code, why },
            _ => continue,
        };
        if let Some(at) = open.remove(&event.op) {
            ops[at].end = end;
            ops[at].done = event.t;
        }
    }
    ops
}

fn losses(events: &[Event]) -> Vec<Loss> {
    let mut losses: Vec<Loss> = Vec::new();
    for event in events {
        match &event.what {
            What::Start { fault, result, .. }
                if fault == QUORUM_LOSS && *result == FaultResult::Installed =>
            {
                losses.push(Loss {
                    start: event.t,
                    end: u64::MAX,
                })
            }
            What::End { fault } if fault == QUORUM_LOSS => {
                if let Some(loss) = losses.last_mut() {
                    loss.end = loss.end.min(event.t);
                }
            }
            _ => {}
        }
    }
    losses
}

/// Per queue, the highest offset known to be stored at a time: a running maximum over acknowledgements
/// (and over reads, where asked for).
#[derive(Debug, Default)]
pub struct Floors<'a> {
    /// Sorted by time; offsets grow.
    steps: BTreeMap<Queue<'a>, Vec<(u64, i64)>>,
}

impl<'a> Floors<'a> {
    pub fn build(stored: impl Iterator<Item = (Queue<'a>, u64, i64)>) -> Floors<'a> {
        let mut steps: BTreeMap<Queue<'a>, Vec<(u64, i64)>> = BTreeMap::new();
        for (queue, t, off) in stored {
            steps.entry(queue).or_default().push((t, off));
        }
        for steps in steps.values_mut() {
            steps.sort_unstable();
            let mut highest = i64::MIN;
            steps.retain(|(_, off)| {
                let higher = *off > highest;
                highest = highest.max(*off);
                higher
            });
        }
        Floors { steps }
    }

    /// The highest offset stored before `t`.
    pub fn at(&self, queue: Queue<'a>, t: u64) -> Option<i64> {
        let steps = self.steps.get(&queue)?;
        let before = steps.partition_point(|(when, _)| *when < t);
        before.checked_sub(1).map(|last| steps[last].1)
    }
}
