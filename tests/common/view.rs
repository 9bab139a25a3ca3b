//! Who leads, as the nodes themselves say it in their runtime info.

use std::net::SocketAddr;
use std::time::Duration;

use quorumlog_chaos::wire::Connection;

/// What a node says of the group.
#[derive(Clone, Debug)]
pub struct View {
    leads: bool,
    term: u64,
    leader: String,
}

impl View {
    pub async fn of(address: SocketAddr) -> Option<View> {
        let connection = Connection::open(address, Duration::from_secs(1))
            .await
            .ok()?;
        let table = connection.runtime_info().await.ok()?;
        Some(View {
            leads: table.get("raftRole")?.eq_ignore_ascii_case("leader"),
            term: table.get("raftTerm")?.parse().ok()?,
            leader: table.get("raftLeader")?.clone(),
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
