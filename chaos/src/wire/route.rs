//! The route of a topic (105): which brokers have it, at which addresses, with how many queues.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::code;
use super::connection::{Connection, WireError};
use super::frame::Frame;

/// Where a topic lives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    pub broker_datas: Vec<BrokerData>,
    pub queue_datas: Vec<QueueData>,
}

/// One broker name and the nodes behind it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BrokerData {
    pub cluster: String,
    pub broker_name: String,
    /// Broker id to `host:port`; 0 is the leader.
    pub broker_addrs: BTreeMap<i64, String>,
}

/// Queues of the topic on one broker name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueData {
    pub broker_name: String,
    pub read_queue_nums: i32,
    pub write_queue_nums: i32,
    pub perm: i32,
    #[serde(default)]
    pub topic_sys_flag: i32,
}

impl Route {
    pub fn broker(&self, name: &str) -> Option<&BrokerData> {
        self.broker_datas
            .iter()
            .find(|data| data.broker_name == name)
    }

    pub fn queues(&self, name: &str) -> Option<&QueueData> {
        self.queue_datas
            .iter()
            .find(|data| data.broker_name == name)
    }
}

impl Connection {
    /// The topic's route, from a name server.
    pub async fn route(&self, topic: &str) -> Result<Route, WireError> {
        let request = Frame::request(code::ROUTE)
            .with("topic", topic)
            .with("acceptStandardJsonOnly", true);
        let reply = self.call(request).await?;
        serde_json::from_slice(&reply.body)
            .map_err(|error| WireError::Malformed(format!("route: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routes_text_parses() {
        let text = r#"{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}"#;
        let route: Route = serde_json::from_str(text).unwrap();
        assert_eq!(
            route.broker("broker-a").unwrap().broker_addrs[&0],
            "10.0.0.1:10911"
        );
        assert_eq!(route.queues("broker-a").unwrap().write_queue_nums, 4);
        assert_eq!(route.broker("other"), None);
    }
}
