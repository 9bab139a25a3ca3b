//! The checker's own tests: good histories pass, and each way to break one is caught by the invariant that
//! is meant for it.

use super::sample::{QUEUES, TOPIC, good, hash_of};
use super::*;
use crate::history::{Call, FaultResult, Got, QUORUM_LOSS, Reply, What};
use std::collections::BTreeMap;
use std::time::Duration;

const MESSAGES: usize = 120;

fn options() -> Options {
    Options::default()
}

/// All drains in the history; `each` gets the queue and what the drain returned.
fn drains(events: &mut [Event], mut each: impl FnMut(i32, &mut Vec<Got>, &mut i64)) {
    let mut queues = BTreeMap::new();
    for event in events {
        match &mut event.what {
            What::Invoke(Call::Drain { q, .. }) => {
                queues.insert(event.op, *q);
            }
            What::Ok(Reply::Drain { got, max, .. }) => each(queues[&event.op], got, max),
            _ => {}
        }
    }
}

/// Key, operation and place of the acknowledged messages of a queue, in the order of their offsets.
fn acked(events: &[Event], queue: i32) -> Vec<(String, u64, i64)> {
    let mut keys = BTreeMap::new();
    let mut acked = Vec::new();
    for event in events {
        match &event.what {
            What::Invoke(Call::Send { key, .. }) => {
                keys.insert(event.op, key.clone());
            }
            What::Ok(Reply::Send { q, off, .. }) if *q == queue => {
                acked.push((keys[&event.op].clone(), event.op, *off));
            }
            _ => {}
        }
    }
    acked.sort_by_key(|(_, _, off)| *off);
    acked
}

/// The history without pulls, which would bear witness, too.
fn without_pulls(mut events: Vec<Event>) -> Vec<Event> {
    let pulls: Vec<u64> = events
        .iter()
        .filter(|event| matches!(event.what, What::Invoke(Call::Pull { .. })))
        .map(|event| event.op)
        .collect();
    events.retain(|event| !pulls.contains(&event.op));
    events
}

fn caught(events: &[Event], invariant: Invariant) -> Report {
    let report = check(events, &options());
    assert!(
        report.counts.contains_key(&invariant),
        "{invariant} was not found:\n{report}"
    );
    report
}

#[track_caller]
fn caught_alone(events: &[Event], invariant: Invariant) {
    let report = caught(events, invariant);
    assert_eq!(report.counts.len(), 1, "more than {invariant}:\n{report}");
}

#[test]
fn good_histories_pass() {
    for seed in 0..200 {
        let report = check(&good(seed, MESSAGES), &options());
        assert!(report.is_green(), "seed {seed}: {report}");
        assert!(report.coverage.acknowledged > MESSAGES / 2, "{report}");
        assert!(report.coverage.unknown > 0 && report.coverage.refused > 0);
        assert_eq!(report.coverage.last_drains, 3 * QUEUES as usize);
    }
}

#[test]
fn a_record_missing_on_one_node_is_a_loss() {
    let mut events = without_pulls(good(1, MESSAGES));
    let lost = acked(&events, 0)[5].2;
    let mut first = true;
    drains(&mut events, |q, got, _| {
        if q == 0 && std::mem::take(&mut first) {
            got.retain(|got| got.off != lost);
        }
    });
    caught(&events, Invariant::NoLoss);
    caught(&events, Invariant::Dense);
}

#[test]
fn a_lost_tail_is_a_loss_even_when_every_node_lost_it() {
    let mut events = without_pulls(good(2, MESSAGES));
    let last = acked(&events, 0).pop().unwrap().2;
    drains(&mut events, |q, got, max| {
        if q == 0 {
            got.retain(|got| got.off < last);
            *max = last;
        }
    });
    caught(&events, Invariant::NoLoss);
}

#[test]
fn two_swapped_records_on_one_node_are_two_values() {
    let mut events = good(3, MESSAGES);
    let mut first = true;
    drains(&mut events, |q, got, _| {
        if q == 1 && std::mem::take(&mut first) {
            let (a, b) = (got[3].clone(), got[4].clone());
            got[3] = Got { off: 3, ..b };
            got[4] = Got { off: 4, ..a };
        }
    });
    caught(&events, Invariant::OneValue);
}

