//! One producing connection: keeps its slots in flight, scans replies for opaque and code.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::target::{Finder, Target};
use super::template::{Keys, OPAQUE_BASE, OPAQUE_RANGE, Shape, Template};
use crate::protocol::codes::response;

/// Longest reply that is looked at; a send's reply has no body.
const REPLY_BYTES_MAX: usize = 1024 * 1024;
/// A connection whose requests are refused waits this long, so that refusals are not a busy loop.
const PAUSE: Duration = Duration::from_millis(10);
/// Pause before a broken connection is opened again.
const RECONNECT: Duration = Duration::from_millis(100);

/// What a run sends, and when.
pub(super) struct Plan {
    pub finder: Finder,
    pub topic: String,
    pub size: usize,
    pub batch: usize,
    pub in_flight: usize,
    pub born_ms: i64,
    pub measure_from: Instant,
    pub measure_until: Instant,
}

/// What a thread's connections saw while the run was measured.
pub(super) struct Tally {
    /// Requests that were acknowledged (code 0).
    pub acknowledged: u64,
    /// Microseconds from writing a request to reading its reply, code 0 only.
    pub latency_us: Histogram<u64>,
    /// Replies by code.
    pub codes: BTreeMap<i32, u64>,
    /// The first remark of each code but 0.
    pub remarks: BTreeMap<i32, String>,
    /// Connections that broke or could not be opened, by reason.
    pub errors: BTreeMap<String, u64>,
    /// Requests without a reply: their connection broke, or the run ended.
    pub unanswered: u64,
}

impl Tally {
    pub fn new() -> Tally {
        Tally {
            acknowledged: 0,
            latency_us: Histogram::new_with_bounds(1, 120_000_000, 3)
                .expect("the bounds are valid constants"),
            codes: BTreeMap::new(),
            remarks: BTreeMap::new(),
            errors: BTreeMap::new(),
            unanswered: 0,
        }
    }

    pub fn merge(&mut self, other: &Tally) {
        self.acknowledged += other.acknowledged;
        self.unanswered += other.unanswered;
        // Both have the same bounds, so nothing can be out of range.
        let _ = self.latency_us.add(&other.latency_us);
        for (code, count) in &other.codes {
            *self.codes.entry(*code).or_default() += count;
        }
        for (code, remark) in &other.remarks {
            self.remarks.entry(*code).or_insert_with(|| remark.clone());
        }
        for (error, count) in &other.errors {
            *self.errors.entry(error.clone()).or_default() += count;
        }
    }
}

/// Drives connection `number` until the run is over, reconnecting when it breaks.
pub(super) async fn drive(
    plan: Arc<Plan>,
    first: Target,
    number: usize,
    run: u64,
    tally: Rc<RefCell<Tally>>,
) {
    let mut keys = Keys::new(run, number as u16);
    let mut target = first;
    while Instant::now() < plan.measure_until {
        match one_connection(&plan, &target, number, &mut keys, &tally).await {
            Ok(()) => return,
            Err(error) => {
                *tally
                    .borrow_mut()
                    .errors
                    .entry(format!("{}: {error}", target.address))
                    .or_default() += 1;
            }
        }
        tokio::time::sleep(RECONNECT).await;
        let finder = plan.finder.clone();
        let found = tokio::task::spawn_blocking(move || finder.find()).await;
        if let Ok(Ok(found)) = found
            && !found.is_empty()
        {
            target = found[number % found.len()].clone();
        }
    }
}

async fn one_connection(
    plan: &Plan,
    target: &Target,
    number: usize,
    keys: &mut Keys,
    tally: &Rc<RefCell<Tally>>,
) -> std::io::Result<()> {
    let stream = TcpStream::connect(&target.address).await?;
    stream.set_nodelay(true)?;
    let templates: Vec<Template> = (0..target.queues.max(1))
        .map(|queue| {
            let shape = Shape {
                topic: &plan.topic,
                queue,
                size: plan.size,
                batch: plan.batch,
            };
            Template::new(&shape, plan.born_ms)
        })
        .collect();
    let mut flight = Flight {
        slots: Slots::new(plan.in_flight),
        tally: Rc::clone(tally),
    };
    exchange(plan, stream, &templates, number, keys, &mut flight).await
}

/// The slots of one connection. However the connection ends, what is still in flight was not answered.
struct Flight {
    slots: Slots,
    tally: Rc<RefCell<Tally>>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.tally.borrow_mut().unanswered += self.slots.in_flight() as u64;
    }
}

