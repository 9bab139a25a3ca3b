//! The cluster's check of itself: sends messages the way a client does, reads them back from every node.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::plan::Node;
use crate::cli::CliError;
use crate::cli::client::{Client, ClientError, pull_fields, topic_fields};
use crate::cli::route::{self, Routed};
use crate::cli::status::{self, Figures};
use crate::protocol::codes::{request, response};
use crate::protocol::message::{property, push_property, records};

pub(super) const MESSAGES: usize = 1000;
const QUEUES: u32 = 4;
const TIMEOUT: Duration = Duration::from_secs(3);
/// How long one step (topic, one send, reading one node) may take, elections included.
const STEP_WITHIN: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(50);

/// How long a group may take until it serves.
const SERVING_WITHIN: Duration = Duration::from_secs(30);

/// What was acknowledged: body by queue and queue offset.
type Sent = BTreeMap<(i32, i64), String>;

/// Result of the check of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReadBack {
    pub node: String,
    pub read: usize,
    /// What was not as sent; empty when all is well.
    pub problem: Option<String>,
}

/// Waits until all nodes answer, follow one leader, and are up to date; what each says of itself.
pub(super) fn wait_serving(nodes: &[Node]) -> Result<Vec<Figures>, CliError> {
    let deadline = Instant::now() + SERVING_WITHIN;
    loop {
        let figures: Vec<Figures> = nodes
            .iter()
            .filter_map(|node| status::ask(&node.address(), Duration::from_secs(1)).ok())
            .collect();
        if figures.len() == nodes.len() && agree(&figures) {
            return Ok(figures);
        }
        if Instant::now() > deadline {
            let logs: Vec<String> = nodes
                .iter()
                .map(|n| n.log_file().display().to_string())
                .collect();
            return Err(CliError::new(format!(
                "the group does not serve after {SERVING_WITHIN:?}: {} of {} nodes answer. Their logs are {}",
                figures.len(),
                nodes.len(),
                logs.join(", ")
            )));
        }
        std::thread::sleep(PAUSE);
    }
}

/// All are up to date and follow the same leader in the same term.
fn agree(figures: &[Figures]) -> bool {
    let first = &figures[0];
    first.leader.is_some()
        && figures
            .iter()
            .all(|f| f.ready && (f.term, f.leader) == (first.term, first.leader))
}

/// Sends [`MESSAGES`] messages through the route of the first name server that answers.
pub(super) fn send_all(nodes: &[Node], topic: &str) -> Result<Sent, CliError> {
    make_topic(nodes, topic)?;
    let mut lane = Lane::new(nodes, topic);
    let mut sent = Sent::new();
    for number in 0..MESSAGES {
        let body = format!("message {number} of {topic}");
        let queue = (number as u32 % QUEUES) as i32;
        let (queue, offset) = lane.send(queue, number, &body)?;
        if let Some(other) = sent.insert((queue, offset), body) {
            return Err(CliError::new(format!(
                "two messages were acknowledged at queue {queue} offset {offset}; one is: {other}"
            )));
        }
    }
    Ok(sent)
}

fn make_topic(nodes: &[Node], topic: &str) -> Result<(), CliError> {
    let fields = topic_fields(topic, QUEUES);
    until_ok(&format!("topic {topic} cannot be made"), || {
        let mut last = Err("no node answered".to_string());
        for node in nodes {
            last = Client::connect(&node.address(), TIMEOUT)
                .and_then(|mut c| c.call(request::UPDATE_AND_CREATE_TOPIC, &fields, &[]))
                .map(drop)
                .map_err(|e| e.to_string());
            if last.is_ok() {
                break;
            }
        }
        last
    })
}

