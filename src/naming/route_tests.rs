//! Routes in text form: one line for each broker name.

use std::time::Duration;

use quorumlog_raft::Role;

use super::*;
use crate::config::GroupKeys;

fn config() -> Config {
    let ids = 1..=3u64;
    Config {
        cluster: "DefaultCluster".into(),
        broker_name: "b".into(),
        broker_ip: [10, 0, 0, 1].into(),
        listen_port: 30911,
        front_port: 30912,
        namesrv_port: 9876,
        dir: "store".into(),
        group: GroupKeys {
            name: "b".into(),
            node: 1,
            names: ids.clone().map(|id| (id, format!("n{}", id - 1))).collect(),
            peers: ids.map(|id| (id, format!("10.0.0.{id}:40911"))).collect(),
        },
        sync_flush: true,
        flush_interval: Duration::from_millis(500),
        segment_bytes: 64 << 20,
        heartbeat: Duration::from_millis(50),
        election_min: Duration::from_millis(150),
        election_max: Duration::from_millis(300),
        disk_reserve: 0,
        write_fronts: true,
        write_hold: Duration::from_secs(1),
        deduplicate: true,
        slave_read: false,
        auto_create_topic: true,
        auto_create_group: true,
        default_topic_queues: 8,
        message_bytes_max: 4 << 20,
        delay_levels: Vec::new(),
        warnings: Vec::new(),
    }
}

fn nodes(slave_read: bool) -> BTreeMap<NodeId, NodeInfo> {
    let node = |node: u64| NodeInfo {
        node,
        address: format!("10.0.0.{node}:30911"),
        front_address: format!("10.0.0.{node}:30912"),
        namesrv_address: format!("10.0.0.{node}:9876"),
        slave_read,
    };
    (1..=3).map(|id| (id, node(id))).collect()
}

fn view(node: NodeId, leader: Option<NodeId>, last_leader: Option<NodeId>) -> View {
    View {
        node,
        role: if leader == Some(node) {
            Role::Leader
        } else {
            Role::Follower
        },
        term: 1,
        leader,
        last_leader,
        ready: true,
        voters: vec![3, 1, 2],
    }
}

fn topic(name: &str, perm: u32) -> TopicConfig {
    TopicConfig {
        name: name.into(),
        read_queues: 4,
        write_queues: 2,
        perm,
        sys_flag: 0,
        order: false,
        attributes: String::new(),
    }
}

