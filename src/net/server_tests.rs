use std::sync::atomic::AtomicUsize;

use tokio::io::AsyncReadExt;

use super::*;
use crate::protocol::frame::{Reply, encode_request};
use crate::protocol::header::Ext;

/// Answers every request with its own body; code 777 is kept waiting until the next request.
#[derive(Default)]
struct Echo {
    seen: AtomicUsize,
    closed: AtomicUsize,
    kept: Mutex<Vec<(i32, ReplyTo)>>,
}

impl Handler for Echo {
    fn request(&self, _: &Arc<Connection>, frame: Frame, reply: ReplyTo) {
        self.seen.fetch_add(1, Ordering::SeqCst);
        let mut kept = self.kept.lock().unwrap();
        if frame.header.code == 777 {
            return kept.push((frame.header.opaque, reply));
        }
        reply.send(Reply::new(0, frame.header.opaque).with_body(frame.body));
        for (opaque, reply) in kept.drain(..) {
            reply.send(Reply::new(0, opaque));
        }
    }

    fn closed(&self, _: &Arc<Connection>) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

async fn door(limits: Limits) -> (SocketAddr, Arc<Echo>) {
    let listener = bind("127.0.0.1:0".parse().unwrap(), "listenPort")
        .await
        .unwrap();
    let address = listener.local_addr().unwrap();
    let echo = Arc::new(Echo::default());
    tokio::spawn(serve_with(listener, echo.clone(), limits));
    (address, echo)
}

fn request(code: i32, opaque: i32, flag: i32, body: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    encode_request(code, opaque, flag, &Ext::new(), body, &mut out);
    out
}

/// Reads `count` replies; the request encoder and the reply encoder agree on the frame format.
async fn replies(stream: &mut TcpStream, count: usize) -> Vec<Frame> {
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    while frames.len() < count {
        match Frame::decode(&mut buffer).unwrap() {
            Some(frame) => frames.push(frame),
            None => assert_ne!(stream.read_buf(&mut buffer).await.unwrap(), 0, "closed"),
        }
    }
    frames
}

async fn wait_until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(Duration::from_secs(20), wait)
        .await
        .expect("the condition came true");
}

async fn assert_closed(stream: &mut TcpStream) {
    let mut byte = [0];
    let read = timeout(Duration::from_secs(20), stream.read(&mut byte)).await;
    // A close with unread bytes on the way is a reset.
    assert!(matches!(read.expect("closed in time"), Ok(0) | Err(_)));
}

#[tokio::test]
async fn pipelined_requests_are_all_answered_whatever_the_cuts() {
    let (address, _) = door(LIMITS).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let big = vec![9_u8; 300_000];
    let mut bytes = request(10, 1, 0, b"one");
    bytes.extend(request(10, 2, 0, &big));
    bytes.extend(request(10, 3, 0, b""));
    let (mut read, mut write) = stream.split();
    let send = async {
        for piece in bytes[..200].chunks(1) {
            write.write_all(piece).await.unwrap();
        }
        write.write_all(&bytes[200..]).await.unwrap();
    };
    let receive = async {
        let mut buffer = BytesMut::new();
        let mut bodies = Vec::new();
        while bodies.len() < 3 {
            match Frame::decode(&mut buffer).unwrap() {
                Some(frame) => bodies.push((frame.header.opaque, frame.body)),
                None => assert_ne!(read.read_buf(&mut buffer).await.unwrap(), 0),
            }
        }
        bodies
    };
    let ((), bodies) = tokio::join!(send, receive);
    assert_eq!(bodies[0], (1, Bytes::from_static(b"one")));
    assert_eq!(bodies[1], (2, Bytes::from(big)));
    assert_eq!(bodies[2], (3, Bytes::new()));
}

#[tokio::test]
async fn a_request_that_waits_does_not_hold_up_the_next_one() {
    let (address, _) = door(LIMITS).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&request(777, 1, 0, b"")).await.unwrap();
    stream.write_all(&request(10, 2, 0, b"")).await.unwrap();
    let order: Vec<i32> = replies(&mut stream, 2)
        .await
        .iter()
        .map(|frame| frame.header.opaque)
        .collect();
    assert_eq!(order, [2, 1]);
}

