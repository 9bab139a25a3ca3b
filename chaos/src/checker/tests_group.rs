//! The checker's own tests of what nodes say: good histories pass, and each way to break one is caught by
//! the invariant that is meant for it, and by no other.

use std::collections::BTreeMap;
use std::time::Duration;

use super::sample_group::{NODES, good};
use super::*;
use crate::history::{Call, Event, FaultResult, LogDump, NODE, WIPE, What};

pub(super) const STEPS: usize = 400;
pub(super) const MS: u64 = 1_000_000;

pub(super) fn options() -> Options {
    // The sample's kills are short, and its figures are exact.
    Options {
        committed_lag: Duration::ZERO,
        ..Options::default()
    }
}

#[track_caller]
pub(super) fn caught_alone(events: &[Event], options: &Options, invariant: Invariant) {
    let report = check(events, options);
    assert!(
        report.counts.contains_key(&invariant),
        "{invariant} was not found:\n{report}"
    );
    assert_eq!(report.counts.len(), 1, "more than {invariant}:\n{report}");
    assert_eq!(report.verdict(), Verdict::Violated);
}

pub(super) type Table = BTreeMap<String, String>;

fn number(table: &Table, name: &str) -> Option<u64> {
    table.get(name)?.parse().ok()
}

pub(super) fn set(table: &mut Table, name: &str, value: impl ToString) {
    table.insert(name.to_owned(), value.to_string());
}

/// Places of a node's observations.
pub(super) fn views(events: &[Event], node: &str) -> Vec<usize> {
    (0..events.len())
        .filter(|at| matches!(&events[*at].what, What::Obs { node: of, .. } if of == node))
        .collect()
}

pub(super) fn table(events: &mut [Event], at: usize) -> &mut Table {
    match &mut events[at].what {
        What::Obs { table, .. } => table,
        other => panic!("{other:?} is no observation"),
    }
}

/// The last observation of a leader, and the one of another node next to it.
fn leader_and_other(events: &mut [Event]) -> (usize, usize) {
    let leader = (0..events.len())
        .rfind(|at| {
            matches!(&events[*at].what, What::Obs { table, .. } if table["raftRole"] == "leader")
        })
        .unwrap();
    let other = (0..events.len())
        .rfind(|at| {
            matches!(&events[*at].what, What::Obs { table, .. } if table["raftRole"] == "follower")
        })
        .unwrap();
    (leader, other)
}

pub(super) fn dump<'a>(events: &'a mut [Event], of: &str) -> &'a mut LogDump {
    events
        .iter_mut()
        .rev()
        .find_map(|event| match &mut event.what {
            What::Dump { node, log } if node == of => Some(log),
            _ => None,
        })
        .unwrap()
}

/// The history without dumps, which would bear witness, too.
pub(super) fn without_dumps(mut events: Vec<Event>) -> Vec<Event> {
    events.retain(|event| !matches!(event.what, What::Dump { .. }));
    events
}

pub(super) fn note(t: u64, what: What) -> Event {
    let a = "nem".to_owned();
    let op = 1 << 40;
    Event { t, a, op, what }
}

pub(super) fn start(fault: &str, args: &[(&str, &str)], result: FaultResult) -> What {
    let args = args
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let fault = fault.to_owned();
    What::Start {
        fault,
        args,
        result,
    }
}

/// Place of the healing.
pub(super) fn healing(events: &[Event]) -> usize {
    events
        .iter()
        .position(|event| event.what == What::Heal)
        .unwrap()
}

#[test]
fn good_histories_of_a_group_pass() {
    let mut changes = 0;
    for seed in 0..100 {
        let report = check(&good(seed, STEPS), &options());
        assert!(report.is_green(), "seed {seed}: {report}");
        assert!(report.coverage.acknowledged > 10, "{report}");
        assert_eq!(report.coverage.dumps, 3);
        changes += report.coverage.leader_changes;
    }
    assert!(changes > 200, "{changes} changes of leader");
}

