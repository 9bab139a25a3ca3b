//! I-10: what is deleted. Nothing where deleting is off; else only a queue's beginning, and only what is
//! old enough. (That the beginning never comes back is I-6; that deleting happens at all is not judged.)

use std::collections::BTreeMap;

use super::index::{End, Index, Queue};
use super::report::Findings;
use super::{Invariant, Options};
use crate::history::{Call, Reply};

/// An answer about a queue's beginning.
struct Beginning<'a> {
    queue: Queue<'a>,
    node: &'a str,
    op: u64,
    done: u64,
    min: i64,
}

pub fn check(index: &Index<'_>, options: &Options, findings: &mut Findings) {
    let beginnings = beginnings(index);
    if !options.retention {
        for begins in beginnings.iter().filter(|begins| begins.min > 0) {
            deleted(begins, "though nothing is ever deleted", findings);
        }
        return;
    }
    if let Some(kept_for) = options.kept_for {
        let kept_for = u64::try_from(kept_for.as_nanos()).unwrap_or(u64::MAX);
        young_are_kept(index, &beginnings, kept_for, findings);
    }
}

fn deleted(begins: &Beginning<'_>, why: &str, findings: &mut Findings) {
    findings.add(Invariant::Retention, || {
        format!(
            "{:?} begins at offset {} on node {} (op {}), {why}",
            begins.queue, begins.min, begins.node, begins.op
        )
    });
}

fn beginnings<'a>(index: &Index<'a>) -> Vec<Beginning<'a>> {
    let mut beginnings = Vec::new();
    for op in &index.reads {
        let (topic, q, node, min) = match (op.call, op.end) {
            (Call::Pull { topic, q, node, .. }, End::Ok(Reply::Pull { min, .. }))
            | (Call::Drain { topic, q, node, .. }, End::Ok(Reply::Drain { min, .. })) => {
                (topic, q, node, *min)
            }
            (Call::MinOffset { topic, q, node, .. }, End::Ok(Reply::Offset { off: Some(off) })) => {
                (topic, q, node, *off)
            }
            _ => continue,
        };
        beginnings.push(Beginning {
            queue: (topic, *q),
            node,
            op: op.id,
            done: op.done,
            min,
        });
    }
    beginnings
}

/// A message that was sent less than `kept_for` before the answer is not in front of the beginning.
fn young_are_kept(
    index: &Index<'_>,
    beginnings: &[Beginning<'_>],
    kept_for: u64,
    findings: &mut Findings,
) {
    // Per queue by offset: when its sending began. Offsets grow with time, but not strictly: the youngest of
    // all in front of an offset counts.
    let mut sent: BTreeMap<Queue<'_>, Vec<(i64, u64)>> = BTreeMap::new();
    for message in &index.messages {
        let Some(first) = message.first_invoke() else {
            continue;
        };
        for ack in message.attempts.iter().filter_map(|attempt| attempt.ack()) {
            sent.entry(ack.queue).or_default().push((ack.off, first));
        }
    }
    for sent in sent.values_mut() {
        sent.sort_unstable();
        let mut youngest = 0;
        for (_, t) in sent {
            youngest = youngest.max(*t);
            *t = youngest;
        }
    }
    for begins in beginnings {
        let Some(sent) = sent.get(&begins.queue) else {
            continue;
        };
        let gone = sent.partition_point(|(off, _)| *off < begins.min);
        let Some((off, t)) = gone.checked_sub(1).map(|last| sent[last]) else {
            continue;
        };
        if begins.done < t.saturating_add(kept_for) {
            let age = begins.done.saturating_sub(t) / 1_000_000;
            let why = format!("though a message up to offset {off} is at most {age} ms old");
            deleted(begins, &why, findings);
        }
    }
}
