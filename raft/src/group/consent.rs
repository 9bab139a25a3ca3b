//! What a node may do that has lost what it promised: decisions only.
//!
//! A node whose directory was made empty may have confirmed entries and given votes that it no longer knows
//! of. Until it has been filled it counts for nothing by itself: it does what enough of the others, who have
//! forgotten nothing, would allow without it. Every one of the others must have answered since this process
//! started, because each may be the only one that still knows of a promise.

use std::collections::BTreeMap;

use crate::peer::{PeersTag, Standing};
use crate::types::{EntryId, NodeId};

/// The other nodes of the group, and what each said last to this process.
pub(super) type Others = BTreeMap<NodeId, Option<Standing>>;

/// Why an unfilled node does not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Hold {
    #[error("node {0} has not answered")]
    Silent(NodeId),
    #[error("node {node} has entries up to {last}, the candidate has not")]
    Ahead { node: NodeId, last: EntryId },
    #[error("node {node} has voted in term {term}")]
    Voted { node: NodeId, term: u64 },
    #[error("{full} of the other nodes have not been emptied, {needed} are needed")]
    TooManyEmptied { full: usize, needed: usize },
}

/// How many nodes that have forgotten nothing meet one of each majority, though all others be emptied: what
/// was committed is on a majority, so that many nodes hold all of it.
fn needed(nodes: usize) -> usize {
    let majority = nodes / 2 + 1;
    nodes - majority + 1
}

/// Everyone but `speaker`, which speaks for itself, has answered, and enough of them are filled. A node that
/// asks for votes or leads is filled.
fn heard(others: &Others, speaker: NodeId) -> Result<Vec<(NodeId, Standing)>, Hold> {
    let mut answers = Vec::new();
    for (node, standing) in others.iter().filter(|(node, _)| **node != speaker) {
        answers.push((*node, standing.ok_or(Hold::Silent(*node))?));
    }
    let full = 1 + answers.iter().filter(|(_, said)| !said.unfilled).count();
    let needed = needed(others.len() + 1);
    if full < needed {
        return Err(Hold::TooManyEmptied { full, needed });
    }
    Ok(answers)
}

/// May an unfilled node vote for `candidate`, whose log ends with `last`, in `term`? What this node once
/// confirmed another node has, too, and the candidate must have all of that; a vote that it once gave is known
/// to the one who got it.
pub(super) fn vote(
    others: &Others,
    candidate: NodeId,
    term: u64,
    last: Option<EntryId>,
) -> Result<(), Hold> {
    for (node, said) in heard(others, candidate)? {
        if let Some(theirs) = said.last
            && Some(theirs) > last
        {
            return Err(Hold::Ahead { node, last: theirs });
        }
        not_voted(node, &said, term, candidate)?;
    }
    Ok(())
}

/// May an unfilled node take entries from `leader`, which leads in `term`? Not if it may have voted for the
/// leader of a later term.
pub(super) fn follow(others: &Others, leader: NodeId, term: u64) -> Result<(), Hold> {
    for (node, said) in heard(others, leader)? {
        if let Some((voted, _)) = said.voted.filter(|(voted, _)| *voted > term) {
            return Err(Hold::Voted { node, term: voted });
        }
    }
    Ok(())
}

fn not_voted(node: NodeId, said: &Standing, term: u64, candidate: NodeId) -> Result<(), Hold> {
    match said.voted {
        Some((voted, of)) if voted > term || (voted == term && of != candidate) => {
            Err(Hold::Voted { node, term: voted })
        }
        _ => Ok(()),
    }
}

/// Was the whole group without data and votes at some moment between two rounds of answers? Then nobody has
/// promised anything to anybody, and the group may be founded, if all mean the same nodes by it.
pub(super) fn nothing_was_promised(first: &Others, second: &Others, peers: PeersTag) -> bool {
    let blank = |said: &Standing| {
        said.voted.is_none() && without_data(said.last) && said.peers.same_nodes(peers)
    };
    first.len() == second.len()
        && first.iter().all(|(node, before)| {
            let after = second.get(node).copied().flatten();
            matches!((before, after), (Some(before), Some(after))
                if before.incarnation == after.incarnation && blank(before) && blank(&after))
        })
}

/// The first membership is written in term 0; messages come in later terms.
pub(super) fn without_data(last: Option<EntryId>) -> bool {
    last.is_none_or(|last| last.term == 0)
}

/// Up to where an unfilled node must have the log of the leader of `term`, the term of its own last vote, to
/// be filled: whatever it confirmed to that leader before is in the leader's log already.
pub(super) fn target(others: &Others, term: u64) -> Option<EntryId> {
    let mut said = others.values().flatten();
    let leader = said.find(|said| said.leads == Some(term))?;
    leader.last.filter(|last| last.term == term)
}

/// Is a node filled that has everything up to `durable` and has last voted in `term`? Every vote that it may
/// have forgotten is of that term or an earlier one.
pub(super) fn filled(
    others: &Others,
    target: Option<EntryId>,
    durable: Option<EntryId>,
    term: u64,
) -> bool {
    let known = |said: &Option<Standing>| {
        said.is_some_and(|said| said.voted.is_none_or(|(voted, _)| voted <= term))
    };
    target.is_some() && durable >= target && others.values().all(known)
}

#[cfg(test)]
#[path = "consent_tests.rs"]
mod tests;
