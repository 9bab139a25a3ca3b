//! Random appends, truncations, votes and purges, with the power cut at a random moment: what was reported
//! durable is there, and nothing contradicts what was asked for.

use std::future::Future;
use std::io;
use std::pin::Pin;

use futures_util::FutureExt;
use proptest::prelude::*;
use tokio::sync::oneshot;

use super::testing::*;
use super::{Log, Vote};
use crate::env::faulty::FaultyFiles;
use crate::types::EntryId;

/// Room for a handful of entries.
const SEGMENT: u64 = 400;

#[derive(Clone, Debug)]
enum Step {
    /// This many entries, of this many bytes each.
    Append(u8, u16),
    /// Forget this many entries, but none known to be durable for good.
    Truncate(u8),
    /// Vote in a new term, then append in it.
    NewTerm,
    /// Let the writer work.
    Wait,
    /// Give up this many of the oldest entries.
    Purge(u8),
    Idle,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..5u8, 0..300u16).prop_map(|(count, len)| Step::Append(count, len)),
        2 => (0..6u8).prop_map(Step::Truncate),
        1 => Just(Step::NewTerm),
        4 => Just(Step::Wait),
        1 => (1..6u8).prop_map(Step::Purge),
        1 => Just(Step::Idle),
    ]
}

type Entries = Vec<(u64, u64, String)>;
type Answer = Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// What was asked of the log, and what it answered.
#[derive(Default)]
struct Model {
    term: u64,
    /// Entries by index, from 0; purged ones too.
    now: Entries,
    /// The whole log before each truncation.
    before: Vec<Entries>,
    /// Truncations not answered yet: place in `before`.
    truncations: Vec<(usize, Answer)>,
    /// How many of `before` are ruled out by answered truncations.
    settled: usize,
    appends: Vec<(usize, oneshot::Receiver<io::Result<()>>)>,
    /// Entries of `now` that were reported durable.
    durable: usize,
    votes: Vec<(u64, Option<Answer>)>,
    voted: u64,
    purges: Vec<(u64, Option<Answer>)>,
    /// First index that no answered or pending purge asked to give up.
    purge_asked: u64,
    purge_done: u64,
    serial: u64,
}

impl Model {
    fn append(&mut self, log: &Log, count: u8, len: u16) {
        let mut entries = Vec::new();
        for _ in 0..count {
            self.serial += 1;
            let index = self.now.len() as u64;
            let text = format!("{}:{}", self.serial, "x".repeat(usize::from(len)));
            entries.push(entry(self.term, index, &text));
            self.now.push((self.term, index, text));
        }
        let answer = queue(log, entries);
        self.appends.push((self.now.len(), answer));
    }

    fn truncate(&mut self, log: &Log, count: u8) {
        let keep = self.now.len().saturating_sub(usize::from(count));
        let keep = keep.max(self.purge_asked as usize);
        if keep == self.now.len() {
            return;
        }
        self.collect();
        self.before.push(self.now.clone());
        self.now.truncate(keep);
        self.durable = self.durable.min(keep);
        // Answers to appends of what is cut say nothing about what comes in its place.
        self.appends.retain(|(end, _)| *end <= keep);
        let (log, last) = (log.clone(), keep.checked_sub(1).map(|last| last as u64));
        let answer: Answer = Box::pin(async move { log.truncate_after(last).await });
        self.truncations.push((self.before.len(), started(answer)));
        // What follows a truncation is of a new term.
        self.new_term_of(None);
    }

    fn new_term(&mut self, log: &Log) {
        self.new_term_of(Some(log));
    }

    fn new_term_of(&mut self, log: Option<&Log>) {
        self.term += 1;
        let Some(log) = log.cloned() else {
            return;
        };
        let vote = Vote {
            term: self.term,
            voted_for: 1,
            committed: true,
        };
        let answer: Answer = Box::pin(async move { log.save_vote(vote).await });
        self.votes.push((self.term, Some(started(answer))));
    }

    fn purge(&mut self, log: &Log, count: u8) {
        self.collect();
        let upto = self.purge_asked + u64::from(count);
        // Only what is durable is ever applied, and only what is applied is purged.
        if upto > self.durable as u64 || upto == 0 {
            return;
        }
        self.purge_asked = upto;
        let (term, index, _) = self.now[upto as usize - 1];
        let log = log.clone();
        let answer: Answer =
            Box::pin(async move { log.purge(EntryId { term, index }, None).await });
        self.purges.push((upto, Some(started(answer))));
    }

