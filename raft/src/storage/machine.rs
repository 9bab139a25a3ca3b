//! The state machine as openraft sees it: hands committed entries to the caller's machine, in order, and
//! remembers how far it came.
//!
//! Snapshots carry an applied mark and the machine's own checkpoint. A machine without checkpoints has no
//! snapshots; that is enough as long as nothing is purged.

use std::io;
use std::sync::Mutex;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::entry::RaftPayload;
use openraft::storage::{
    EntryResponder, RaftSnapshotBuilder, RaftStateMachine, Snapshot, SnapshotMeta,
};
use openraft::{EntryPayload, OptionalSend, StoredMembership};
use tokio::sync::watch;

use super::entry::{
    Applied, LogEntry, Payload, RaftLogId, TermId, TypeConfig, entry_id, members, membership,
    raft_log_id,
};
use crate::log::Log;
use crate::log::codec::{FRAME_BYTES, encode_members, framed};
use crate::sabotage::{self, Sabotage};
use crate::types::{
    AppliedMark, Checkpoint, Committed, EntryId, NodeId, Peer, Position, StateMachine,
};

/// How far this node has applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AppliedAt {
    /// The last applied entry; `None` when there is none.
    pub id: Option<EntryId>,
    /// Position after it.
    pub position: Position,
}

/// A checkpoint on its way between nodes; `None` is that of a machine to which nothing was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotData(pub Option<Checkpoint>);

type Meta = SnapshotMeta<TermId, NodeId, Peer>;
type MachineSnapshot = Snapshot<TermId, NodeId, Peer, SnapshotData>;

/// openraft's state machine over the caller's.
pub(crate) struct Machine {
    log: Log,
    /// Only for `Sync`: never locked, as openraft calls with an exclusive reference.
    inner: Mutex<Box<dyn StateMachine>>,
    /// `None` until something was applied.
    mark: Option<AppliedMark>,
    /// openraft's form of the mark's members.
    stored: StoredMembership<TermId, NodeId, Peer>,
    /// First position of the segment that holds what was applied last.
    segment: Position,
    current: Option<Checkpoint>,
    applied: watch::Sender<AppliedAt>,
}

fn unsupported(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, text)
}

impl Machine {
    /// Takes the machine over where its own checkpoint left it.
    pub fn new(log: Log, machine: Box<dyn StateMachine>) -> io::Result<Machine> {
        let mark = machine.restored();
        let (applied, _) = watch::channel(AppliedAt::default());
        let mut this = Machine {
            log,
            inner: Mutex::new(machine),
            mark: None,
            stored: StoredMembership::default(),
            segment: 0,
            current: None,
            applied,
        };
        if let Some(mark) = mark {
            this.take_over(mark)?;
        }
        Ok(this)
    }

    /// How far this node has applied, now and on every change.
    pub fn applied(&self) -> watch::Receiver<AppliedAt> {
        self.applied.subscribe()
    }

    fn take_over(&mut self, mark: AppliedMark) -> io::Result<()> {
        self.stored = stored(&mark)?;
        self.mark = Some(mark);
        self.publish();
        Ok(())
    }

    fn publish(&self) {
        let at = self
            .mark
            .as_ref()
            .map_or(AppliedAt::default(), |mark| AppliedAt {
                id: Some(mark.id),
                position: mark.end,
            });
        self.applied.send_replace(at);
    }

    fn inner(&mut self) -> &mut dyn StateMachine {
        let inner = match self.inner.get_mut() {
            Ok(inner) => inner,
            Err(poisoned) => poisoned.into_inner(),
        };
        inner.as_mut()
    }

    /// Applies one entry and returns the machine's result; empty for entries that Raft made for itself.
    fn apply_one(&mut self, entry: LogEntry) -> Applied {
        let id = entry_id(&entry.id);
        if let Some(mark) = &self.mark {
            assert!(
                id.index > mark.id.index && id.term >= mark.id.term,
                "entry {id} is applied after {}",
                mark.id
            );
            assert!(
                id.index > mark.id.index + 1 || entry.position == mark.end,
                "entry {id} is at {}, the one before ends at {}",
                entry.position,
                mark.end
            );
        }
        if let Some(changed) = entry.content.get_membership() {
            self.stored = StoredMembership::new(Some(entry.id), changed);
        }
        let (payload, payload_len, normal) = match entry.content {
            EntryPayload::Normal(Payload(payload)) => {
                let len = payload.len();
                (payload, len, true)
            }
            EntryPayload::Blank => (Bytes::new(), 0, false),
            EntryPayload::Membership(changed) => {
                let len = encode_members(&members(&changed)).len();
                (Bytes::new(), len, false)
            }
        };
        let mark = self.mark_after(id, entry.position + framed(payload_len));
        self.mark = Some(mark.clone());
        if let Some(segment) = self.log.segment_of(entry.position) {
            self.segment = segment;
        }
        let committed = Committed {
            id,
            segment: self.segment,
            payload_position: entry.position + FRAME_BYTES as u64,
            payload,
            mark,
        };
        if normal {
            Applied(self.inner().apply(&committed))
        } else {
            self.inner().advance(&committed);
            Applied(Bytes::new())
        }
    }

