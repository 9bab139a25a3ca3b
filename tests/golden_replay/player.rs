//! Plays one transcript against a running group: sends what the clients sent, in order and on connections as
//! recorded, and holds what comes back against what was recorded.
//!
//! Rewritten on the way: positions and message ids of a send-back, as replies told them; times of a search, by
//! the clock; the suspension of pulls that ended without a message when they were recorded, to a second. What is asked again:
//! the offset of a group, because what a pull commits is stored behind the pull's reply.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use quorumlog_chaos::wire::{Frame, split};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::compare::{self, Learnt};
use crate::transcript::{Call, Line, Recorded, Request, Step, Transcript};

/// What the group answers to; whatever else is asked must get 3.
const BROKER_CODES: [i64; 24] = [
    10, 11, 14, 15, 17, 28, 29, 30, 31, 32, 34, 35, 36, 38, 41, 42, 46, 105, 106, 206, 215, 216,
    310, 320,
];
const NAME_SERVER_CODES: [i64; 4] = [105, 106, 206, 216];
const NOT_SUPPORTED: i32 = 3;
const HEARTBEAT: i64 = 34;
const QUERY_OFFSET: i64 = 14;

/// How long a pull is held that ran out when it was recorded, milliseconds.
const SHORT_HOLD_MS: i64 = 1000;
/// The longest hold of a recorded pull, and some more: test machines are busy.
const REPLY_WITHIN: Duration = Duration::from_secs(40);
const PUSH_WITHIN: Duration = Duration::from_secs(5);
/// What a pull commits is stored behind its reply.
const COMMITTED_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Where the servers of the recording are here.
pub struct Servers {
    pub leader: SocketAddr,
    pub name_server: SocketAddr,
    pub followers: Vec<SocketAddr>,
}

/// One way in which the group differs from the recording.
#[derive(Debug)]
pub struct Difference {
    pub scenario: String,
    pub line: usize,
    pub request: i64,
    pub what: String,
}

/// Plays a transcript to its end. Returns the number of replies compared, and the differences.
pub async fn play(transcript: &Transcript, servers: &Servers) -> (usize, Vec<Difference>) {
    let mut player = Player {
        servers,
        scenario: &transcript.scenario,
        wires: BTreeMap::new(),
        asked: BTreeMap::new(),
        pushed: BTreeMap::new(),
        learnt: Learnt::default(),
        compared: 0,
        differences: Vec::new(),
    };
    for line in &transcript.lines {
        player.step(line).await;
    }
    let conns: Vec<String> = player.wires.keys().cloned().collect();
    for conn in conns {
        player.close(&conn, transcript.lines.len() + 1).await;
    }
    (player.compared, player.differences)
}

struct Player<'a> {
    servers: &'a Servers,
    scenario: &'a str,
    wires: BTreeMap<String, Wire>,
    asked: BTreeMap<Call, &'a Request>,
    /// When the last push came on a connection that was recorded since its last heartbeat.
    pushed: BTreeMap<String, u64>,
    learnt: Learnt,
    compared: usize,
    differences: Vec<Difference>,
}

impl<'a> Player<'a> {
    async fn step(&mut self, line: &'a Line) {
        let conn = &line.conn;
        match &line.step {
            Step::Open => {
                let wire = Wire::open(self.address(conn)).await;
                self.wires.insert(conn.clone(), wire);
            }
            Step::Close => self.close(conn, line.number).await,
            Step::Closed => {
                let wire = self.wires.get_mut(conn).expect("an open connection");
                if !wire.inbox.is_closed_within(PUSH_WITHIN).await {
                    self.differ(line.number, 0, "the connection stays open".to_owned());
                }
                self.close(conn, line.number).await;
            }
            Step::Noise(bytes) => self.wire(conn).write(bytes).await,
            Step::Request(request) => self.request(line, request).await,
            Step::Reply(recorded) => self.reply(line, recorded).await,
            Step::Push(recorded) => self.push(line, recorded).await,
        }
    }

    fn wire(&mut self, conn: &str) -> &mut Wire {
        let wire = self.wires.get_mut(conn);
        wire.unwrap_or_else(|| panic!("{}: {conn} is not open", self.scenario))
    }

