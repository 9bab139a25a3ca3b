//! What the bridge between the namespaces lets through: every pair, each direction for itself. The nodes
//! cannot notice; their cables stay plugged in. Addresses are still resolved (ARP passes), so that a cut of
//! one direction stays one.

use std::fmt::Write as _;

use super::RigError;
use super::netns::{CLIENT_PORT, Network};
use super::tool::tool;

/// An end of a path through the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Node(usize),
    Clients,
}

impl End {
    /// The bridge's port that leads there.
    pub fn port(self) -> String {
        match self {
            End::Node(at) => format!("p{at}"),
            End::Clients => CLIENT_PORT.to_owned(),
        }
    }
}

/// Packets from the first to the second are dropped.
pub type Cut = (End, End);

/// Both directions between two ends.
pub fn both(a: End, b: End) -> [Cut; 2] {
    [(a, b), (b, a)]
}

/// A node cut off from all other nodes, in both directions; clients still reach it.
pub fn isolated(at: usize, nodes: usize) -> Vec<Cut> {
    let mut cuts = deaf(at, nodes);
    cuts.extend(mute(at, nodes));
    cuts
}

/// A node that hears no other node.
pub fn deaf(at: usize, nodes: usize) -> Vec<Cut> {
    others(at, nodes)
        .map(|other| (End::Node(other), End::Node(at)))
        .collect()
}

/// A node that no other node hears.
pub fn mute(at: usize, nodes: usize) -> Vec<Cut> {
    others(at, nodes)
        .map(|other| (End::Node(at), End::Node(other)))
        .collect()
}

fn others(at: usize, nodes: usize) -> impl Iterator<Item = usize> {
    (0..nodes).filter(move |other| *other != at)
}

impl Network {
    /// Drops exactly these from now on; what was cut before and is not among them is mended. All at once.
    pub fn cut(&self, cuts: &[Cut]) -> Result<(), RigError> {
        let rules = rules(cuts);
        self.switch
            .run(|| tool("nft", "-f -").input(&rules).run().map(drop))
    }

    /// Mends everything that was cut.
    pub fn mend(&self) -> Result<(), RigError> {
        self.cut(&[])
    }

    /// Packets that were dropped since the last [`Network::cut`]: zero tells a cut that cut nothing.
    pub fn dropped(&self) -> Result<u64, RigError> {
        let listing = self
            .switch
            .run(|| tool("nft", "list table bridge cuts").run())?;
        Ok(counted(&listing))
    }
}

/// One transaction that replaces the table.
fn rules(cuts: &[Cut]) -> String {
    let mut text = "add table bridge cuts\ndelete table bridge cuts\ntable bridge cuts {\n\
                    chain forward {\ntype filter hook forward priority 0\n"
        .to_owned();
    for (from, to) in cuts {
        let (from, to) = (from.port(), to.port());
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "ether type ip iifname \"{from}\" oifname \"{to}\" counter drop"
        );
    }
    text.push_str("}\n}\n");
    text
}

/// The sum of the `counter packets N` of a listing.
fn counted(listing: &str) -> u64 {
    listing
        .split("counter packets ")
        .skip(1)
        .filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_isolated_node_is_cut_from_and_to_each_other_node_only() {
        let mut cuts = isolated(1, 3);
        cuts.sort();
        let node = End::Node;
        assert_eq!(
            cuts,
            [
                (node(0), node(1)),
                (node(1), node(0)),
                (node(1), node(2)),
                (node(2), node(1))
            ]
        );
        assert_eq!(deaf(0, 3), [(node(1), node(0)), (node(2), node(0))]);
        assert_eq!(mute(0, 3), [(node(0), node(1)), (node(0), node(2))]);
    }

    #[test]
    fn rules_replace_the_table_and_name_the_bridges_ports() {
        let text = rules(&both(End::Node(0), End::Clients));
        assert!(text.contains("delete table bridge cuts"));
        assert!(text.contains("iifname \"p0\" oifname \"pc\" counter drop"));
        assert!(text.contains("iifname \"pc\" oifname \"p0\" counter drop"));
        assert!(!rules(&[]).contains("drop"));
    }

    #[test]
    fn dropped_packets_are_added_up() {
        let listing = "iifname \"p0\" counter packets 12 bytes 700 drop\n\
                       iifname \"p1\" counter packets 3 bytes 90 drop";
        assert_eq!(counted(listing), 15);
    }
}