    fn mark_after(&self, id: EntryId, end: Position) -> AppliedMark {
        AppliedMark {
            id,
            end,
            members_id: self.stored.log_id().as_ref().map(entry_id),
            members: members(self.stored.membership()),
        }
    }
}

fn stored(mark: &AppliedMark) -> io::Result<StoredMembership<TermId, NodeId, Peer>> {
    Ok(StoredMembership::new(
        mark.members_id.map(raft_log_id),
        membership(&mark.members)?,
    ))
}

fn snapshot(checkpoint: Option<&Checkpoint>) -> io::Result<MachineSnapshot> {
    let meta = match checkpoint {
        None => SnapshotMeta::default(),
        Some(checkpoint) => SnapshotMeta {
            last_log_id: Some(raft_log_id(checkpoint.mark.id)),
            last_membership: stored(&checkpoint.mark)?,
        },
    };
    Ok(Snapshot {
        meta,
        snapshot: SnapshotData(checkpoint.cloned()),
    })
}

/// Hands out what the machine's checkpoint was when the builder was asked for.
pub(crate) enum Builder {
    /// Nothing was applied: an empty snapshot is the whole truth.
    Nothing,
    Checkpoint(Checkpoint),
    /// The machine makes no checkpoints.
    Unsupported,
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> Result<MachineSnapshot, io::Error> {
        match self {
            Builder::Nothing => snapshot(None),
            Builder::Checkpoint(checkpoint) => snapshot(Some(checkpoint)),
            Builder::Unsupported => Err(unsupported("the state machine makes no checkpoints")),
        }
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Builder;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<RaftLogId>, StoredMembership<TermId, NodeId, Peer>), io::Error> {
        let mut id = self.mark.as_ref().map(|mark| mark.id);
        // I-18: the state is the log, entry by entry.
        if sabotage::on(Sabotage::EntrySkipped)
            && let Some(id) = &mut id
            && self
                .log
                .committed()
                .is_some_and(|committed| committed.index > id.index)
        {
            id.index += 1;
        }
        Ok((id.map(raft_log_id), self.stored.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        let result = loop {
            match entries.next().await {
                None => break Ok(()),
                Some(Err(error)) => break Err(error),
                Some(Ok((entry, responder))) => {
                    let applied = self.apply_one(entry);
                    if let Some(responder) = responder {
                        // Whoever is told the result must find it applied.
                        self.publish();
                        responder.send(applied);
                    }
                }
            }
        };
        self.publish();
        result
    }

    /// Nothing asks for snapshots by policy. When openraft needs one, it gets the machine's checkpoint.
    async fn try_create_snapshot_builder(&mut self, force: bool) -> Option<Builder> {
        if !force {
            return None;
        }
        Some(self.get_snapshot_builder().await)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        if self.mark.is_none() {
            return Builder::Nothing;
        }
        if let Some(made) = self.inner().checkpoint() {
            self.current = Some(made);
        }
        match &self.current {
            Some(checkpoint) => Builder::Checkpoint(checkpoint.clone()),
            None => Builder::Unsupported,
        }
    }

    async fn install_snapshot(
        &mut self,
        _: &Meta,
        snapshot: SnapshotData,
    ) -> Result<(), io::Error> {
        let Some(checkpoint) = snapshot.0 else {
            return Err(unsupported("an empty snapshot brings nothing"));
        };
        if !self.inner().install(&checkpoint) {
            return Err(unsupported("the state machine cannot install a checkpoint"));
        }
        self.take_over(checkpoint.mark.clone())?;
        self.current = Some(checkpoint);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<MachineSnapshot>, io::Error> {
        self.current
            .as_ref()
            .map(|current| snapshot(Some(current)))
            .transpose()
    }
}
