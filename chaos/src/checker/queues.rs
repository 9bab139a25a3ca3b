//! I-5 and I-6: a queue is one sequence without gaps, the same for everybody, and its ends only grow.

use std::collections::{BTreeMap, HashMap};

use super::Invariant;
use super::index::{Drain, End, Index, Op, Queue};
use super::report::Findings;
use crate::history::{Call, Reply};

pub fn check(index: &Index<'_>, findings: &mut Findings) {
    one_value(index, findings);
    for drain in &index.drains {
        no_gap(drain, findings);
    }
    ends_grow(index, findings);
}

struct Value<'a> {
    key: &'a str,
    hash: u64,
    /// An acknowledgement of an older protocol may name none.
    pos: Option<i64>,
    told_by: String,
}

/// I-5.
fn one_value(index: &Index<'_>, findings: &mut Findings) {
    let mut values: HashMap<(Queue<'_>, i64), Value<'_>> = HashMap::new();
    for message in &index.messages {
        for attempt in &message.attempts {
            let Some(ack) = attempt.ack() else { continue };
            let value = Value {
                key: message.key,
                hash: message.hash,
                pos: ack.pos,
                told_by: format!("the acknowledgement of op {}", attempt.id),
            };
            compare(&mut values, (ack.queue, ack.off), value, findings);
        }
    }
    for seen in &index.seen {
        let value = Value {
            key: &seen.got.key,
            hash: seen.got.hash,
            pos: Some(seen.got.pos),
            told_by: format!("node {} in op {}", seen.node, seen.op),
        };
        compare(&mut values, (seen.queue, seen.got.off), value, findings);
    }
}

fn compare<'a>(
    values: &mut HashMap<(Queue<'a>, i64), Value<'a>>,
    place: (Queue<'a>, i64),
    value: Value<'a>,
    findings: &mut Findings,
) {
    let Some(known) = values.get_mut(&place) else {
        values.insert(place, value);
        return;
    };
    let same_position = match (known.pos, value.pos) {
        (Some(known), Some(pos)) => known == pos,
        _ => true,
    };
    if known.key != value.key || known.hash != value.hash || !same_position {
        findings.add(Invariant::OneValue, || {
            format!(
                "{place:?} is {} (hash {:x}, position {:?}) to {}, and {} (hash {:x}, position {:?}) to {}",
                known.key,
                known.hash,
                known.pos,
                known.told_by,
                value.key,
                value.hash,
                value.pos,
                value.told_by
            )
        });
    }
    known.pos = known.pos.or(value.pos);
}

/// I-6 within one drain: exactly the offsets from min to max.
fn no_gap(drain: &Drain<'_>, findings: &mut Findings) {
    let mut broken = |what: String| {
        findings.add(Invariant::Dense, || {
            format!("{:?} on node {}: {what}", drain.queue, drain.node)
        });
    };
    let mut next = drain.min;
    for got in drain.got {
        if got.off != next {
            broken(format!("offset {} where {next} should be", got.off));
        }
        next = got.off + 1;
    }
    if next != drain.max {
        broken(format!("ends before {next}, its max is {}", drain.max));
    }
}

/// An answer about a queue's ends.
struct Ends<'a> {
    op: &'a Op<'a>,
    queue: Queue<'a>,
    node: &'a str,
    linear: bool,
    min: Option<i64>,
    max: Option<i64>,
}

fn ends<'a>(op: &'a Op<'a>) -> Option<Ends<'a>> {
    let End::Ok(reply) = op.end else { return None };
    let (topic, q, node, linear) = match op.call {
        Call::Pull {
            topic,
            q,
            node,
            linear,
            ..
        }
        | Call::MaxOffset {
            topic,
            q,
            node,
            linear,
        }
        | Call::MinOffset {
            topic,
            q,
            node,
            linear,
        } => (topic, *q, node, *linear),
        Call::Drain { topic, q, node, .. } => (topic, *q, node, false),
        _ => return None,
    };
    let (min, max) = match (op.call, reply) {
        (_, Reply::Pull { min, max, .. } | Reply::Drain { min, max, .. }) => {
            (Some(*min), Some(*max))
        }
        (Call::MinOffset { .. }, Reply::Offset { off }) => (*off, None),
        (_, Reply::Offset { off }) => (None, *off),
        _ => return None,
    };
    Some(Ends {
        op,
        queue: (topic, q),
        node,
        linear,
        min,
        max,
    })
}

/// I-6 over time: per actor and node, and for reads that may not be stale, over all of them.
fn ends_grow(index: &Index<'_>, findings: &mut Findings) {
    let mut answers: Vec<Ends<'_>> = index.reads.iter().filter_map(ends).collect();
    answers.sort_by_key(|ends| ends.op.done);
    let mut of_actor: BTreeMap<(&str, &str, Queue<'_>), (i64, i64)> = BTreeMap::new();
    for answer in &answers {
        let known = of_actor
            .entry((answer.op.actor, answer.node, answer.queue))
            .or_insert((i64::MIN, i64::MIN));
        went_back(answer, *known, findings);
        known.0 = known.0.max(answer.min.unwrap_or(i64::MIN));
        known.1 = known.1.max(answer.max.unwrap_or(i64::MIN));
    }
    linear_ends_grow(&answers, findings);
}

fn linear_ends_grow(answers: &[Ends<'_>], findings: &mut Findings) {
    let mut by_queue: BTreeMap<Queue<'_>, Vec<&Ends<'_>>> = BTreeMap::new();
    for answer in answers.iter().filter(|answer| answer.linear) {
        by_queue.entry(answer.queue).or_default().push(answer);
    }
    for done in by_queue.into_values() {
        let mut begun = done.clone();
        begun.sort_by_key(|answer| answer.op.invoke);
        let mut known = (i64::MIN, i64::MIN);
        let mut earlier = done.into_iter().peekable();
        for answer in begun {
            while let Some(before) = earlier.next_if(|before| before.op.done < answer.op.invoke) {
                known.0 = known.0.max(before.min.unwrap_or(i64::MIN));
                known.1 = known.1.max(before.max.unwrap_or(i64::MIN));
            }
            went_back(answer, known, findings);
        }
    }
}

fn went_back(answer: &Ends<'_>, known: (i64, i64), findings: &mut Findings) {
    for (what, known, now) in [("min", known.0, answer.min), ("max", known.1, answer.max)] {
        if let Some(now) = now.filter(|now| *now < known) {
            findings.add(Invariant::Dense, || {
                format!(
                    "the {what} of {:?} on node {} went back from {known} to {now} (op {} of {})",
                    answer.queue, answer.node, answer.op.id, answer.op.actor
                )
            });
        }
    }
}
