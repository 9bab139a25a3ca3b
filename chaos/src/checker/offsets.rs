//! I-9: consumer offsets. Each (group, topic, queue) is a register: a smaller commit overwrites a bigger
//! one, and a read that may not be stale returns a commit that no later acknowledged one has replaced.

use std::collections::BTreeMap;

use super::Invariant;
use super::index::{End, Index, Op};
use super::report::Findings;
use crate::history::{Call, Reply};

/// One attempt to commit. `done` is `u64::MAX` when its end is not known: it may take effect at any time.
#[derive(Clone, Copy)]
struct Write {
    off: i64,
    invoke: u64,
    done: u64,
    acked: bool,
}

type Register<'a> = (&'a str, &'a str, i32);

pub fn check(index: &Index<'_>, findings: &mut Findings) {
    let mut writes: BTreeMap<Register<'_>, Vec<Write>> = BTreeMap::new();
    for op in &index.reads {
        if let Call::CommitOffset {
            group,
            topic,
            q,
            off,
            ..
        } = op.call
            && !op.failed()
        {
            let acked = matches!(op.end, End::Ok(_));
            writes.entry((group, topic, *q)).or_default().push(Write {
                off: *off,
                invoke: op.invoke,
                done: if acked { op.done } else { u64::MAX },
                acked,
            });
        }
    }
    for op in &index.reads {
        if let Call::QueryOffset {
            group,
            topic,
            q,
            node,
            linear,
        } = op.call
            && let End::Ok(Reply::Offset { off }) = op.end
        {
            let register = (group.as_str(), topic.as_str(), *q);
            let known = writes.get(&register).map_or(&[][..], Vec::as_slice);
            if let Some(why) = impossible(*off, op, *linear, known) {
                findings.add(Invariant::ConsumerOffset, || {
                    format!(
                        "op {}: node {node} says {off:?} of {register:?}: {why}",
                        op.id
                    )
                });
            }
        }
    }
}

/// Why a query cannot have this result.
fn impossible(off: Option<i64>, query: &Op<'_>, linear: bool, writes: &[Write]) -> Option<String> {
    // The latest that an acknowledged commit began and was complete before the query: whatever ended
    // before that was replaced.
    let replaced = writes
        .iter()
        .filter(|write| write.acked && write.done < query.invoke)
        .map(|write| write.invoke)
        .max();
    let Some(off) = off else {
        return replaced
            .filter(|_| linear)
            .map(|_| "a commit was acknowledged before".to_owned());
    };
    let begun = |write: &&Write| write.off == off && write.invoke < query.done;
    let Some(_) = writes.iter().find(begun) else {
        // A broker may answer 0 for a group that never committed.
        return (off != 0 || (replaced.is_some() && linear))
            .then(|| "nobody had committed that".to_owned());
    };
    let current = |write: &Write| replaced.is_none_or(|replaced| write.done >= replaced);
    let possible = writes.iter().filter(begun).any(current);
    (linear && !possible).then(|| "a later commit was acknowledged before".to_owned())
}
