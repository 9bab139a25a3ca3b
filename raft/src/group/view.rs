//! What this node knows about its group, kept current from openraft's metrics.

use openraft::ServerState;
use openraft::metrics::RaftMetrics;
use tokio::sync::watch;

use super::RaftNode;
use crate::storage::AppliedAt;
use crate::storage::entry::TypeConfig;
use crate::types::{EntryId, NodeId, Role, View};

/// The commit index that a term's leader told this process first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub term: u64,
    pub committed: Option<u64>,
}

/// This node's part in the group, from one consistent reading of the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub role: Role,
    pub term: u64,
    pub leader: Option<NodeId>,
    pub voters: Vec<NodeId>,
}

impl Part {
    pub(crate) fn of(metrics: &RaftMetrics<TypeConfig>) -> Part {
        let role = match metrics.state {
            ServerState::Leader => Role::Leader,
            ServerState::Candidate => Role::Candidate,
            ServerState::Follower => Role::Follower,
            ServerState::Learner => Role::Learner,
            ServerState::Shutdown => Role::Stopped,
        };
        // A restarted leader still holds its own committed vote, but leads only after an election; in term 0
        // there is no leader at all, only the vote that the first membership was written under.
        let leader = metrics
            .current_leader
            .filter(|leader| (*leader == metrics.id) == (role == Role::Leader))
            .filter(|_| metrics.current_term > 0 && role != Role::Stopped);
        Part {
            role,
            term: metrics.current_term,
            leader,
            voters: metrics.membership_config.membership().voter_ids().collect(),
        }
    }
}

/// Does the applied state include everything acknowledged before this process started or its leader took
/// over?
///
/// The first entry of a term is proposed by its leader when it takes over, after everything committed
/// before. Having applied an entry of the current term therefore covers the terms before. Within the term,
/// a node that was restarted may have shown more than it has applied again; that was committed, so it is
/// not above the commit index that the leader names afterwards.
pub(crate) fn ready(part: &Part, applied: Option<EntryId>, heard: Option<Heard>) -> bool {
    let Some(applied) = applied.filter(|applied| applied.term == part.term) else {
        return false;
    };
    match part.role {
        Role::Leader => true,
        Role::Follower | Role::Learner => {
            part.leader.is_some()
                && heard.is_some_and(|heard| {
                    heard.term == part.term
                        && heard.committed.is_none_or(|index| applied.index >= index)
                })
        }
        Role::Candidate | Role::Stopped => false,
    }
}

/// The view to publish after `last`.
fn next_view(node: NodeId, last: &View, part: &Part, ready: bool) -> View {
    View {
        node,
        role: part.role,
        term: part.term,
        leader: part.leader,
        last_leader: part.leader.or(last.last_leader),
        ready,
        voters: part.voters.clone(),
    }
}

/// The view before anything is known.
pub(crate) fn unknown(node: NodeId) -> View {
    View {
        node,
        role: Role::Follower,
        term: 0,
        leader: None,
        last_leader: None,
        ready: false,
        voters: Vec::new(),
    }
}

/// Keeps the view current until the Raft core is gone.
pub(crate) async fn follow(
    raft: RaftNode,
    mut applied: watch::Receiver<AppliedAt>,
    mut heard: watch::Receiver<Option<Heard>>,
    view: watch::Sender<View>,
) {
    use openraft::async_runtime::watch::WatchReceiver;
    let mut all = raft.metrics();
    let mut server = raft.server_metrics();
    loop {
        let (part, consistent) = {
            let server = server.borrow_and_update();
            let all = all.borrow_and_update();
            let consistent = all.state == server.state
                && all.vote == server.vote
                && all.current_leader == server.current_leader
                && all.membership_config == server.membership_config;
            (Part::of(&all), consistent)
        };
        let at = applied.borrow_and_update().id;
        let told = *heard.borrow_and_update();
        publish(&view, &part, ready(&part, at, told));
        let done = ready(&part, at, told);
        // `all` changes with every turn of the core, so it is only waited for while it lags behind `server`,
        // which is sent just before it.
        let ended = tokio::select! {
            changed = server.changed() => changed.is_err(),
            changed = all.changed(), if !consistent => changed.is_err(),
            changed = applied.changed(), if !done => changed.is_err(),
            changed = heard.changed() => changed.is_err(),
        };
        if ended {
            let mut part = part;
            part.role = Role::Stopped;
            part.leader = None;
            publish(&view, &part, false);
            return;
        }
    }
}

fn publish(view: &watch::Sender<View>, part: &Part, ready: bool) {
    let last = view.borrow().clone();
    let next = next_view(last.node, &last, part, ready);
    if next == last {
        return;
    }
    log_change(&last, &next);
    view.send_replace(next);
}

/// One line for an operator whenever this node's role or the leader changes.
fn log_change(last: &View, next: &View) {
    if (last.role, last.term, last.leader) == (next.role, next.term, next.leader) {
        return;
    }
    let reason = match (next.role, next.leader) {
        (Role::Leader, _) => "a majority voted for it",
        (Role::Follower | Role::Learner, Some(_)) => "follows the leader",
        (Role::Follower | Role::Learner, None) => "no leader known, a node asks for votes",
        (Role::Candidate, _) => "the leader was silent for too long",
        (Role::Stopped, _) => "the node stops",
    };
    tracing::info!(
        node = next.node,
        role = ?next.role,
        term = next.term,
        leader = next.leader,
        was = ?last.role,
        reason,
        "role"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(role: Role, term: u64, leader: Option<NodeId>) -> Part {
        Part {
            role,
            term,
            leader,
            voters: vec![1, 2, 3],
        }
    }

    #[test]
    fn a_node_is_ready_when_it_has_applied_what_was_acknowledged_before() {
        let id = |term, index| Some(EntryId { term, index });
        let told = |term, committed| Some(Heard { term, committed });
        let leader = part(Role::Leader, 5, Some(1));
        let follower = part(Role::Follower, 5, Some(2));
        let orphan = part(Role::Follower, 5, None);
        let candidate = part(Role::Candidate, 6, None);
        let table = [
            // A leader: once the first entry of its own term is applied.
            (&leader, None, None, false),
            (&leader, id(4, 90), None, false),
            (&leader, id(5, 91), None, true),
            // A follower: also what this leader named as committed first.
            (&follower, None, told(5, Some(91)), false),
            (&follower, id(4, 90), told(5, Some(90)), false),
            (&follower, id(5, 91), None, false),
            (&follower, id(5, 91), told(4, Some(80)), false),
            (&follower, id(5, 91), told(5, Some(91)), true),
            (&follower, id(5, 91), told(5, Some(120)), false),
            (&follower, id(5, 120), told(5, Some(120)), true),
            (&follower, id(5, 91), told(5, None), true),
            // Without a leader in the term: not at all.
            (&orphan, id(5, 91), told(5, Some(91)), false),
            (&candidate, id(6, 91), told(6, Some(91)), false),
        ];
        for (part, applied, heard, expected) in table {
            assert_eq!(
                ready(part, applied, heard),
                expected,
                "{part:?} {applied:?} {heard:?}"
            );
        }
    }

    #[test]
    fn the_last_leader_is_kept_while_an_election_runs() {
        let mut view = unknown(1);
        for (leader, last) in [
            (None, None),
            (Some(2), Some(2)),
            (None, Some(2)),
            (Some(3), Some(3)),
        ] {
            view = next_view(1, &view, &part(Role::Follower, 4, leader), false);
            assert_eq!((view.leader, view.last_leader), (leader, last));
        }
    }
}
