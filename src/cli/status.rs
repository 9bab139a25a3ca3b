//! `quorumlog status`: asks every node what it knows of its group, and shows it as one table.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::client::{Client, ClientError};
use super::{CliError, CliResult, route, table};
use crate::protocol::codes::request;

#[derive(clap::Args, Debug)]
#[group(multiple = false)]
struct Where {
    /// Name server of any node: it names all the others
    #[arg(long, value_name = "HOST:PORT", default_value = NAMESRV)]
    namesrv: String,
    /// Client ports of the nodes
    #[arg(long, value_name = "HOST:PORT,HOST:PORT", value_delimiter = ',')]
    broker: Vec<String>,
}

#[derive(clap::Args, Debug)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    place: Where,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const TIMEOUT: Duration = Duration::from_secs(2);
/// Where `quorumlog cluster` has the first node's name server.
const NAMESRV: &str = "127.0.0.1:9876";

/// One node, as it described itself, or why it did not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct NodeStatus {
    pub address: String,
    #[serde(flatten)]
    pub figures: Option<Figures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
}

/// A node's own figures. Indexes are of entries, positions are bytes. `None`: the node does not know.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Figures {
    pub group: String,
    pub node: u64,
    pub role: String,
    pub term: u64,
    pub leader: Option<u64>,
    pub ready: bool,
    pub appended: Option<u64>,
    pub durable: Option<u64>,
    pub committed: Option<u64>,
    pub applied: Option<u64>,
    pub end_position: u64,
    /// Position after the last applied entry.
    pub applied_position: u64,
    pub lease_ms: u64,
    /// On a leader: time since a majority last answered.
    pub since_quorum_ms: Option<u64>,
    /// On a leader: the others.
    pub replicas: Vec<Replica>,
}

/// A replica as its leader sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Replica {
    pub node: u64,
    pub matched: Option<u64>,
    pub last_answer_ms: Option<u64>,
}

pub(super) fn run(args: &StatusArgs) -> CliResult {
    let addresses: Vec<String> = if args.place.broker.is_empty() {
        route::cluster_addresses(&args.place.namesrv, TIMEOUT)?
            .into_iter()
            .collect()
    } else {
        args.place.broker.clone()
    };
    if addresses.is_empty() {
        return Err(CliError::new(
            "the name server knows no node yet; name the nodes with --broker",
        ));
    }
    let nodes = ask_all(&addresses);
    if args.json {
        let text = serde_json::to_string(&nodes)
            .map_err(|e| CliError::new(format!("the status cannot be written as JSON: {e}")))?;
        println!("{text}");
    } else {
        print!("{}", render(&nodes));
    }
    Ok(match leader(&nodes) {
        Some(_) => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    })
}

/// Asks all nodes at once: one that hangs must not hide the others.
fn ask_all(addresses: &[String]) -> Vec<NodeStatus> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = addresses
            .iter()
            .map(|address| (address, scope.spawn(move || ask(address, TIMEOUT))))
            .collect();
        asked
            .into_iter()
            .map(|(address, thread)| {
                let (figures, unreachable) = match thread.join() {
                    Ok(Ok(figures)) => (Some(figures), None),
                    Ok(Err(error)) => (None, Some(error.to_string())),
                    Err(_) => (None, Some("the asking thread panicked".to_string())),
                };
                NodeStatus {
                    address: address.clone(),
                    figures,
                    unreachable,
                }
            })
            .collect()
    })
}

/// Asks one node for its figures.
pub(super) fn ask(address: &str, timeout: Duration) -> Result<Figures, ClientError> {
    let mut client = Client::connect(address, timeout)?;
    let frame = client.call(request::GET_BROKER_RUNTIME_INFO, &[], &[])?;
    figures(&frame.body).ok_or_else(|| ClientError::NoAnswer {
        address: address.to_string(),
        why: "its runtime info has no Raft figures; is it another broker?".to_string(),
    })
}

#[derive(Deserialize)]
struct RuntimeInfo {
    table: BTreeMap<String, String>,
}

fn figures(body: &[u8]) -> Option<Figures> {
    let info: RuntimeInfo = serde_json::from_slice(body).ok()?;
    let text = |key: &str| info.table.get(key).map_or("", String::as_str);
    let number = |key: &str| text(key).parse::<u64>().ok();
    Some(Figures {
        group: text("raftGroup").to_string(),
        node: number("raftNode")?,
        role: info.table.get("raftRole")?.to_ascii_lowercase(),
        term: number("raftTerm")?,
        leader: number("raftLeader"),
        ready: text("raftReady") == "true",
        appended: number("raftAppended"),
        durable: number("raftDurable"),
        committed: number("raftCommitted"),
        applied: number("raftApplied"),
        end_position: number("raftEndPosition").unwrap_or(0),
        applied_position: number("commitLogMaxOffset").unwrap_or(0),
        lease_ms: number("raftLeaseMs").unwrap_or(0),
        since_quorum_ms: number("raftSinceQuorumMs"),
        replicas: text("raftReplicas")
            .split(';')
            .filter_map(replica)
            .collect(),
    })
}

