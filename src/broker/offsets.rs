//! Queue ends, offsets by time, and the progress of consumer groups.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

#[cfg(feature = "sabotage")]
use quorumlog_raft::sabotage::{self, Sabotage};
use tokio::time::{Instant, sleep};

use super::place::{Access, Place};
use super::pull::{busy, unreadable};
use super::pull_rules::quoted;
use super::{Broker, Request};
use crate::protocol::codes::response;
use crate::protocol::frame::Reply;
use crate::protocol::request::{Pull, QueueRequest};
use crate::store::{Command, CommandOutcome, StoreError};

/// A queue whose first message is within this share of the memory counts as young (RocketMQ's
/// `accessMessageInMemoryMaxRatio`).
const YOUNG_PERCENT_OF_MEMORY: u64 = 40;
/// How often a read that waits for the lease looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The machine's memory, bytes; 0 when it cannot be told.
static MEMORY_BYTES: LazyLock<u64> = LazyLock::new(|| {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    memory_bytes(&info).unwrap_or(0)
});

/// Offsets that pulls commit, one at a time for each queue of a group: while one is on its way only the
/// newest that follows is kept.
#[derive(Default)]
pub struct PullCommits {
    under_way: Mutex<BTreeMap<Progress, Option<i64>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Progress {
    group: String,
    topic: String,
    queue: i32,
}

impl PullCommits {
    /// Notes an offset; `true` when the caller must propose it.
    fn begin(&self, progress: &Progress, offset: i64) -> bool {
        let mut under_way = self
            .under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match under_way.get_mut(progress) {
            Some(next) => {
                *next = Some(offset);
                false
            }
            None => {
                under_way.insert(progress.clone(), None);
                true
            }
        }
    }

    /// One proposal has ended; the offset to propose next, if there is one.
    fn next(&self, progress: &Progress) -> Option<i64> {
        let mut under_way = self
            .under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let next = under_way.get_mut(progress)?.take();
        if next.is_none() {
            under_way.remove(progress);
        }
        next
    }
}

/// The total of a `/proc/meminfo`.
fn memory_bytes(info: &str) -> Option<u64> {
    let total = info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// What 14 answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KnownOffset {
    Offset(i64),
    /// 22: the client starts by its own rule.
    Unknown,
    /// 22 too: the client asked not to be given 0.
    UnknownNotZero,
}

/// RocketMQ's rule for a group without progress: on a young queue (never trimmed, first message recent) it
/// starts at 0, whatever its own rule says; else by that.
///
/// `first_behind`: bytes between the queue's first message and the newest; `None` for an empty queue.
fn known_offset(
    stored: Option<i64>,
    set_zero_if_not_found: Option<bool>,
    min: i64,
    first_behind: Option<u64>,
    memory_bytes: u64,
) -> KnownOffset {
    if let Some(offset) = stored.filter(|&offset| offset >= 0) {
        return KnownOffset::Offset(offset);
    }
    if set_zero_if_not_found == Some(false) {
        return KnownOffset::UnknownNotZero;
    }
    let recent = memory_bytes / 100 * YOUNG_PERCENT_OF_MEMORY;
    match first_behind {
        Some(behind) if min <= 0 && behind <= recent => KnownOffset::Offset(0),
        _ => KnownOffset::Unknown,
    }
}

impl Broker {
    pub(super) fn on_query_offset(self: &Arc<Self>, request: Request) {
        let Some(request) = self.claim(request) else {
            return;
        };
        self.answer_blocking(request, true, |broker, asked| {
            let (group, topic, queue) = (asked.consumer_group, asked.topic, asked.queue_id);
            let store = &broker.store;
            let stored = store.consumer_offset(group, topic, queue);
            let bounds = store.queue_bounds(topic, queue);
            let (min, max) = bounds.unwrap_or((0, 0));
            let behind = (max > min)
                .then(|| store.bytes_behind(topic, queue, min))
                .flatten();
            let zero = asked.set_zero_if_not_found;
            Ok(
                match known_offset(stored, zero, min, behind, *MEMORY_BYTES) {
                    KnownOffset::Offset(offset) => {
                        Reply::new(response::SUCCESS, 0).with("offset", offset)
                    }
                    KnownOffset::Unknown => Reply::new(response::QUERY_NOT_FOUND, 0).with_remark(
                        "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
                    ),
                    KnownOffset::UnknownNotZero => Reply::new(response::QUERY_NOT_FOUND, 0)
                        .with_remark("Not found, do not set to zero, maybe this group boot first"),
                },
            )
        });
    }