#[test]
fn a_record_that_is_there_twice_is_caught() {
    let mut events = good(4, MESSAGES);
    drains(&mut events, |q, got, max| {
        if q == 0 {
            let copy = got[0].clone();
            got.push(Got { off: *max, ..copy });
            *max += 1;
        }
    });
    let report = caught(&events, Invariant::AtMostOnce);
    assert_eq!(report.counts[&Invariant::AtMostOnce], 1, "{report}");
}

#[test]
fn an_altered_byte_is_a_phantom_and_a_loss() {
    let mut events = good(5, MESSAGES);
    let off = acked(&events, 0)[2].2;
    let mut first = true;
    drains(&mut events, |q, got, _| {
        if q == 0 && std::mem::take(&mut first) {
            got[off as usize].hash ^= 1;
        }
    });
    for invariant in [Invariant::NoLoss, Invariant::NoPhantom, Invariant::OneValue] {
        caught(&events, invariant);
    }
}

#[test]
fn a_record_that_nobody_sent_is_a_phantom() {
    let mut events = good(6, MESSAGES);
    drains(&mut events, |q, got, max| {
        if q == 0 {
            got.push(Got {
                off: *max,
                key: "nobody".to_owned(),
                hash: hash_of("nobody"),
                pos: 1 << 40,
            });
            *max += 1;
        }
    });
    caught_alone(&events, Invariant::NoPhantom);
}

#[test]
fn a_refused_message_that_is_there_is_caught() {
    let mut events = good(7, MESSAGES);
    let stored = acked(&events, 0)[4].0.clone();
    let mut ops = Vec::new();
    for event in &mut events {
        match &event.what {
            What::Invoke(Call::Send { key, .. }) if *key == stored => ops.push(event.op),
            What::Ok(_) | What::Info { .. } if ops.contains(&event.op) => {
                event.what = What::Fail {
                    code: 14,
                    remark: String::new(),
                };
            }
            _ => {}
        }
    }
    caught_alone(&events, Invariant::FailMeansAbsent);
}

#[test]
fn an_order_against_real_time_is_caught_even_when_all_nodes_agree() {
    let mut events = without_pulls(good(8, MESSAGES));
    // Two messages far apart change places, in acknowledgements and on all nodes alike.
    let acked = acked(&events, 0);
    let (early, late) = (acked[3].clone(), acked[acked.len() - 3].clone());
    let swap = |off: i64| match off {
        off if off == early.2 => late.2,
        off if off == late.2 => early.2,
        off => off,
    };
    for event in &mut events {
        if let What::Ok(Reply::Send { q: 0, off, pos, .. }) = &mut event.what {
            *off = swap(*off);
            *pos = None;
        }
    }
    drains(&mut events, |q, got, _| {
        if q == 0 {
            let (a, b) = (early.2 as usize, late.2 as usize);
            got.swap(a, b);
            got[a].off = early.2;
            got[b].off = late.2;
        }
    });
    caught(&events, Invariant::RealTimeOrder);
    let report = check(&events, &options());
    for other in [
        Invariant::NoLoss,
        Invariant::OneValue,
        Invariant::AtMostOnce,
    ] {
        assert!(!report.counts.contains_key(&other), "{report}");
    }
}

#[test]
fn a_max_offset_that_goes_back_is_caught() {
    let mut events = good(9, MESSAGES);
    let mut queues = BTreeMap::new();
    let mut answers = Vec::new();
    for (at, event) in events.iter().enumerate() {
        match &event.what {
            What::Invoke(Call::MaxOffset { q, .. }) => {
                queues.insert(event.op, *q);
            }
            What::Ok(Reply::Offset { .. }) if queues.get(&event.op) == Some(&0) => answers.push(at),
            _ => {}
        }
    }
    events[*answers.last().unwrap()].what = What::Ok(Reply::Offset { off: Some(0) });
    caught(&events, Invariant::Dense);
    caught(&events, Invariant::Reads);
}