    /// `client-1->broker`, `client-1->ns`, or a node of the recorded group.
    fn address(&self, conn: &str) -> SocketAddr {
        let (_, server) = conn.split_once("->").expect("a server");
        match server {
            "broker" => self.servers.leader,
            "ns" => self.servers.name_server,
            "n2" => self.servers.leader,
            "n0" => self.servers.followers[0],
            "n1" => self.servers.followers[1],
            other => panic!("a server {other}"),
        }
    }

    fn differ(&mut self, line: usize, request: i64, what: String) {
        self.differences.push(Difference {
            scenario: self.scenario.to_owned(),
            line,
            request,
            what,
        });
    }

    async fn request(&mut self, line: &'a Line, request: &'a Request) {
        let mut changed = BTreeMap::new();
        if request.ran_out && request.field("suspendTimeoutMillis").is_some() {
            changed.insert("suspendTimeoutMillis".to_owned(), SHORT_HOLD_MS.to_string());
        }
        if let Some(time) = request
            .field("timestamp")
            .and_then(|time| time.parse().ok())
            && time > 1
        {
            let time: i64 = time;
            let moved = time - request.wall_ms + wall_ms();
            changed.insert("timestamp".to_owned(), moved.to_string());
        }
        let position = request.field("offset").and_then(|at| at.parse().ok());
        if let Some(ours) = position.and_then(|at: i64| self.learnt.positions.get(&at)) {
            changed.insert("offset".to_owned(), ours.to_string());
        }
        let id = request.field("originMsgId");
        if let Some(ours) = id.and_then(|id| self.learnt.ids.get(&id)) {
            changed.insert("originMsgId".to_owned(), ours.clone());
        }
        let bytes = request.encode(&changed);
        if request.code == HEARTBEAT {
            self.pushed.remove(&line.conn);
        }
        self.wire(&line.conn).write(&bytes).await;
        if !request.one_way {
            let call = (line.conn.clone(), request.opaque());
            self.asked.insert(call, request);
        }
    }

    async fn reply(&mut self, line: &Line, recorded: &Recorded) {
        let call = (line.conn.clone(), recorded.opaque);
        let Some(request) = self.asked.remove(&call) else {
            panic!("{}:{}: a reply to nothing", self.scenario, line.number);
        };
        let inbox = self.wire(&line.conn).inbox.clone();
        let opaque = recorded.opaque as i32;
        let mine = |frame: &Frame| frame.is_response() && frame.opaque == opaque;
        let Some((order, mut ours)) = inbox.take(REPLY_WITHIN, mine).await else {
            return self.differ(line.number, request.code, "no reply".to_owned());
        };
        self.compared += 1;
        let supported = match line.conn.ends_with("->ns") {
            true => NAME_SERVER_CODES.contains(&request.code),
            false => BROKER_CODES.contains(&request.code),
        };
        if !supported {
            if ours.code != NOT_SUPPORTED {
                let what = format!("is not supported, but answered with {}", ours.code);
                self.differ(line.number, request.code, what);
            }
            return;
        }
        let pushed = self.pushed.remove(&line.conn);
        if request.code == HEARTBEAT && pushed.is_some_and(|pushed| pushed > order) {
            let what = "push 40 comes behind the reply".to_owned();
            self.differ(line.number, request.code, what);
        }
        let mut found = compare::reply(request, recorded, &ours, &mut self.learnt);
        let begun = tokio::time::Instant::now();
        while request.code == QUERY_OFFSET
            && found
                .iter()
                .any(|what| what.starts_with("field offset is") || what.starts_with("code"))
            && begun.elapsed() < COMMITTED_WITHIN
        {
            tokio::time::sleep(LOOK_AGAIN).await;
            self.wire(&line.conn)
                .write(&request.encode(&BTreeMap::new()))
                .await;
            match inbox.take(REPLY_WITHIN, mine).await {
                Some((_, again)) => ours = again,
                None => break,
            }
            found = compare::reply(request, recorded, &ours, &mut self.learnt);
        }
        for what in found {
            self.differ(line.number, request.code, what);
        }
    }

    async fn push(&mut self, line: &Line, recorded: &Recorded) {
        let group = recorded.ext.get("consumerGroup").cloned();
        let inbox = self.wire(&line.conn).inbox.clone();
        let code = recorded.code as i32;
        let mine = |frame: &Frame| {
            frame.code == code
                && !frame.is_response()
                && frame.ext.get("consumerGroup") == group.as_ref()
        };
        let Some((order, ours)) = inbox.take(PUSH_WITHIN, mine).await else {
            return self.differ(line.number, recorded.code, "push is missing".to_owned());
        };
        self.compared += 1;
        self.pushed.insert(line.conn.clone(), order);
        let fields = |frame: &Frame| frame.ext.keys().cloned().collect::<Vec<_>>();
        let was: Vec<String> = recorded.ext.keys().cloned().collect();
        if was != fields(&ours) || ours.flag != 2 {
            let what = format!("push has {:?}, flag {}", fields(&ours), ours.flag);
            self.differ(line.number, recorded.code, what);
        }
    }

