//! openraft's own suite for log storage and state machines, against the log on real files.

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{OptionalSend, StorageError, StoredMembership};
use std::io;

use super::entry::{RaftLogId, TermId, TypeConfig};
use super::machine::Builder;
use super::{LogStore, Machine, SnapshotData};
use crate::env::Env;
use crate::log::{FlushMode, Log, Options};
use crate::types::{AppliedMark, Checkpoint, Committed, NodeId, Peer, Position, StateMachine};

/// A machine whose whole state is its mark.
#[derive(Default)]
struct MarkOnly(Option<AppliedMark>);

impl StateMachine for MarkOnly {
    fn restored(&self) -> Option<AppliedMark> {
        None
    }

    fn apply(&mut self, entry: &Committed) -> Bytes {
        self.advance(entry);
        entry.payload.clone()
    }

    fn advance(&mut self, entry: &Committed) {
        self.0 = Some(entry.mark.clone());
    }

    fn checkpoint(&mut self) -> Option<Checkpoint> {
        self.0.clone().map(|mark| Checkpoint {
            mark,
            bytes: Bytes::new(),
        })
    }

    fn install(&mut self, checkpoint: &Checkpoint) -> bool {
        self.0 = Some(checkpoint.mark.clone());
        true
    }
}

/// The suite applies entries that were never in a log, hence have no position: give each the one that it
/// would have.
struct Positioned(Machine, Position);

impl RaftStateMachine<TypeConfig> for Positioned {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Builder;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<RaftLogId>, StoredMembership<TermId, NodeId, Peer>), io::Error> {
        self.0.applied_state().await
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        let entries: Vec<_> = entries.collect().await;
        for item in entries {
            let item = item.map(|(mut entry, responder)| {
                entry.position = self.0.applied().borrow().position;
                (entry, responder)
            });
            self.0.apply(futures_util::stream::iter([item])).await?;
        }
        self.1 = self.0.applied().borrow().position;
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, force: bool) -> Option<Builder> {
        self.0.try_create_snapshot_builder(force).await
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        self.0.get_snapshot_builder().await
    }

    async fn install_snapshot(
        &mut self,
        meta: &openraft::SnapshotMeta<TermId, NodeId, Peer>,
        snapshot: SnapshotData,
    ) -> Result<(), io::Error> {
        self.0.install_snapshot(meta, snapshot).await
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<openraft::Snapshot<TermId, NodeId, Peer, SnapshotData>>, io::Error> {
        self.0.get_current_snapshot().await
    }
}

struct Fresh {
    segment_bytes: u64,
    cache_bytes: usize,
}

impl StoreBuilder<TypeConfig, LogStore, Positioned, tempfile::TempDir> for Fresh {
    async fn build(
        &self,
    ) -> Result<(tempfile::TempDir, LogStore, Positioned), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let options = Options {
            dir: dir.path().to_path_buf(),
            group: "suite".to_string(),
            node: 0,
            segment_bytes: self.segment_bytes,
            cache_bytes: self.cache_bytes,
            reserve: 0,
            flush: FlushMode::Sync,
        };
        let log = Log::open(options, &Env::real()).expect("a fresh directory opens");
        let machine = Machine::new(log.clone(), Box::new(MarkOnly::default()))
            .expect("an empty machine is taken over");
        Ok((dir, LogStore::new(log), Positioned(machine, 0)))
    }
}

async fn run(segment_bytes: u64, cache_bytes: usize) {
    let fresh = Fresh {
        segment_bytes,
        cache_bytes,
    };
    if let Err(error) = Suite::test_all(fresh).await {
        panic!("{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suite_passes_from_memory() {
    run(1 << 20, 1 << 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suite_passes_with_tiny_segments_and_no_cache() {
    run(200, 0).await;
}
