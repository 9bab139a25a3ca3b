//! I-7: the log agrees with real time. A message has a higher offset than everything in its queue that was
//! acknowledged or read before its sending began.

use std::collections::BTreeMap;

use super::index::{Floors, Index, Queue};
use super::report::Findings;
use super::{Invariant, Options};

pub fn check(index: &Index<'_>, options: &Options, findings: &mut Findings) {
    let acked = index.sends().filter_map(|attempt| {
        let ack = attempt.ack()?;
        Some((ack.queue, attempt.done, ack.off))
    });
    let seen = index
        .seen
        .iter()
        .map(|seen| (seen.queue, seen.done, seen.got.off));
    let floors = Floors::build(acked.chain(seen));
    let mut ask = |key: &str, queue, off, invoke| {
        if let Some(floor) = floors.at(queue, invoke).filter(|floor| off <= *floor) {
            findings.add(Invariant::RealTimeOrder, || {
                format!(
                    "{key} is at {queue:?} offset {off}, but offset {floor} was known before its sending began"
                )
            });
        }
    };
    // Each place of a message once; a deduplicated retry answers with the place of an earlier attempt, so
    // only the first attempt that may have stored it sets the time.
    let mut places: BTreeMap<(Queue<'_>, i64, &str), u64> = BTreeMap::new();
    for message in &index.messages {
        let Some(first) = message.first_invoke() else {
            continue;
        };
        for attempt in &message.attempts {
            let Some(ack) = attempt.ack() else { continue };
            let invoke = if options.deduplication {
                first
            } else {
                attempt.invoke
            };
            places.insert((ack.queue, ack.off, message.key), invoke);
        }
    }
    for seen in &index.seen {
        let Some(message) = index.message(&seen.got.key) else {
            continue;
        };
        if let Some(first) = message.first_invoke() {
            places
                .entry((seen.queue, seen.got.off, message.key))
                .or_insert(first);
        }
    }
    for ((queue, off, key), invoke) in places {
        ask(key, queue, off, invoke);
    }
}
