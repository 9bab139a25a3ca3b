//! Finds the brokers of a group by its name servers, and follows who its master is. Works with any group that answers
//! name-server requests, RocketMQ's own included.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use serde::Deserialize;

use super::watch::WatchError;
use crate::wire::{BrokerData, Connection, Frame, WireError};
use crate::workload::Node;

/// Request code: all brokers of a cluster.
const CLUSTER_INFO: i32 = 106;
const WITHIN: Duration = Duration::from_millis(1500);

/// The group that is watched.
#[derive(Clone, Debug)]
pub struct Found {
    pub broker: String,
    /// All addresses of the broker name, named by them.
    pub nodes: Vec<Node>,
    /// Index of the node with broker id 0.
    pub master: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cluster {
    broker_addr_table: BTreeMap<String, BrokerData>,
}

/// Name-server addresses from `HOST:PORT;HOST:PORT`.
pub fn name_servers(text: &str) -> Result<Vec<SocketAddr>, WatchError> {
    let mut all = Vec::new();
    for one in text
        .split([';', ','])
        .map(str::trim)
        .filter(|one| !one.is_empty())
    {
        let found = one
            .to_socket_addrs()
            .ok()
            .and_then(|mut found| found.next());
        all.push(found.ok_or_else(|| WatchError::NameServer(one.to_owned()))?);
    }
    match all.is_empty() {
        true => Err(WatchError::NameServer(text.to_owned())),
        false => Ok(all),
    }
}

/// Asks the name servers in turn for the broker (`wanted`, or the only one) and its nodes.
pub async fn find(servers: &[SocketAddr], wanted: Option<&str>) -> Result<Found, WatchError> {
    let mut last = None;
    for server in servers {
        match cluster(*server).await {
            Ok(cluster) => return choose(cluster, wanted),
            Err(error) => last = Some(error),
        }
    }
    Err(WatchError::Unreachable(
        last.map_or_else(String::new, |error| error.to_string()),
    ))
}

async fn cluster(server: SocketAddr) -> Result<Cluster, WireError> {
    let connection = Connection::open(server, WITHIN).await?;
    let reply = connection.call(Frame::request(CLUSTER_INFO)).await?;
    let text = quote_keys(&String::from_utf8_lossy(&reply.body));
    serde_json::from_str(&text).map_err(|error| WireError::Malformed(format!("cluster: {error}")))
}

fn choose(cluster: Cluster, wanted: Option<&str>) -> Result<Found, WatchError> {
    let names: Vec<String> = cluster.broker_addr_table.keys().cloned().collect();
    let broker = match (wanted, names.as_slice()) {
        (Some(wanted), _) => wanted.to_owned(),
        (None, [only]) => only.clone(),
        (None, _) => return Err(WatchError::Which(names.join(", "))),
    };
    let Some(data) = cluster.broker_addr_table.get(&broker) else {
        return Err(WatchError::Which(names.join(", ")));
    };
    let mut nodes: Vec<Node> = data
        .broker_addrs
        .values()
        .filter_map(|at| node(at))
        .collect();
    nodes.sort_by_key(|node| node.address);
    nodes.dedup();
    let master = data.broker_addrs.get(&0).and_then(|at| node(at));
    let master = master.and_then(|master| nodes.iter().position(|node| *node == master));
    Ok(Found {
        master: master.ok_or_else(|| WatchError::NoMaster(broker.clone()))?,
        broker,
        nodes,
    })
}

fn node(address: &str) -> Option<Node> {
    Some(Node {
        name: address.to_owned(),
        address: address.to_socket_addrs().ok()?.next()?,
    })
}

/// RocketMQ writes maps with numbers as keys the way JavaScript does, without quotes.
fn quote_keys(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut in_text = false;
    let mut escaped = false;
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        out.push(char);
        if in_text {
            in_text = escaped || char != '"';
            escaped = char == '\\' && !escaped;
            continue;
        }
        in_text = char == '"';
        if !matches!(char, '{' | ',') {
            continue;
        }
        let mut digits = String::new();
        while let Some(digit) = chars.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        if digits.is_empty() {
            continue;
        }
        match chars.peek() {
            Some(':') => out.push_str(&format!("\"{digits}\"")),
            _ => out.push_str(&digits),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_bare_numbers_get_quotes_and_nothing_else_does() {
        for (from, to) in [
            (r#"{0:"a",1:"b"}"#, r#"{"0":"a","1":"b"}"#),
            (r#"{"0":"a"}"#, r#"{"0":"a"}"#),
            (r#"{"x":[1,2,30]}"#, r#"{"x":[1,2,30]}"#),
            (r#"{"x":"{0:\",1:"}"#, r#"{"x":"{0:\",1:"}"#),
            (r#"{"a\\":{2:"c"}}"#, r#"{"a\\":{"2":"c"}}"#),
        ] {
            assert_eq!(quote_keys(from), to);
        }
    }

    #[test]
    fn the_only_broker_is_taken_and_of_several_one_must_be_named() {
        let one = r#"{"brokerAddrTable":{"a":{"brokerAddrs":{1:"127.0.0.1:2",0:"127.0.0.1:1"},"brokerName":"a","cluster":"c"}},"clusterAddrTable":{"c":["a"]}}"#;
        let parse = |text: &str| serde_json::from_str::<Cluster>(&quote_keys(text)).unwrap();
        let found = choose(parse(one), None).unwrap();
        assert_eq!(
            (found.broker.as_str(), found.master, found.nodes.len()),
            ("a", 0, 2)
        );
        assert!(matches!(
            choose(parse(one), Some("b")),
            Err(WatchError::Which(_))
        ));
        let none = one.replace("0:\"127.0.0.1:1\"", "2:\"127.0.0.1:1\"");
        assert!(matches!(
            choose(parse(&none), None),
            Err(WatchError::NoMaster(_))
        ));
    }
}