#[test]
fn two_leaders_of_one_term_are_caught() {
    let mut events = good(1, STEPS);
    let (_, other) = leader_and_other(&mut events);
    let table = table(&mut events, other);
    let own = table["raftNode"].clone();
    set(table, "raftRole", "leader");
    set(table, "raftLeader", &own);
    // So that the vote goes with it, in the only order that one may change in.
    let voted = table["raftVotedFor"].clone();
    set(table, "raftVotedFor", voted);
    caught_alone(&events, &options(), Invariant::ElectionSafety);
}

#[test]
fn a_term_that_goes_back_after_a_start_is_caught() {
    let mut events = without_dumps(good(2, STEPS));
    let last = *views(&events, NODES[0]).last().unwrap();
    let node = NODES[0].to_owned();
    let boot = note(events[last].t - 1, What::Boot { node });
    let table = table(&mut events, last);
    set(table, "bootTimestamp", "another");
    let term = number(table, "raftTerm").unwrap();
    set(table, "raftTerm", term - 1);
    // It says nothing else, and so contradicts nobody.
    for name in ["raftLeader", "raftVotedFor", "raftReady", "raftCommitted"] {
        set(table, name, "");
    }
    set(table, "raftRole", "follower");
    events.insert(last, boot);
    let options = Options {
        recovers_acks: 0,
        ..options()
    };
    caught_alone(&events, &options, Invariant::VoteKept);
}

#[test]
fn a_second_vote_in_one_term_is_caught_in_the_files_too() {
    let mut events = good(3, STEPS);
    let log = dump(&mut events, NODES[1]);
    log.voted_for = log.voted_for.map(|node| (node + 1) % 3);
    log.elected = false;
    caught_alone(&events, &options(), Invariant::VoteKept);
}

#[test]
fn a_lost_vote_file_is_caught() {
    let mut events = good(4, STEPS);
    let log = dump(&mut events, NODES[2]);
    (log.vote_term, log.voted_for, log.elected) = (0, None, false);
    // The log itself is whole: only the vote is gone.
    caught_alone(&events, &options(), Invariant::VoteKept);
}

#[test]
fn a_committed_or_applied_index_that_goes_back_is_caught() {
    for name in ["raftCommitted", "raftApplied"] {
        let mut events = without_dumps(good(5, STEPS));
        let last = *views(&events, NODES[0]).last().unwrap();
        let table = table(&mut events, last);
        let value = number(table, name).unwrap();
        assert!(value > 3);
        set(table, name, value - 3);
        caught_alone(&events, &options(), Invariant::Progress);
    }
}

#[test]
fn applied_beyond_appended_is_caught() {
    let mut events = without_dumps(good(6, STEPS));
    let last = *views(&events, NODES[0]).last().unwrap();
    let table = table(&mut events, last);
    let appended = number(table, "raftAppended").unwrap();
    set(table, "raftApplied", appended + 1);
    caught_alone(&events, &options(), Invariant::Progress);
}

#[test]
fn a_node_that_is_ready_without_what_it_had_shown_is_caught() {
    let mut events = without_dumps(good(7, STEPS));
    // A node that had shown messages starts again and says it is ready with nothing applied.
    let shown = events
        .iter()
        .rev()
        .find_map(|event| match &event.what {
            What::Invoke(Call::Pull { node, .. }) => Some(node.clone()),
            _ => None,
        })
        .unwrap();
    let all = views(&events, &shown);
    let last = *all.last().unwrap();
    let mut again = events[last].clone();
    if let What::Obs { table, .. } = &mut again.what {
        set(table, "bootTimestamp", "another");
        set(table, "commitLogMaxOffset", 0);
        set(table, "raftApplied", 0);
        set(table, "raftReady", "true");
    }
    let node = shown.clone();
    let t = events[last].t;
    let later = |ns: u64| {
        let t = t + ns;
        Event { t, ..again.clone() }
    };
    let added = [note(t + 1, What::Boot { node }), later(2), later(3)];
    events.splice(last + 1..last + 1, added);
    let options = Options {
        recovers_acks: 0,
        ..options()
    };
    caught_alone(&events, &options, Invariant::Progress);
}

