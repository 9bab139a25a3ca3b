//! A whole node with one voter, spoken to through its doors: what consumers do, from the first heartbeat to
//! the closed connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use quorumlog_raft::env::Env;
use quorumlog_raft::group::{FlushMode, Timers};
use quorumlog_raft::{GroupConfig as RaftConfig, LogReader};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::*;
use crate::config::GroupKeys;
use crate::net::server::{Door, serve};
use crate::protocol::codes::request as code;
use crate::protocol::frame::encode_request;
use crate::protocol::header::Ext;
use crate::protocol::message::records;
use crate::store::StoreOptions;

/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

fn config(dir: &std::path::Path) -> Config {
    let text = format!("brokerIP1=127.0.0.1\nstorePathRootDir={}\n", dir.display());
    let mut config = Config::parse(&text, "test.conf").unwrap();
    config.broker_name = "b".into();
    config.disk_reserve = 0;
    config.group = GroupKeys {
        name: "b".into(),
        node: 1,
        names: BTreeMap::from([(1, "n0".into())]),
        peers: BTreeMap::from([(1, "127.0.0.1:1".into())]),
    };
    config
}

struct Node {
    broker: Arc<Broker>,
    door: SocketAddr,
    naming: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Node {
    async fn start() -> Node {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let holds = Arc::new(hold::Holds::default());
        let slot = forward::ServiceSlot::default();
        let raft = RaftConfig {
            group: "b".into(),
            node: 1,
            peers: config.group.peers.clone(),
            listen: "127.0.0.1:0".into(),
            dir: config.dir.clone(),
            segment_bytes: 1 << 20,
            flush: FlushMode::Sync,
            timers: Timers::default(),
            disk_reserve: 0,
            cache_bytes: 1 << 20,
            accept_empty: false,
        };
        let env = Env::real();
        let options = StoreOptions {
            dir: config.dir.clone(),
            env: env.clone(),
        };
        let (opened, store) = std::sync::mpsc::sync_channel(1);
        let arrivals = holds.clone();
        let open = move |log: LogReader| -> Result<_, String> {
            let (store, machine) = Store::open(options, log).map_err(|e| e.to_string())?;
            store.watch_arrivals(arrivals);
            opened.send(store).unwrap();
            Ok(machine)
        };
        let service = Arc::new(slot.clone());
        let group = Group::start_over(raft, env, open, service).await.unwrap();
        let broker = Broker::start(config, group, store.recv().unwrap(), holds);
        slot.set(&broker);
        let door = open_door(&broker, Door::Broker).await;
        let naming = open_door(&broker, Door::NameServer).await;
        let node = Node {
            broker,
            door,
            naming,
            _dir: dir,
        };
        until("it leads", || {
            node.broker.leads() && node.broker.group.lease_read().is_ok()
        })
        .await;
        node
    }

    async fn client(&self) -> Client {
        Client::connect(self.door).await
    }
}

async fn open_door(broker: &Arc<Broker>, door: Door) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, door, broker.clone()));
    address
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, wait)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

struct Client {
    stream: TcpStream,
    buffer: BytesMut,
    opaque: i32,
    /// Groups that the node said had changed.
    told: Vec<String>,
}

impl Client {
    async fn connect(to: SocketAddr) -> Client {
        Client {
            stream: TcpStream::connect(to).await.unwrap(),
            buffer: BytesMut::new(),
            opaque: 0,
            told: Vec::new(),
        }
    }

    async fn ask(&mut self, code: i32, fields: &[(&str, &str)], body: &str) -> i32 {
        let mut ext = Ext::new();
        for (name, value) in fields {
            ext.push(name, value);
        }
        self.opaque += 1;
        let mut frame = BytesMut::new();
        encode_request(code, self.opaque, 0, &ext, body.as_bytes(), &mut frame);
        self.stream.write_all(&frame).await.unwrap();
        self.opaque
    }

    async fn frame(&mut self) -> Frame {
        let read = async {
            loop {
                if let Some(frame) = Frame::decode(&mut self.buffer).unwrap() {
                    return frame;
                }
                assert!(self.stream.read_buf(&mut self.buffer).await.unwrap() > 0);
            }
        };
        timeout(PATIENCE, read).await.expect("a frame")
    }