/// `id:matched:lastAnswerMs`, with nothing where nothing is known.
fn replica(text: &str) -> Option<Replica> {
    let mut parts = text.split(':');
    Some(Replica {
        node: parts.next()?.parse().ok()?,
        matched: parts.next().and_then(|p| p.parse().ok()),
        last_answer_ms: parts.next().and_then(|p| p.parse().ok()),
    })
}

/// The leader of the highest term; an isolated old one may still believe in itself.
fn leader(nodes: &[NodeStatus]) -> Option<&Figures> {
    nodes
        .iter()
        .filter_map(|node| node.figures.as_ref())
        .filter(|figures| figures.role == "leader")
        .max_by_key(|figures| figures.term)
}

/// The name that `dLegerSelfId` has by convention: node 1 is n0.
pub(super) fn node_name(node: u64) -> String {
    format!("n{}", node.saturating_sub(1))
}

fn render(nodes: &[NodeStatus]) -> String {
    let leader = leader(nodes);
    let mut known: Vec<&NodeStatus> = nodes.iter().collect();
    known.sort_by_key(|node| {
        let id = node.figures.as_ref().map_or(u64::MAX, |f| f.node);
        (id, node.address.clone())
    });
    let rows: Vec<Vec<String>> = known.iter().map(|node| row(node, leader)).collect();
    let heading = [
        "NODE",
        "ADDRESS",
        "ROLE",
        "TERM",
        "LEADER",
        "APPENDED",
        "DURABLE",
        "COMMITTED",
        "APPLIED",
        "END",
        "LAG",
    ];
    let mut text = table::render(&heading, &rows);
    text.push('\n');
    match leader {
        Some(leader) => text.push_str(&leader_lines(leader)),
        None => {
            text.push_str("no leader: writes are refused until a majority of the nodes is up\n")
        }
    }
    for node in &known {
        if let Some(why) = &node.unreachable {
            text.push_str(&format!("unreachable: {why}\n"));
        }
    }
    text
}

fn row(node: &NodeStatus, leader: Option<&Figures>) -> Vec<String> {
    let Some(own) = &node.figures else {
        let mut row = vec![
            "?".to_string(),
            node.address.clone(),
            "unreachable".to_string(),
        ];
        row.resize(11, "-".to_string());
        return row;
    };
    let index = |value: Option<u64>| value.map_or("-".to_string(), |v| v.to_string());
    let lag = match leader {
        Some(leader) => format!("{} B", leader.end_position.saturating_sub(own.end_position)),
        None => "-".to_string(),
    };
    let role = match own.ready {
        true => own.role.clone(),
        false => format!("{} (catching up)", own.role),
    };
    vec![
        node_name(own.node),
        node.address.clone(),
        role,
        own.term.to_string(),
        own.leader.map_or("none".to_string(), node_name),
        index(own.appended),
        index(own.durable),
        index(own.committed),
        index(own.applied),
        own.end_position.to_string(),
        lag,
    ]
}

