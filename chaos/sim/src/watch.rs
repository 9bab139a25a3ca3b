//! What must hold after every step of a run, seen from outside all nodes: their own figures compared with
//! each other, with earlier ones, and with what their disks really hold.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use quorumlog_raft::{Role, Status};

use crate::held::{durable_vote, holders};
use crate::host::{AppliedEntry, Running, Seat};
use crate::plan::Node;

/// A broken promise, and what shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: String,
    pub evidence: String,
}

pub type Verdict = Result<(), Violation>;

pub fn broken(invariant: &str, evidence: impl Into<String>) -> Verdict {
    Err(Violation {
        invariant: invariant.to_string(),
        evidence: evidence.into(),
    })
}

/// What a node said when it was looked at last, and what its next process must not fall behind.
#[derive(Default)]
struct Last {
    status: Option<Status>,
    /// Index that was applied last by this process.
    applied: Option<u64>,
    /// Index that the process before reported durable.
    durable_floor: Option<u64>,
    /// Term that the process before had durably voted in.
    vote_floor: u64,
}

/// Everything seen so far.
#[derive(Default)]
pub struct Watch {
    leaders: BTreeMap<u64, Node>,
    entries: BTreeMap<u64, AppliedEntry>,
    nodes: BTreeMap<Node, Last>,
    pub leader_changes: u64,
    /// Times a node gave up entries that another leader had not.
    pub truncations: u64,
    last_leader: Option<Node>,
    /// Node, term, and whom it follows now, having voted for another one.
    changed_votes: Vec<(Node, u64, Node)>,
    /// Node, term that it led in, and index up to which it counted as committed then.
    counted: Vec<(Node, u64, u64)>,
}

impl Watch {
    /// Entries that were committed.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// The process of a node is about to be ended from outside, or has ended.
    pub fn process_ends(&mut self, seat: &Seat) {
        let last = self.nodes.entry(seat.node).or_default();
        let status = last.status.take();
        last.applied = None;
        if let Some(status) = status {
            last.durable_floor = status
                .durable
                .max(Some(0))
                .filter(|_| status.durable.is_some());
        }
        last.vote_floor = durable_vote(&seat.disk).map_or(last.vote_floor, |(term, _)| term);
    }

    /// Looks at all nodes.
    pub fn look(&mut self, seats: &[std::sync::Arc<Seat>]) -> Verdict {
        for seat in seats {
            let (applied, running) = {
                let mut seen = seat.seen();
                (std::mem::take(&mut seen.applied), seen.running.clone())
            };
            for entry in applied {
                self.applied(seat, entry, seats)?;
            }
            if let Some(running) = running {
                self.node(seat, &running, seats)?;
            }
        }
        self.second_votes()?;
        self.counted_terms()
    }

    /// A leader commits what is of an earlier term only with something of its own: before, a node without it may
    /// still be elected, although a majority has it. Which term an entry is of is known when it was applied.
    fn counted_terms(&mut self) -> Verdict {
        let entries = &self.entries;
        let mut found = None;
        self.counted
            .retain(|counted| match entries.get(&counted.2) {
                Some(entry) if entry.id.term < counted.1 => {
                    found.get_or_insert((*counted, entry.id));
                    false
                }
                Some(_) => false,
                None => true,
            });
        match found {
            None => Ok(()),
            Some(((node, term, index), id)) => broken(
                "I-16 a leader counts for its own term only",
                format!(
                    "n{node}, leader of term {term}, took all up to {index} for committed, which is {id:?}"
                ),
            ),
        }
    }

    /// Within a term a node's vote changes only to the one that was elected.
    fn second_votes(&mut self) -> Verdict {
        for (node, term, whom) in std::mem::take(&mut self.changed_votes) {
            if self.leaders.get(&term) != Some(&whom) {
                return broken(
                    "I-13 one vote per term",
                    format!(
                        "n{node} voted twice in term {term}, then for n{whom}, which was not elected"
                    ),
                );
            }
        }
        Ok(())
    }

    /// One node has applied an entry: it is committed.
    fn applied(
        &mut self,
        seat: &Seat,
        entry: AppliedEntry,
        seats: &[std::sync::Arc<Seat>],
    ) -> Verdict {
        let index = entry.id.index;
        let last = self.nodes.entry(seat.node).or_default();
        if let Some(before) = last.applied.replace(index)
            && before + 1 != index
        {
            return broken(
                "I-14 applied in order",
                format!("n{}: {before}, then {index}", seat.node),
            );
        }
        match self.entries.get(&index) {
            Some(known) if *known == entry => Ok(()),
            Some(known) => broken(
                "I-15 one log",
                format!("n{} applied {entry:?}, another node {known:?}", seat.node),
            ),
            None => {
                let start = index
                    .checked_sub(1)
                    .and_then(|before| self.entries.get(&before));
                let start = start.map_or(entry.payload_position, |before| before.end);
                let durable = holders(&entry, start, seats);
                self.entries.insert(index, entry.clone());
                if durable <= seats.len() / 2 {
                    return broken(
                        "I-17 committed is durable on a majority",
                        format!(
                            "n{} applied {entry:?}, which the disks of {durable} of {} nodes hold",
                            seat.node,
                            seats.len()
                        ),
                    );
                }
                Ok(())
            }
        }
    }