#[test]
fn logs_that_differ_in_a_byte_are_caught() {
    let mut events = good(8, STEPS);
    dump(&mut events, NODES[1]).hashes[3] ^= 1;
    caught_alone(&events, &options(), Invariant::LogMatching);
}

#[test]
fn logs_that_differ_in_the_term_of_a_committed_entry_are_caught() {
    let mut events = good(9, STEPS);
    let log = dump(&mut events, NODES[1]);
    // One more entry counts to the second of the terms.
    assert!(log.terms.len() > 2, "{:?}", log.terms);
    log.terms[1].1 += 1;
    caught_alone(&events, &options(), Invariant::LogMatching);
}

#[test]
fn a_leader_without_a_committed_entry_is_caught_in_its_observations() {
    let mut events = without_dumps(good(10, STEPS));
    // A node had seen more committed in an early term than the later leader has.
    let (leader, _) = leader_and_other(&mut events);
    let term = number(table(&mut events, leader), "raftTerm").unwrap();
    let appended = number(table(&mut events, leader), "raftAppended").unwrap();
    let early = (0..leader)
        .find(|at| {
            matches!(&events[*at].what, What::Obs { table, .. }
                if number(table, "raftTerm") < Some(term) && table["raftRole"] == "follower")
        })
        .unwrap();
    let mut stranger = events[early].clone();
    if let What::Obs { node, table } = &mut stranger.what {
        "n9".clone_into(node);
        set(table, "raftNode", 9);
        set(table, "raftAppended", appended + 5);
        set(table, "raftDurable", appended + 5);
        set(table, "raftCommitted", appended + 5);
        set(table, "raftRole", "learner");
    }
    events.insert(early, stranger);
    // A node that is never heard of again keeps the group from being level.
    let options = Options {
        recovers_within: Duration::from_secs(1000),
        ..options()
    };
    caught_alone(&events, &options, Invariant::LeaderCompleteness);
}

#[test]
fn a_leader_without_a_committed_entry_is_caught_in_its_files() {
    let mut events = good(11, STEPS);
    // The last leader's log was cut back to before its own term, and it says nothing of it.
    let (leader, _) = leader_and_other(&mut events);
    let What::Obs { node, .. } = events[leader].what.clone() else {
        unreachable!()
    };
    // Without what it had observed, only the files of the others tell.
    events.retain(|event| match &event.what {
        What::Obs { node: of, table } if *of == node => table["raftRole"] == "leader",
        _ => true,
    });
    for event in &mut events {
        if let What::Obs { node: of, table } = &mut event.what
            && *of == node
        {
            for name in ["raftCommitted", "raftDurable"] {
                set(table, name, "");
            }
        }
    }
    let log = dump(&mut events, &node);
    let (_, first) = *log.terms.last().unwrap();
    log.terms.pop();
    log.hashes.truncate(first as usize - 1);
    let options = Options {
        recovers_within: Duration::from_secs(1000),
        ..options()
    };
    caught_alone(&events, &options, Invariant::LeaderCompleteness);
}

#[test]
fn committed_without_a_durable_majority_is_caught_in_observations() {
    let mut events = without_dumps(good(12, STEPS));
    // From some leader's observation on, the others never have durable what it called committed.
    let (leader, _) = leader_and_other(&mut events);
    let What::Obs { node, table } = events[leader].what.clone() else {
        unreachable!()
    };
    let term = number(&table, "raftTerm").unwrap();
    for event in &mut events {
        if let What::Obs { node: of, table } = &mut event.what
            && *of != node
            && number(table, "raftTerm") == Some(term)
        {
            set(table, "raftDurable", 1);
        }
    }
    caught_alone(&events, &options(), Invariant::Quorum);

    // One of the others was emptied: it had it durable before, perhaps.
    let other = *NODES.iter().find(|other| **other != node).unwrap();
    let wiped = start(WIPE, &[(NODE, other)], FaultResult::Installed);
    let first = events[0].t;
    events.insert(0, note(first, wiped));
    let report = check(&events, &options());
    assert!(report.is_green(), "{report}");
}

