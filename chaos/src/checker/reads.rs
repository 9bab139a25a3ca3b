//! I-8: pulls skip nothing and invent no position, reads of the leader see what was acknowledged before
//! them, and what anybody read stays.

use std::collections::{BTreeMap, HashSet};

use super::Invariant;
use super::index::{End, Floors, Index, Op, Queue, Seen};
use super::report::Findings;
use crate::history::{Call, Got, Reply};
use crate::wire::code;

pub fn check(index: &Index<'_>, findings: &mut Findings) {
    let floors = Floors::build(index.sends().filter_map(|attempt| {
        let ack = attempt.ack()?;
        Some((ack.queue, attempt.done, ack.off))
    }));
    for read in &index.reads {
        match (read.call, read.end) {
            (Call::Pull { .. }, End::Ok(Reply::Pull { .. })) => pull(read, &floors, findings),
            (
                Call::MaxOffset {
                    topic,
                    q,
                    linear: true,
                    node,
                },
                End::Ok(Reply::Offset { off }),
            ) => {
                let floor = floors.at((topic, *q), read.invoke);
                if floor.is_some_and(|floor| off.unwrap_or(0) <= floor) {
                    findings.add(Invariant::Reads, || {
                        format!(
                            "op {}: node {node} says max {off:?} of {topic} {q}, {floor:?} was acknowledged before",
                            read.id
                        )
                    });
                }
            }
            _ => {}
        }
    }
    what_was_read_stays(index, findings);
}

fn pull(read: &Op<'_>, floors: &Floors<'_>, findings: &mut Findings) {
    let (
        Call::Pull {
            topic,
            q,
            from_off,
            node,
            linear,
            filtered,
        },
        End::Ok(Reply::Pull {
            code,
            got,
            next,
            min,
            max,
        }),
    ) = (read.call, read.end)
    else {
        return;
    };
    let mut broken = |what: String| {
        findings.add(Invariant::Reads, || {
            format!(
                "op {}: pull of {topic} {q} from {from_off} on node {node}: {what}",
                read.id
            )
        });
    };
    if min > max || (*code == code::PULL_OFFSET_MOVED && !(*min..=*max).contains(next)) {
        broken(format!("min {min}, max {max}, next {next}"));
    }
    if *code == code::SUCCESS
        && let Some(what) = skip(got, *from_off, *next, *filtered)
    {
        broken(what);
    }
    let floor = floors.at((topic, *q), read.invoke).filter(|_| *linear);
    if let Some(floor) = floor {
        let hidden = *code == code::PULL_NOT_FOUND && (*min..=floor).contains(from_off);
        if hidden || *max <= floor {
            broken(format!(
                "code {code}, max {max}, though offset {floor} was acknowledged before"
            ));
        }
    }
}

/// What a successful pull left out or made up.
fn skip(got: &[Got], from_off: i64, next: i64, filtered: bool) -> Option<String> {
    let mut expected = from_off;
    for got in got {
        if got.off < expected || (got.off != expected && !filtered) {
            return Some(format!("offset {} where {expected} should be", got.off));
        }
        expected = got.off + 1;
    }
    if got.is_empty() {
        return Some("found, without messages".to_owned());
    }
    if next < expected || (next != expected && !filtered) {
        return Some(format!("goes on at {next} instead of {expected}"));
    }
    None
}

fn what_was_read_stays(index: &Index<'_>, findings: &mut Findings) {
    let mut seen_by_queue: BTreeMap<Queue<'_>, Vec<&Seen<'_>>> = BTreeMap::new();
    for seen in &index.seen {
        seen_by_queue.entry(seen.queue).or_default().push(seen);
    }
    for drain in index.drains.iter().filter(|drain| drain.last) {
        let offsets: HashSet<i64> = drain.got.iter().map(|got| got.off).collect();
        for seen in seen_by_queue.get(&drain.queue).into_iter().flatten() {
            if seen.done >= drain.invoke
                || seen.got.off < drain.min
                || offsets.contains(&seen.got.off)
            {
                continue;
            }
            findings.add(Invariant::Reads, || {
                format!(
                    "{} was read at {:?} offset {} from node {} (op {}), node {} ends at {} without it",
                    seen.got.key,
                    seen.queue,
                    seen.got.off,
                    seen.node,
                    seen.op,
                    drain.node,
                    drain.max
                )
            });
        }
    }
}