    fn node(&mut self, seat: &Seat, running: &Running, seats: &[std::sync::Arc<Seat>]) -> Verdict {
        let Some(status) = running.group.status().now_or_never() else {
            return broken("harness", "a status that waits");
        };
        let last = self.nodes.entry(seat.node).or_default();
        let before = match last.status.take() {
            Some(before) => before,
            None => {
                booted(seat.node, &running.boot, last)?;
                running.boot.clone()
            }
        };
        if status.role == Role::Stopped {
            last.status = Some(before);
            return Ok(());
        }
        grows(&before, &status)?;
        if status.term == before.term
            && before.voted_for.is_some()
            && status.voted_for != before.voted_for
        {
            let whom = status.voted_for.unwrap_or_default();
            self.changed_votes.push((seat.node, status.term, whom));
        }
        let led = |status: &Status| status.role == Role::Leader;
        if led(&before) && led(&status) && status.term == before.term {
            let more = status
                .committed
                .filter(|_| status.committed > before.committed);
            self.counted
                .extend(more.map(|index| (seat.node, status.term, index)));
        }
        if status.appended < before.appended {
            self.truncations += 1;
        }
        if figures(&before) != figures(&status) || before.appended != running.boot.appended {
            seat.trace_state(&status, &before);
        }
        // Before Raft has started its figures say nothing.
        if status.term > 0 && status.term < last.vote_floor {
            return broken(
                "I-13 votes never go back",
                format!(
                    "n{} had durably voted in term {}, came back in {}",
                    seat.node, last.vote_floor, status.term
                ),
            );
        }
        let leads = status.role == Role::Leader;
        let (term, appended) = (status.term, status.appended);
        last.status = Some(status);
        if leads {
            self.leads(seat.node, term, appended, seats)?;
        }
        Ok(())
    }

    /// A node says that it leads.
    fn leads(
        &mut self,
        node: Node,
        term: u64,
        appended: Option<u64>,
        seats: &[std::sync::Arc<Seat>],
    ) -> Verdict {
        if let Some(known) = self.leaders.get(&term) {
            if *known != node {
                return broken(
                    "I-12 one leader per term",
                    format!("n{known} and n{node} lead in term {term}"),
                );
            }
            return Ok(());
        }
        self.leaders.insert(term, node);
        if self
            .last_leader
            .replace(node)
            .is_some_and(|before| before != node)
        {
            self.leader_changes += 1;
        }
        let votes: Vec<_> = seats.iter().map(|seat| durable_vote(&seat.disk)).collect();
        let agree = |vote: &&Option<(u64, Node)>| {
            vote.is_some_and(|(voted, whom)| voted > term || (voted == term && whom == node))
        };
        if votes.iter().filter(agree).count() <= seats.len() / 2 {
            return broken(
                "I-13 votes are durable",
                format!("n{node} leads in term {term}, the disks say (term, voted for) {votes:?}"),
            );
        }
        let committed = self.entries.keys().next_back().copied();
        if appended < committed {
            return broken(
                "I-16 a leader has everything committed",
                format!("n{node} leads in term {term} with {appended:?} of {committed:?}"),
            );
        }
        Ok(())
    }
}

/// A node is back: what it had promised must be there.
fn booted(node: Node, boot: &Status, last: &Last) -> Verdict {
    if boot.appended < last.durable_floor {
        return broken(
            "I-19 durable is there after a restart",
            format!(
                "n{node} had reported {:?} durable and came back with {:?}",
                last.durable_floor, boot.appended
            ),
        );
    }
    Ok(())
}

/// Figures of one process only grow, and keep their order.
fn grows(before: &Status, now: &Status) -> Verdict {
    let node = now.node;
    if now.term < before.term {
        return broken(
            "I-13 terms never go back",
            format!("n{node}: term {}, then {}", before.term, now.term),
        );
    }
    if now.committed < before.committed || now.applied < before.applied {
        return broken(
            "I-14 committed and applied never go back",
            format!(
                "n{node}: committed {:?} then {:?}, applied {:?} then {:?}",
                before.committed, now.committed, before.applied, now.applied
            ),
        );
    }
    let ordered =
        now.applied <= now.appended && now.committed <= now.appended && now.durable <= now.appended;
    if !ordered {
        return broken(
            "I-14 applied <= committed <= appended",
            format!("n{node}: {now:?}"),
        );
    }
    Ok(())
}

type Figures = (
    Role,
    u64,
    Option<u64>,
    Option<u64>,
    Option<u64>,
    Option<u64>,
);

fn figures(status: &Status) -> Figures {
    (
        status.role,
        status.term,
        status.appended,
        status.durable,
        status.committed,
        status.applied,
    )
}

impl Seat {
    fn trace_state(&self, now: &Status, before: &Status) {
        if figures(now) == figures(before) {
            return;
        }
        let index = |index: Option<u64>| index.map_or(-1, |index| index as i64);
        self.trace.note(format_args!(
            "n{} {:?} term {} voted {} appended {} durable {} committed {} applied {}",
            self.node,
            now.role,
            now.term,
            index(now.voted_for),
            index(now.appended),
            index(now.durable),
            index(now.committed),
            index(now.applied),
        ));
    }
}
