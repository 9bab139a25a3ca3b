//! What to do with the end of a log after a crash: keep, cut, or refuse.
//!
//! The decision is one pure function. `recover` gathers what it needs from the active segment and does
//! nothing to the file.

use std::path::Path;
use std::sync::Arc;

use super::OpenError;
use super::codec::{Expected, FrameError};
use super::scan::{Scanner, Step};
use super::segment::{HEADER_BYTES, Header, Mark};
use super::table::Table;
use crate::env::LogFile;
use crate::sabotage::{self, Sabotage};
use crate::types::{EntryId, Position};

/// Why a scan of the active segment ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The file's end, or zeros where the next entry would begin.
    Empty,
    /// Bytes that are no valid next entry.
    Bad,
}

/// What to do with the log's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nothing that matters follows the last entry.
    Keep,
    /// What follows the last entry was never known to be durable: cut it off.
    Cut,
    /// Something that was durable is missing or damaged: touch nothing.
    Refuse,
}

/// `end` is the position after the last valid entry, `mark` what was known to be durable.
pub(crate) fn decide(end: Position, stop: &Stop, mark: Position) -> Decision {
    match stop {
        // I-19: what was durable is never cut.
        _ if end < mark && !sabotage::on(Sabotage::DamageCut) => Decision::Refuse,
        Stop::Empty => Decision::Keep,
        Stop::Bad => Decision::Cut,
    }
}

/// The active segment as found.
pub(crate) struct Found {
    pub table: Table,
    pub decision: Decision,
    /// Why the scan stopped.
    pub reason: Option<FrameError>,
}

/// Scans the active segment from its first entry.
pub(crate) fn recover(
    path: &Path,
    file: &Arc<dyn LogFile>,
    header: &Header,
    mark: &Mark,
) -> Result<Found, OpenError> {
    let io = |source| OpenError::io(path, source);
    let len = file.len().map_err(io)?;
    let limit = header.first + len.saturating_sub(HEADER_BYTES).min(header.capacity);
    let mut scanner = Scanner::new(
        file.clone(),
        header.group,
        header.first,
        limit,
        beginning(header),
    );
    let mut table = Table::empty(header);
    let (stop, reason) = loop {
        match scanner.step().map_err(io)? {
            Step::Entry(record) => table.push(&record),
            Step::End => break (Stop::Empty, None),
            Step::Bad(FrameError::Zero) => break (Stop::Empty, Some(FrameError::Zero)),
            Step::Bad(error) => break (Stop::Bad, Some(error)),
        }
    };
    let decision = decide(table.end, &stop, mark.position);
    if decision == Decision::Refuse {
        return Err(OpenError::Damaged {
            path: path.to_path_buf(),
            offset: HEADER_BYTES + (table.end - header.first),
            entry: describe(table.last().or(header.prev), reason.as_ref()),
            durable: mark.position,
        });
    }
    Ok(Found {
        table,
        decision,
        reason,
    })
}

/// What the first entry of a segment must be.
pub(crate) fn beginning(header: &Header) -> Expected {
    Expected {
        position: header.first,
        index: Some(header.first_index),
        prev_term: Some(header.prev.map_or(0, |prev| prev.term)),
    }
}

/// Names the entry that should follow `last`.
pub(crate) fn describe(last: Option<EntryId>, reason: Option<&FrameError>) -> String {
    let index = last.map_or(0, |last| last.index + 1);
    match reason {
        Some(reason) => format!("{index} ({reason})"),
        None => format!("{index} (the file ends before it)"),
    }
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