async fn exchange(
    plan: &Plan,
    mut stream: TcpStream,
    templates: &[Template],
    number: usize,
    keys: &mut Keys,
    flight: &mut Flight,
) -> std::io::Result<()> {
    let Flight { slots, tally } = flight;
    let mut next_queue = number;
    let mut out = Vec::with_capacity(templates[0].len() * plan.in_flight);
    let mut replies = Replies::new();
    loop {
        let now = Instant::now();
        if now < plan.measure_until {
            out.clear();
            while let Some(opaque) = slots.take(now) {
                templates[next_queue % templates.len()].append(opaque, keys, &mut out);
                next_queue = next_queue.wrapping_add(1);
            }
            stream.write_all(&out).await?;
        } else if slots.in_flight() == 0 {
            return Ok(());
        }
        if stream
            .read(replies.space())
            .await
            .map(|n| replies.filled(n))?
            == 0
        {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if count_replies(plan, &mut replies, slots, &mut tally.borrow_mut())? {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Takes all replies that have arrived; true when one of them was a refusal.
fn count_replies(
    plan: &Plan,
    replies: &mut Replies,
    slots: &mut Slots,
    tally: &mut Tally,
) -> std::io::Result<bool> {
    let now = Instant::now();
    let measured = now >= plan.measure_from && now < plan.measure_until;
    let mut refused = false;
    while let Some((opaque, code, remark)) = replies.next()? {
        let Some(started) = slots.give_back(opaque) else {
            continue;
        };
        refused |= code != response::SUCCESS;
        if !measured {
            continue;
        }
        *tally.codes.entry(code).or_default() += 1;
        if code == response::SUCCESS {
            tally.acknowledged += 1;
            let micros = now.saturating_duration_since(started).as_micros() as u64;
            tally.latency_us.saturating_record(micros.max(1));
        } else {
            let remark = || String::from_utf8_lossy(remark).into_owned();
            tally.remarks.entry(code).or_insert_with(remark);
        }
    }
    Ok(refused)
}

/// The requests in flight of a connection: when each was written. An opaque is the slot plus a round, so
/// that a reply to an earlier request of the same slot is told apart.
struct Slots {
    started: Vec<Option<(i32, Instant)>>,
    free: Vec<usize>,
    round: i32,
}

impl Slots {
    fn new(count: usize) -> Slots {
        Slots {
            started: vec![None; count],
            free: (0..count).rev().collect(),
            round: 0,
        }
    }

    fn in_flight(&self) -> usize {
        self.started.len() - self.free.len()
    }

    fn take(&mut self, now: Instant) -> Option<i32> {
        let slot = self.free.pop()?;
        let count = self.started.len() as i32;
        self.round = (self.round + 1) % (OPAQUE_RANGE / count);
        let opaque = OPAQUE_BASE + self.round * count + slot as i32;
        self.started[slot] = Some((opaque, now));
        Some(opaque)
    }

    fn give_back(&mut self, opaque: i32) -> Option<Instant> {
        let distance = usize::try_from(opaque.checked_sub(OPAQUE_BASE)?).ok()?;
        let slot = distance % self.started.len();
        let (expected, started) = self.started[slot]?;
        if expected != opaque {
            return None;
        }
        self.started[slot] = None;
        self.free.push(slot);
        Some(started)
    }
}

/// Bytes that arrived, cut into replies without decoding them.
struct Replies {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Replies {
    fn new() -> Replies {
        Replies {
            buffer: vec![0; 64 * 1024],
            start: 0,
            end: 0,
        }
    }

    /// Room for more bytes; at least a byte.
    fn space(&mut self) -> &mut [u8] {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        &mut self.buffer[self.end..]
    }

    fn filled(&mut self, count: usize) -> usize {
        self.end += count;
        count
    }

    /// Opaque, code and remark (as written) of the next whole reply. An error when what came is no reply.
    fn next(&mut self) -> std::io::Result<Option<(i32, i32, &[u8])>> {
        let odd =
            |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_string());
        let bytes = &self.buffer[self.start..self.end];
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if !(4..=REPLY_BYTES_MAX).contains(&length) {
            return Err(odd("the reply's length is out of bounds"));
        }
        let Some(frame) = rest.get(..length) else {
            return Ok(None);
        };
        self.start += 4 + length;
        match opaque_and_code(frame) {
            Some((opaque, response::SUCCESS)) => Ok(Some((opaque, response::SUCCESS, b""))),
            Some((opaque, code)) => Ok(Some((opaque, code, remark(frame)))),
            None => Err(odd("the reply has no opaque or code")),
        }
    }
}

/// Finds the two numbers in a frame (without its length word), JSON or ROCKETMQ header.
fn opaque_and_code(frame: &[u8]) -> Option<(i32, i32)> {
    let (word, rest) = frame.split_first_chunk::<4>()?;
    let header_len = usize::from(word[1]) << 16 | usize::from(word[2]) << 8 | usize::from(word[3]);
    let header = rest.get(..header_len)?;
    if word[0] == 1 {
        let code = i16::from_be_bytes(header.get(..2)?.try_into().ok()?);
        let opaque = i32::from_be_bytes(header.get(5..9)?.try_into().ok()?);
        return Some((opaque, i32::from(code)));
    }
    Some((
        number_after(header, b"\"opaque\":")?,
        number_after(header, b"\"code\":")?,
    ))
}

/// The remark of a JSON header as it is written there, at most 200 bytes; empty when there is none.
fn remark(frame: &[u8]) -> &[u8] {
    let name = b"\"remark\":\"";
    let Some(at) = memchr::memmem::find(frame, name) else {
        return b"";
    };
    let rest = &frame[at + name.len()..];
    let end = memchr::memchr(b'"', rest).unwrap_or(rest.len());
    &rest[..end.min(200)]
}

fn number_after(header: &[u8], name: &[u8]) -> Option<i32> {
    let at = memchr::memmem::find(header, name)? + name.len();
    let rest = &header[at..];
    let end = rest
        .iter()
        .position(|b| !b.is_ascii_digit() && *b != b'-')
        .unwrap_or(rest.len());
    std::str::from_utf8(&rest[..end]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::frame::Reply;
    use bytes::BytesMut;

    fn feed(replies: &mut Replies, bytes: &[u8]) {
        for part in bytes.chunks(50_000) {
            let space = replies.space();
            let count = part.len().min(space.len());
            space[..count].copy_from_slice(&part[..count]);
            replies.filled(count);
        }
    }

    #[test]
    fn replies_of_the_server_are_scanned_one_by_one() {
        let mut bytes = BytesMut::new();
        Reply::new(0, 1_000_000_007)
            .with("msgId", "7F")
            .encode(&mut bytes);
        Reply::new(14, 1_000_000_008)
            .with_remark("disk full")
            .with("note", "say \"opaque\":5, \"code\":6")
            .encode(&mut bytes);
        let mut replies = Replies::new();
        let (first, last) = bytes.split_at(bytes.len() - 1);
        feed(&mut replies, first);
        assert_eq!(replies.next().unwrap(), Some((1_000_000_007, 0, &b""[..])));
        assert_eq!(replies.next().unwrap(), None);
        feed(&mut replies, last);
        assert_eq!(
            replies.next().unwrap(),
            Some((1_000_000_008, 14, &b"disk full"[..]))
        );
        assert_eq!(replies.next().unwrap(), None);
    }

    #[test]
    fn a_binary_header_is_scanned_too() {
        let mut frame = vec![1, 0, 0, 21, 0, 2, 0, 1, 223];
        frame.extend_from_slice(&77i32.to_be_bytes());
        frame.extend_from_slice(&[0; 12]);
        assert_eq!(opaque_and_code(&frame), Some((77, 2)));
        assert_eq!(opaque_and_code(&frame[..10]), None);
    }

    #[test]
    fn bytes_that_are_no_reply_are_an_error() {
        for bytes in [
            &b"HTTP/1.1 400"[..],
            &[0, 0, 0, 0],
            &[0, 0, 0, 5, 0, 0, 0, 1, b'{'],
        ] {
            let mut replies = Replies::new();
            feed(&mut replies, bytes);
            assert!(replies.next().is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_slot_is_used_again_under_another_opaque() {
        let now = Instant::now();
        let mut slots = Slots::new(2);
        let (a, b) = (slots.take(now).unwrap(), slots.take(now).unwrap());
        assert_eq!((slots.take(now), slots.in_flight()), (None, 2));
        assert!(slots.give_back(a).is_some());
        assert!(slots.give_back(a).is_none());
        let c = slots.take(now).unwrap();
        assert!(c != a && c != b);
        assert!(slots.give_back(a).is_none());
        assert!(slots.give_back(5).is_none());
        assert_eq!(slots.in_flight(), 2);
    }
}