    async fn answer(&mut self, opaque: i32) -> Frame {
        loop {
            let frame = self.frame().await;
            if frame.header.is_response() {
                assert_eq!(frame.header.opaque, opaque);
                return frame;
            }
            self.note(&frame);
        }
    }

    fn note(&mut self, push: &Frame) {
        assert_eq!(push.header.code, code::NOTIFY_CONSUMER_IDS_CHANGED);
        assert!(push.header.is_oneway());
        let group = push.header.ext.text("consumerGroup").unwrap();
        self.told.push(group.to_string());
    }

    async fn call(&mut self, code: i32, fields: &[(&str, &str)], body: &str) -> Frame {
        let opaque = self.ask(code, fields, body).await;
        self.answer(opaque).await
    }

    async fn heartbeat(&mut self, client: &str, topic: &str, tags: &str) {
        let body = format!(
            "{{\"clientID\":\"{client}\",\"consumerDataSet\":[{{\"groupName\":\"g\",\
             \"messageModel\":1,\"consumeType\":1,\"consumeFromWhere\":0,\
             \"subscriptionDataSet\":[{{\"topic\":\"{topic}\",\"subString\":\"{tags}\",\
             \"subVersion\":\"5\"}}]}}]}}"
        );
        let reply = self.call(code::HEART_BEAT, &[], &body).await;
        assert_eq!(reply.header.code, 0, "{:?}", reply.header.remark);
    }

    async fn send(&mut self, topic: &str, tag: &str) {
        let properties = format!("TAGS\u{1}{tag}\u{2}");
        let fields = [
            ("producerGroup", "pg"),
            ("topic", topic),
            ("defaultTopic", "TBW102"),
            ("defaultTopicQueueNums", "4"),
            ("queueId", "0"),
            ("sysFlag", "0"),
            ("bornTimestamp", "1700000000000"),
            ("flag", "0"),
            ("properties", &properties),
            ("reconsumeTimes", "0"),
        ];
        let reply = self.call(code::SEND_MESSAGE, &fields, "body").await;
        assert_eq!(reply.header.code, 0, "{:?}", reply.header.remark);
    }

    async fn topic(&mut self, name: &str) {
        let fields = [
            ("topic", name),
            ("readQueueNums", "2"),
            ("writeQueueNums", "2"),
            ("perm", "6"),
            ("topicFilterType", "SINGLE_TAG"),
        ];
        let reply = self.call(code::UPDATE_AND_CREATE_TOPIC, &fields, "").await;
        assert_eq!(reply.header.code, 0, "{:?}", reply.header.remark);
    }

    async fn offset(&mut self, code: i32, fields: &[(&str, &str)]) -> (i32, Option<i64>) {
        let mut all = vec![("topic", "t"), ("queueId", "0"), ("consumerGroup", "g")];
        all.extend(fields);
        let reply = self.call(code, &all, "").await;
        let offset = reply.header.ext.i64("offset").unwrap();
        (reply.header.code, offset)
    }
}

/// A pull of group `g` on queue 0 of topic `t`, as a Java push consumer sends it.
fn pull<'a>(offset: &'a str, sys_flag: &'a str, version: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("consumerGroup", "g"),
        ("topic", "t"),
        ("queueId", "0"),
        ("queueOffset", offset),
        ("maxMsgNums", "32"),
        ("sysFlag", sys_flag),
        ("commitOffset", offset),
        ("suspendTimeoutMillis", "15000"),
        ("subVersion", version),
        ("expressionType", "TAG"),
    ]
}

