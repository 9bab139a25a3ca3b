//! Reads the units of an entry's payload in place, for applying it.
//!
//! The entry's own CRC was right when these bytes were read, so an error here is a bug or a newer format:
//! the caller must stop, because skipping what it cannot read would make replicas differ.

use crate::protocol::message::{Record, RecordError};

use super::entry::{
    KIND_COMMAND, KIND_DELIVERY, KIND_SEND, PAYLOAD_HEADER_BYTES, PAYLOAD_VERSION,
    RECORD_PREFIX_BYTES, SEND_DEDUPLICATE, UNIT_HEADER_BYTES,
};

/// Why a payload cannot be read, and where (byte in the payload).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("payload byte {at}: {what}")]
pub(super) struct UnitError {
    pub at: usize,
    pub what: UnitErrorKind,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnitErrorKind {
    #[error("cut short")]
    Short,
    #[error("payload version {0} is not known")]
    Version(u8),
    #[error("unit kind {0} is not known")]
    Kind(u8),
    #[error("flags {0:#04x} are not known")]
    Flags(u8),
    #[error("a send unit without records")]
    NoRecords,
    #[error("{0} bytes behind the last unit or record")]
    Trailing(usize),
    #[error("a record that cannot be read: {0}")]
    Record(RecordError),
    #[error("a command that cannot be read: {0}")]
    Command(super::codec::CodecError),
    #[error("records of more than one queue in one unit")]
    MixedQueues,
}

/// One unit, in place.
#[derive(Clone)]
pub(super) enum Unit<'a> {
    Send {
        deduplicate: bool,
        records: Records<'a>,
    },
    Delivery {
        level: u32,
        offset: i64,
        record: Placed<'a>,
    },
    /// Encoded by `codec`; starts at this byte of the payload.
    Command { at: usize, bytes: &'a [u8] },
}

/// A record and the byte of the payload it starts at.
#[derive(Clone, Copy)]
pub(super) struct Placed<'a> {
    pub at: usize,
    pub record: Record<'a>,
}

/// The units of one payload. Ends after the last one or after an error.
pub(super) struct Units<'a> {
    cursor: Cursor<'a>,
    left: u32,
    done: bool,
}

impl<'a> Units<'a> {
    pub(super) fn new(payload: &'a [u8]) -> Result<Units<'a>, UnitError> {
        let mut cursor = Cursor {
            bytes: payload,
            at: 0,
        };
        let version = cursor.u8()?;
        if version != PAYLOAD_VERSION {
            return Err(cursor.error_at(0, UnitErrorKind::Version(version)));
        }
        let left = cursor.u32()?;
        debug_assert_eq!(cursor.at, PAYLOAD_HEADER_BYTES);
        Ok(Units {
            cursor,
            left,
            done: false,
        })
    }

    /// How many units the payload says it has left, never more than could be there.
    pub(super) fn len(&self) -> usize {
        (self.left as usize).min(self.cursor.rest() / UNIT_HEADER_BYTES)
    }

    fn read(&mut self) -> Result<Unit<'a>, UnitError> {
        let start = self.cursor.at;
        let kind = self.cursor.u8()?;
        let length = self.cursor.u32()? as usize;
        let at = self.cursor.at;
        let content = self.cursor.take(length)?;
        let mut inner = Cursor {
            bytes: &self.cursor.bytes[..at + length],
            at,
        };
        match kind {
            KIND_SEND => {
                let flags = inner.u8()?;
                if flags & !SEND_DEDUPLICATE != 0 {
                    return Err(inner.error_at(at, UnitErrorKind::Flags(flags)));
                }
                let left = inner.u32()?;
                if left == 0 {
                    return Err(inner.error_at(at, UnitErrorKind::NoRecords));
                }
                Ok(Unit::Send {
                    deduplicate: flags & SEND_DEDUPLICATE != 0,
                    records: Records {
                        cursor: inner,
                        left,
                        done: false,
                    },
                })
            }
            KIND_DELIVERY => {
                let level = inner.u32()?;
                let offset = inner.u64()? as i64;
                let record = inner.record()?;
                inner.expect_end()?;
                Ok(Unit::Delivery {
                    level,
                    offset,
                    record,
                })
            }
            KIND_COMMAND => Ok(Unit::Command { at, bytes: content }),
            other => Err(inner.error_at(start, UnitErrorKind::Kind(other))),
        }
    }
}

impl<'a> Iterator for Units<'a> {
    type Item = Result<Unit<'a>, UnitError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let unit = if self.left == 0 {
            self.done = true;
            self.cursor.expect_end().err().map(Err)?
        } else {
            self.left -= 1;
            self.read()
        };
        self.done |= unit.is_err();
        Some(unit)
    }
}

/// The records of a send unit. Ends after the last one or after an error.
#[derive(Clone)]
pub(super) struct Records<'a> {
    cursor: Cursor<'a>,
    left: u32,
    done: bool,
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Placed<'a>, UnitError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let record = if self.left == 0 {
            self.done = true;
            self.cursor.expect_end().err().map(Err)?
        } else {
            self.left -= 1;
            self.cursor.record()
        };
        self.done |= record.is_err();
        Some(record)
    }
}

/// A place in the payload; nothing behind `bytes` is read.
#[derive(Clone)]
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn error_at(&self, at: usize, what: UnitErrorKind) -> UnitError {
        UnitError { at, what }
    }

    fn rest(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], UnitError> {
        let Some(taken) = self
            .bytes
            .get(self.at..)
            .and_then(|rest| rest.get(..length))
        else {
            return Err(self.error_at(self.at, UnitErrorKind::Short));
        };
        self.at += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], UnitError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn u8(&mut self) -> Result<u8, UnitError> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32, UnitError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, UnitError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn record(&mut self) -> Result<Placed<'a>, UnitError> {
        self.take(RECORD_PREFIX_BYTES)?;
        let at = self.at;
        let record = Record::parse(&self.bytes[at..])
            .map_err(|error| self.error_at(at, UnitErrorKind::Record(error)))?;
        self.take(record.len())?;
        Ok(Placed { at, record })
    }

    fn expect_end(&self) -> Result<(), UnitError> {
        match self.rest() {
            0 => Ok(()),
            rest => Err(self.error_at(self.at, UnitErrorKind::Trailing(rest))),
        }
    }
}
