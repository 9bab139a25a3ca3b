//! I-1 to I-4: what became of sent messages. Joins attempts with everything that was read.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::index::{Ack, Drain, Index, Message, Op, Queue, Seen};
use super::report::Findings;
use super::{Invariant, Options};
use crate::history::Got;

pub fn check(index: &Index<'_>, options: &Options, findings: &mut Findings) {
    acknowledged_are_there(index, findings);
    read_were_sent(index, findings);
    once(index, options, findings);
}

type Acknowledged<'a> = (&'a Message<'a>, &'a Op<'a>, Ack<'a>);

/// I-1, against every last drain.
fn acknowledged_are_there(index: &Index<'_>, findings: &mut Findings) {
    let mut by_queue: BTreeMap<Queue<'_>, Vec<Acknowledged<'_>>> = BTreeMap::new();
    for message in &index.messages {
        for attempt in &message.attempts {
            if let Some(ack) = attempt.ack() {
                let of_queue = by_queue.entry(ack.queue).or_default();
                of_queue.push((message, attempt, ack));
            }
        }
    }
    for (queue, acknowledged) in by_queue {
        let mut drains = index
            .drains
            .iter()
            .filter(|drain| drain.last && drain.queue == queue)
            .peekable();
        if drains.peek().is_none() {
            findings.add(Invariant::NoLoss, || {
                format!("queue {queue:?} has acknowledged messages and no last drain")
            });
        }
        for drain in drains {
            are_in(&acknowledged, drain, findings);
        }
    }
}

fn are_in(acknowledged: &[Acknowledged<'_>], drain: &Drain<'_>, findings: &mut Findings) {
    let by_offset: HashMap<i64, &Got> = drain.got.iter().map(|got| (got.off, got)).collect();
    for (message, attempt, ack) in acknowledged {
        if attempt.done >= drain.invoke || ack.off < drain.min {
            continue;
        }
        let found = by_offset.get(&ack.off);
        if found.is_some_and(|got| got.key == message.key && got.hash == message.hash) {
            continue;
        }
        findings.add(Invariant::NoLoss, || {
            format!(
                "{} was acknowledged at {:?} offset {} (op {}), but node {} has {found:?} there (min {}, max {})",
                message.key, ack.queue, ack.off, attempt.id, drain.node, drain.min, drain.max
            )
        });
    }
}

/// I-2 and I-3.
fn read_were_sent(index: &Index<'_>, findings: &mut Findings) {
    for seen in &index.seen {
        let Some(message) = index.message(&seen.got.key) else {
            findings.add(Invariant::NoPhantom, || {
                format!("nobody sent what is at {}", place(seen))
            });
            continue;
        };
        let Some(first) = message.first_invoke() else {
            findings.add(Invariant::FailMeansAbsent, || {
                let ends: Vec<_> = message.attempts.iter().map(|attempt| attempt.end).collect();
                format!(
                    "every attempt to send {} was refused ({ends:?}), yet it is at {}",
                    message.key,
                    place(seen)
                )
            });
            continue;
        };
        let wrong = if seen.got.hash != message.hash {
            "with other bytes than were sent"
        } else if !message.meant_for(seen.queue) {
            "in a queue it was not sent to"
        } else if first > seen.done {
            "before it was sent"
        } else {
            continue;
        };
        findings.add(Invariant::NoPhantom, || {
            format!("{} was read {wrong}, at {}", message.key, place(seen))
        });
    }
}

fn place(seen: &Seen<'_>) -> String {
    format!(
        "{:?} offset {} on node {} (key {:?}, op {})",
        seen.queue, seen.got.off, seen.node, seen.got.key, seen.op
    )
}

/// I-4.
fn once(index: &Index<'_>, options: &Options, findings: &mut Findings) {
    let mut places: HashMap<&str, BTreeSet<(Queue<'_>, i64)>> = HashMap::new();
    for seen in &index.seen {
        let places = places.entry(&seen.got.key).or_default();
        places.insert((seen.queue, seen.got.off));
    }
    for message in &index.messages {
        let mut places = places.remove(message.key).unwrap_or_default();
        let acks: Vec<_> = message
            .attempts
            .iter()
            .filter_map(|attempt| attempt.ack())
            .map(|ack| (ack.queue, ack.off))
            .collect();
        places.extend(acks.iter().copied());
        let may_have_stored = message.attempts.iter().filter(|a| !a.failed()).count();
        let allowed = if options.deduplication {
            may_have_stored.min(1)
        } else {
            may_have_stored
        };
        // A message of which every attempt failed is I-3's.
        if places.len() > allowed && may_have_stored > 0 {
            findings.add(Invariant::AtMostOnce, || {
                format!(
                    "{} is there {} times, {allowed} allowed: {places:?}",
                    message.key,
                    places.len()
                )
            });
        }
        let distinct = acks.iter().collect::<BTreeSet<_>>().len();
        if !options.deduplication && distinct < acks.len() {
            findings.add(Invariant::AtMostOnce, || {
                format!(
                    "two attempts to send {} were given one place: {acks:?}",
                    message.key
                )
            });
        }
    }
}
