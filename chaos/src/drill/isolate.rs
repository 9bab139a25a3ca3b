//! Cuts one node of a throw-away group off from the others, at the switch between them. Clients still reach it.

use crate::rig::{Network, RigError, tool};

/// No frame passes between the node and the other nodes, in either direction.
pub fn isolate(network: &Network, at: usize) -> Result<(), RigError> {
    let rules = format!(
        "table bridge drill {{ chain cut {{ type filter hook forward priority 0; \
         iifname \"p{at}\" oifname != \"pc\" drop; oifname \"p{at}\" iifname != \"pc\" drop; }} }}\n"
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
