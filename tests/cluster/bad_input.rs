//! Bytes that are no request, over real sockets: each gets an error or a closed connection, while other
//! clients go on and the server's memory stays where it was.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quorumlog_chaos::rng::Rng;
use quorumlog_chaos::wire::{
    Connection, Frame, HeaderKind, Message, Pull, SendForm, SendOptions, SendOutcome, WireError,
    batch_body, code,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::semantics::send;
use crate::common::Cluster;

const TOPIC: &str = "bad_input";
const PATIENCE: Duration = Duration::from_secs(10);
/// What a node may grow by during all of this.
const GROWTH_MAX: u64 = 96 * 1024 * 1024;

/// What the server did with some bytes.
#[derive(Debug, PartialEq)]
enum Reaction {
    Closed,
    Replied,
}

/// Sends bytes and waits for an answer or the end. With `hang_up` nothing more follows, so that the server
/// cannot wait for the rest of a frame either.
async fn poke(to: SocketAddr, bytes: &[u8], hang_up: bool) -> Reaction {
    let mut stream = TcpStream::connect(to).await.expect("the server listens");
    // The server may close while it is still being written to.
    let _closed = stream.write_all(bytes).await;
    if hang_up {
        let _closed = stream.shutdown().await;
    }
    let mut answer = [0; 1024];
    let read = tokio::time::timeout(PATIENCE, stream.read(&mut answer)).await;
    match read {
        Ok(Ok(0) | Err(_)) => Reaction::Closed,
        Ok(Ok(_)) => Reaction::Replied,
        Err(_) => panic!(
            "neither an answer nor an end after {PATIENCE:?}: {:?} ...",
            &bytes[..bytes.len().min(40)]
        ),
    }
}

/// A client that works all the time; it must not notice anything.
struct Healthy {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Healthy {
    fn start(connection: Connection) -> Healthy {
        let (stop, sent) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&sent));
        let task = tokio::spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                let at = count.load(Ordering::Relaxed);
                let key = format!("healthy-{at}");
                let stored = send(&connection, &Message::new(TOPIC, 0, &key, key.clone())).await;
                let pull = Pull::new("healthy", TOPIC, 0, stored.offset);
                let pulled = connection.pull(&pull).await.expect("a pull");
                assert_eq!(pulled.records[0].key(), Some(key.as_str()));
                count.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        Healthy { stop, sent, task }
    }

    /// The other client goes on: it gets some more requests through, now that the damage is done.
    async fn end(self) {
        let before = self.sent.load(Ordering::Relaxed);
        let begun = Instant::now();
        while self.sent.load(Ordering::Relaxed) < before + 10 {
            let waited = begun.elapsed();
            assert!(waited < PATIENCE, "the other client stands still");
            assert!(!self.task.is_finished(), "the other client has failed");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("the other client was not disturbed");
    }
}

fn frame(kind: u8, header: &[u8], body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(((4 + header.len() + body.len()) as u32).to_be_bytes());
    out.extend((u32::from(kind) << 24 | header.len() as u32).to_be_bytes());
    out.extend(header);
    out.extend(body);
    out
}

/// Whole byte sequences that can be no request, whatever follows.
fn broken_frames() -> Vec<Vec<u8>> {
    let mut cases: Vec<Vec<u8>> = Vec::new();
    for length in [
        0,
        1,
        2,
        3,
        (1 << 24) + 1,
        1 << 30,
        (1 << 31) - 1,
        1 << 31,
        u32::MAX,
    ] {
        let mut bytes = u32::to_be_bytes(length).to_vec();
        bytes.extend([0; 32]);
        cases.push(bytes);
    }
    // A header longer than its frame.
    for (length, header) in [(4, 1), (8, 5), (100, 97), (100, 0x00ff_ffff)] {
        let mut bytes = u32::to_be_bytes(length).to_vec();
        bytes.extend(u32::to_be_bytes(header));
        bytes.resize(4 + length as usize, b'{');
        cases.push(bytes);
    }
    let valid = br#"{"code":105,"extFields":{"topic":"t"},"flag":0,"language":"JAVA","opaque":1,"version":477}"#;
    cases.extend((2..=255).map(|kind| frame(kind, valid, b"")));
    for header in [
        &b""[..],
        b"{",
        b"null",
        b"[]",
        b"\"code\"",
        b"{}",
        b"{\"code\":}",
        b"{\"code\":{}}",
        b"{\"code\":1e400,\"opaque\":1}",
        b"{\"code\":105,\"opaque\":[],\"flag\":0}",
        b"{\"code\":105,\"extFields\":7,\"opaque\":1}",
        b"\xff\xfe\xfd",
        b"{\"code\":105,\"remark\":\"\xff\xff\",\"opaque\":1}",
    ] {
        cases.push(frame(0, header, b""));
    }
    let deep = [b"{\"code\":105,\"x\":".to_vec(), vec![b'['; 200_000]].concat();
    cases.push(frame(0, &deep, b""));
    // A binary header that announces more than it has.
    let mut binary = vec![0, 105, 0, 1, 221, 0, 0, 0, 1, 0, 0, 0, 0];
    binary.extend(u32::MAX.to_be_bytes());
    binary.extend(u32::MAX.to_be_bytes());
    cases.push(frame(1, &binary, b""));
    cases.push(frame(1, &binary[..10], b""));
    cases.push(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec());
    cases.push([&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 512]].concat());
    cases
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_request_end_their_connection_and_nothing_else() {
    let cluster = Cluster::start().await;
    cluster.create_topic(TOPIC, 1).await;
    let at = cluster.leader().await;
    let healthy = Healthy::start(cluster.connect(at).await);
    let before = cluster.resident(at);
    for to in [cluster.address(at), cluster.name_server(at)] {
        for bytes in broken_frames() {
            // Some of these a lenient server can read as a request that it has to refuse; the point is
            // that it never just sits there.
            poke(to, &bytes, true).await;
        }
        let mut rng = Rng::new(7);
        for _ in 0..4 {
            let mut noise = vec![0; 1 << 20];
            rng.fill(&mut noise);
            poke(to, &noise, true).await;
        }
        every_cut(to).await;
    }
    // Lengths that cannot be are refused at once, not when the client hangs up.
    for bytes in broken_frames().iter().take(9) {
        let reaction = poke(cluster.address(at), bytes, false).await;
        assert_eq!(reaction, Reaction::Closed, "{:?}", &bytes[..4]);
    }
    healthy.end().await;
    let grown = cluster.resident(at).saturating_sub(before);
    assert!(grown < GROWTH_MAX, "grew by {} MiB", grown >> 20);
}

/// A valid request cut off after each of its bytes.
async fn every_cut(to: SocketAddr) {
    let message = Message::new(TOPIC, 0, "cut", &b"never stored"[..]);
    for kind in [HeaderKind::Json, HeaderKind::Binary] {
        let whole = SendOptions::default().request(&message).encode(kind);
        for len in 0..whole.len() {
            let reaction = poke(to, &whole[..len], true).await;
            assert_eq!(reaction, Reaction::Closed, "cut at {len}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_lengths_take_no_memory() {
    let cluster = Cluster::start().await;
    cluster.create_topic(TOPIC, 1).await;
    let at = cluster.leader().await;
    let healthy = Healthy::start(cluster.connect(at).await);
    let before = cluster.resident(at);
    // 200 clients that each announce the largest frame and send a hundred bytes of it.
    let mut waiting = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(cluster.address(at))
            .await
            .expect("the server listens");
        let length: u32 = 16 * 1024 * 1024 - 4;
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend(100u32.to_be_bytes());
        bytes.resize(100, b'x');
        stream.write_all(&bytes).await.expect("a few bytes");
        waiting.push(stream);
    }
    // A request behind them has been served when they have been looked at.
    let other = cluster.connect(at).await;
    for _ in 0..20 {
        other.max_offset(TOPIC, 0).await.expect("an offset");
    }
    let grown = cluster.resident(at).saturating_sub(before);
    assert!(grown < GROWTH_MAX, "grew by {} MiB", grown >> 20);
    drop(waiting);
    healthy.end().await;
}

/// Requests whose frames are right and whose fields are not.
fn wrong_fields() -> Vec<(&'static str, Frame)> {
    let pull = |name: &str, value: &str| {
        let mut frame = Frame::request(code::PULL);
        for (name, value) in [
            ("consumerGroup", "g"),
            ("topic", TOPIC),
            ("queueId", "0"),
            ("queueOffset", "0"),
            ("maxMsgNums", "32"),
            ("sysFlag", "4"),
            ("commitOffset", "0"),
            ("suspendTimeoutMillis", "0"),
            ("subVersion", "0"),
            ("subscription", "*"),
        ] {
            frame = frame.with(name, value);
        }
        frame.with(name, value)
    };
    let message = Message::new(TOPIC, 0, "wrong", &b"x"[..]);
    let send = |name: &str, value: &str| SendOptions::default().request(&message).with(name, value);
    let mut cases = vec![
        ("queue", pull("queueId", "-2147483648")),
        ("queue beyond i32", pull("queueId", "2147483648")),
        ("queue text", pull("queueId", "abc")),
        (
            "offset beyond i64",
            pull("queueOffset", "9223372036854775808"),
        ),
        ("flag text", pull("sysFlag", "many")),
        ("send queue text", send("e", "one")),
        ("send queue beyond", send("e", "99999999999999999999")),
        ("send time text", send("g", "yesterday")),
        ("no fields", Frame::request(code::PULL)),
        ("send without fields", Frame::request(code::SEND_V2)),
        ("commit without fields", Frame::request(code::UPDATE_OFFSET)),
        (
            "heartbeat body",
            Frame::request(code::HEARTBEAT).with_body("{"),
        ),
        (
            "lock body",
            Frame::request(code::LOCK).with_body("nonsense"),
        ),
        (
            "send back",
            Frame::request(code::SEND_BACK).with("offset", "-1"),
        ),
    ];
    cases.push((
        "send back beyond",
        Frame::request(code::SEND_BACK)
            .with("offset", i64::MAX)
            .with("group", "g")
            .with("delayLevel", 1),
    ));
    cases
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_fields_get_an_error_and_the_connection_lives() {
    let cluster = Cluster::start().await;
    cluster.create_topic(TOPIC, 1).await;
    let leader = cluster.connect_leader().await;
    for (what, frame) in wrong_fields() {
        let answer = leader.call(frame).await;
        assert!(
            matches!(answer, Err(WireError::Code { .. })),
            "{what}: {answer:?}"
        );
    }
    // Huge and negative values that are numbers all the same must be survived, whatever is answered.
    for (count, offset) in [
        (i32::MAX, 0),
        (-1, 0),
        (0, 0),
        (32, i64::MAX),
        (32, i64::MIN),
    ] {
        let mut pull = Pull::new("g", TOPIC, 0, offset);
        pull.max_messages = count;
        let answer = leader.pull(&pull).await;
        let survived = matches!(answer, Ok(_) | Err(WireError::Code { .. }));
        assert!(survived, "{count} from {offset}: {answer:?}");
    }
    for body in bad_batches() {
        let options = SendOptions {
            form: SendForm::Batch,
            ..SendOptions::default()
        };
        let outcome = leader
            .send(&Message::new(TOPIC, 0, "", body), &options)
            .await;
        assert!(
            matches!(
                outcome,
                SendOutcome::Fail { .. } | SendOutcome::Info { code: Some(_), .. }
            ),
            "{outcome:?}"
        );
    }
    let mut many = Frame::request(code::ROUTE).with("topic", TOPIC);
    for at in 0..50_000 {
        many = many.with(&format!("field{at}"), at);
    }
    // Too many fields may cost the sender its connection, and nobody else's.
    let _either = cluster.connect_leader().await.request(many).await;
    assert_eq!(
        leader.max_offset(TOPIC, 0).await,
        Ok(0),
        "nothing was stored"
    );
    let good = send(&leader, &Message::new(TOPIC, 0, "good", &b"x"[..])).await;
    assert_eq!(good.offset, 0);
}

/// Batch bodies with lengths that do not add up.
fn bad_batches() -> Vec<Vec<u8>> {
    let good = batch_body(&[Message::new(TOPIC, 0, "in-batch", &b"x"[..])]).to_vec();
    let mut cases: Vec<Vec<u8>> = (1..good.len()).map(|len| good[..len].to_vec()).collect();
    // The body's length. (The total size in front is looked at by nobody, RocketMQ included.)
    for value in [u32::MAX, 1 << 30] {
        let mut bad = good.clone();
        bad[16..20].copy_from_slice(&value.to_be_bytes());
        cases.push(bad);
    }
    cases
}
