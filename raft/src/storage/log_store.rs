//! The log as openraft sees it.
//!
//! Converts between openraft's entries and the log's records; everything else is the log's.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds, RangeInclusive};

use futures_util::{Stream, StreamExt, stream};
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::{EntryPayload, OptionalSend};

use super::entry::{
    EntryContent, LogEntry, Payload, RaftLogId, RaftVote, TypeConfig, entry_id, members,
    membership, raft_log_id,
};
use crate::log::codec::{Kind, Record, decode_members, encode_members};
use crate::log::{Log, NewEntry, Vote};
use crate::sabotage::{self, Sabotage};

/// Bytes of entries in one answer to replication or apply.
const READ_BYTES: u64 = 1 << 20;

/// openraft's log storage. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LogStore {
    log: Log,
}

impl LogStore {
    pub fn new(log: Log) -> LogStore {
        LogStore { log }
    }

    async fn read(&self, range: Range<u64>, limit: u64) -> io::Result<Vec<LogEntry>> {
        let records = self.log.read_entries(range, limit).await?;
        records.into_iter().map(log_entry).collect()
    }
}

/// The log's form of an entry.
pub(crate) fn new_entry(entry: LogEntry) -> NewEntry {
    let (kind, payload) = match entry.content {
        EntryPayload::Blank => (Kind::Blank, bytes::Bytes::new()),
        EntryPayload::Normal(Payload(payload)) => (Kind::Normal, payload),
        EntryPayload::Membership(changed) => (Kind::Membership, encode_members(&members(&changed))),
    };
    NewEntry {
        kind,
        id: entry_id(&entry.id),
        payload,
    }
}

/// openraft's form of an entry of the log.
pub(crate) fn log_entry(record: Record) -> io::Result<LogEntry> {
    let content: EntryContent = match record.kind {
        Kind::Blank => EntryPayload::Blank,
        Kind::Normal => EntryPayload::Normal(Payload(record.payload)),
        Kind::Membership => {
            let members = decode_members(&record.payload).ok_or_else(|| {
                let text = format!("the members in entry {} cannot be read", record.id);
                io::Error::new(io::ErrorKind::InvalidData, text)
            })?;
            EntryPayload::Membership(membership(&members)?)
        }
    };
    Ok(LogEntry {
        id: raft_log_id(record.id),
        content,
        position: record.position,
    })
}

fn indexes(range: &impl RangeBounds<u64>) -> Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    start..end
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<LogEntry>, io::Error> {
        self.read(indexes(&range), u64::MAX).await
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<LogEntry>, io::Error> {
        self.read(start..end, READ_BYTES).await
    }

    /// For apply: reads on as the stream is consumed, so that a long replay needs little memory.
    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = Result<LogEntry, io::Error>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let batches = stream::unfold(
            (self.clone(), indexes(&range)),
            |(store, range)| async move {
                if range.is_empty() {
                    return None;
                }
                match store.read(range.clone(), READ_BYTES).await {
                    Ok(entries) => {
                        let next = entries.last()?.id.index() + 1;
                        let batch: Vec<_> = entries.into_iter().map(Ok).collect();
                        Some((stream::iter(batch), (store, next..range.end)))
                    }
                    // Once, and then no more.
                    Err(error) => Some((stream::iter(vec![Err(error)]), (store, 0..0))),
                }
            },
        );
        Box::pin(batches.flatten())
    }

    async fn read_vote(&mut self) -> Result<Option<RaftVote>, io::Error> {
        Ok(self.log.vote().map(|vote| RaftVote {
            leader_id: openraft::impls::leader_id_std::LeaderId {
                term: vote.term,
                voted_for: vote.voted_for,
            },
            committed: vote.committed,
        }))
    }

    async fn get_key_log_ids(
        &mut self,
        range: RangeInclusive<RaftLogId>,
    ) -> Result<Vec<RaftLogId>, io::Error> {
        let (from, to) = (range.start().index(), range.end().index());
        let log = self.log.clone();
        let found = self
            .log
            .blocking(move || log.last_of_terms(from, to))
            .await?;
        Ok(found.into_iter().map(raft_log_id).collect())
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        Ok(LogState {
            last_purged_log_id: self.log.purged().map(raft_log_id),
            last_log_id: self.log.appended().map(raft_log_id),
        })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &RaftVote) -> Result<(), io::Error> {
        let vote = Vote {
            term: vote.leader_id.term,
            voted_for: vote.leader_id.voted_for,
            committed: vote.committed,
        };
        self.log.save_vote(vote).await
    }

    async fn save_committed(&mut self, committed: Option<RaftLogId>) -> Result<(), io::Error> {
        self.log.set_committed(committed.as_ref().map(entry_id));
        Ok(())
    }

    /// What was recorded, as far as the log reaches.
    async fn read_committed(&mut self) -> Result<Option<RaftLogId>, io::Error> {
        let last = self.log.appended();
        let committed = self.log.committed();
        let reached = match (committed, last) {
            (Some(committed), Some(last)) if committed.index > last.index => Some(last),
            (_, None) => None,
            (committed, _) => committed,
        };
        Ok(reached.map(raft_log_id))
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: IOFlushed<TypeConfig>,
    ) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = LogEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries = entries.into_iter().map(new_entry).collect();
        self.log.room().await;
        self.log.append(
            entries,
            Box::new(move |result| callback.io_completed(result)),
        )?;
        if sabotage::on(Sabotage::DiskOnCore) {
            self.log.barrier().await?; // I-21: a stalled disk would stall the node.
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<RaftLogId>) -> Result<(), io::Error> {
        let keep = last_log_id.map(|id| id.index());
        let keep = match sabotage::on(Sabotage::TruncateOneShort) {
            true => Some(keep.map_or(0, |keep| keep + 1)), // I-20: the leader's entry does not fit.
            false => keep,
        };
        self.log.truncate_after(keep).await
    }

    async fn purge(&mut self, log_id: RaftLogId) -> Result<(), io::Error> {
        self.log.purge(entry_id(&log_id), None).await
    }
}
