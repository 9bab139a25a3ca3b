//! Producers, drains and the checker together, against a broker of a few lines that can be told to lie.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Drainer, Node, Producers, Readers};
use crate::checker::{Invariant, Options, Report, check};
use crate::history::Recorder;
use crate::wire::{
    Connection, FLAG_RESPONSE, Frame, HeaderKind, SendOptions, WireError, code, crc32, split,
};

/// What the broker does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    None,
    /// Acknowledges every tenth message at an offset it then gives to another.
    Forgets,
    /// Says refused of every tenth message, which it stores.
    RefusesWhatItStores,
    /// Flips a bit of every tenth message (and makes the CRC fit).
    Damages,
    /// Does not recognise retries, and answers every tenth message with an unknown result after storing it.
    StoresTwice,
}

#[derive(Default)]
struct Log {
    queues: BTreeMap<i32, Vec<Bytes>>,
    keys: BTreeMap<String, i64>,
    sends: u64,
    position: i64,
}

async fn fake(lie: Lie) -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let log = Arc::new(Mutex::new(Log::default()));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&log), lie));
        }
    });
    Node {
        name: "fake".to_owned(),
        address,
    }
}

async fn serve(mut stream: TcpStream, log: Arc<Mutex<Log>>, lie: Lie) {
    let mut input = BytesMut::new();
    loop {
        while let Ok(Some(request)) = split(&mut input) {
            let mut reply = log.lock().unwrap().answer(&request, lie);
            reply.opaque = request.opaque;
            reply.flag = FLAG_RESPONSE;
            let bytes = reply.encode(HeaderKind::Json);
            if stream.write_all(&bytes).await.is_err() {
                return;
            }
        }
        if matches!(stream.read_buf(&mut input).await, Ok(0) | Err(_)) {
            return;
        }
    }
}

impl Log {
    fn answer(&mut self, request: &Frame, lie: Lie) -> Frame {
        match request.code {
            code::SEND | code::SEND_V2 => self.send(request, lie),
            code::PULL => self.pull(request),
            _ => Frame::request(code::NOT_SUPPORTED),
        }
    }

    fn send(&mut self, request: &Frame, lie: Lie) -> Frame {
        let field = |letter: &str, long: &str| {
            let value = request.ext.get(letter).or_else(|| request.ext.get(long));
            value.cloned().unwrap_or_default()
        };
        let queue: i32 = field("e", "queueId").parse().unwrap();
        let properties = field("i", "properties");
        self.sends += 1;
        let tenth = self.sends.is_multiple_of(10);
        let known = self.keys.get(&properties).copied();
        let records = self.queues.entry(queue).or_default();
        let offset = match known.filter(|_| lie != Lie::StoresTwice) {
            Some(offset) => offset,
            None => {
                let mut body = request.body.to_vec();
                if tenth && lie == Lie::Damages {
                    body[5] ^= 1;
                }
                let offset = records.len() as i64;
                let topic = field("b", "topic");
                let record = record(queue, offset, self.position, &topic, &body, &properties);
                self.position += record.len() as i64;
                if !(tenth && lie == Lie::Forgets) {
                    records.push(record);
                    self.keys.insert(properties, offset);
                }
                offset
            }
        };
        let refused = match lie {
            Lie::RefusesWhatItStores => "[REFUSED] in-sync replicas not enough: a lie",
            _ => "[UNKNOWN] in-sync replicas not enough: stored",
        };
        if tenth && matches!(lie, Lie::RefusesWhatItStores | Lie::StoresTwice) {
            let mut reply = Frame::request(code::SYSTEM_ERROR);
            reply.remark = Some(refused.to_owned());
            return reply;
        }
        let id = format!("7F00000100000001{:016X}", self.position_of(queue, offset));
        Frame::request(code::SUCCESS)
            .with("msgId", id)
            .with("queueId", queue)
            .with("queueOffset", offset)
    }

    fn position_of(&self, queue: i32, offset: i64) -> i64 {
        let record = self.queues[&queue].get(offset as usize);
        record.map_or(self.position, |record| {
            i64::from_be_bytes(record[28..36].try_into().unwrap())
        })
    }

    fn pull(&mut self, request: &Frame) -> Frame {
        let number = |name: &str| request.number(name).unwrap();
        let records = self.queues.entry(number("queueId") as i32).or_default();
        let max = records.len() as i64;
        let from = number("queueOffset");
        let (found, next) = match from {
            from if from == max => (code::PULL_NOT_FOUND, max),
            from if from > max => (code::PULL_OFFSET_MOVED, max),
            from => (code::SUCCESS, max.min(from + 32)),
        };
        let body = match found {
            code::SUCCESS => records[from as usize..next as usize].concat(),
            _ => Vec::new(),
        };
        Frame::request(found)
            .with("nextBeginOffset", next)
            .with("minOffset", 0)
            .with("maxOffset", max)
            .with_body(body)
    }
}

