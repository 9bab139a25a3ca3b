//! What a name server answers, read leniently: routes (105) and the brokers of a cluster (106).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;

use super::CliError;
use super::client::{Client, ClientError};
use crate::protocol::codes::request;

/// One broker name of a route, with the queues it offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Routed {
    pub broker: String,
    /// Address of the broker with id 0: it takes writes.
    pub master: Option<String>,
    pub read_queues: u32,
    pub write_queues: u32,
    pub writable: bool,
}

/// A route of a topic, sorted by broker name. Names without queues to read (write fronts) come last.
pub(crate) fn topic_route(client: &mut Client, topic: &str) -> Result<Vec<Routed>, ClientError> {
    let fields = [
        ("topic", topic.to_string()),
        ("acceptStandardJsonOnly", "true".to_string()),
    ];
    let frame = client.call(request::GET_ROUTEINFO_BY_TOPIC, &fields, &[])?;
    Ok(parse_route(&frame.body))
}

/// Addresses of all nodes that a name server knows, sorted.
pub(crate) fn cluster_addresses(
    namesrv: &str,
    timeout: Duration,
) -> Result<BTreeSet<String>, CliError> {
    let ask = || -> Result<BTreeSet<String>, ClientError> {
        let mut client = Client::connect(namesrv, timeout)?;
        let frame = client.call(request::GET_BROKER_CLUSTER_INFO, &[], &[])?;
        Ok(parse_cluster(&frame.body))
    };
    ask().map_err(|error| {
        CliError::new(format!(
            "name server {error}. Check --namesrv (namesrvListenPort of a node), or name the nodes with --broker"
        ))
    })
}

/// Addresses of the brokers with id 0 that a name server knows, sorted.
pub(crate) fn masters(client: &mut Client) -> Result<BTreeSet<String>, ClientError> {
    let frame = client.call(request::GET_BROKER_CLUSTER_INFO, &[], &[])?;
    let info: ClusterInfo = read_json(&frame.body).unwrap_or_default();
    Ok(info
        .brokers
        .into_values()
        .filter_map(|mut broker| broker.addresses.remove("0"))
        .collect())
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RouteBody {
    broker_datas: Vec<BrokerData>,
    queue_datas: Vec<QueueData>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct QueueData {
    broker_name: String,
    read_queue_nums: u32,
    write_queue_nums: u32,
    perm: u32,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct BrokerData {
    broker_name: String,
    #[serde(rename = "brokerAddrs")]
    addresses: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ClusterInfo {
    #[serde(rename = "brokerAddrTable")]
    brokers: BTreeMap<String, BrokerData>,
}

fn parse_route(body: &[u8]) -> Vec<Routed> {
    let route: RouteBody = read_json(body).unwrap_or_default();
    let mut routed: Vec<Routed> = route
        .queue_datas
        .into_iter()
        .map(|queues| Routed {
            master: route
                .broker_datas
                .iter()
                .find(|b| b.broker_name == queues.broker_name)
                .and_then(|b| b.addresses.get("0").cloned()),
            broker: queues.broker_name,
            // A write front may name a queue, but nobody may read it.
            read_queues: match queues.perm & 4 {
                0 => 0,
                _ => queues.read_queue_nums,
            },
            write_queues: queues.write_queue_nums,
            writable: queues.perm & 2 != 0,
        })
        .collect();
    routed.sort_by(|a, b| (a.read_queues == 0, &a.broker).cmp(&(b.read_queues == 0, &b.broker)));
    routed
}

fn parse_cluster(body: &[u8]) -> BTreeSet<String> {
    let info: ClusterInfo = read_json(body).unwrap_or_default();
    info.brokers
        .into_values()
        .flat_map(|broker| broker.addresses.into_values())
        .collect()
}

/// Reads JSON whose object keys may be bare numbers, as RocketMQ's name server writes them.
fn read_json<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Option<T> {
    serde_json::from_slice(body)
        .or_else(|_| serde_json::from_slice(&quote_keys(body)))
        .ok()
}

/// Puts quotes around bare number keys.
fn quote_keys(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 16);
    let (mut in_text, mut escaped, mut key_may_follow) = (false, false, false);
    let mut at = 0;
    while let Some(&byte) = body.get(at) {
        let digits = body[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        if !in_text && key_may_follow && digits > 0 && body.get(at + digits) == Some(&b':') {
            out.push(b'"');
            out.extend_from_slice(&body[at..at + digits]);
            out.push(b'"');
            at += digits;
            key_may_follow = false;
            continue;
        }
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ => {}
        }
        if !in_text && !byte.is_ascii_whitespace() {
            key_may_follow = matches!(byte, b'{' | b',');
        }
        out.push(byte);
        at += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE: &str = r#"{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",12:"10.0.0.2:10911"},"brokerName":"b","cluster":"c"},{"brokerAddrs":{"0":"10.0.0.1:10912"},"brokerName":"a-front","cluster":"c"}],"filterServerTable":{},"queueDatas":[{"brokerName":"a-front","perm":2,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1},{"brokerName":"b","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":8}]}"#;

    #[test]
    fn a_route_with_bare_number_keys_is_read_and_write_fronts_come_last() {
        assert_eq!(
            parse_route(ROUTE.as_bytes()),
            [
                Routed {
                    broker: "b".into(),
                    master: Some("10.0.0.1:10911".into()),
                    read_queues: 4,
                    write_queues: 8,
                    writable: true,
                },
                Routed {
                    broker: "a-front".into(),
                    master: Some("10.0.0.1:10912".into()),
                    read_queues: 0,
                    write_queues: 1,
                    writable: true,
                },
            ]
        );
    }

    #[test]
    fn cluster_info_gives_all_addresses() {
        let body = br#"{"brokerAddrTable":{"b":{"brokerAddrs":{1:"h:2",0:"h:1"},"brokerName":"b"}},"clusterAddrTable":{"c":["b"]}}"#;
        assert_eq!(
            parse_cluster(body),
            BTreeSet::from(["h:1".to_string(), "h:2".to_string()])
        );
        assert!(parse_cluster(b"{]").is_empty());
    }

    #[test]
    fn only_keys_are_quoted() {
        let quoted = quote_keys(br#"{"a{1:":[1,2,{3:4}], 5:"x\",6:"}"#);
        assert_eq!(
            String::from_utf8(quoted).unwrap(),
            r#"{"a{1:":[1,2,{"3":4}], "5":"x\",6:"}"#
        );
    }
}
