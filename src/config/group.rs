//! The group's keys: `enableDLegerCommitLog`, `dLegerGroup`, `dLegerPeers`, `dLegerSelfId`.

use std::collections::BTreeMap;

use super::read::Source;
use super::{ConfigError, GroupKeys};

/// Most members that a group may have.
const MEMBERS_MAX: usize = 9;
const PEERS_FORM: &str =
    "Write dLegerPeers=n0-host:port;n1-host:port;n2-host:port, the same on every node";
const SELF_FORM: &str = "Say which of dLegerPeers this node is, for example dLegerSelfId=n0";

/// Peer address of a broker without a group: nobody dials it, any free port on loopback will do.
const ALONE: &str = "127.0.0.1:0";

/// The group of this node; one of its own, named by `broker_name`, when no group is configured.
pub(super) fn read(
    source: &Source<'_>,
    broker_name: &str,
    warnings: &mut Vec<String>,
) -> Result<GroupKeys, ConfigError> {
    if !source.flag("enableDLegerCommitLog", false)? {
        for key in ["dLegerPeers", "dLegerSelfId", "dLegerGroup"] {
            if source.value(key).is_some() {
                return Err(source.error(
                    key,
                    &format!("{key} is given, but enableDLegerCommitLog=true is not: messages would have one copy"),
                    "Add enableDLegerCommitLog=true, or remove the dLeger keys for a single broker",
                ));
            }
        }
        return Ok(GroupKeys {
            name: broker_name.to_string(),
            node: 1,
            names: BTreeMap::from([(1, "n0".to_string())]),
            peers: BTreeMap::from([(1, ALONE.to_string())]),
        });
    }
    let name = required(
        source,
        "dLegerGroup",
        "Name the group, as brokerName: dLegerGroup=RaftNode00",
    )?;
    let (names, peers) = members(source, required(source, "dLegerPeers", PEERS_FORM)?)?;
    let self_id = required(source, "dLegerSelfId", SELF_FORM)?;
    let Some(node) = names
        .iter()
        .find(|(_, name)| name.as_str() == self_id)
        .map(|(id, _)| *id)
    else {
        let listed: Vec<&str> = names.values().map(String::as_str).collect();
        return Err(source.error(
            "dLegerSelfId",
            &format!(
                "dLegerSelfId={self_id} is not in dLegerPeers ({})",
                listed.join(", ")
            ),
            SELF_FORM,
        ));
    };
    if peers.len() % 2 == 0 {
        let text = format!(
            "names {} nodes: an even number survives no more failures than one node less",
            peers.len()
        );
        warnings.push(source.warn("dLegerPeers", &text));
    }
    source.name("dLegerGroup")?;
    Ok(GroupKeys {
        name: name.to_string(),
        node,
        names,
        peers,
    })
}

fn required<'s>(
    source: &'s Source<'_>,
    key: &'static str,
    fix: &str,
) -> Result<&'s str, ConfigError> {
    source.value(key).ok_or_else(|| {
        let problem = format!("enableDLegerCommitLog=true needs {key}, which is missing");
        source.error(key, &problem, fix)
    })
}

type Members = (BTreeMap<u64, String>, BTreeMap<u64, String>);

/// Names and addresses by node id. The id is the number in the name plus one, as RocketMQ gives broker ids,
/// so that it does not depend on the order in which a file lists the peers.
fn members(source: &Source<'_>, text: &str) -> Result<Members, ConfigError> {
    let fail = |problem: String| source.error("dLegerPeers", &problem, PEERS_FORM);
    let (mut names, mut peers) = (BTreeMap::new(), BTreeMap::new());
    for part in text.split(';').map(str::trim).filter(|p| !p.is_empty()) {
        let (name, address) = part.split_once('-').ok_or_else(|| {
            fail(format!(
                "dLegerPeers: {part} has no '-' between id and address"
            ))
        })?;
        let id = node_id(name).ok_or_else(|| {
            fail(format!(
                "dLegerPeers: id {name} is not a letter and a number, as n0"
            ))
        })?;
        check_address(address).map_err(|why| fail(format!("dLegerPeers: {part}: {why}")))?;
        if let Some(earlier) = names.insert(id, name.to_string()) {
            return Err(fail(format!(
                "dLegerPeers: {earlier} and {name} are the same id"
            )));
        }
        if peers.values().any(|known| known == address) {
            return Err(fail(format!(
                "dLegerPeers: {address} is given to two nodes"
            )));
        }
        peers.insert(id, address.to_string());
    }
    if peers.is_empty() || peers.len() > MEMBERS_MAX {
        return Err(fail(format!(
            "dLegerPeers names {} nodes; allowed are 1 to {MEMBERS_MAX}",
            peers.len()
        )));
    }
    Ok((names, peers))
}

/// `n0` is 1, `n1` is 2.
fn node_id(name: &str) -> Option<u64> {
    let mut chars = name.chars();
    if !chars.next()?.is_ascii_alphabetic() {
        return None;
    }
    let digits = chars.as_str();
    if digits.is_empty() || digits.len() > 6 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok().map(|number| number + 1)
}

/// `host:port`: a name, an IPv4 address, or an IPv6 address in brackets.
fn check_address(address: &str) -> Result<(), String> {
    let (host, port) = address
        .rsplit_once(':')
        .ok_or_else(|| "the address has no port".to_string())?;
    match port.parse::<u16>() {
        Ok(1..) => {}
        _ => return Err(format!("port {port} is not from 1 to 65535")),
    }
    let bare = host
        .strip_prefix('[')
        .and_then(|h| h.strip_suffix(']'))
        .filter(|h| h.parse::<std::net::Ipv6Addr>().is_ok())
        .is_some();
    let plain = !host.is_empty()
        && host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
    if bare || plain {
        Ok(())
    } else {
        Err(format!("host {host:?} is no host name"))
    }
}