/// `name r<queues to read>w<queues to write>p<perm> id=address ...`
fn text(route: Option<TopicRoute>) -> String {
    let Some(TopicRoute(brokers)) = route else {
        return "no route".into();
    };
    let line = |broker: &RouteBroker| {
        let addresses = broker.addresses.iter();
        let addresses: Vec<String> = addresses.map(|(id, at)| format!("{id}={at}")).collect();
        format!(
            "{} r{}w{}p{} {}",
            broker.name,
            broker.read_queue_nums,
            broker.write_queue_nums,
            broker.perm,
            addresses.join(" ")
        )
    };
    brokers.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn route(config: &Config, view: &View, nodes: &BTreeMap<NodeId, NodeInfo>, name: &str) -> String {
    let scene = Scene {
        config,
        view,
        nodes,
    };
    text(scene.topic(name, Some(&topic(name, 6)), false))
}

const FRONTS: &str = "b-front-n0 r1w1p2 0=10.0.0.1:30912\n\
                      b-front-n1 r1w1p2 0=10.0.0.2:30912\n\
                      b-front-n2 r1w1p2 0=10.0.0.3:30912";

#[test]
fn a_failover_moves_one_address_and_no_name() {
    let config = config();
    let nodes = nodes(false);
    let at = |leader: u64| format!("b r4w2p6 0=10.0.0.{leader}:30911\n{FRONTS}");
    for node in 1..=3 {
        let steps = [
            ("before", view(node, Some(1), Some(1)), at(1)),
            ("during", view(node, None, Some(1)), at(1)),
            ("after", view(node, Some(3), Some(3)), at(3)),
        ];
        for (when, view, wanted) in steps {
            assert_eq!(
                route(&config, &view, &nodes, "t"),
                wanted,
                "{when} on node {node}"
            );
        }
    }
}

#[test]
fn before_any_leader_is_known_a_node_names_itself() {
    let config = config();
    let got = route(&config, &view(2, None, None), &nodes(false), "t");
    assert_eq!(got, format!("b r4w2p6 0=10.0.0.2:30911\n{FRONTS}"));
}

#[test]
fn before_raft_knows_its_voters_the_configured_ones_count() {
    let config = config();
    let mut early = view(2, None, None);
    early.voters.clear();
    let got = route(&config, &early, &nodes(false), "t");
    assert_eq!(got, format!("b r4w2p6 0=10.0.0.2:30911\n{FRONTS}"));
}

#[test]
fn followers_are_named_when_they_serve_pulls() {
    let config = config();
    let got = route(&config, &view(1, Some(2), Some(2)), &nodes(true), "t");
    let group = "b r4w2p6 0=10.0.0.2:30911 1=10.0.0.1:30911 3=10.0.0.3:30911";
    assert_eq!(got, format!("{group}\n{FRONTS}"));
}

#[test]
fn a_leader_without_an_address_is_not_named() {
    let config = config();
    let mut known = nodes(false);
    known.remove(&3);
    let got = route(&config, &view(1, Some(3), Some(1)), &known, "t");
    assert!(got.starts_with("b r4w2p6 0=10.0.0.1:30911\n"), "{got}");
    let nobody = BTreeMap::new();
    assert_eq!(
        route(&config, &view(1, Some(1), None), &nobody, "t"),
        "no route"
    );
}

#[test]
fn only_what_ordinary_producers_write_to_has_fronts() {
    let config = config();
    let (view, nodes) = (view(1, Some(1), Some(1)), nodes(false));
    let scene = Scene {
        config: &config,
        view: &view,
        nodes: &nodes,
    };
    let lines = |name: &str, perm| {
        let route = scene.topic(name, Some(&topic(name, perm)), false);
        text(route).lines().count()
    };
    assert_eq!(lines("t", 6), 4);
    assert_eq!(lines("t", 2), 4);
    assert_eq!(lines("t", 4), 1, "not writable");
    assert_eq!(lines("TBW102", 7), 4, "what topics are made from");
    for name in [
        "%RETRY%g",
        "%DLQ%g",
        "SCHEDULE_TOPIC_XXXX",
        "rmq_sys_anything",
        "DefaultCluster",
        "DefaultCluster_REPLY_TOPIC",
        "b",
    ] {
        assert_eq!(lines(name, 6), 1, "{name}");
    }
}

#[test]
fn fronts_can_be_turned_off_and_a_single_broker_has_none() {
    let mut off = config();
    off.write_fronts = false;
    let view = view(1, Some(1), Some(1));
    let group = "b r4w2p6 0=10.0.0.1:30911";
    assert_eq!(route(&off, &view, &nodes(false), "t"), group);
    let single = View {
        voters: vec![1],
        ..view
    };
    assert_eq!(route(&config(), &single, &nodes(false), "t"), group);
}

#[test]
fn what_is_about_to_be_has_a_route() {
    let (view, nodes) = (view(1, Some(1), Some(1)), nodes(false));
    let unknown = |config: &Config, name: &str, group_known| {
        let scene = Scene {
            config,
            view: &view,
            nodes: &nodes,
        };
        text(scene.topic(name, None, group_known))
    };
    let on = config();
    let mut off = config();
    off.auto_create_group = false;
    off.auto_create_topic = false;
    let one_queue = "b r1w1p6 0=10.0.0.1:30911";
    assert_eq!(unknown(&on, "%RETRY%new", false), one_queue);
    assert_eq!(unknown(&off, "%RETRY%new", false), "no route");
    assert_eq!(
        unknown(&off, "%RETRY%new", true),
        one_queue,
        "its group exists"
    );
    assert_eq!(unknown(&on, "%RETRY%bad group!", false), "no route");
    assert_eq!(unknown(&on, "%RETRY%", false), "no route");
    assert_eq!(unknown(&on, "%DLQ%new", false), "no route");
    let template = unknown(&on, "TBW102", false);
    let first = template.lines().next();
    assert_eq!(first, Some("b r8w8p7 0=10.0.0.1:30911"));
    assert_eq!(unknown(&off, "TBW102", false), "no route");
    assert_eq!(unknown(&on, "absent", false), "no route");
    assert_eq!(
        route(&off, &view, &nodes, "TBW102"),
        "no route",
        "turned off later"
    );
}

#[test]
fn a_route_reads_as_clients_read_it() {
    let config = config();
    let (view, nodes) = (view(1, Some(2), Some(2)), nodes(false));
    let scene = Scene {
        config: &config,
        view: &view,
        nodes: &nodes,
    };
    let TopicRoute(brokers) = scene.topic("t", Some(&topic("t", 4)), false).unwrap();
    let body = crate::protocol::body::topic_route(&brokers);
    assert_eq!(
        String::from_utf8(body).unwrap(),
        "{\"brokerDatas\":[{\"brokerAddrs\":{\"0\":\"10.0.0.2:30911\"},\"brokerName\":\"b\",\
         \"cluster\":\"DefaultCluster\",\"enableActingMaster\":false}],\"filterServerTable\":{},\
         \"queueDatas\":[{\"brokerName\":\"b\",\"perm\":4,\"readQueueNums\":4,\"topicSysFlag\":0,\
         \"writeQueueNums\":2}]}"
    );
    let cluster = crate::protocol::body::cluster_info(scene.group().as_slice());
    assert!(!String::from_utf8(cluster).unwrap().contains("front"));
}
