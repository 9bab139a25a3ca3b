//! Reading entries by index: from memory, else from the files, checked.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::codec::{Expected, FrameError, Record};
use super::scan::{Scanner, Step};
use super::segment::{Header, Segment};
use super::state::State;
use super::table::Table;
use super::{Shared, lock};
use crate::types::{EntryId, Position};

/// Part of a segment to read from its file.
struct Part {
    segment: Arc<Segment>,
    /// Header of the segment after it; `None` for the active one.
    next: Option<Header>,
    indexes: Range<u64>,
    /// Where the first entry begins and where the last ends; `None` until the table is read.
    positions: Option<Range<Position>>,
}

/// What a read has to do, decided under the lock.
struct Plan {
    generation: u64,
    parts: Vec<Part>,
    /// Entries after the parts, from memory.
    cached: Vec<Record>,
}

/// The entries `range` as far as the log holds them, oldest first; stops after `limit` bytes, but never
/// before the first. Waits for the disk when they are not in memory.
pub(crate) fn read(shared: &Shared, range: Range<u64>, limit: u64) -> io::Result<Vec<Record>> {
    loop {
        let plan = plan(&mut lock(&shared.state), &range, limit);
        let generation = plan.generation;
        let result = carry_out(shared, plan, limit);
        // A truncation meanwhile may have pulled the entries from under the read: then it did not happen.
        if lock(&shared.state).generation == generation {
            return result;
        }
    }
}

/// As [`read`], but `None` when it would need the disk.
pub(crate) fn read_cached(shared: &Shared, range: &Range<u64>, limit: u64) -> Option<Vec<Record>> {
    let plan = plan(&mut lock(&shared.state), range, limit);
    plan.parts.is_empty().then_some(plan.cached)
}

fn plan(state: &mut State, range: &Range<u64>, limit: u64) -> Plan {
    let from = range.start.max(state.first_index());
    let to = range.end.min(state.next_index().unwrap_or(0));
    let mut plan = Plan {
        generation: state.generation,
        parts: Vec::new(),
        cached: Vec::new(),
    };
    if from >= to {
        return plan;
    }
    let cached_from = state.cache.first_index().unwrap_or(to).clamp(from, to);
    let mut index = from;
    while index < cached_from {
        let Some(at) = state.segment_of_index(index) else {
            break;
        };
        let next = state.segments.get(at + 1).map(|next| next.header);
        let until = next.map_or(cached_from, |next| next.first_index.min(cached_from));
        let segment = state.segments[at].clone();
        let table = match (&state.active, &next) {
            (Some(active), None) => Some(positions(active, &(index..until))),
            _ => segment
                .pinned_table()
                .or_else(|| state.cached_table(segment.header.first))
                .map(|table| positions(&table, &(index..until))),
        };
        plan.parts.push(Part {
            segment,
            next,
            indexes: index..until,
            positions: table,
        });
        index = until;
        if limit < u64::MAX {
            // One part is enough to go on with.
            return plan;
        }
    }
    let mut bytes = 0;
    for record in state.cache.from(cached_from) {
        bytes += record.framed();
        let over = bytes > limit && !plan.cached.is_empty();
        if record.id.index >= to || over {
            break;
        }
        plan.cached.push(record.clone());
    }
    plan
}

fn positions(table: &Table, indexes: &Range<u64>) -> Range<Position> {
    let at = |index| {
        table
            .position(index)
            .expect("the index is within the segment")
    };
    at(indexes.start)..at(indexes.end)
}

fn carry_out(shared: &Shared, plan: Plan, limit: u64) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    for part in plan.parts {
        let positions = match (part.positions.clone(), part.next) {
            (Some(positions), _) => positions,
            (None, Some(next)) => {
                let table = load_table(shared, &part.segment, &next)?;
                positions(&table, &part.indexes)
            }
            (None, None) => {
                return Err(damaged(
                    &part.segment,
                    part.indexes.start,
                    part.segment.header.first,
                    None,
                ));
            }
        };
        read_part(&part, positions, limit, &mut records)?;
    }
    records.extend(plan.cached);
    Ok(records)
}

fn read_part(
    part: &Part,
    positions: Range<Position>,
    limit: u64,
    into: &mut Vec<Record>,
) -> io::Result<()> {
    let segment = &part.segment;
    let expected = Expected {
        position: positions.start,
        index: Some(part.indexes.start),
        prev_term: None,
    };
    let mut scanner = Scanner::new(
        segment.file()?.clone(),
        segment.header.group,
        segment.header.first,
        positions.end,
        expected,
    );
    let mut bytes = 0;
    for index in part.indexes.clone() {
        match scanner.step()? {
            Step::Entry(record) => {
                bytes += record.framed();
                if bytes > limit && !into.is_empty() {
                    return Ok(());
                }
                into.push(record);
            }
            Step::End => return Err(damaged(segment, index, scanner.position(), None)),
            Step::Bad(error) => {
                return Err(damaged(segment, index, scanner.position(), Some(error)));
            }
        }
    }
    Ok(())
}

