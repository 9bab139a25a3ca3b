//! Tables of what an unfilled node does.

use super::*;
use crate::peer::PeersTag;

fn id(term: u64, index: u64) -> Option<EntryId> {
    Some(EntryId { term, index })
}

fn peers(nodes: u64) -> PeersTag {
    PeersTag::of(&(1..=nodes).map(|node| (node, String::new())).collect())
}

fn full(voted: Option<(u64, NodeId)>, last: Option<EntryId>) -> Option<Standing> {
    Some(Standing {
        incarnation: 7,
        unfilled: false,
        voted,
        last,
        leads: None,
        full: false,
        peers: peers(3),
    })
}

fn unfilled(last: Option<EntryId>) -> Option<Standing> {
    let mut standing = full(None, last);
    if let Some(standing) = &mut standing {
        standing.unfilled = true;
    }
    standing
}

/// This node is 3; the candidate or leader is 2.
fn of_three(first: Option<Standing>) -> Others {
    BTreeMap::from([(1, first), (2, full(Some((5, 2)), id(4, 20)))])
}

#[test]
fn an_unfilled_node_votes_only_for_a_candidate_that_has_what_all_others_have() {
    let ahead = |term, index| {
        let last = EntryId { term, index };
        Err(Hold::Ahead { node: 1, last })
    };
    let voted = |term| Err(Hold::Voted { node: 1, term });
    let emptied = Err(Hold::TooManyEmptied { full: 1, needed: 2 });
    let table = [
        (None, Err(Hold::Silent(1))),
        (full(None, None), Ok(())),
        (full(Some((4, 1)), id(4, 20)), Ok(())),
        (full(Some((4, 1)), id(3, 900)), Ok(())),
        (full(Some((4, 1)), id(4, 21)), ahead(4, 21)),
        (full(Some((5, 1)), id(5, 1)), ahead(5, 1)),
        // In the term asked for, it may be this node's own vote that the other one has.
        (full(Some((5, 1)), id(4, 20)), voted(5)),
        (full(Some((6, 1)), id(4, 20)), voted(6)),
        (full(Some((5, 2)), id(4, 20)), Ok(())),
        // What two emptied nodes confirmed, the third need not have.
        (unfilled(None), emptied),
    ];
    for (first, expected) in table {
        let others = of_three(first);
        assert_eq!(vote(&others, 2, 5, id(4, 20)), expected, "{first:?}");
    }
}

#[test]
fn in_larger_groups_a_minority_may_be_emptied_but_all_must_answer() {
    let at = full(Some((4, 1)), id(4, 20));
    let group = |others: &[Option<Standing>]| -> Others { (1..).zip(others.to_vec()).collect() };
    let blank = unfilled(None);
    let table = [
        (group(&[at]), true),
        (group(&[at, at, at]), true),
        (group(&[at, blank, at]), true),
        (group(&[at, blank, blank]), false),
        (group(&[at, at, at, at]), true),
        (group(&[at, at, at, None]), false),
        (group(&[at, at, at, blank]), true),
        (group(&[at, at, blank, blank]), false),
    ];
    for (others, grants) in table {
        let granted = vote(&others, 1, 5, id(4, 20)).is_ok();
        assert_eq!(granted, grants, "{others:?}");
        assert_eq!(follow(&others, 1, 5).is_ok(), grants, "{others:?}");
    }
}

#[test]
fn an_unfilled_node_follows_no_leader_whose_successor_it_may_have_elected() {
    let table = [
        (None, Err(Hold::Silent(1))),
        (full(None, None), Ok(())),
        (full(Some((5, 1)), id(5, 90)), Ok(())),
        (
            full(Some((6, 1)), id(5, 90)),
            Err(Hold::Voted { node: 1, term: 6 }),
        ),
        (
            unfilled(None),
            Err(Hold::TooManyEmptied { full: 1, needed: 2 }),
        ),
    ];
    for (first, expected) in table {
        assert_eq!(follow(&of_three(first), 2, 5), expected, "{first:?}");
    }
}

#[test]
fn a_group_is_founded_only_when_all_were_without_data_at_one_moment() {
    let all = |first, second| -> Others { BTreeMap::from([(1, first), (2, second)]) };
    let blank = unfilled(None);
    let restarted = blank.map(|said| Standing {
        incarnation: 8,
        ..said
    });
    let founder = full(None, id(0, 0));
    let of_four = blank.map(|said| Standing {
        peers: peers(4),
        ..said
    });
    let table = [
        (all(blank, blank), all(blank, blank), true),
        (all(blank, blank), all(blank, founder), true),
        (all(blank, blank), all(blank, None), false),
        (all(None, blank), all(blank, blank), false),
        // Another membership would be another group.
        (all(blank, of_four), all(blank, of_four), false),
        (all(blank, blank), all(blank, restarted), false),
        (all(blank, blank), all(blank, full(None, id(1, 1))), false),
        (
            all(blank, blank),
            all(blank, full(Some((1, 2)), None)),
            false,
        ),
        (all(full(None, id(3, 7)), blank), all(blank, blank), false),
        // A group of one asks nobody.
        (Others::new(), Others::new(), true),
    ];
    for (first, second, founds) in table {
        let found = nothing_was_promised(&first, &second, peers(3));
        assert_eq!(found, founds, "{first:?} {second:?}");
    }
}

#[test]
fn a_node_is_filled_when_it_has_what_its_leader_had_and_knows_of_every_vote() {
    let leader = |term, last| {
        full(Some((term, 2)), last).map(|said| Standing {
            leads: Some(term),
            ..said
        })
    };
    let others = |first, second| -> Others { BTreeMap::from([(1, first), (2, second)]) };
    let follower = full(Some((5, 2)), id(5, 90));
    let five = others(follower, leader(5, id(5, 100)));
    assert_eq!(target(&five, 5), id(5, 100));
    assert_eq!(target(&five, 4), None, "not the leader of this node's term");
    assert_eq!(target(&others(follower, follower), 5), None, "no leader");
    let blank = others(follower, leader(5, id(4, 99)));
    assert_eq!(target(&blank, 5), None, "its first entry is on its way");
    let table = [
        (five.clone(), id(5, 100), id(5, 100), 5, true),
        (five.clone(), id(5, 100), id(5, 140), 5, true),
        (five.clone(), id(5, 100), id(5, 99), 5, false),
        // A tail of an earlier leader is not this leader's log.
        (five.clone(), id(5, 100), id(4, 200), 5, false),
        (five.clone(), None, id(5, 100), 5, false),
        (
            others(None, leader(5, id(5, 100))),
            id(5, 100),
            id(5, 100),
            5,
            false,
        ),
        (
            others(full(Some((6, 1)), None), leader(5, id(5, 100))),
            id(5, 100),
            id(5, 100),
            5,
            false,
        ),
    ];
    for (others, target, durable, term, expected) in table {
        let is = filled(&others, target, durable, term);
        assert_eq!(is, expected, "{others:?} {target:?} {durable:?}");
    }
}
