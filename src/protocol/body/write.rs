//! Writing the bodies of replies. Compact, because one client cuts them at commas and colons; members in
//! RocketMQ's (alphabetical) order.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{MessageQueue, RouteBroker};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BrokerData<'a> {
    broker_addrs: &'a BTreeMap<u64, String>,
    broker_name: &'a str,
    cluster: &'a str,
    enable_acting_master: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueData<'a> {
    broker_name: &'a str,
    perm: i32,
    read_queue_nums: i32,
    topic_sys_flag: i32,
    write_queue_nums: i32,
}

/// A map that is always empty.
#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Route<'a> {
    broker_datas: Vec<BrokerData<'a>>,
    filter_server_table: Empty,
    queue_datas: Vec<QueueData<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Cluster<'a> {
    broker_addr_table: BTreeMap<&'a str, BrokerData<'a>>,
    cluster_addr_table: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

#[derive(Serialize)]
struct LockedQueues<'a> {
    #[serde(rename = "lockOKMQSet")]
    queues: &'a [MessageQueue],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConsumerIds<'a> {
    consumer_id_list: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TopicList<'a> {
    topic_list: &'a [String],
}

#[derive(Serialize)]
struct Table<'a> {
    table: &'a BTreeMap<String, String>,
}

fn json(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("texts, numbers and maps with such keys can be written")
}

/// Body of a reply to 41.
pub fn locked_queues(queues: &[MessageQueue]) -> Vec<u8> {
    json(&LockedQueues { queues })
}

/// Body of a reply to 38.
pub fn consumer_ids(ids: &[String]) -> Vec<u8> {
    json(&ConsumerIds {
        consumer_id_list: ids,
    })
}

/// Body of a reply to 105: compact, keys quoted, names sorted.
pub fn topic_route(brokers: &[RouteBroker]) -> Vec<u8> {
    let mut sorted: Vec<&RouteBroker> = brokers.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    json(&Route {
        broker_datas: sorted.iter().map(|broker| broker_data(broker)).collect(),
        filter_server_table: Empty {},
        queue_datas: sorted
            .iter()
            .map(|broker| QueueData {
                broker_name: &broker.name,
                perm: broker.perm,
                read_queue_nums: broker.read_queue_nums,
                topic_sys_flag: broker.topic_sys_flag,
                write_queue_nums: broker.write_queue_nums,
            })
            .collect(),
    })
}

/// Body of a reply to 106 (`brokerAddrTable`, `clusterAddrTable`).
pub fn cluster_info(brokers: &[RouteBroker]) -> Vec<u8> {
    let mut cluster_addr_table: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for broker in brokers {
        let names = cluster_addr_table.entry(&broker.cluster).or_default();
        names.insert(&broker.name);
    }
    json(&Cluster {
        broker_addr_table: brokers
            .iter()
            .map(|broker| (broker.name.as_str(), broker_data(broker)))
            .collect(),
        cluster_addr_table,
    })
}

/// Body of a reply to 206.
pub fn topic_list(topics: &[String]) -> Vec<u8> {
    json(&TopicList { topic_list: topics })
}

/// Body of a reply to 28: all values are texts.
pub fn runtime_info(table: &BTreeMap<String, String>) -> Vec<u8> {
    json(&Table { table })
}

fn broker_data(broker: &RouteBroker) -> BrokerData<'_> {
    BrokerData {
        broker_addrs: &broker.addresses,
        broker_name: &broker.name,
        cluster: &broker.cluster,
        enable_acting_master: false,
    }
}