#[tokio::test]
async fn one_way_requests_and_stray_responses_get_no_reply() {
    let (address, echo) = door(LIMITS).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(&request(10, 1, 2, b"one-way"))
        .await
        .unwrap();
    stream
        .write_all(&request(10, 2, 1, b"response"))
        .await
        .unwrap();
    stream
        .write_all(&request(10, 3, 0, b"asked"))
        .await
        .unwrap();
    let frames = replies(&mut stream, 1).await;
    assert_eq!(frames[0].header.opaque, 3);
    assert_eq!(echo.seen.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn what_is_no_frame_closes_its_connection_and_no_other() {
    let (address, echo) = door(LIMITS).await;
    let mut good = TcpStream::connect(address).await.unwrap();
    let noise: Vec<u8> = (0..1_000_000_u32)
        .map(|n| (n * 31 % 251) as u8 | 0x80)
        .collect();
    let bad: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
        &[0xff; 8],
        &[0, 0, 0, 8, 0, 0, 0, 200, 1, 1, 1, 1],
        &[0, 0, 0, 8, 9, 0, 0, 4, b'{', b'}', b' ', b' '],
        &noise,
    ];
    for (n, bytes) in bad.iter().enumerate() {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The server may close before all is written.
        let _ = stream.write_all(bytes).await;
        assert_closed(&mut stream).await;
        good.write_all(&request(10, n as i32, 0, b""))
            .await
            .unwrap();
        assert_eq!(replies(&mut good, 1).await[0].header.opaque, n as i32);
    }
    wait_until(|| echo.closed.load(Ordering::SeqCst) == bad.len()).await;
}

#[tokio::test]
async fn a_door_keeps_no_more_connections_than_its_limit() {
    let (address, echo) = door(Limits {
        connections_max: 1,
        ..LIMITS
    })
    .await;
    let mut first = TcpStream::connect(address).await.unwrap();
    first.write_all(&request(10, 1, 0, b"")).await.unwrap();
    replies(&mut first, 1).await;
    let mut second = TcpStream::connect(address).await.unwrap();
    assert_closed(&mut second).await;
    drop(first);
    wait_until(|| echo.closed.load(Ordering::SeqCst) == 1).await;
    // The place is free again a moment after the close was told.
    let mut answered = false;
    while !answered {
        let mut third = TcpStream::connect(address).await.unwrap();
        let mut byte = [0];
        answered = third.write_all(&request(10, 2, 0, b"")).await.is_ok()
            && matches!(third.read(&mut byte).await, Ok(1));
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_also_in_the_middle_of_a_frame() {
    let (address, echo) = door(Limits {
        idle_max: Duration::from_millis(100),
        ..LIMITS
    })
    .await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut half = TcpStream::connect(address).await.unwrap();
    let bytes = request(10, 1, 0, b"never ends");
    half.write_all(&bytes[..bytes.len() - 1]).await.unwrap();
    assert_closed(&mut silent).await;
    assert_closed(&mut half).await;
    assert_eq!(echo.seen.load(Ordering::SeqCst), 0);
    wait_until(|| echo.closed.load(Ordering::SeqCst) == 2).await;
}

#[tokio::test]
async fn a_frame_that_trickles_in_is_given_up_though_its_bytes_keep_coming() {
    let idle_max = Duration::from_millis(400);
    let (address, echo) = door(Limits { idle_max, ..LIMITS }).await;
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    // Two whole frames first, whose time is their own.
    for opaque in 0..2 {
        write.write_all(&request(10, opaque, 0, b"")).await.unwrap();
        sleep(idle_max / 2).await;
    }
    let trickle = tokio::spawn(async move {
        let endless = request(10, 3, 0, &[7; 10_000]);
        for byte in endless.iter() {
            if write.write_all(&[*byte]).await.is_err() {
                return;
            }
            sleep(idle_max / 20).await;
        }
    });
    let mut replies = Vec::new();
    let ended = timeout(Duration::from_secs(30), read.read_to_end(&mut replies)).await;
    assert!(ended.is_ok(), "it is kept open by single bytes");
    assert_eq!(echo.seen.load(Ordering::SeqCst), 2);
    trickle.abort();
}

#[test]
fn clients_leave_descriptors_to_the_node() {
    for (descriptor, limit, kept) in [
        (47, Some(64), true),
        (48, Some(64), false),
        (767, Some(1024), true),
        (768, Some(1024), false),
        (19_743, Some(20_000), true),
        (19_744, Some(20_000), false),
        (100, Some(64), false),
        (0, Some(0), false),
        (1_000_000, None, true),
    ] {
        assert_eq!(
            may_keep(descriptor, limit),
            kept,
            "{descriptor} of {limit:?}"
        );
    }
}

#[tokio::test]
async fn half_sent_frames_do_not_take_more_than_their_share_of_memory() {
    let (address, _) = door(Limits {
        unfinished_bytes_max: 100_000,
        ..LIMITS
    })
    .await;
    let bytes = request(10, 1, 0, &vec![0; 70_000]);
    let half = &bytes[..60_000];
    let mut first = TcpStream::connect(address).await.unwrap();
    first.write_all(half).await.unwrap();
    let mut second = TcpStream::connect(address).await.unwrap();
    second.write_all(half).await.unwrap();
    // Whichever came second is closed; the other one can finish.
    let (mut lives, _) = tokio::select! {
        () = assert_closed(&mut first) => (second, first),
        () = assert_closed(&mut second) => (first, second),
    };
    lives.write_all(&bytes[60_000..]).await.unwrap();
    assert_eq!(replies(&mut lives, 1).await[0].body.len(), 70_000);
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_being_read() {
    let (address, echo) = door(LIMITS).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = vec![1_u8; 64 * 1024];
    let mut written = 0;
    // Far more than the sockets' buffers and the queue hold: writing must come to a stand.
    let stuck = async {
        for opaque in 0..4096 {
            let bytes = request(10, opaque, 0, &body);
            stream.write_all(&bytes).await.unwrap();
            written += 1;
        }
    };
    assert!(
        timeout(Duration::from_secs(2), stuck).await.is_err(),
        "256 MiB were read although no reply was taken"
    );
    let queued = echo.seen.load(Ordering::SeqCst) * body.len();
    assert!(
        queued < 64 * 1024 * 1024,
        "{queued} bytes after {written} requests"
    );
    // Once it reads, everything goes on.
    let mut drained = 0;
    let mut sink = vec![0; 1024 * 1024];
    while drained < queued {
        drained += stream.read(&mut sink).await.unwrap();
    }
}

#[test]
fn what_was_written_is_taken_off_the_front() {
    let mut chunks: VecDeque<Bytes> = [&b"abc"[..], b"de", b"f"].map(Bytes::from_static).into();
    advance(&mut chunks, 4);
    assert_eq!(chunks, ["e", "f"]);
    advance(&mut chunks, 2);
    assert!(chunks.is_empty());
}

#[test]
fn client_addresses_are_stored_as_ipv4() {
    let cases = [
        ("10.0.0.9:4000", "10.0.0.9:4000"),
        ("[::ffff:10.0.0.9]:4000", "10.0.0.9:4000"),
        ("[2001:db8::1]:4000", "0.0.0.0:4000"),
    ];
    for (peer, stored) in cases {
        assert_eq!(
            stored_address(peer.parse().unwrap()),
            stored.parse().unwrap(),
            "{peer}"
        );
    }
}

#[tokio::test]
async fn a_taken_port_is_named_with_its_key() {
    let taken = bind("127.0.0.1:0".parse().unwrap(), "listenPort")
        .await
        .unwrap();
    let address = taken.local_addr().unwrap();
    let error = bind(address, "listenPort").await.unwrap_err();
    assert!(
        error.contains("listenPort") && error.contains("another process"),
        "{error}"
    );
}

#[test]
fn repeated_lines_are_counted_instead_of_written() {
    let limit = LineLimit::new();
    assert_eq!(limit.line(), Some(0));
    assert_eq!(limit.line(), None);
    assert_eq!(limit.line(), None);
    if let Some((last, left_out)) = &mut *limit.0.lock().unwrap() {
        assert_eq!(*left_out, 2);
        *last -= Duration::from_secs(1);
    }
    assert_eq!(limit.line(), Some(2));
}

/// Keeps the worker for 2 ms a request.
struct Costly(AtomicUsize);

impl Handler for Costly {
    fn request(&self, _: &Arc<Connection>, frame: Frame, reply: ReplyTo) {
        std::thread::sleep(Duration::from_millis(2));
        self.0.fetch_add(1, Ordering::SeqCst);
        reply.send(Reply::new(0, frame.header.opaque));
    }

    fn closed(&self, _: &Arc<Connection>) {}
}

#[tokio::test]
async fn costly_requests_of_one_connection_let_other_tasks_in() {
    const REQUESTS: usize = 100;
    let address = "127.0.0.1:0".parse().unwrap();
    let listener = bind(address, "listenPort").await.unwrap();
    let address = listener.local_addr().unwrap();
    let costly = Arc::new(Costly(AtomicUsize::new(0)));
    tokio::spawn(serve_with(listener, costly.clone(), LIMITS));
    let mut stream = TcpStream::connect(address).await.unwrap();
    let all: Vec<u8> = (0..REQUESTS)
        .flat_map(|opaque| request(10, opaque as i32, 0, b""))
        .collect();
    stream.write_all(&all).await.unwrap();
    // On the one thread of this test every look is a turn that the connection gave up.
    let mut longest = 0;
    let mut before = 0;
    while before < REQUESTS {
        yield_now().await;
        let now = costly.0.load(Ordering::SeqCst);
        longest = longest.max(now - before);
        before = now;
    }
    assert!(longest <= 2, "{longest} requests without a pause");
}