#[test]
fn a_pull_that_skips_is_caught() {
    let mut events = good(10, MESSAGES);
    let pull = events.iter_mut().find_map(|event| match &mut event.what {
        What::Ok(Reply::Pull { got, .. }) if got.len() > 2 => Some(got),
        _ => None,
    });
    pull.unwrap().remove(1);
    caught_alone(&events, Invariant::Reads);
}

#[test]
fn a_stale_read_of_the_leader_is_caught() {
    let mut events = good(11, MESSAGES);
    let mut from = BTreeMap::new();
    for event in &events {
        if let What::Invoke(Call::Pull { from_off, .. }) = event.what {
            from.insert(event.op, from_off);
        }
    }
    let (op, what) = events
        .iter_mut()
        .rev()
        .find_map(|event| match &event.what {
            What::Ok(Reply::Pull { got, .. }) if got.len() == 4 => {
                Some((event.op, &mut event.what))
            }
            _ => None,
        })
        .unwrap();
    *what = What::Ok(Reply::Pull {
        code: 19,
        got: Vec::new(),
        next: from[&op],
        min: 0,
        max: from[&op],
    });
    caught(&events, Invariant::Reads);
}

#[test]
fn a_record_that_was_read_and_is_gone_is_caught() {
    let mut events = good(12, MESSAGES);
    // Unknown sends only: nobody was promised anything about them, except by the read.
    for event in &mut events {
        if let What::Ok(Reply::Send { .. }) = event.what {
            event.what = What::Info {
                code: None,
                why: "timeout".to_owned(),
            };
        }
    }
    let read = events
        .iter()
        .filter_map(|event| match &event.what {
            What::Ok(Reply::Pull { got, .. }) => got.last(),
            _ => None,
        })
        .map(|got| got.key.clone())
        .next()
        .unwrap();
    drains(&mut events, |_, got, max| {
        if let Some(at) = got.iter().position(|got| got.key == read) {
            got.truncate(at);
            *max = at as i64;
        }
    });
    caught(&events, Invariant::Reads);
}

#[test]
fn a_consumer_offset_that_regresses_is_caught() {
    let mut events = good(13, 400);
    let mut commits = BTreeMap::new();
    let mut queries = BTreeMap::new();
    let mut current = BTreeMap::new();
    let mut older = None;
    for (at, event) in events.iter().enumerate() {
        match &event.what {
            What::Invoke(Call::CommitOffset { q, off, .. }) => {
                commits.insert(event.op, (*q, *off));
            }
            What::Ok(Reply::CommitOffset) => {
                let (q, off) = commits[&event.op];
                current.entry(q).or_insert_with(Vec::new).push(off);
            }
            What::Invoke(Call::QueryOffset { q, .. }) => {
                queries.insert(event.op, *q);
            }
            What::Ok(Reply::Offset { off: Some(_) }) if queries.contains_key(&event.op) => {
                let known = current
                    .get(&queries[&event.op])
                    .map_or(&[][..], Vec::as_slice);
                if known.len() > 3 {
                    older = Some((at, known[0]));
                }
            }
            _ => {}
        }
    }
    let (at, off) = older.unwrap();
    events[at].what = What::Ok(Reply::Offset { off: Some(off) });
    caught_alone(&events, Invariant::ConsumerOffset);
    events[at].what = What::Ok(Reply::Offset { off: Some(5000) });
    caught_alone(&events, Invariant::ConsumerOffset);
}

fn fault(t: u64, what: What) -> Event {
    Event {
        t,
        a: "nem".to_owned(),
        op: 1 << 40,
        what,
    }
}

#[test]
fn an_acknowledgement_without_a_majority_is_caught() {
    let mut events = good(14, MESSAGES);
    let at = events.len() / 2;
    let t = events[at].t;
    let args = BTreeMap::new();
    let fault_name = QUORUM_LOSS.to_owned();
    events.insert(
        at,
        fault(
            t,
            What::Start {
                fault: fault_name.clone(),
                args,
                result: FaultResult::Installed,
            },
        ),
    );
    let lease = Duration::ZERO;
    let options = Options { lease, ..options() };
    let report = check(&events, &options);
    assert!(report.counts[&Invariant::Refusal] > 10, "{report}");
    // Healed at once, everything is as it should be.
    events.insert(at + 1, fault(t, What::End { fault: fault_name }));
    assert!(check(&events, &options).is_green());
}

