//! `quorumlog bench consume`: reads a backlog from all queues and checks that offsets are dense.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::procs;
use super::report::{Latency, Report};
use super::target::{Finder, Target};
use super::{ConsumeArgs, progress};
use crate::cli::client::pull_fields;
use crate::cli::{CliError, CliResult};
use crate::protocol::codes::{request, response};
use crate::protocol::frame::{Frame, encode_request};
use crate::protocol::header::Ext;
use crate::protocol::message::Record;

const GROUP: &str = "BenchConsumer";
/// A queue whose pulls fail is tried again after this long.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest wait for the reply to a pull.
const REPLY_WITHIN: Duration = Duration::from_secs(10);

/// A queue to be read, and how far it was read.
struct Queue {
    id: i32,
    next: i64,
    asked: Instant,
}

/// What was read so far.
struct Tally {
    messages: u64,
    body_bytes: u64,
    /// Offsets that were missing, at most a few of them named.
    gaps: Vec<String>,
    gap_count: u64,
    latency_us: Histogram<u64>,
    codes: BTreeMap<i32, u64>,
    errors: BTreeMap<String, u64>,
}

pub(super) fn run(args: &ConsumeArgs) -> CliResult {
    let common = &args.common;
    let targets = Finder::new(common).find_or_make()?;
    let lanes = lanes(&targets, common.connections as usize);
    let tally = Rc::new(RefCell::new(Tally {
        messages: 0,
        body_bytes: 0,
        gaps: Vec::new(),
        gap_count: 0,
        latency_us: Histogram::new_with_bounds(1, 120_000_000, 3)
            .map_err(|e| CliError::new(e.to_string()))?,
        codes: BTreeMap::new(),
        errors: BTreeMap::new(),
    }));
    let mut pids = common.pids.clone();
    pids.push(std::process::id());
    let before = procs::sample(&pids).map_err(CliError::new)?;
    let start = Instant::now();
    read_all(args, lanes, &tally)?;
    let seconds = start.elapsed().as_secs_f64().max(1e-9);
    let after = procs::sample(&pids).map_err(CliError::new)?;
    let tally = tally.borrow();
    let mut usage = procs::usage(&before, &after, tally.messages);
    let own = usage.pop().map_or(0.0, |own| own.cpu_us_per_message);
    let mut errors = tally.errors.clone();
    for gap in &tally.gaps {
        errors.insert(gap.clone(), 1);
    }
    let report = Report {
        what: "consume",
        topic: common.topic.clone(),
        brokers: targets.iter().map(|t| t.address.clone()).collect(),
        connections: common.connections,
        in_flight: 1,
        messages_a_request: args.messages,
        body_bytes: tally.body_bytes / tally.messages.max(1),
        seconds,
        messages: tally.messages,
        messages_per_s: tally.messages as f64 / seconds,
        mb_per_s: tally.body_bytes as f64 / seconds / 1e6,
        latency: Latency::of(&tally.latency_us),
        codes: tally.codes.clone(),
        remarks: BTreeMap::new(),
        errors,
        unanswered: 0,
        own_cpu_us_per_message: own,
        cpu_us_per_message: (!usage.is_empty())
            .then(|| usage.iter().map(|u| u.cpu_us_per_message).sum()),
        processes: usage,
    };
    report.print(common.json);
    if tally.gap_count > 0 {
        return Err(CliError::new(format!(
            "{} times an offset was not the next one of its queue",
            tally.gap_count
        )));
    }
    Ok(match report.messages {
        0 => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

/// Deals the queues of all targets to the connections: each connection is to one broker.
fn lanes(targets: &[Target], connections: usize) -> Vec<(String, Vec<i32>)> {
    let mut lanes: Vec<(String, Vec<i32>)> = (0..connections)
        .map(|n| (targets[n % targets.len()].address.clone(), Vec::new()))
        .collect();
    for (number, target) in targets.iter().enumerate() {
        let own: Vec<usize> = (number..connections).step_by(targets.len()).collect();
        for queue in 0..target.queues {
            match own.get(queue as usize % own.len().max(1)) {
                Some(lane) => lanes[*lane].1.push(queue as i32),
                // Fewer connections than brokers: one more connection for this broker.
                None => {
                    let all = (0..target.queues as i32).collect();
                    lanes.push((target.address.clone(), all));
                    break;
                }
            }
        }
    }
    lanes.retain(|(_, queues)| !queues.is_empty());
    lanes
}

fn read_all(
    args: &ConsumeArgs,
    lanes: Vec<(String, Vec<i32>)>,
    tally: &Rc<RefCell<Tally>>,
) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| CliError::new(format!("the reader cannot be started: {e}")))?;
    let bar = if args.common.json {
        indicatif::ProgressBar::hidden()
    } else {
        progress(0, "{spinner} {pos} messages, {per_sec} {msg}")
    };
    let local = tokio::task::LocalSet::new();
    for (address, queues) in lanes {
        let (tally, bar) = (Rc::clone(tally), bar.clone());
        let (topic, count) = (args.common.topic.clone(), args.messages as usize);
        local.spawn_local(async move {
            if let Err(error) = read_queues(&address, &topic, queues, count, &tally, &bar).await {
                let text = format!("{address}: {error}");
                *tally.borrow_mut().errors.entry(text).or_default() += 1;
            }
        });
    }
    runtime.block_on(async {
        // A run that is cut by its duration reports what it read until then.
        let _ = tokio::time::timeout(Duration::from_secs_f64(args.duration), local).await;
    });
    bar.finish_and_clear();
    Ok(())
}

/// Reads some queues over one connection, a pull in flight for each, until all are at their end.
async fn read_queues(
    address: &str,
    topic: &str,
    queues: Vec<i32>,
    count: usize,
    tally: &Rc<RefCell<Tally>>,
    bar: &indicatif::ProgressBar,
) -> Result<(), String> {
    let mut stream = TcpStream::connect(address)
        .await
        .map_err(|e| e.to_string())?;
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let now = Instant::now();
    let mut queues: Vec<Queue> = queues
        .into_iter()
        .map(|id| Queue {
            id,
            next: 0,
            asked: now,
        })
        .collect();
    let mut open = queues.len();
    let (mut out, mut input) = (BytesMut::new(), BytesMut::with_capacity(512 * 1024));
    for (opaque, queue) in queues.iter_mut().enumerate() {
        ask(topic, queue, opaque, count, &mut out);
    }
    while open > 0 {
        stream.write_all(&out).await.map_err(|e| e.to_string())?;
        out.clear();
        input.reserve(256 * 1024);
        let read = tokio::time::timeout(REPLY_WITHIN, stream.read_buf(&mut input))
            .await
            .map_err(|_| format!("no reply within {REPLY_WITHIN:?}"))?
            .map_err(|e| e.to_string())?;
        if read == 0 {
            return Err("the connection was closed".to_string());
        }
        while let Some(frame) = Frame::decode(&mut input).map_err(|e| e.to_string())? {
            let opaque = frame.header.opaque as usize;
            let Some(queue) = queues
                .get_mut(opaque)
                .filter(|_| frame.header.is_response())
            else {
                continue;
            };
            // Not in the match itself: the borrow would last through its waits.
            let taken = take(queue, &frame, &mut tally.borrow_mut())?;
            match taken {
                Taken::Messages(read) => bar.inc(read),
                Taken::End => {
                    open -= 1;
                    continue;
                }
                Taken::Again => tokio::time::sleep(PAUSE).await,
            }
            ask(topic, queue, opaque, count, &mut out);
        }
    }
    Ok(())
}

fn ask(topic: &str, queue: &mut Queue, opaque: usize, count: usize, out: &mut BytesMut) {
    let mut ext = Ext::new();
    for (name, value) in pull_fields(GROUP, topic, queue.id, queue.next, count) {
        ext.push(name, value);
    }
    queue.asked = Instant::now();
    encode_request(request::PULL_MESSAGE, opaque as i32, 0, &ext, &[], out);
}

enum Taken {
    Messages(u64),
    /// The queue's end.
    End,
    /// Nothing this time.
    Again,
}

/// Counts one reply, checks its offsets, and moves the queue on.
fn take(queue: &mut Queue, frame: &Frame, tally: &mut Tally) -> Result<Taken, String> {
    let code = frame.header.code;
    *tally.codes.entry(code).or_default() += 1;
    let ext = &frame.header.ext;
    let next = ext.i64("nextBeginOffset").map_err(|e| e.to_string())?;
    match (code, next) {
        (response::SUCCESS, Some(next)) => {
            let micros = queue.asked.elapsed().as_micros() as u64;
            tally.latency_us.saturating_record(micros.max(1));
            let read = count_records(queue, &frame.body, tally)?;
            queue.next = next.max(queue.next);
            Ok(Taken::Messages(read))
        }
        (response::PULL_NOT_FOUND, _) => Ok(Taken::End),
        // The first offsets were deleted: begin where the queue begins now.
        (response::PULL_OFFSET_MOVED, Some(next)) if next > queue.next => {
            queue.next = next;
            Ok(Taken::Again)
        }
        (response::PULL_OFFSET_MOVED, _) => Ok(Taken::End),
        (response::PULL_RETRY_IMMEDIATELY, next) => {
            queue.next = next.unwrap_or(queue.next);
            Ok(Taken::Again)
        }
        (response::SYSTEM_BUSY | response::SERVICE_NOT_AVAILABLE, _) => Ok(Taken::Again),
        (code, _) => {
            let remark = frame.header.remark.as_ref().map_or("", |r| r.as_str());
            Err(format!(
                "a pull of queue {} got code {code}: {remark}",
                queue.id
            ))
        }
    }
}

/// Walks the records of a body; each must have the offset that follows the one before.
fn count_records(queue: &mut Queue, body: &[u8], tally: &mut Tally) -> Result<u64, String> {
    let (mut rest, mut read) = (body, 0);
    while !rest.is_empty() {
        let record = Record::parse(rest).map_err(|e| format!("queue {}: {e}", queue.id))?;
        if record.queue_offset() != queue.next {
            tally.gap_count += 1;
            if tally.gaps.len() < 8 {
                tally.gaps.push(format!(
                    "queue {}: offset {} came where {} was due",
                    queue.id,
                    record.queue_offset(),
                    queue.next
                ));
            }
        }
        queue.next = record.queue_offset() + 1;
        tally.body_bytes += record.body().len() as u64;
        read += 1;
        rest = &rest[record.len()..];
    }
    tally.messages += read;
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(address: &str, queues: u32) -> Target {
        Target {
            address: address.into(),
            broker: String::new(),
            queues,
        }
    }

    #[test]
    fn every_queue_is_dealt_to_one_connection_of_its_broker() {
        let dealt = lanes(&[target("a", 3)], 2);
        assert_eq!(dealt, [("a".into(), vec![0, 2]), ("a".into(), vec![1])]);
        let dealt = lanes(&[target("a", 2), target("b", 2)], 1);
        assert_eq!(dealt, [("a".into(), vec![0, 1]), ("b".into(), vec![0, 1])]);
        let dealt = lanes(&[target("a", 1)], 3);
        assert_eq!(dealt, [("a".into(), vec![0])]);
    }
}
