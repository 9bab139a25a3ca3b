//! What the state machine and the readers share.

use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use quorumlog_raft::env::Files;

use super::Arrivals;
use super::block_cache::BlockCache;
use super::index_file::IndexFile;
use super::log_bytes::LogBytes;
use super::queue::RunPlace;
use super::state::State;
use super::tables::Warm;

pub(super) struct Shared {
    /// Held for writing once per entry, and for reading never across a wait for the disk.
    state: RwLock<State>,
    pub log: Arc<dyn LogBytes>,
    pub files: Arc<dyn Files>,
    pub blocks: BlockCache,
    pub arrivals: OnceLock<Arc<dyn Arrivals>>,
    pub warm: Warm,
}

impl Shared {
    pub(super) fn new(
        state: State,
        log: Arc<dyn LogBytes>,
        files: Arc<dyn Files>,
        warm: Warm,
    ) -> Shared {
        Shared {
            state: RwLock::new(state),
            log,
            files,
            blocks: BlockCache::default(),
            arrivals: OnceLock::new(),
            warm,
        }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The index of a sealed segment is in its file: the items in memory can go.
    pub(super) fn install_index(&self, file: Arc<IndexFile>) {
        let mut state = self.write();
        for (number, row) in file.rows.iter().enumerate() {
            let Some(topic) = state.topics.by_name_mut(&row.topic) else {
                continue;
            };
            if topic.incarnation != row.incarnation {
                continue;
            }
            let Some(queue) = topic.queues.get_mut(&row.queue) else {
                continue;
            };
            if let Ok(run) = queue
                .runs
                .binary_search_by_key(&file.segment, |run| run.segment)
            {
                queue.runs[run].place = RunPlace::File(file.clone(), number);
            }
        }
    }
}