#[test]
fn committed_without_a_durable_majority_is_caught_in_files() {
    let mut events = good(13, STEPS);
    // What two nodes had said of durability would be broken, too: they said nothing.
    for event in &mut events {
        if let What::Obs { table, .. } = &mut event.what {
            set(table, "raftDurable", "");
        }
    }
    let (leader, _) = leader_and_other(&mut events);
    let What::Obs { node: leader, .. } = events[leader].what.clone() else {
        unreachable!()
    };
    // Neither of the two led a later term than that of the last entry it keeps.
    for node in NODES.iter().filter(|node| **node != leader) {
        let log = dump(&mut events, node);
        log.hashes.pop();
        let count = log.hashes.len() as u64;
        log.terms.retain(|(_, first)| *first < count);
    }
    caught_alone(&events, &options(), Invariant::Quorum);
}

#[test]
fn what_was_durable_and_is_gone_after_a_start_is_caught() {
    let mut events = without_dumps(good(14, STEPS));
    let last = *views(&events, NODES[0]).last().unwrap();
    let mut again = events[last].clone();
    if let What::Obs { table, .. } = &mut again.what {
        let durable = number(table, "raftDurable").unwrap();
        set(table, "bootTimestamp", "another");
        set(table, "raftAppended", durable - 1);
        set(table, "raftDurable", durable - 1);
        set(table, "raftCommitted", 0);
        set(table, "raftApplied", 0);
        set(table, "raftRole", "follower");
        set(table, "raftReady", "false");
        set(table, "commitLogMaxOffset", 0);
    }
    again.t += 2;
    let node = NODES[0].to_owned();
    let boot = note(again.t - 1, What::Boot { node });
    events.splice(last + 1..last + 1, [boot, again]);
    caught_alone(&events, &options(), Invariant::Durable);
}

#[test]
fn what_was_durable_and_is_not_in_the_files_is_caught_but_for_a_wiped_disk() {
    let mut events = good(15, STEPS);
    let (leader, _) = leader_and_other(&mut events);
    let What::Obs { node: leader, .. } = events[leader].what.clone() else {
        unreachable!()
    };
    let other = *NODES.iter().find(|node| **node != leader).unwrap();
    let log = dump(&mut events, other);
    log.hashes.pop();
    let count = log.hashes.len() as u64;
    log.terms.retain(|(_, first)| *first < count);
    caught_alone(&events, &options(), Invariant::Durable);

    let at = events
        .iter()
        .position(|event| matches!(event.what, What::Dump { .. }))
        .unwrap();
    let wiped = start(WIPE, &[(NODE, other)], FaultResult::Installed);
    events.insert(at, note(events[at].t - 1, wiped));
    let report = check(&events, &options());
    assert!(report.is_green(), "{report}");
}

#[test]
fn a_refused_message_in_the_tail_of_a_log_is_caught() {
    let mut events = good(25, STEPS);
    let call = events
        .iter()
        .find_map(|event| match &event.what {
            What::Invoke(call @ Call::Send { .. }) => Some(call.clone()),
            _ => None,
        })
        .unwrap();
    let Call::Send {
        topic,
        q,
        hash,
        len,
        to,
        timeout_ms,
        ..
    } = call
    else {
        unreachable!()
    };
    let call = Call::Send {
        key: "refused".to_owned(),
        topic,
        q,
        attempt: 1,
        hash,
        len,
        to,
        timeout_ms,
    };
    let refused = What::Fail {
        code: 14,
        remark: String::new(),
    };
    events.splice(0..0, [note(0, What::Invoke(call)), note(0, refused)]);
    assert!(check(&events, &options()).is_green());
    let log = dump(&mut events, NODES[2]);
    log.unsure.push("refused".to_owned());
    caught_alone(&events, &options(), Invariant::FailMeansAbsent);
}