#[test]
fn a_send_without_an_answer_in_time_is_caught() {
    let mut events = good(15, MESSAGES);
    let op = acked(&events, 0)[1].1;
    events.retain(|event| event.op != op || matches!(event.what, What::Invoke(_)));
    caught_alone(&events, Invariant::Refusal);
}

#[test]
fn a_system_error_that_does_not_say_what_became_of_the_message_is_caught() {
    for (why, green) in [
        ("in-sync replicas not enough", false),
        ("[UNKNOWN] something", false),
        ("[UNKNOWN] in-sync replicas not enough: no commit", true),
    ] {
        let mut events = good(16, MESSAGES);
        let info = events
            .iter_mut()
            .find(|event| matches!(event.what, What::Info { .. }) && event.a.starts_with('p'));
        info.unwrap().what = What::Info {
            code: Some(1),
            why: why.to_owned(),
        };
        let report = check(&events, &options());
        assert_eq!(report.is_green(), green, "{why}: {report}");
        assert!(green || report.counts.contains_key(&Invariant::Refusal));
    }
}

#[test]
fn a_queue_that_nobody_drained_is_not_green() {
    let mut events = good(17, MESSAGES);
    let drained: Vec<u64> = events
        .iter()
        .filter(|event| matches!(&event.what, What::Invoke(Call::Drain { q: 1, topic, .. }) if topic == TOPIC))
        .map(|event| event.op)
        .collect();
    events.retain(|event| !drained.contains(&event.op));
    caught_alone(&events, Invariant::NoLoss);
}

#[test]
fn without_deduplication_each_attempt_may_be_there_once() {
    let mut events = good(18, MESSAGES);
    let mut attempts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for event in &events {
        if let What::Invoke(Call::Send { key, .. }) = &event.what {
            attempts.entry(key.clone()).or_default().push(event.op);
        }
    }
    let info: Vec<u64> = events
        .iter()
        .filter(|event| matches!(event.what, What::Info { .. }))
        .map(|event| event.op)
        .collect();
    // One message of which the first attempt is unknown and the second acknowledged, in queue 0.
    let (key, _, off) = acked(&events, 0)
        .into_iter()
        .find(|(key, _, _)| attempts[key].len() > 1 && info.contains(&attempts[key][0]))
        .unwrap();
    drains(&mut events, |q, got, max| {
        if q == 0 {
            let copy = got[off as usize].clone();
            assert_eq!(copy.key, key);
            got.push(Got { off: *max, ..copy });
            *max += 1;
        }
    });
    caught_alone(&events, Invariant::AtMostOnce);
    let deduplication = false;
    let loose = Options {
        deduplication,
        ..options()
    };
    assert!(
        check(&events, &loose).is_green(),
        "{}",
        check(&events, &loose)
    );
}

#[test]
fn a_queue_whose_beginning_is_gone_is_caught_where_nothing_is_deleted() {
    let mut events = without_pulls(good(19, MESSAGES));
    drains(&mut events, |q, got, _| {
        if q == 0 {
            got.drain(..3);
        }
    });
    for event in &mut events {
        if let What::Ok(Reply::Drain { got, min, .. }) = &mut event.what {
            *min = got[0].off;
        }
    }
    caught_alone(&events, Invariant::Retention);
    // Where old messages are deleted, it is fine; but not when they were to be kept for longer.
    let retention = Options {
        retention: true,
        kept_for: Some(Duration::from_secs(1)),
        ..options()
    };
    let report = check(&events, &retention);
    assert!(report.is_green(), "{report}");
    let kept_for = Some(Duration::from_secs(3600));
    let report = check(
        &events,
        &Options {
            kept_for,
            ..retention
        },
    );
    assert_eq!(
        report.counts.keys().collect::<Vec<_>>(),
        [&Invariant::Retention],
        "{report}"
    );
}
