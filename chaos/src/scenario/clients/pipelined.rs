//! R5: ten thousand requests in one go, and nobody reads the replies for a while.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::task::JoinHandle;

use super::probe::{Probe, compare};
use crate::rig::usage;
use crate::scenario::context::TOPIC;
use crate::scenario::{Run, Stop};
use crate::wire::{Frame, HeaderKind, Message, SendOptions, SendOutcome, classify, code, split};

const REQUESTS: usize = 10_000;
const SENDS_TOPIC: &str = "pipelined";
const LOOK: Duration = Duration::from_secs(5);
const READ_ALL_WITHIN: Duration = Duration::from_secs(120);
/// Well below the 320 MiB of replies that are asked for, above the 64 MiB after which the server closes a
/// connection and as much again for what is still being read.
const GROWTH_MAX: u64 = 160 * 1024 * 1024;

pub async fn unread_replies(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(500).await?;
    run.stop_load().await;
    run.rig()?.create_topic(SENDS_TOPIC, 1).await?;
    let leader = run.rig()?.leader().await?;
    let address = run.rig()?.address(leader);
    let probe = Probe::start(run, leader).await?;
    let quiet = probe.measure("before").await?;

    run.fault("unread-replies", &[]);
    for (what, request) in [
        ("pulls", pull_request as fn(usize) -> Frame),
        ("sends", send_request),
    ] {
        let before = run.rig()?.resident(leader)?;
        let pid = run.rig()?.pid(leader)?;
        usage::reset_peak(pid)?;
        let mut unread = Unread::start(address, request).await?;
        run.sleep(LOOK).await;
        let beside = format!("beside unread {what}");
        let busy = probe.measure(&beside).await?;
        compare(run, &beside, &quiet, &busy);
        let taken = unread.written.load(Ordering::Relaxed);
        run.figure(
            &format!("{what} taken before a reply was read"),
            taken as f64,
        );
        let answered = unread.read_all().await;
        run.figure(
            &format!("{what} answered in the end"),
            answered.len() as f64,
        );
        // Either the server closed the connection, or it owes every answer.
        run.require(answered.len() == REQUESTS || unread.closed, || {
            format!(
                "{} of {REQUESTS} {what} were answered within {READ_ALL_WITHIN:?}",
                answered.len()
            )
        });
        run.require(!unread.twice, || {
            format!("one of the {what} was answered twice")
        });
        run.figure(
            &format!("closed by the node, {what}"),
            f64::from(u8::from(unread.closed)),
        );
        let most = usage::peak(pid)?.saturating_sub(before);
        run.figure(
            &format!("most MiB grown, unread {what}"),
            (most >> 20) as f64,
        );
        run.require(most < GROWTH_MAX, || {
            format!(
                "the node grew by {} MiB for one connection with unread {what}",
                most >> 20
            )
        });
        if what == "sends" {
            stored_once(run, leader, answered).await?;
        }
    }
    run.fault_over("unread-replies");
    probe.end(run).await
}

fn pull_request(at: usize) -> Frame {
    // 32 messages of up to a KiB: far more than the server may keep for one connection.
    let mut frame = Frame::request(code::PULL);
    for (name, value) in [
        ("consumerGroup", "unread"),
        ("topic", TOPIC),
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
    frame.with("queueId", at % 4)
}

fn send_request(at: usize) -> Frame {
    let key = format!("pipelined-{at}");
    SendOptions::default().request(&Message::new(SENDS_TOPIC, 0, &key, key.clone()))
}

/// Each of the pipelined sends that was acknowledged is there, and none that was refused.
async fn stored_once(
    run: &mut Run,
    leader: usize,
    answered: BTreeMap<i32, Frame>,
) -> Result<(), Stop> {
    let outcomes: Vec<SendOutcome> = answered
        .into_values()
        .map(|frame| classify(Ok(frame)))
        .collect();
    let count = |wanted: fn(&SendOutcome) -> bool| {
        outcomes.iter().filter(|each| wanted(each)).count() as i64
    };
    let stored = count(|outcome| matches!(outcome, SendOutcome::Ok(_)));
    let refused = count(|outcome| matches!(outcome, SendOutcome::Fail { .. }));
    run.figure("sends acknowledged", stored as f64);
    run.figure("sends refused", refused as f64);
    let connection = run.rig()?.connect(leader).await?;
    let begun = Instant::now();
    let end = loop {
        match connection.max_offset(SENDS_TOPIC, 0).await {
            Ok(end) => break end,
            Err(error) if begun.elapsed() > READ_ALL_WITHIN => {
                return Err(Stop::Violated(format!("no end of the queue: {error}")));
            }
            Err(_) => run.sleep(Duration::from_millis(50)).await,
        }
    };
    let at_most = REQUESTS as i64 - refused;
    run.require(stored <= end && end <= at_most, || {
        format!(
            "{end} of the pipelined sends are stored, {stored} were acknowledged, {refused} refused"
        )
    });
    Ok(())
}

/// A connection with requests on the way and replies that wait.
struct Unread {
    read: OwnedReadHalf,
    writer: JoinHandle<()>,
    written: Arc<AtomicUsize>,
    closed: bool,
    twice: bool,
}

impl Unread {
    async fn start(to: SocketAddr, request: fn(usize) -> Frame) -> Result<Unread, Stop> {
        let stream = TcpStream::connect(to)
            .await
            .map_err(|error| Stop::Violated(format!("no connection: {error}")))?;
        let frames: Vec<Bytes> = (0..REQUESTS)
            .map(|at| {
                let mut frame = request(at);
                frame.opaque = at as i32;
                frame.encode(HeaderKind::Json)
            })
            .collect();
        let (read, mut write) = stream.into_split();
        let written = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&written);
        let writer = tokio::spawn(async move {
            for frame in frames {
                if write.write_all(&frame).await.is_err() {
                    return;
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
            // The other half of a closed connection would end it for both.
            std::future::pending::<()>().await;
        });
        Ok(Unread {
            read,
            writer,
            written,
            closed: false,
            twice: false,
        })
    }

    /// Reads until every request is answered, the connection ends, or the time is over. The answers come without
    /// their bodies.
    async fn read_all(&mut self) -> BTreeMap<i32, Frame> {
        let mut answered = BTreeMap::new();
        let (mut closed, mut twice) = (false, false);
        let reading = async {
            let mut input = BytesMut::new();
            while answered.len() < REQUESTS {
                match split(&mut input) {
                    Ok(Some(mut frame)) => {
                        frame.body = Bytes::new();
                        twice |= answered.insert(frame.opaque, frame).is_some();
                    }
                    Ok(None) => match self.read.read_buf(&mut input).await {
                        Ok(0) | Err(_) => {
                            closed = true;
                            return;
                        }
                        Ok(_) => {}
                    },
                    Err(_) => return,
                }
            }
        };
        // What is missing then is found by the caller.
        let _over = tokio::time::timeout(READ_ALL_WITHIN, reading).await;
        (self.closed, self.twice) = (closed, twice);
        self.writer.abort();
        answered
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.writer.abort();
    }
}