/// Code, `nextBeginOffset` and the queue offsets of the records.
fn pulled(frame: &Frame) -> (i32, i64, Vec<i64>) {
    let next = frame.header.ext.i64("nextBeginOffset").unwrap();
    let records = records(&frame.body);
    let offsets = records
        .iter()
        .map(|record| record.as_ref().unwrap().queue_offset());
    (frame.header.code, next.unwrap_or(-1), offsets.collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_joins_pulls_waits_commits_and_leaves() {
    let node = Node::start().await;
    let mut consumer = node.client().await;
    let mut producer = node.client().await;
    producer.topic("t").await;

    // Joining makes the group and its retry topic, before the reply.
    let fresh = consumer
        .call(code::PULL_MESSAGE, &pull("0", "0", "0"), "")
        .await;
    assert_eq!(fresh.header.code, 24, "{:?}", fresh.header.remark);
    consumer.heartbeat("c1", "t", "A").await;
    assert_eq!(consumer.told, ["g"]);
    assert!(node.broker.store.topic("%RETRY%g").is_some());
    consumer.heartbeat("c1", "t", "A").await;
    assert_eq!(consumer.told.len(), 1, "nothing changed");
    let list = [("consumerGroup", "g")];
    let members = consumer
        .call(code::GET_CONSUMER_LIST_BY_GROUP, &list, "")
        .await;
    assert_eq!(&members.body[..], b"{\"consumerIdList\":[\"c1\"]}");

    // What the heartbeat subscribed to is what a pull without the bit gets.
    assert_eq!(
        consumer.offset(code::QUERY_CONSUMER_OFFSET, &[]).await,
        (22, None)
    );
    for tag in ["A", "B", "A", "B"] {
        producer.send("t", tag).await;
    }
    assert_eq!(
        consumer.offset(code::QUERY_CONSUMER_OFFSET, &[]).await,
        (0, Some(0))
    );
    let found = consumer
        .call(code::PULL_MESSAGE, &pull("0", "0", "5"), "")
        .await;
    assert_eq!(pulled(&found), (0, 4, vec![0, 2]));
    let none = consumer
        .call(code::PULL_MESSAGE, &pull("3", "0", "5"), "")
        .await;
    assert_eq!(pulled(&none), (20, 4, Vec::new()));
    let newer = consumer
        .call(code::PULL_MESSAGE, &pull("0", "0", "6"), "")
        .await;
    assert_eq!(newer.header.code, 25);
    let behind = consumer
        .call(code::PULL_MESSAGE, &pull("9", "2", "5"), "")
        .await;
    assert_eq!(pulled(&behind), (21, 4, Vec::new()));

    // A held pull is woken by what it waits for, and by nothing else; others go on meanwhile.
    let held = consumer
        .ask(code::PULL_MESSAGE, &pull("4", "2", "5"), "")
        .await;
    until("it is held", || node.broker.holds.len() == 1).await;
    producer.send("t", "B").await;
    producer.send("t", "A").await;
    let woken = consumer.answer(held).await;
    assert_eq!(pulled(&woken), (0, 6, vec![5]));

    // Progress: by 15, by a pull.
    let commit = [("commitOffset", "2")];
    assert_eq!(
        consumer.offset(code::UPDATE_CONSUMER_OFFSET, &commit).await,
        (0, None)
    );
    assert_eq!(
        consumer.offset(code::QUERY_CONSUMER_OFFSET, &[]).await,
        (0, Some(2))
    );
    let again = consumer
        .call(code::PULL_MESSAGE, &pull("4", "1", "5"), "")
        .await;
    assert_eq!(pulled(&again), (0, 6, vec![5]));
    until("the pull's offset is stored", || {
        node.broker.store.consumer_offset("g", "t", 0) == Some(4)
    })
    .await;

    // The last one leaves by closing: its held pull goes with it.
    consumer
        .ask(code::PULL_MESSAGE, &pull("6", "2", "5"), "")
        .await;
    until("it is held", || node.broker.holds.len() == 1).await;
    drop(consumer);
    until("it is gone", || node.broker.holds.is_empty()).await;
    until("it has left", || {
        node.broker.clients.members("g").is_empty()
    })
    .await;
    let nobody = producer
        .call(code::GET_CONSUMER_LIST_BY_GROUP, &list, "")
        .await;
    assert_eq!(nobody.header.code, 1);
    node.broker.group.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_hear_of_each_other_and_share_the_queues() {
    let node = Node::start().await;
    let (mut one, mut two) = (node.client().await, node.client().await);
    one.topic("t").await;
    one.heartbeat("c1", "t", "*").await;
    two.heartbeat("c2", "t", "*").await;
    assert_eq!(two.told, ["g"]);
    let push = one.frame().await;
    one.note(&push);
    assert_eq!(one.told, ["g", "g"], "joined, and was joined");

    let queues = |client: &str| {
        format!(
            "{{\"clientId\":\"{client}\",\"consumerGroup\":\"g\",\"mqSet\":[\
             {{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"t\"}},\
             {{\"brokerName\":\"b\",\"queueId\":7,\"topic\":\"t\"}}]}}"
        )
    };
    let locked = one.call(code::LOCK_BATCH_MQ, &[], &queues("c1")).await;
    let mine = b"{\"lockOKMQSet\":[{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"t\"}]}";
    assert_eq!(&locked.body[..], mine, "the queue that there is");
    let locked = two.call(code::LOCK_BATCH_MQ, &[], &queues("c2")).await;
    assert_eq!(&locked.body[..], b"{\"lockOKMQSet\":[]}");
    one.call(code::UNLOCK_BATCH_MQ, &[], &queues("c1")).await;
    let locked = two.call(code::LOCK_BATCH_MQ, &[], &queues("c2")).await;
    assert_eq!(&locked.body[..], mine);

    let leave = [
        ("clientID", "c2"),
        ("producerGroup", ""),
        ("consumerGroup", "g"),
    ];
    assert_eq!(
        two.call(code::UNREGISTER_CLIENT, &leave, "")
            .await
            .header
            .code,
        0
    );
    let push = one.frame().await;
    one.note(&push);
    two.heartbeat("c2", "t", "*").await;
    let push = one.frame().await;
    one.note(&push);
    drop(two);
    let push = one.frame().await;
    one.note(&push);
    assert_eq!(one.told.len(), 5);
    assert_eq!(node.broker.clients.members("g"), ["c1"]);
    node.broker.group.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_ends_times_and_routes_are_told() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.topic("t").await;
    for code in [code::GET_MAX_OFFSET, code::GET_MIN_OFFSET] {
        assert_eq!(
            client.offset(code, &[]).await,
            (0, Some(0)),
            "{code} of an empty queue"
        );
    }
    for tag in ["A", "B", "C"] {
        client.send("t", tag).await;
    }
    assert_eq!(client.offset(code::GET_MAX_OFFSET, &[]).await, (0, Some(3)));
    assert_eq!(client.offset(code::GET_MIN_OFFSET, &[]).await, (0, Some(0)));
    let search = code::SEARCH_OFFSET_BY_TIMESTAMP;
    let late = ("timestamp", "4000000000000");
    assert_eq!(
        client.offset(search, &[("timestamp", "0")]).await,
        (0, Some(0))
    );
    assert_eq!(client.offset(search, &[late]).await, (0, Some(3)));
    let upper = [late, ("boundaryType", "UPPER")];
    assert_eq!(client.offset(search, &upper).await, (0, Some(2)));
    assert_eq!(client.offset(search, &[]).await.0, 1, "no timestamp");
    let queue = [("topic", "t"), ("queueId", "0")];
    let earliest = client
        .call(code::GET_EARLIEST_MSG_STORETIME, &queue, "")
        .await;
    let time = earliest.header.ext.required_i64("timestamp").unwrap();
    let now = Env::real().clock.wall_ms();
    assert!((now - time).abs() < 60_000, "{time}");
    let unknown = code::UPDATE_CONSUMER_OFFSET;
    assert_eq!(client.offset(unknown, &[("commitOffset", "1")]).await.0, 26);

    let mut naming = Client::connect(node.naming).await;
    let mut route = async |topic: &str| {
        let reply = naming
            .call(code::GET_ROUTEINFO_BY_TOPIC, &[("topic", topic)], "")
            .await;
        let body = String::from_utf8(reply.body.to_vec()).unwrap();
        (reply.header.code, body)
    };
    let (code, body) = route("t").await;
    assert_eq!(code, 0);
    let port = node.broker.config.listen_port;
    assert!(
        body.contains(&format!("{{\"0\":\"127.0.0.1:{port}\"}}")),
        "{body}"
    );
    assert_eq!(route("%RETRY%not-yet").await.0, 0);
    assert_eq!(route("TBW102").await.0, 0);
    assert_eq!(route("absent").await.0, 17);
    let unknown = naming.call(100, &[], "").await;
    assert_eq!(unknown.header.code, 3);
    node.broker.group.shutdown().await;
}
