//! The payload of an entry: a version byte and a sequence of units, each the work of one request.
//!
//! A unit is kind, length and content. Messages are stored records behind a CRC32C each, so that a single
//! record read later can be checked by itself. Outcomes of applying the units go back in the same order.
//! Reading a payload back is `unit`'s work.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::codec;
use super::command::{Command, CommandOutcome};
use crate::protocol::message::NewRecord;

/// Version of the payload's layout.
pub(super) const PAYLOAD_VERSION: u8 = 1;
/// Version byte and number of units (u32, little endian like every number here).
pub(super) const PAYLOAD_HEADER_BYTES: usize = 5;
/// Kind (u8) and length of the content (u32).
pub(super) const UNIT_HEADER_BYTES: usize = 5;
pub(super) const KIND_SEND: u8 = 1;
pub(super) const KIND_DELIVERY: u8 = 2;
pub(super) const KIND_COMMAND: u8 = 3;
pub(super) const SEND_DEDUPLICATE: u8 = 1;

/// A builder takes memory in pieces of at least this size and gives it out entry by entry, so that small
/// entries neither grow step by step nor hold a large piece each.
const PIECE_BYTES: usize = 64 * 1024;

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
    /// A delivery that is not the next one of its level (another one had done it before): nothing was added.
    AlreadyDelivered,
    Command(CommandOutcome),
}

/// Bytes in front of each record inside a unit (its CRC32C).
pub const RECORD_PREFIX_BYTES: usize = 4;

impl EntryBuilder {
    pub fn new() -> EntryBuilder {
        EntryBuilder {
            buffer: BytesMut::new(),
            units: 0,
        }
    }

    /// Adds the messages of one send request (one, or a batch): consecutive places in one queue. With
    /// `deduplicate`, a unit whose first record's (topic, UNIQ_KEY, body CRC) is in the window gets the
    /// first one's places.
    ///
    /// Panics when there is no record, or when the records are not all for one queue of one topic: such a
    /// unit must never reach a log.
    pub fn push_send(&mut self, records: &[NewRecord<'_>], deduplicate: bool) {
        let first = records
            .first()
            .expect("a send unit has at least one record");
        let content = records
            .iter()
            .map(|record| RECORD_PREFIX_BYTES + record.encoded_len())
            .sum::<usize>();
        let start = self.begin(KIND_SEND, 1 + 4 + content);
        self.buffer
            .put_u8(if deduplicate { SEND_DEDUPLICATE } else { 0 });
        self.buffer.put_u32_le(records.len() as u32);
        for record in records {
            assert!(
                record.topic == first.topic && record.queue_id == first.queue_id,
                "one send unit for {}/{} and {}/{}",
                first.topic,
                first.queue_id,
                record.topic,
                record.queue_id,
            );
            self.push_record(record);
        }
        self.end(start);
    }

    /// Adds the delivery of the delayed message at `offset` of `level`: applied only if it is the next one.
    pub fn push_delivery(&mut self, level: u32, offset: i64, record: &NewRecord<'_>) {
        let start = self.begin(
            KIND_DELIVERY,
            12 + RECORD_PREFIX_BYTES + record.encoded_len(),
        );
        self.buffer.put_u32_le(level);
        self.buffer.put_i64_le(offset);
        self.push_record(record);
        self.end(start);
    }

    pub fn push_command(&mut self, command: &Command) {
        let bytes = codec::encode(command);
        let start = self.begin(KIND_COMMAND, bytes.len());
        self.buffer.put_slice(&bytes);
        self.end(start);
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
        if self.units == 0 {
            return Bytes::new();
        }
        self.buffer[1..PAYLOAD_HEADER_BYTES].copy_from_slice(&(self.units as u32).to_le_bytes());
        self.units = 0;
        self.buffer.split().freeze()
    }

    /// Opens a unit whose content will have about `content` bytes; returns where the content starts.
    fn begin(&mut self, kind: u8, content: usize) -> usize {
        let wanted = PAYLOAD_HEADER_BYTES + UNIT_HEADER_BYTES + content;
        if self.buffer.is_empty() {
            if self.buffer.capacity() < wanted {
                self.buffer = BytesMut::with_capacity(wanted.max(PIECE_BYTES));
            }
            self.buffer.put_u8(PAYLOAD_VERSION);
            self.buffer.put_u32_le(0);
        } else {
            self.buffer.reserve(wanted);
        }
        self.buffer.put_u8(kind);
        self.buffer.put_u32_le(0);
        self.buffer.len()
    }

    /// Closes the unit whose content starts at `start`.
    fn end(&mut self, start: usize) {
        let length = u32::try_from(self.buffer.len() - start)
            .expect("the proposer bounds an entry far below 4 GiB");
        self.buffer[start - 4..start].copy_from_slice(&length.to_le_bytes());
        self.units += 1;
    }

    fn push_record(&mut self, record: &NewRecord<'_>) {
        self.buffer.put_u32_le(0);
        let start = self.buffer.len();
        record.encode(&mut self.buffer);
        let crc = crc32c::crc32c(&self.buffer[start..]);
        self.buffer[start - RECORD_PREFIX_BYTES..start].copy_from_slice(&crc.to_le_bytes());
    }
}

impl Default for EntryBuilder {
    fn default() -> Self {
        Self::new()
    }
}

const OUTCOMES_VERSION: u8 = 1;
const OUTCOME_STORED: u8 = 1;
const OUTCOME_DUPLICATE: u8 = 2;
const OUTCOME_NO_SUCH_TOPIC: u8 = 3;
const OUTCOME_NO_SUCH_QUEUE: u8 = 4;
const OUTCOME_ALREADY_DELIVERED: u8 = 5;
const OUTCOME_COMMAND: u8 = 6;
/// Bytes of an encoded [`UnitOutcome::Stored`], the largest of the fixed ones.
const OUTCOME_STORED_BYTES: usize = 17;

/// Outcomes while an entry is applied: version, then each as a tag and, where it has one, a content.
pub(super) struct OutcomeWriter(BytesMut);

impl OutcomeWriter {
    pub(super) fn with_units(units: usize) -> OutcomeWriter {
        let mut bytes = BytesMut::with_capacity(1 + units.min(4096) * OUTCOME_STORED_BYTES);
        bytes.put_u8(OUTCOMES_VERSION);
        OutcomeWriter(bytes)
    }