    pub(super) fn on_update_offset(self: &Arc<Self>, request: Request) {
        let Some(request) = self.claim(request) else {
            return;
        };
        let opaque = request.frame.header.opaque;
        let command = match self.commit_of(&request) {
            Ok(Some(command)) => command,
            Ok(None) => return request.reply.send(Reply::new(response::SUCCESS, opaque)),
            Err((code, remark)) => {
                return request
                    .reply
                    .send(Reply::new(code, opaque).with_remark(remark));
            }
        };
        // I-9: a group's progress survives the node that it was told.
        #[cfg(feature = "sabotage")]
        if sabotage::on(Sabotage::OffsetLocal) {
            self.store.keep_here(command);
            return request.reply.send(Reply::new(response::SUCCESS, opaque));
        }
        let broker = self.clone();
        tokio::spawn(async move {
            let deadline = request.origin.deadline();
            let reply = match broker.proposer.command(deadline, &command).await {
                Ok(CommandOutcome::NoSuchTopic) => Reply::new(response::TOPIC_NOT_EXIST, opaque)
                    .with_remark("the topic was deleted meanwhile"),
                Ok(CommandOutcome::NoSuchGroup) => {
                    Reply::new(response::SUBSCRIPTION_GROUP_NOT_EXIST, opaque)
                        .with_remark("the group was deleted meanwhile")
                }
                Ok(_) => Reply::new(response::SUCCESS, opaque),
                Err(error) => return request.fail(&error),
            };
            request.reply.send(reply);
        });
    }

    /// The command of a 15; `None` when there is nothing to store.
    fn commit_of(&self, request: &Request) -> Result<Option<Command>, (i32, String)> {
        let asked = QueueRequest::read(&request.frame.header.ext, true)
            .map_err(|error| (response::SYSTEM_ERROR, error.to_string()))?;
        let (group, topic) = (quoted(asked.consumer_group), quoted(asked.topic));
        if self.store.group(asked.consumer_group).is_none() {
            let remark = format!("Group {group} not exist!");
            return Err((response::SUBSCRIPTION_GROUP_NOT_EXIST, remark));
        }
        let Some(config) = self.store.topic(asked.topic) else {
            let remark = format!("Topic {topic} not exist!");
            return Err((response::TOPIC_NOT_EXIST, remark));
        };
        let queues = config.read_queues.max(config.write_queues);
        if u32::try_from(asked.queue_id).is_ok_and(|queue| queue >= queues) || asked.queue_id < 0 {
            let remark = format!("queueId[{}] is illegal, topic:[{topic}]", asked.queue_id);
            return Err((response::INVALID_PARAMETER, remark));
        }
        let Some(offset) = asked.commit_offset else {
            let remark = format!("Offset is null, topic is {topic}");
            return Err((response::INVALID_PARAMETER, remark));
        };
        let stored = self
            .store
            .consumer_offset(asked.consumer_group, asked.topic, asked.queue_id);
        // I-9: told without asking the log, so only by a leader that knows what is newest.
        let known = stored == Some(offset) && self.group.lease_read().is_ok();
        // The Go client commits -1 for queues that it never consumed.
        Ok((offset >= 0 && !known).then(|| Command::CommitOffset {
            group: asked.consumer_group.to_string(),
            topic: asked.topic.to_string(),
            queue: asked.queue_id,
            offset,
        }))
    }

