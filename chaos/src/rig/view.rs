//! Who leads and how far a node is, as the nodes themselves say it in their runtime info.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::wire::{Connection, WireError};

/// What a node says of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub leads: bool,
    pub term: u64,
    /// Id of the leader it knows, empty when it knows none.
    pub leader: String,
    /// Whether it answers from its own state; a node that is not ready passes requests to the leader.
    pub ready: bool,
    pub appended: Option<u64>,
    pub durable: Option<u64>,
    pub committed: Option<u64>,
    pub applied: Option<u64>,
}

impl View {
    /// Asks a node.
    pub async fn of(address: SocketAddr, within: Duration) -> Result<View, WireError> {
        let connection = Connection::open(address, within).await?;
        let table = connection.runtime_info().await?;
        View::read(&table)
            .ok_or_else(|| WireError::Malformed("runtime info without raft figures".to_owned()))
    }

    /// Reads a table of runtime info; `None` when it lacks the role or the term.
    pub fn read(table: &BTreeMap<String, String>) -> Option<View> {
        let index = |name: &str| table.get(name).and_then(|text| text.parse().ok());
        Some(View {
            leads: table.get("raftRole")?.eq_ignore_ascii_case("leader"),
            term: index("raftTerm")?,
            leader: table.get("raftLeader")?.clone(),
            ready: table.get("raftReady").is_some_and(|said| said == "true"),
            appended: index("raftAppended"),
            durable: index("raftDurable"),
            committed: index("raftCommitted"),
            applied: index("raftApplied"),
        })
    }
}

/// The node that leads in the highest term, if any: an older leader may not know yet.
pub fn newest_leader(views: &[(usize, Option<View>)]) -> Option<usize> {
    views
        .iter()
        .filter_map(|(at, view)| Some((at, view.as_ref()?)))
        .filter(|(_, view)| view.leads)
        .max_by_key(|(_, view)| view.term)
        .map(|(at, _)| *at)
}

/// The leader, when all agree on its term and name.
pub fn agreed_leader(views: &[(usize, Option<View>)]) -> Option<usize> {
    let leader = newest_leader(views)?;
    let (_, Some(said)) = views.iter().find(|(at, _)| *at == leader)? else {
        return None;
    };
    views
        .iter()
        .all(|(_, view)| {
            view.as_ref()
                .is_some_and(|view| view.term == said.term && view.leader == said.leader)
        })
        .then_some(leader)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(role: &str, term: u64, leader: &str) -> Option<View> {
        let table = [
            ("raftRole", role.to_owned()),
            ("raftTerm", term.to_string()),
            ("raftLeader", leader.to_owned()),
        ];
        let table = table.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        View::read(&table)
    }

    #[test]
    fn a_leader_is_agreed_on_when_all_name_it_in_its_term() {
        let views = [(0, view("leader", 4, "1")), (2, view("follower", 4, "1"))];
        assert_eq!(
            (agreed_leader(&views), newest_leader(&views)),
            (Some(0), Some(0))
        );
        for other in [view("follower", 3, "1"), view("follower", 4, ""), None] {
            let views = [(0, view("leader", 4, "1")), (2, other)];
            assert_eq!(
                (agreed_leader(&views), newest_leader(&views)),
                (None, Some(0))
            );
        }
    }

    #[test]
    fn of_two_that_claim_to_lead_the_newer_one_leads() {
        let views = [(0, view("leader", 4, "1")), (1, view("leader", 5, "2"))];
        assert_eq!(
            (agreed_leader(&views), newest_leader(&views)),
            (None, Some(1))
        );
    }
}