    /// Takes in what was answered.
    fn collect(&mut self) {
        let mut durable = self.durable;
        self.appends.retain_mut(|(end, answer)| {
            match answer.try_recv() {
                Ok(Ok(())) => durable = durable.max(*end),
                Err(oneshot::error::TryRecvError::Empty) => return true,
                _ => {}
            }
            false
        });
        self.durable = durable;
        let mut settled = self.settled;
        self.truncations.retain_mut(|(place, answer)| {
            let Some(result) = answer.now_or_never() else {
                return true;
            };
            if result.is_ok() {
                settled = settled.max(*place);
            }
            false
        });
        self.settled = settled;
        for (term, pending) in &mut self.votes {
            let Some(result) = pending.as_mut().and_then(|answer| answer.now_or_never()) else {
                continue;
            };
            *pending = None;
            if result.is_ok() {
                self.voted = self.voted.max(*term);
            }
        }
        for (upto, pending) in &mut self.purges {
            let Some(result) = pending.as_mut().and_then(|answer| answer.now_or_never()) else {
                continue;
            };
            *pending = None;
            if result.is_ok() {
                self.purge_done = self.purge_done.max(*upto);
            }
        }
    }

    /// Compares with the log after a crash, and goes on from what it holds.
    fn check(&mut self, found: &Entries, purged: Option<EntryId>, vote: Option<Vote>) {
        let first = purged.map_or(0, |purged| purged.index + 1);
        assert!(
            self.purge_done <= first && first <= self.purge_asked,
            "purged before {first}, answered {}, asked {}",
            self.purge_done,
            self.purge_asked
        );
        let end = first as usize + found.len();
        let versions = || self.before[self.settled..].iter().chain([&self.now]);
        let fits = |version: &Entries| version.get(first as usize..end) == Some(&found[..]);
        assert!(
            versions().any(fits),
            "{found:?} is no part of what was asked for"
        );
        let kept = self.now[..self.durable].iter().skip(first as usize);
        assert!(
            kept.clone().count() <= found.len()
                && kept.zip(found).all(|(asked, found)| asked == found),
            "lost: reported durable up to {}, found {found:?}",
            self.durable
        );
        let voted = vote.map_or(0, |vote| vote.term);
        let asked = self.votes.iter().map(|(term, _)| *term);
        assert!(voted >= self.voted, "forgot the vote of {}", self.voted);
        assert!(voted == 0 || asked.clone().any(|term| term == voted) || voted == self.voted);
        for term in asked.filter(|term| *term > voted) {
            assert!(
                found.iter().all(|(of, _, _)| *of < term),
                "entries of {term} or later, but the vote is {voted}"
            );
        }
        let version = versions().find(|version| fits(version)).cloned();
        let mut now = version.unwrap_or_default();
        now.truncate(end);
        *self = Model {
            term: self.term + 1,
            durable: now.len(),
            now,
            voted,
            votes: vec![(voted, None)],
            purge_asked: first,
            purge_done: first,
            serial: self.serial,
            ..Model::default()
        };
    }
}

/// Polls once, so that the call is queued in its turn.
fn started(mut answer: Answer) -> Answer {
    match answer.as_mut().now_or_never() {
        None => answer,
        Some(result) => Box::pin(std::future::ready(result)),
    }
}

async fn round(files: &FaultyFiles, model: &mut Model, steps: &[Step]) {
    let Ok(log) = open(files, SEGMENT) else {
        // Only the power cut may keep it from opening; `check` opens without one.
        return;
    };
    model.new_term(&log);
    for step in steps {
        match step {
            Step::Append(count, len) => model.append(&log, *count, *len),
            Step::Truncate(count) => {
                model.truncate(&log, *count);
                model.new_term(&log);
            }
            Step::NewTerm => model.new_term(&log),
            Step::Wait => tokio::task::yield_now().await,
            Step::Purge(count) => model.purge(&log, *count),
            Step::Idle => tokio::time::sleep(std::time::Duration::from_millis(200)).await,
        }
    }
    tokio::task::yield_now().await;
    model.collect();
}

async fn survives(seed: u64, rounds: Vec<(Vec<Step>, u64)>) {
    let files = FaultyFiles::new(seed);
    let mut model = Model::default();
    for (steps, power) in rounds {
        files.cut_after(power);
        round(&files, &mut model, &steps).await;
        files.power_cycle();
        let log = match open(&files, SEGMENT) {
            Ok(log) => log,
            Err(error) => panic!("does not open after a power cut: {error}"),
        };
        let found = contents(&log).await;
        model.check(&found, log.purged(), log.vote());
        log.close().await.expect("closes");
        model.term += 1;
    }
}

#[tokio::test]
async fn a_new_directory_counts_as_unfilled_wherever_its_first_start_is_cut_off() {
    for power in 0..60 {
        let files = FaultyFiles::new(power);
        files.cut_after(power);
        let begun = open(&files, SEGMENT);
        let opened = begun.is_ok();
        let filled = match &begun {
            Ok(log) => log.set_filled().await.is_ok(),
            Err(_) => false,
        };
        drop(begun);
        files.power_cycle();
        let log = open(&files, SEGMENT).expect("opens");
        if filled {
            assert!(!log.unfilled(), "filled, and forgotten after {power}");
        }
        if !opened {
            assert!(log.unfilled(), "looks filled after a cut at {power}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_reported_durable_survives_any_power_cut(
        seed in any::<u64>(),
        rounds in prop::collection::vec((prop::collection::vec(step(), 1..25), 0..120u64), 1..5),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(survives(seed, rounds));
    }
}