    pub(super) fn push(&mut self, outcome: &UnitOutcome) {
        match outcome {
            UnitOutcome::Stored {
                queue_offset,
                position,
                duplicate,
            } => {
                let mut bytes = [0; OUTCOME_STORED_BYTES];
                bytes[0] = if *duplicate {
                    OUTCOME_DUPLICATE
                } else {
                    OUTCOME_STORED
                };
                bytes[1..9].copy_from_slice(&queue_offset.to_le_bytes());
                bytes[9..].copy_from_slice(&position.to_le_bytes());
                self.0.put_slice(&bytes);
            }
            UnitOutcome::NoSuchTopic => self.0.put_u8(OUTCOME_NO_SUCH_TOPIC),
            UnitOutcome::NoSuchQueue => self.0.put_u8(OUTCOME_NO_SUCH_QUEUE),
            UnitOutcome::AlreadyDelivered => self.0.put_u8(OUTCOME_ALREADY_DELIVERED),
            UnitOutcome::Command(outcome) => {
                let bytes = codec::encode(outcome);
                self.0.put_u8(OUTCOME_COMMAND);
                self.0.put_u32_le(bytes.len() as u32);
                self.0.put_slice(&bytes);
            }
        }
    }

    pub(super) fn finish(self) -> Bytes {
        self.0.freeze()
    }
}

/// A result as the state machine gives it, for tests of what reads it.
#[cfg(test)]
pub(crate) fn encode_outcomes(outcomes: &[UnitOutcome]) -> Bytes {
    let mut writer = OutcomeWriter::with_units(outcomes.len());
    for outcome in outcomes {
        writer.push(outcome);
    }
    writer.finish()
}

/// Why a result from the state machine cannot be read: a bug, or another format version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the result of an entry cannot be read: {0}")]
pub struct OutcomeError(pub String);

/// Reads the outcomes of an entry's units, in order.
pub fn decode_outcomes(result: &Bytes) -> Result<Vec<UnitOutcome>, OutcomeError> {
    let mut rest: &[u8] = result;
    if rest.is_empty() {
        return Ok(Vec::new()); // Of an entry without units.
    }
    let short = |_| OutcomeError(format!("cut short at {} bytes", result.len()));
    match rest.try_get_u8().map_err(short)? {
        OUTCOMES_VERSION => {}
        other => return Err(OutcomeError(format!("version {other} is not known"))),
    }
    let mut outcomes = Vec::new();
    while rest.has_remaining() {
        let tag = rest.get_u8();
        outcomes.push(match tag {
            OUTCOME_STORED | OUTCOME_DUPLICATE => UnitOutcome::Stored {
                queue_offset: rest.try_get_i64_le().map_err(short)?,
                position: rest.try_get_u64_le().map_err(short)?,
                duplicate: tag == OUTCOME_DUPLICATE,
            },
            OUTCOME_NO_SUCH_TOPIC => UnitOutcome::NoSuchTopic,
            OUTCOME_NO_SUCH_QUEUE => UnitOutcome::NoSuchQueue,
            OUTCOME_ALREADY_DELIVERED => UnitOutcome::AlreadyDelivered,
            OUTCOME_COMMAND => {
                let length = rest.try_get_u32_le().map_err(short)? as usize;
                let Some((content, behind)) = rest.split_at_checked(length) else {
                    return Err(OutcomeError(format!("cut short at {} bytes", result.len())));
                };
                rest = behind;
                UnitOutcome::Command(
                    codec::decode(content).map_err(|error| OutcomeError(error.to_string()))?,
                )
            }
            other => return Err(OutcomeError(format!("tag {other} is not known"))),
        });
    }
    Ok(outcomes)
}