    /// A request without an answer in the recording so far.
    fn asks_still(&self, conn: &str, code: i64) -> bool {
        let mut asked = self.asked.iter();
        asked.any(|((on, _), request)| on == conn && request.code == code)
    }

    /// Closes a connection. What came and was not recorded is a difference, unless the client left before
    /// its answer.
    async fn close(&mut self, conn: &str, line: usize) {
        let Some(mut wire) = self.wires.remove(conn) else {
            return;
        };
        wire.close().await;
        for frame in wire.inbox.rest() {
            let call = (conn.to_owned(), i64::from(frame.opaque));
            let unanswered = match frame.is_response() {
                true => self.asked.contains_key(&call),
                false => self.asks_still(conn, HEARTBEAT),
            };
            if !unanswered {
                let what = format!("not recorded: {frame:?}");
                self.differ(line, i64::from(frame.code), what);
            }
        }
    }
}

fn wall_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a clock after 1970").as_millis() as i64
}

/// One connection; a task reads it.
struct Wire {
    writer: OwnedWriteHalf,
    inbox: Arc<Inbox>,
    reader: JoinHandle<()>,
}

impl Wire {
    async fn open(address: SocketAddr) -> Wire {
        let stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("an open socket");
        let (read, writer) = stream.into_split();
        let inbox = Arc::new(Inbox::default());
        let reader = tokio::spawn(receive(read, inbox.clone()));
        Wire {
            writer,
            inbox,
            reader,
        }
    }

    /// Closes our half, and waits until the peer has closed its own: it knows then that the client is gone.
    async fn close(&mut self) {
        let _closed = self.writer.shutdown().await;
        self.inbox.is_closed_within(PUSH_WITHIN).await;
    }

    /// Writes what the peer may refuse: that it closed shows elsewhere.
    async fn write(&mut self, bytes: &[u8]) {
        let _closed = self.writer.write_all(bytes).await;
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn receive(mut read: OwnedReadHalf, inbox: Arc<Inbox>) {
    let mut buffer = BytesMut::new();
    loop {
        match read.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return inbox.end(),
            Ok(_) => {}
        }
        while let Some(frame) = split(&mut buffer).expect("a frame") {
            inbox.put(frame);
        }
    }
}

/// What came and was not looked at yet, each with its number on the connection.
#[derive(Default)]
struct Inbox {
    came: Mutex<Came>,
    news: Notify,
}

#[derive(Default)]
struct Came {
    frames: Vec<(u64, Frame)>,
    count: u64,
    ended: bool,
}

impl Inbox {
    fn put(&self, frame: Frame) {
        let mut came = self.came.lock().expect("no panic while locked");
        came.count += 1;
        let count = came.count;
        came.frames.push((count, frame));
        drop(came);
        self.news.notify_waiters();
    }

    fn end(&self) {
        self.came.lock().expect("no panic while locked").ended = true;
        self.news.notify_waiters();
    }

    async fn take(&self, within: Duration, mine: impl Fn(&Frame) -> bool) -> Option<(u64, Frame)> {
        timeout(within, async {
            loop {
                let news = self.news.notified();
                tokio::pin!(news);
                news.as_mut().enable();
                {
                    let mut came = self.came.lock().expect("no panic while locked");
                    if let Some(at) = came.frames.iter().position(|(_, frame)| mine(frame)) {
                        return Some(came.frames.remove(at));
                    }
                    if came.ended {
                        return None;
                    }
                }
                news.await;
            }
        })
        .await
        .ok()
        .flatten()
    }

    async fn is_closed_within(&self, within: Duration) -> bool {
        self.take(within, |_| false).await;
        self.came.lock().expect("no panic while locked").ended
    }

    fn rest(&self) -> Vec<Frame> {
        let mut came = self.came.lock().expect("no panic while locked");
        came.frames.drain(..).map(|(_, frame)| frame).collect()
    }
}