/// Tries again until it works, or the step's time is over.
fn until_ok<T>(what: &str, mut step: impl FnMut() -> Result<T, String>) -> Result<T, CliError> {
    let deadline = Instant::now() + STEP_WITHIN;
    loop {
        match step() {
            Ok(value) => return Ok(value),
            Err(why) if Instant::now() > deadline => {
                return Err(CliError::new(format!("{what}: {why}")));
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// A producer: a connection to the broker that the route names, looked up again when it fails.
struct Lane<'a> {
    nodes: &'a [Node],
    topic: &'a str,
    client: Option<Client>,
}

impl<'a> Lane<'a> {
    fn new(nodes: &'a [Node], topic: &'a str) -> Lane<'a> {
        Lane {
            nodes,
            topic,
            client: None,
        }
    }

    /// Sends one message; gives its queue and queue offset.
    fn send(&mut self, queue: i32, number: usize, body: &str) -> Result<(i32, i64), CliError> {
        let fields = send_fields(self.topic, queue, number);
        until_ok(&format!("message {number} cannot be sent"), || {
            if self.client.is_none() {
                self.client = Some(self.connect()?);
            }
            let client = self.client.as_mut().ok_or("no connection")?;
            let answer = client.call(request::SEND_MESSAGE_V2, &fields, body.as_bytes());
            let answer = answer.map_err(|error| {
                if error.code().is_none() {
                    self.client = None;
                }
                error.to_string()
            })?;
            let ext = &answer.header.ext;
            let place = ext.required_i32("queueId").and_then(|queue| {
                let offset = ext.required_i64("queueOffset")?;
                Ok((queue, offset))
            });
            place.map_err(|e| e.to_string())
        })
    }

    fn connect(&self) -> Result<Client, String> {
        let mut last = "no name server".to_string();
        for node in self.nodes {
            match routed_master(&node.namesrv(), self.topic) {
                Ok(address) => {
                    return Client::connect(&address, TIMEOUT).map_err(|e| e.to_string());
                }
                Err(why) => last = why,
            }
        }
        Err(last)
    }
}

fn routed_master(namesrv: &str, topic: &str) -> Result<String, String> {
    let ask = || -> Result<Vec<Routed>, ClientError> {
        let mut client = Client::connect(namesrv, TIMEOUT)?;
        route::topic_route(&mut client, topic)
    };
    ask()
        .map_err(|e| e.to_string())?
        .into_iter()
        .filter(|routed| routed.read_queues > 0)
        .find_map(|routed| routed.master)
        .ok_or_else(|| format!("the route of {topic} at {namesrv} names no leader"))
}

fn send_fields(topic: &str, queue: i32, number: usize) -> Vec<(&'static str, String)> {
    let mut properties = Vec::new();
    // The same key whenever this message is sent again: the broker recognises it.
    push_property(
        &mut properties,
        property::UNIQ_KEY,
        &format!("{topic}-{number:06}"),
    );
    vec![
        ("a", "ClusterCheck".to_string()),
        ("b", topic.to_string()),
        ("c", "TBW102".to_string()),
        ("d", QUEUES.to_string()),
        ("e", queue.to_string()),
        ("f", "0".to_string()),
        ("g", "0".to_string()),
        ("h", "0".to_string()),
        ("i", String::from_utf8_lossy(&properties).into_owned()),
        ("j", "0".to_string()),
        ("m", "false".to_string()),
    ]
}

/// Reads all queues from one node, and compares each message with what was sent.
pub(super) fn read_back(node: &Node, topic: &str, sent: &Sent) -> ReadBack {
    let mut read = 0;
    let outcome = read_node(node, topic, sent, &mut read);
    ReadBack {
        node: node.name.clone(),
        read,
        problem: outcome.err(),
    }
}

fn read_node(node: &Node, topic: &str, sent: &Sent, read: &mut usize) -> Result<(), String> {
    let deadline = Instant::now() + STEP_WITHIN;
    for queue in 0..QUEUES as i32 {
        let wanted: Vec<(i64, &String)> = sent
            .range((queue, i64::MIN)..=(queue, i64::MAX))
            .map(|((_, offset), body)| (*offset, body))
            .collect();
        let mut at = 0;
        while at < wanted.len() {
            match pull(node, topic, queue, wanted[at].0) {
                Ok(found) => {
                    at += compare(queue, &wanted[at..], &found)?;
                    *read += found.len();
                }
                // A follower may not have applied the last ones yet.
                Err(why) if Instant::now() > deadline => return Err(why),
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }
    Ok(())
}

/// How many of `wanted` were found; an error for anything else than exactly the next ones.
fn compare(
    queue: i32,
    wanted: &[(i64, &String)],
    found: &[(i64, Vec<u8>)],
) -> Result<usize, String> {
    if found.len() > wanted.len() {
        return Err(format!(
            "queue {queue} holds {} messages that nobody sent",
            found.len() - wanted.len()
        ));
    }
    for ((offset, body), (found_offset, found_body)) in wanted.iter().zip(found) {
        if offset != found_offset || body.as_bytes() != found_body {
            return Err(format!(
                "queue {queue} has {:?} at offset {found_offset}, sent was {body:?} at {offset}",
                String::from_utf8_lossy(found_body)
            ));
        }
    }
    Ok(found.len())
}

fn pull(node: &Node, topic: &str, queue: i32, from: i64) -> Result<Vec<(i64, Vec<u8>)>, String> {
    let fields = pull_fields("ClusterCheck", topic, queue, from, 32);
    let frame = Client::connect(&node.address(), TIMEOUT)
        .and_then(|mut client| client.ask(request::PULL_MESSAGE, &fields, &[]))
        .map_err(|e| e.to_string())?;
    if frame.header.code != response::SUCCESS {
        let remark = frame.header.remark.as_ref().map_or("", |r| r.as_str());
        return Err(format!(
            "queue {queue} offset {from}: code {} {remark}",
            frame.header.code
        ));
    }
    let mut found = Vec::new();
    for record in records(&frame.body) {
        let record = record.map_err(|e| e.to_string())?;
        found.push((record.queue_offset(), record.body().to_vec()));
    }
    if found.is_empty() {
        return Err(format!("queue {queue} offset {from}: an empty answer"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exactly_what_was_sent_compares_well() {
        let (a, b) = ("a".to_string(), "b".to_string());
        let wanted = [(0, &a), (1, &b)];
        let found = |offset, body: &str| (offset, body.as_bytes().to_vec());
        assert_eq!(compare(0, &wanted, &[found(0, "a")]), Ok(1));
        assert_eq!(compare(0, &wanted, &[found(0, "a"), found(1, "b")]), Ok(2));
        assert_eq!(
            compare(3, &wanted, &[found(0, "a"), found(1, "x")]),
            Err("queue 3 has \"x\" at offset 1, sent was \"b\" at 1".to_string())
        );
        assert!(compare(0, &wanted, &[found(1, "b")]).is_err());
        let more = [found(0, "a"), found(1, "b"), found(2, "c")];
        assert_eq!(
            compare(0, &wanted, &more),
            Err("queue 0 holds 1 messages that nobody sent".to_string())
        );
    }

    #[test]
    fn nodes_agree_only_when_all_follow_one_leader_and_are_ready() {
        let figures = |leader, term, ready| Figures {
            leader,
            term,
            ready,
            ..Figures::default()
        };
        assert!(agree(&[
            figures(Some(1), 2, true),
            figures(Some(1), 2, true)
        ]));
        assert!(!agree(&[
            figures(Some(1), 2, true),
            figures(Some(1), 2, false)
        ]));
        assert!(!agree(&[
            figures(Some(1), 2, true),
            figures(Some(2), 2, true)
        ]));
        assert!(!agree(&[
            figures(Some(1), 2, true),
            figures(Some(1), 3, true)
        ]));
        assert!(!agree(&[figures(None, 2, true)]));
    }
}
