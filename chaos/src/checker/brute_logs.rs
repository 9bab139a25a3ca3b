//! The checker of logs against the definition: of any two logs with an entry of one index and term, all
//! before it is the same.

use proptest::prelude::*;

use super::{Invariant, Options, check};
use crate::history::{Event, LogDump, What};

/// A log: (term, content), by index.
type Log = Vec<(u64, u64)>;

fn match_by_definition(logs: &[Log]) -> bool {
    logs.iter().all(|one| {
        logs.iter().all(|other| {
            (0..one.len().min(other.len()))
                .all(|at| one[at].0 != other[at].0 || one[..=at] == other[..=at])
        })
    })
}

fn dump(at: usize, log: &Log) -> Event {
    let mut terms: Vec<(u64, u64)> = Vec::new();
    for (index, (term, _)) in log.iter().enumerate() {
        if terms.last().is_none_or(|(last, _)| last != term) {
            terms.push((*term, index as u64));
        }
    }
    let log = LogDump {
        terms,
        hashes: log.iter().map(|(_, hash)| *hash).collect(),
        ..LogDump::default()
    };
    let node = format!("n{at}");
    Event {
        t: at as u64,
        a: "offline".to_owned(),
        op: at as u64,
        what: What::Dump { node, log },
    }
}

/// A log whose terms never fall.
fn log() -> impl Strategy<Value = Log> {
    prop::collection::vec((0u64..3, 0u64..2), 0..5).prop_map(|mut log| {
        log.sort_by_key(|(term, _)| *term);
        log
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_checker_and_the_definition_of_matching_logs_agree(
        first in log(),
        others in prop::collection::vec((log(), 0usize..6, any::<bool>()), 1..3),
    ) {
        // Related logs mostly: a part of the first, and then something else.
        let mut logs = vec![first.clone()];
        for (other, kept, related) in others {
            let mut log = first.clone();
            log.truncate(if related { kept } else { 0 });
            let term = log.last().map_or(0, |(term, _)| *term);
            log.extend(other.into_iter().filter(|(own, _)| *own >= term));
            logs.push(log);
        }
        let events: Vec<Event> = logs.iter().enumerate().map(|(at, log)| dump(at, log)).collect();
        let report = check(&events, &Options::default());
        prop_assert_eq!(
            !report.counts.contains_key(&Invariant::LogMatching),
            match_by_definition(&logs),
            "{:?}\n{}",
            logs,
            report
        );
        prop_assert!(report.counts.len() <= 1, "{}", report);
    }
}
