//! Cuts one node of a throw-away group off from the others, at the switch between them. Clients still reach it.

use crate::rig::{Network, RigError, tool};

/// The bridge's port that leads to the clients.
const CLIENT_PORT: &str = "pc";

/// No frame passes between the node and the other nodes, in either direction.
pub fn isolate(network: &Network, at: usize) -> Result<(), RigError> {
    let port = format!("p{at}");
    let rules = format!(
        "table bridge drill {{\n chain cut {{\n type filter hook forward priority 0;\n \
         iifname \"{port}\" oifname != \"{CLIENT_PORT}\" drop\n \
         oifname \"{port}\" iifname != \"{CLIENT_PORT}\" drop\n }}\n}}\n"
    );
    in_switch(network, &rules)
}

/// Everything passes again.
pub fn heal(network: &Network) -> Result<(), RigError> {
    in_switch(network, "delete table bridge drill\n")
}

fn in_switch(network: &Network, rules: &str) -> Result<(), RigError> {
    network
        .switch
        .run(|| tool("nft", "-f -").input(rules).run().map(drop))
}