    /// Stores what a pull commits, if it is news. Nobody waits for it: clients commit by 15 as well.
    pub(super) fn commit_by_pull(self: &Arc<Self>, pull: &Pull<'_>) {
        let (group, topic, queue) = (pull.consumer_group, pull.topic, pull.queue_id);
        let offset = pull.commit_offset;
        if offset < 0 || self.store.consumer_offset(group, topic, queue) == Some(offset) {
            return;
        }
        let progress = Progress {
            group: group.to_string(),
            topic: topic.to_string(),
            queue,
        };
        if !self.holds.commits.begin(&progress, offset) {
            return;
        }
        let broker = self.clone();
        tokio::spawn(async move {
            let mut next = Some(offset);
            while let Some(offset) = next {
                let command = Command::CommitOffset {
                    group: progress.group.clone(),
                    topic: progress.topic.clone(),
                    queue: progress.queue,
                    offset,
                };
                let deadline = Instant::now() + super::REPLY_WITHIN;
                if let Err(error) = broker.proposer.command(deadline, &command).await {
                    tracing::debug!(%error, "an offset that a pull commits was not stored");
                }
                next = broker.holds.commits.next(&progress);
            }
        });
    }

    pub(super) fn on_search_offset(self: &Arc<Self>, request: Request) {
        let Some(request) = self.claim(request) else {
            return;
        };
        self.answer_blocking(request, false, |broker, asked| {
            let Some(timestamp_ms) = asked.timestamp else {
                let reply = Reply::new(response::SYSTEM_ERROR, 0);
                return Ok(reply.with_remark("the custom field <timestamp> is null"));
            };
            let (topic, queue) = (asked.topic, asked.queue_id);
            let offset = match broker.store.queue_bounds(topic, queue) {
                Some(_) => {
                    let upper = asked.boundary_upper;
                    broker
                        .store
                        .offset_by_time(topic, queue, timestamp_ms, upper)?
                }
                None => 0,
            };
            Ok(Reply::new(response::SUCCESS, 0).with("offset", offset))
        });
    }

    pub(super) fn on_max_offset(self: &Arc<Self>, request: Request) {
        self.answer_bound(request, |(_, max)| max);
    }

    pub(super) fn on_min_offset(self: &Arc<Self>, request: Request) {
        self.answer_bound(request, |(min, _)| min);
    }

    pub(super) fn on_earliest_time(self: &Arc<Self>, request: Request) {
        let Some(request) = self.claim(request) else {
            return;
        };
        self.answer_blocking(request, false, |broker, asked| {
            let (topic, queue) = (asked.topic, asked.queue_id);
            let time = match broker.store.queue_bounds(topic, queue) {
                Some((min, _)) => broker.store.store_time(topic, queue, min)?,
                None => None,
            };
            Ok(Reply::new(response::SUCCESS, 0).with("timestamp", time.unwrap_or(-1)))
        });
    }

    fn answer_bound(self: &Arc<Self>, request: Request, which: fn((i64, i64)) -> i64) {
        let Some(request) = self.claim(request) else {
            return;
        };
        let opaque = request.frame.header.opaque;
        let reply = match QueueRequest::read(&request.frame.header.ext, false) {
            Ok(asked) => {
                let bounds = self.store.queue_bounds(asked.topic, asked.queue_id);
                Reply::new(response::SUCCESS, opaque).with("offset", bounds.map_or(0, which))
            }
            Err(error) => Reply::new(response::SYSTEM_ERROR, opaque).with_remark(error.to_string()),
        };
        request.reply.send(reply);
    }