fn record(
    queue: i32,
    offset: i64,
    position: i64,
    topic: &str,
    body: &[u8],
    properties: &str,
) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u32((91 + body.len() + topic.len() + properties.len()) as u32);
    out.put_u32(0xDAA3_20A7);
    out.put_u32(crc32(body));
    out.put_i32(queue);
    out.put_i32(0);
    out.put_i64(offset);
    out.put_i64(position);
    out.put_slice(&[0; 48]);
    out.put_u32(body.len() as u32);
    out.put_slice(body);
    out.put_u8(topic.len() as u8);
    out.put_slice(topic.as_bytes());
    out.put_u16(properties.len() as u16);
    out.put_slice(properties.as_bytes());
    out.freeze()
}

async fn run(lie: Lie) -> Report {
    let node = fake(lie).await;
    let dir = tempfile::tempdir().unwrap();
    let recorder = Arc::new(Recorder::create(&dir.path().join("h.jsonl")).unwrap());
    let mut load = Producers::new(vec![node.clone()], "t", 2);
    load.messages = 100;
    let readers = Readers {
        nodes: vec![node.clone()],
        topic: "t".to_owned(),
        queues: 2,
        timeout: Duration::from_secs(3),
    };
    let reading = readers.start(&recorder);
    load.start(&recorder).finish().await;
    reading.stop().await;
    let drainer = Drainer::new(vec![node], "t", 2);
    drainer.drain_all(&recorder).await.unwrap();
    check(&recorder.events().unwrap(), &Options::default())
}

#[tokio::test]
async fn an_honest_broker_is_green() {
    let report = run(Lie::None).await;
    assert!(report.is_green(), "{report}");
    assert_eq!(report.coverage.acknowledged, 402, "{report}");
    assert_eq!(report.coverage.records_drained, 402, "{report}");
}

#[tokio::test]
async fn each_lie_is_caught_by_the_invariant_it_breaks() {
    for (lie, invariant) in [
        (Lie::Forgets, Invariant::NoLoss),
        (Lie::Damages, Invariant::NoPhantom),
        (Lie::StoresTwice, Invariant::AtMostOnce),
    ] {
        let report = run(lie).await;
        assert!(report.counts.contains_key(&invariant), "{lie:?}: {report}");
    }
}

#[tokio::test]
async fn a_refused_message_that_is_stored_is_caught() {
    let node = fake(Lie::RefusesWhatItStores).await;
    let dir = tempfile::tempdir().unwrap();
    let recorder = Arc::new(Recorder::create(&dir.path().join("h.jsonl")).unwrap());
    let mut load = Producers::new(vec![node.clone()], "t", 1);
    (load.messages, load.attempts) = (25, 1);
    load.start(&recorder).finish().await;
    let drainer = Drainer::new(vec![node], "t", 1);
    drainer.drain_all(&recorder).await.unwrap();
    let report = check(&recorder.events().unwrap(), &Options::default());
    assert_eq!(report.counts[&Invariant::FailMeansAbsent], 10, "{report}");
}

#[tokio::test]
async fn a_dead_node_is_passed_by_and_nobody_writes_without_nodes() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = Node {
        name: "dead".to_owned(),
        address: closed.local_addr().unwrap(),
    };
    drop(closed);
    let alive = fake(Lie::None).await;
    let dir = tempfile::tempdir().unwrap();
    let recorder = Arc::new(Recorder::create(&dir.path().join("h.jsonl")).unwrap());
    let mut load = Producers::new(vec![dead.clone(), alive], "t", 2);
    load.messages = 10;
    assert_eq!(load.start(&recorder).finish().await, 40);
    load.nodes = Vec::new();
    assert_eq!(load.start(&recorder).finish().await, 0);

    let mut drainer = Drainer::new(vec![dead], "t", 1);
    drainer.settle = Duration::from_millis(10);
    assert!(drainer.drain_all(&recorder).await.is_err());
}

#[tokio::test]
async fn a_connection_tells_no_answer_from_an_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connection = Connection::open(address, Duration::from_millis(50))
        .await
        .unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    let silent = connection.request(Frame::request(105)).await;
    assert_eq!(silent, Err(WireError::Timeout(Duration::from_millis(50))));

    // A late answer to nobody, a request of the server's own, then nonsense.
    let mut push = Frame::request(code::NOTIFY_CONSUMERS_CHANGED).with("consumerGroup", "g");
    push.flag = crate::wire::FLAG_ONE_WAY;
    let mut late = Frame::request(code::SUCCESS);
    late.flag = FLAG_RESPONSE;
    for frame in [&late, &push] {
        server
            .write_all(&frame.encode(HeaderKind::Binary))
            .await
            .unwrap();
    }
    let pushed = connection.server_request(Duration::from_secs(5)).await;
    assert_eq!(pushed.unwrap().ext["consumerGroup"], "g");
    let waiting = connection.request_within(Frame::request(105), Duration::from_secs(5));
    let nonsense = server.write_all(&[0, 0, 0, 1]);
    let (ended, written) = tokio::join!(waiting, nonsense);
    written.unwrap();
    assert!(matches!(ended, Err(WireError::Closed(_))), "{ended:?}");
    assert!(connection.wait_closed(Duration::from_secs(5)).await);
    let options = SendOptions::default();
    let message = crate::wire::Message::new("t", 0, "k", &b"x"[..]);
    assert!(connection.send_reply(&message, &options).await.is_err());
}