/// What the leader knows that no table shows: its lease, and when each replica last answered.
fn leader_lines(leader: &Figures) -> String {
    let lease = match leader.since_quorum_ms {
        Some(since) if since <= leader.lease_ms => {
            format!(
                "lease fresh (a majority answered {since} ms ago, it lasts {} ms)",
                leader.lease_ms
            )
        }
        Some(since) => format!(
            "lease EXPIRED (a majority answered {since} ms ago, it lasts {} ms): writes are refused",
            leader.lease_ms
        ),
        None => format!("lease of {} ms", leader.lease_ms),
    };
    let mut text = format!(
        "group {}: {} leads in term {}, {lease}\n",
        leader.group,
        node_name(leader.node),
        leader.term
    );
    for replica in &leader.replicas {
        let matched = replica
            .matched
            .map_or("has told nothing yet".to_string(), |index| {
                format!("has {index} durable")
            });
        let answer = replica
            .last_answer_ms
            .map_or("never answered".to_string(), |ms| {
                format!("last answered {ms} ms ago")
            });
        text.push_str(&format!(
            "  {} {matched}, {answer}\n",
            node_name(replica.node)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: &str = r#"{"table":{"raftGroup":"G","raftNode":"2","raftRole":"leader","raftTerm":"7","raftLeader":"2","raftReady":"true","raftAppended":"120","raftDurable":"119","raftCommitted":"118","raftApplied":"118","raftEndPosition":"5000","raftLeaseMs":"300","raftSinceQuorumMs":"12","raftReplicas":"1:118:9;3::;","commitLogMaxOffset":"4900","brokerVersionDesc":"V5_3_3"}}"#;
    const FOLLOWER: &str = r#"{"table":{"raftGroup":"G","raftNode":"1","raftRole":"follower","raftTerm":"7","raftLeader":"2","raftReady":"false","raftAppended":"118","raftDurable":"118","raftCommitted":"","raftApplied":"117","raftEndPosition":"4900","raftLeaseMs":"300","raftSinceQuorumMs":"","raftReplicas":"","commitLogMaxOffset":"4800"}}"#;

    fn node(address: &str, body: &str) -> NodeStatus {
        NodeStatus {
            address: address.into(),
            figures: figures(body.as_bytes()),
            unreachable: None,
        }
    }

    fn gone(address: &str) -> NodeStatus {
        NodeStatus {
            address: address.into(),
            figures: None,
            unreachable: Some(format!("{address} cannot be reached: connection refused")),
        }
    }

    #[test]
    fn without_a_place_the_name_server_of_the_quick_start_is_asked() {
        use clap::Parser;

        #[derive(Parser)]
        struct Alone {
            #[command(flatten)]
            args: StatusArgs,
        }
        let place = |words: &[&str]| {
            let words = ["status"].iter().chain(words);
            Alone::try_parse_from(words).map(|alone| alone.args.place)
        };
        let default = place(&[]).unwrap();
        assert_eq!(
            (default.namesrv.as_str(), default.broker.len()),
            (NAMESRV, 0)
        );
        assert_eq!(place(&["--broker", "h:1,h:2"]).unwrap().broker.len(), 2);
        assert!(place(&["--broker", "h:1", "--namesrv", "h:2"]).is_err());
    }

    #[test]
    fn a_group_with_a_leader_a_follower_and_a_dead_node_is_shown() {
        let nodes = [node("h:2", LEADER), node("h:1", FOLLOWER), gone("h:3")];
        assert_eq!(
            render(&nodes),
            "\
NODE  ADDRESS  ROLE                    TERM  LEADER  APPENDED  DURABLE  COMMITTED  APPLIED  END   LAG
n0    h:1      follower (catching up)  7     n1      118       118      -          117      4900  100 B
n1    h:2      leader                  7     n1      120       119      118        118      5000  0 B
?     h:3      unreachable             -     -       -         -        -          -        -     -

group G: n1 leads in term 7, lease fresh (a majority answered 12 ms ago, it lasts 300 ms)
  n0 has 118 durable, last answered 9 ms ago
  n2 has told nothing yet, never answered
unreachable: h:3 cannot be reached: connection refused
"
        );
    }

    #[test]
    fn without_a_leader_it_says_so() {
        let follower = FOLLOWER.replace("\"raftLeader\":\"2\"", "\"raftLeader\":\"\"");
        let text = render(&[node("h:1", &follower), gone("h:2")]);
        assert!(text.contains("no leader: writes are refused"), "{text}");
        assert!(text.contains("none"), "{text}");
    }

    #[test]
    fn an_expired_lease_is_shouted() {
        let old = LEADER.replace("\"12\"", "\"900\"");
        let text = render(&[node("h:2", &old)]);
        assert!(
            text.contains("lease EXPIRED (a majority answered 900 ms ago"),
            "{text}"
        );
    }

    #[test]
    fn the_leader_of_the_highest_term_counts() {
        let old = LEADER
            .replace("\"7\"", "\"6\"")
            .replace("\"raftNode\":\"2\"", "\"raftNode\":\"3\"");
        let nodes = [node("h:3", &old), node("h:2", LEADER)];
        assert_eq!(leader(&nodes).map(|l| l.node), Some(2));
        assert_eq!(leader(&nodes[..1]).map(|l| l.node), Some(3));
        assert!(leader(&[node("h:1", FOLLOWER)]).is_none());
    }

    #[test]
    fn runtime_info_of_another_broker_is_no_figures() {
        assert_eq!(figures(br#"{"table":{"putTps":"0 0 0"}}"#), None);
        assert_eq!(figures(b"[]"), None);
    }
}
