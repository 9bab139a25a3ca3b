//! The payload of an entry: a version byte and a sequence of units, each the work of one request.
//!
//! A unit is kind, length and content. Messages are stored records behind a CRC32C each, so that a single
//! record read later can be checked by itself. Outcomes of applying the units go back in the same order.

use bytes::{Bytes, BytesMut};

use super::command::{Command, CommandOutcome};
use crate::protocol::message::NewRecord;

/// Gathers units into the payload of one entry.
pub struct EntryBuilder {
    buffer: BytesMut,
    units: usize,
}

/// What became of one unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitOutcome {
    /// Messages have their places: queue offset and position of the first. The records of one unit follow
    /// one another with [`RECORD_PREFIX_BYTES`] between them. `duplicate`: these are the places of an
    /// earlier unit with the same keys, nothing was added.
    Stored {
        queue_offset: i64,
        position: u64,
        duplicate: bool,
    },
    /// The topic was gone when the entry was applied: not stored, never visible.
    NoSuchTopic,
    /// The queue was gone when the entry was applied: not stored, never visible.
    NoSuchQueue,
    /// A delivery that another one had done before: nothing was added.
    AlreadyDelivered,
    Command(CommandOutcome),
}

/// Bytes in front of each record inside a unit (its CRC32C).
pub const RECORD_PREFIX_BYTES: usize = 4;

#[allow(clippy::todo, unused_variables)]
impl EntryBuilder {
    pub fn new() -> EntryBuilder {
        todo!()
    }

    /// Adds the messages of one send request (one, or a batch): consecutive places in one queue. With
    /// `deduplicate`, a unit whose first record's (topic, UNIQ_KEY, body CRC) is in the window gets the
    /// first one's places.
    pub fn push_send(&mut self, records: &[NewRecord<'_>], deduplicate: bool) {
        todo!()
    }

    /// Adds the delivery of the delayed message at `offset` of `level`: applied only if it is the next one.
    pub fn push_delivery(&mut self, level: u32, offset: i64, record: &NewRecord<'_>) {
        todo!()
    }

    pub fn push_command(&mut self, command: &Command) {
        todo!()
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    pub fn units(&self) -> usize {
        self.units
    }

    pub fn is_empty(&self) -> bool {
        self.units == 0
    }

    /// The payload; the builder is empty again and keeps its capacity policy.
    pub fn take(&mut self) -> Bytes {
        todo!()
    }
}

impl Default for EntryBuilder {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a result from the state machine cannot be read: a bug, or another format version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the result of an entry cannot be read: {0}")]
pub struct OutcomeError(pub String);

/// Reads the outcomes of an entry's units, in order.
#[allow(clippy::todo, unused_variables)]
pub fn decode_outcomes(result: &Bytes) -> Result<Vec<UnitOutcome>, OutcomeError> {
    todo!()
}
