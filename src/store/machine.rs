//! The state machine: the only writer of the state.

use std::sync::Arc;

use bytes::Bytes;
use quorumlog_raft::sabotage::{self, Sabotage};
use quorumlog_raft::{AppliedMark, Committed, StateMachine};

use super::Machine;
use super::apply::{EntryContext, Grown};
use super::checkpoint::Capture;
use super::keeper::{Keeper, Sealed};
use super::shared::Shared;
use super::state::State;

impl Machine {
    pub(super) fn new(shared: Arc<Shared>, keeper: Keeper) -> Machine {
        let restored = shared.read().mark.clone();
        Machine {
            shared,
            keeper,
            restored,
            grown: Vec::new(),
        }
    }
}

impl StateMachine for Machine {
    fn restored(&self) -> Option<AppliedMark> {
        self.restored.clone()
    }

    fn apply(&mut self, entry: &Committed) -> Bytes {
        if entry.payload.is_empty() {
            self.advance(entry);
            return Bytes::new();
        }
        self.grown.clear();
        let mut state = self.shared.write();
        begin(&mut self.keeper, &mut state, entry);
        let mut context = EntryContext {
            payload_position: entry.payload_position,
            grown: &mut self.grown,
        };
        let outcomes = match state.apply(&entry.payload, &mut context) {
            Ok(outcomes) => outcomes,
            // To skip it would make this replica differ from those that can read it.
            Err(error) => panic!(
                "committed entry {} at position {} cannot be applied by this program: {error}. \
                 Its checksum is right: it was written by a newer version, or this is a bug",
                entry.id, entry.payload_position
            ),
        };
        finish(&mut state, entry);
        drop(state);
        self.keeper.work();
        if let Some(listener) = self.shared.arrivals.get() {
            for Grown { topic, queue, end } in self.grown.drain(..) {
                listener.arrived(&topic, queue, end);
            }
        }
        outcomes
    }

    fn advance(&mut self, entry: &Committed) {
        let mut state = self.shared.write();
        begin(&mut self.keeper, &mut state, entry);
        finish(&mut state, entry);
        drop(state);
        self.keeper.work();
    }
}

/// When the entry is the first of its segment, everything before belongs to sealed ones.
fn begin(keeper: &mut Keeper, state: &mut State, entry: &Committed) {
    if state.mark.is_none() {
        state.segment = entry.segment;
        return;
    }
    assert!(
        entry.segment >= state.segment,
        "entry {} is in the segment at {}, but the one at {} has been begun",
        entry.id,
        entry.segment,
        state.segment
    );
    if entry.segment == state.segment {
        return;
    }
    let segment = state.segment;
    let end = state.applied_end();
    let runs = state.seal(entry.segment);
    // I-20: with a stamp that is not of its content no checkpoint can be gone on from.
    if sabotage::on(Sabotage::CheckpointLate)
        && let Some(mark) = &mut state.mark
    {
        mark.id = entry.id;
    }
    keeper.sealed(Sealed {
        segment,
        end,
        runs,
        checkpoint: Capture::of(state),
    });
}

fn finish(state: &mut State, entry: &Committed) {
    match &mut state.mark {
        // The members are cloned only when they changed: there may be 80,000 entries a second.
        Some(mark) if mark.members_id == entry.mark.members_id => {
            mark.id = entry.mark.id;
            mark.end = entry.mark.end;
        }
        mark => *mark = Some(entry.mark.clone()),
    }
}