fn damaged(
    segment: &Segment,
    index: u64,
    position: Position,
    error: Option<FrameError>,
) -> io::Error {
    let why = error.map_or("the segment ends before it".to_string(), |error| {
        error.to_string()
    });
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!(
            "{}: entry {index} at byte {} is damaged: {why}",
            segment.path.display(),
            segment.offset(position)
        ),
    )
}

/// The table of a sealed segment: from memory, its file, or a scan of the segment.
pub(crate) fn load_table(
    shared: &Shared,
    segment: &Segment,
    next: &Header,
) -> io::Result<Arc<Table>> {
    if let Some(table) = segment.pinned_table() {
        return Ok(table);
    }
    let first = segment.header.first;
    if let Some(table) = lock(&shared.state).cached_table(first) {
        return Ok(table);
    }
    let files = shared.files.as_ref();
    let path = segment.table_path();
    let table = match Table::read(files, &path, &segment.header, next)? {
        Some(table) => table,
        None => {
            tracing::info!(path = %path.display(), "rebuilding the entry table by a scan");
            let table = scan_table(segment, next)?;
            if let Err(error) = table.write(files, &path) {
                tracing::warn!(path = %path.display(), %error, "cannot keep the entry table");
            }
            table
        }
    };
    let table = Arc::new(table);
    lock(&shared.state).keep_table(table.clone());
    Ok(table)
}

/// Builds the table of a sealed segment, which must be whole.
pub(crate) fn scan_table(segment: &Segment, next: &Header) -> io::Result<Table> {
    let header = &segment.header;
    let mut table = Table::empty(header);
    let mut scanner = Scanner::new(
        segment.file()?.clone(),
        header.group,
        header.first,
        next.first,
        super::recovery::beginning(header),
    );
    loop {
        match scanner.step()? {
            Step::Entry(record) => table.push(&record),
            Step::End if table.fits(header, next) => return Ok(table),
            Step::End => {
                return Err(damaged(segment, table.next_index(), table.end, None));
            }
            Step::Bad(error) => {
                return Err(damaged(segment, table.next_index(), table.end, Some(error)));
            }
        }
    }
}

/// The table of the segment that holds `keep`, when that is a sealed one: it becomes the active one.
pub(crate) fn table_to_reopen(shared: &Shared, keep: Option<u64>) -> io::Result<Option<Table>> {
    let Some(keep) = keep else {
        return Ok(None);
    };
    let found = {
        let state = lock(&shared.state);
        state.segment_of_index(keep).and_then(|at| {
            let next = state.segments.get(at + 1)?;
            Some((state.segments[at].clone(), next.header))
        })
    };
    match found {
        Some((segment, next)) => {
            let table = load_table(shared, &segment, &next)?;
            Ok(Some(Table::clone(&table)))
        }
        None => Ok(None),
    }
}

/// See [`super::Log::last_of_terms`].
pub(crate) fn last_of_terms(shared: &Shared, from: u64, to: u64) -> io::Result<Vec<EntryId>> {
    let mut found: Vec<EntryId> = Vec::new();
    let (segments, active) = {
        let state = lock(&shared.state);
        (state.segments.clone(), state.active.clone())
    };
    for (at, segment) in segments.iter().enumerate() {
        let header = &segment.header;
        let Some(next) = segments.get(at + 1).map(|next| next.header) else {
            let table = active.as_ref().expect("the last segment has a table");
            merge(&mut found, table.last_of_terms(from, to));
            break;
        };
        if header.first_index > to || next.first_index <= from {
            continue;
        }
        // Terms never fall: the same term before the segment and at its end means one term throughout.
        match (header.prev, next.prev) {
            (Some(before), Some(last)) if before.term == last.term => {
                let index = last.index.min(to);
                merge(
                    &mut found,
                    vec![EntryId {
                        term: last.term,
                        index,
                    }],
                );
            }
            _ => {
                let table = load_table(shared, segment, &next)?;
                merge(&mut found, table.last_of_terms(from, to));
            }
        }
    }
    Ok(found)
}

fn merge(found: &mut Vec<EntryId>, more: Vec<EntryId>) {
    for id in more {
        match found.last_mut() {
            Some(last) if last.term == id.term => *last = id,
            _ => found.push(id),
        }
    }
}
