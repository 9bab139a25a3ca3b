//! What a drill measures while it runs: every attempt of the probes, who led when, which fault was on when. All
//! times are nanoseconds since the tape began, from one monotonic clock. Keeps; computes nothing.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::wire::SendOutcome;

/// What became of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Acknowledged; of a read: answered.
    Ok,
    /// Answered: certainly not stored, and never will be.
    Refused,
    /// Never sent: the node takes no connection.
    Unreachable,
    /// May be stored or not: no answer in time, a connection lost, or an answer that says so.
    Unknown,
}

/// One attempt of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Attempts are numbered in the order of their schedule.
    pub seq: u64,
    /// Index of the node that was asked.
    pub node: u8,
    pub class: Class,
    /// Response code of a refusal; 0 otherwise.
    pub code: i32,
    /// The refusal carried the words `in-sync replicas not enough` behind `[REFUSED]`.
    pub words: bool,
    pub invoke: u64,
    pub done: u64,
}

/// A node said something new of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleChange {
    pub at: u64,
    pub node: u8,
    pub role: Role,
    pub term: u64,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Leader,
    Follower,
    Candidate,
    Learner,
    /// It does not answer.
    Silent,
}

impl Role {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Role::Leader => "leader",
            Role::Follower => "follower",
            Role::Candidate => "candidate",
            Role::Learner => "learner",
            Role::Silent => "silent",
        }
    }

    /// A role as a node's runtime info spells it.
    pub fn parse(text: &str) -> Role {
        match text.to_ascii_lowercase().as_str() {
            "leader" => Role::Leader,
            "candidate" => Role::Candidate,
            "learner" => Role::Learner,
            _ => Role::Follower,
        }
    }
}

/// The time in which a fault was on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub label: String,
    /// Indices of the nodes that it hit.
    pub nodes: Vec<u8>,
    /// Just before the damage was ordered.
    pub start: u64,
    /// When it was certainly done: nothing asked after this was served by what was damaged.
    pub effective: u64,
    /// When its repair was ordered; `None` while it is on.
    pub end: Option<u64>,
}

/// Everything measured so far.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    pub writes: Vec<Sample>,
    pub reads: Vec<Sample>,
    pub roles: Vec<RoleChange>,
    pub spans: Vec<Span>,
    /// Refusals and unknown answers of write attempts by code and the beginning of the remark.
    pub remarks: BTreeMap<(i32, String), u64>,
}

/// The shared collector.
pub struct Tape {
    begun: Instant,
    kept: Mutex<Measured>,
}

/// What the contract says to a write without a majority.
pub const CONTRACT_WORDS: &str = "[REFUSED] in-sync replicas not enough";

impl Default for Tape {
    fn default() -> Self {
        Tape::new()
    }
}

impl Tape {
    pub fn new() -> Tape {
        Tape {
            begun: Instant::now(),
            kept: Mutex::new(Measured::default()),
        }
    }

    /// Nanoseconds since the tape began.
    pub fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Notes a write attempt that has just ended.
    pub fn wrote(&self, seq: u64, node: u8, invoke: u64, outcome: &SendOutcome) {
        let (class, code, remark) = match outcome {
            SendOutcome::Ok(_) => (Class::Ok, 0, ""),
            SendOutcome::Fail { code: -1, .. } => (Class::Unreachable, 0, ""),
            SendOutcome::Fail { code, remark } => (Class::Refused, *code, remark.as_str()),
            SendOutcome::Info { code, why } => (Class::Unknown, code.unwrap_or(0), why.as_str()),
        };
        let refused = class == Class::Refused;
        let mut kept = self.kept();
        // Under the lock: samples are in the order of their ends.
        let done = self.now();
        if code != 0 {
            let start: String = remark.chars().take(REMARK_CHARS).collect();
            *kept.remarks.entry((code, start)).or_default() += 1;
        }
        kept.writes.push(Sample {
            seq,
            node,
            class,
            code: if refused { code } else { 0 },
            words: refused && remark.starts_with(CONTRACT_WORDS),
            invoke,
            done,
        });
    }

    /// Notes a read attempt that has just ended.
    pub fn read(&self, seq: u64, node: u8, invoke: u64, class: Class) {
        let mut kept = self.kept();
        kept.reads.push(Sample {
            seq,
            node,
            class,
            code: 0,
            words: false,
            invoke,
            done: self.now(),
        });
    }

    /// Notes what a node says of itself, if that is new.
    pub fn role(&self, node: u8, role: Role, term: u64) {
        let mut kept = self.kept();
        let at = self.now();
        let last = kept.roles.iter().rev().find(|change| change.node == node);
        if last.is_none_or(|last| (last.role, last.term) != (role, term)) {
            kept.roles.push(RoleChange {
                at,
                node,
                role,
                term,
            });
        }
    }

    /// Begins a span; gives its index for [`Tape::took_effect`] and [`Tape::end`].
    pub fn start(&self, label: &str, nodes: &[usize]) -> usize {
        let now = self.now();
        let mut kept = self.kept();
        kept.spans.push(Span {
            label: label.to_owned(),
            nodes: nodes.iter().map(|at| index(*at)).collect(),
            start: now,
            effective: now,
            end: None,
        });
        kept.spans.len() - 1
    }

    pub fn took_effect(&self, span: usize) {
        let now = self.now();
        if let Some(span) = self.kept().spans.get_mut(span) {
            span.effective = now;
        }
    }

    pub fn end(&self, span: usize) {
        let now = self.now();
        if let Some(span) = self.kept().spans.get_mut(span) {
            span.end.get_or_insert(now);
        }
    }

    pub fn span(&self, span: usize) -> Option<Span> {
        self.kept().spans.get(span).cloned()
    }

    /// Is there an acknowledged write that was begun at `since` or later?
    pub fn acknowledged_since(&self, since: u64) -> bool {
        let kept = self.kept();
        let recent = kept.writes.iter().rev();
        // Attempts are noted when they end; none lives longer than its timeout.
        recent
            .take_while(|sample| sample.done >= since)
            .any(|sample| sample.class == Class::Ok && sample.invoke >= since)
    }

    /// Hands what was measured to `look`.
    pub fn look<T>(&self, look: impl FnOnce(&Measured) -> T) -> T {
        look(&self.kept())
    }

    fn kept(&self) -> MutexGuard<'_, Measured> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Remarks are told apart by so many characters: what follows are figures.
const REMARK_CHARS: usize = 48;

/// A node's index as samples keep it. Groups have single digits of nodes.
pub(super) fn index(node: usize) -> u8 {
    u8::try_from(node).unwrap_or(u8::MAX)
}