    /// Answers from the store on a thread that may wait for the disk. The reply's opaque is filled in.
    fn answer_blocking(
        self: &Arc<Self>,
        request: Request,
        group: bool,
        answer: impl FnOnce(&Broker, &QueueRequest<'_>) -> Result<Reply, StoreError> + Send + 'static,
    ) {
        let broker = self.clone();
        self.group.env().writer.spawn_blocking(move || {
            let opaque = request.frame.header.opaque;
            let reply = match QueueRequest::read(&request.frame.header.ext, group) {
                Ok(asked) => answer(&broker, &asked)
                    .map(|reply| Reply { opaque, ..reply })
                    .unwrap_or_else(|error| unreadable(opaque, &error)),
                Err(error) => {
                    Reply::new(response::SYSTEM_ERROR, opaque).with_remark(error.to_string())
                }
            };
            request.reply.send(reply);
        });
    }

    /// Handles the request again once this node has its lease, or another one leads.
    pub(super) fn wait_for_lease(self: &Arc<Self>, request: Request) {
        let broker = self.clone();
        tokio::spawn(async move {
            let deadline = request.origin.deadline();
            loop {
                let place = broker.place(&request.origin, Access::Read);
                let Place::Wait(refusal) = place else {
                    return broker.handle(request);
                };
                if Instant::now() + LOOK_AGAIN >= deadline {
                    let opaque = request.frame.header.opaque;
                    return request.reply.send(busy(opaque, &refusal.to_string()));
                }
                sleep(LOOK_AGAIN).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_without_progress_starts_at_zero_on_young_queues_only() {
        use KnownOffset::{Offset, Unknown, UnknownNotZero};
        const MEMORY: u64 = 1000;
        // stored, setZeroIfNotFound, min, bytes behind the first message, answer
        let cases = [
            (Some(7), None, 0, Some(0), Offset(7)),
            (Some(7), Some(false), 3, None, Offset(7)),
            (Some(0), None, 3, None, Offset(0)),
            (Some(-1), None, 3, None, Unknown),
            (None, None, 0, Some(0), Offset(0)),
            (None, None, 0, Some(400), Offset(0)),
            (None, None, 0, Some(401), Unknown),
            (None, Some(true), 0, Some(400), Offset(0)),
            (None, Some(false), 0, Some(0), UnknownNotZero),
            (None, None, 1, Some(0), Unknown),
            (None, None, 0, None, Unknown),
        ];
        for (stored, zero, min, behind, wanted) in cases {
            let got = known_offset(stored, zero, min, behind, MEMORY);
            assert_eq!(got, wanted, "{stored:?} {zero:?} {min} {behind:?}");
        }
    }

    #[test]
    fn the_memory_is_read_from_the_kernels_table() {
        let info = "MemFree:  12 kB\nMemTotal:       24689620 kB\nMemAvailable: 7 kB\n";
        assert_eq!(memory_bytes(info), Some(24_689_620 * 1024));
        for unreadable in [
            "",
            "MemTotal: x kB",
            "MemTotal: 99999999999999999999 kB",
            "MemTotal: 7",
        ] {
            assert_eq!(memory_bytes(unreadable), None, "{unreadable}");
        }
        assert!(*MEMORY_BYTES > 64 * 1024 * 1024);
    }

    #[test]
    fn commits_of_one_queue_go_one_at_a_time_and_the_newest_wins() {
        let commits = PullCommits::default();
        let progress = |queue| Progress {
            group: "g".into(),
            topic: "t".into(),
            queue,
        };
        assert!(commits.begin(&progress(0), 1));
        assert!(!commits.begin(&progress(0), 2));
        assert!(!commits.begin(&progress(0), 3));
        assert!(
            commits.begin(&progress(1), 9),
            "queues do not wait for each other"
        );
        assert_eq!(commits.next(&progress(0)), Some(3));
        assert_eq!(commits.next(&progress(0)), None);
        assert!(
            commits.begin(&progress(0), 4),
            "the next one is proposed at once"
        );
    }
}
