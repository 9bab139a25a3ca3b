//! Reading a data directory offline, changing nothing and taking no lock: every check, every finding named.
//!
//! For `quorumlog log dump|verify`. On a directory in use the last entries may look torn.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::codec::{FRAME_BYTES, FrameError, Kind, Record, group_tag};
use super::identity::{self, Identity};
use super::purged::{Purged, PurgedFile};
use super::recovery::{Decision, Stop, beginning, decide};
use super::scan::{Scanner, Step};
use super::segment::{self, HEADER_BYTES, Header, HeaderError, Mark};
use super::table::Table;
use super::vote::{Vote, VoteFile};
use super::{LOG, NODE_ID, OpenError, PURGED, VOTE};
use crate::env::{Files, LogFile};
use crate::types::{EntryId, Position};

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub path: PathBuf,
    /// Byte in the file.
    pub offset: u64,
    /// Index of the entry that should be there.
    pub index: Option<u64>,
    pub what: String,
    /// False for what a start repairs by itself: a torn tail, an entry table.
    pub fatal: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.path.display(), self.offset)?;
        if let Some(index) = self.index {
            write!(f, ", entry {index}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// One segment file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    pub path: PathBuf,
    pub first: Position,
    /// Position after the last valid entry.
    pub end: Position,
    pub first_index: u64,
    pub last: Option<EntryId>,
    pub entries: u64,
    /// True for all but the last.
    pub sealed: bool,
    /// The newest durable mark in the header; `None` when both slots are damaged.
    pub mark: Option<Mark>,
}

/// What a data directory holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub identity: Option<Identity>,
    pub vote: Option<Vote>,
    pub purged: Option<Purged>,
    /// Oldest first.
    pub segments: Vec<SegmentReport>,
    pub findings: Vec<Finding>,
}

impl Report {
    /// Would a node start on this directory, and find every entry whole?
    pub fn sound(&self) -> bool {
        self.findings.iter().all(|finding| !finding.fatal)
    }
}

/// One valid entry.
#[derive(Clone, Debug)]
pub struct Inspected<'a> {
    pub path: &'a Path,
    /// Byte of the entry in the file.
    pub offset: u64,
    pub position: Position,
    pub id: EntryId,
    /// `normal`, `blank` or `membership`.
    pub kind: &'static str,
    /// As on disk; for a membership, its encoding.
    pub payload: Bytes,
}

/// Walks everything below `dir`, calls `visit` for each valid entry in log order, and reports the rest.
/// Fails only where the directory itself cannot be read.
pub fn inspect(
    dir: &Path,
    files: &dyn Files,
    visit: &mut dyn FnMut(&Inspected<'_>),
) -> Result<Report, OpenError> {
    let mut report = Report::default();
    small_files(dir, files, &mut report);
    let log_dir = dir.join(LOG);
    let names = files
        .list(&log_dir)
        .map_err(|source| OpenError::io(&log_dir, source))?;
    let segments: Vec<Position> = names
        .iter()
        .filter_map(|name| segment::parse_name(name))
        .collect();
    let group = report
        .identity
        .as_ref()
        .map(|identity| group_tag(&identity.group));
    let mut opened = Vec::new();
    for first in segments {
        let path = log_dir.join(segment::file_name(first));
        match open(&path, files, first, group) {
            Ok(found) => opened.push(found),
            Err(finding) => report.findings.push(finding),
        }
    }
    for (at, found) in opened.iter().enumerate() {
        let next = opened.get(at + 1).map(|next| next.header);
        walk(files, found, next, &mut report, visit);
    }
    Ok(report)
}

fn small_files(dir: &Path, files: &dyn Files, report: &mut Report) {
    let path = dir.join(NODE_ID);
    match identity::read(files, &path) {
        Ok(Some(identity)) => report.identity = Some(identity),
        Ok(None) => report.findings.push(fatal(&path, 0, None, "missing")),
        Err(error) => report.findings.push(fatal(&path, 0, None, error)),
    }
    let path = dir.join(VOTE);
    match VoteFile::open(files, &path) {
        Ok((_, vote)) => report.vote = vote,
        Err(error) => report.findings.push(fatal(&path, 0, None, error)),
    }
    let path = dir.join(PURGED);
    match PurgedFile::open(files, &path) {
        Ok((_, purged)) => report.purged = purged,
        Err(error) => report.findings.push(fatal(&path, 0, None, error)),
    }
}

fn fatal(path: &Path, offset: u64, index: Option<u64>, what: impl ToString) -> Finding {
    Finding {
        path: path.to_path_buf(),
        offset,
        index,
        what: what.to_string(),
        fatal: true,
    }
}

struct Opened {
    path: PathBuf,
    file: Arc<dyn LogFile>,
    header: Header,
    mark: Option<Mark>,
}

fn open(
    path: &Path,
    files: &dyn Files,
    first: Position,
    group: Option<u32>,
) -> Result<Opened, Finding> {
    let damaged = |what: String| fatal(path, 0, None, what);
    let file = files
        .open(path, false)
        .map_err(|error| damaged(error.to_string()))?;
    let block = segment::read_block(file.as_ref()).map_err(|error| damaged(error.to_string()))?;
    let header = Header::decode(&block).map_err(|error| match error {
        HeaderError::Torn => damaged("the header is damaged".to_string()),
        HeaderError::Version(version) => damaged(format!("format version {version} is newer")),
    })?;
    if header.first != first {
        return Err(damaged(format!("the header is that of {}", header.first)));
    }
    if group.is_some_and(|group| group != header.group) {
        return Err(damaged("the segment belongs to another group".to_string()));
    }
    Ok(Opened {
        path: path.to_path_buf(),
        file,
        header,
        mark: segment::read_mark(&block).map(|(_, mark)| mark),
    })
}

fn walk(
    files: &dyn Files,
    found: &Opened,
    next: Option<Header>,
    report: &mut Report,
    visit: &mut dyn FnMut(&Inspected<'_>),
) {
    let header = &found.header;
    let finding = |offset, index, what: String| fatal(&found.path, offset, index, what);
    let len = found.file.len().unwrap_or(0);
    let held = header.first + len.saturating_sub(HEADER_BYTES).min(header.capacity);
    let limit = next.map_or(held, |next| next.first);
    if limit > held {
        let what = format!("a part of the log is missing before position {limit}");
        report.findings.push(finding(len, None, what));
    }
    let mut scanner = Scanner::new(
        found.file.clone(),
        header.group,
        header.first,
        limit,
        beginning(header),
    );
    let mut table = Table::empty(header);
    let bad = loop {
        match scanner.step() {
            Ok(Step::Entry(record)) => {
                table.push(&record);
                visit(&inspected(found, &record));
            }
            Ok(Step::End) => break None,
            Ok(Step::Bad(error)) => break Some(error),
            Err(error) => {
                let offset = HEADER_BYTES + (table.end - header.first);
                let index = Some(table.next_index());
                report
                    .findings
                    .push(finding(offset, index, error.to_string()));
                break None;
            }
        }
    };
    let end = table.end;
    let offset = HEADER_BYTES + (end - header.first);
    if let Some(error) = bad {
        judge(found, next.is_some(), &table, &error, offset, report);
    }
    if let Some(next) = &next {
        check_table(files, found, &table, next, report);
    }
    report.segments.push(SegmentReport {
        path: found.path.clone(),
        first: header.first,
        end,
        first_index: header.first_index,
        last: table.last(),
        entries: table.next_index() - header.first_index,
        sealed: next.is_some(),
        mark: found.mark,
    });
}

/// Is what ends a segment's entries damage, a torn tail, or simply the end?
fn judge(
    found: &Opened,
    sealed: bool,
    table: &Table,
    error: &FrameError,
    offset: u64,
    report: &mut Report,
) {
    let stop = match error {
        FrameError::Zero => Stop::Empty,
        _ => Stop::Bad,
    };
    // Without a mark nothing may be cut.
    let durable = found.mark.map_or(Position::MAX, |mark| mark.position);
    let (what, fatal) = match decide(table.end, &stop, durable) {
        _ if sealed => (format!("{error}, in a sealed segment"), true),
        Decision::Refuse if found.mark.is_none() => ("both durable marks are damaged".into(), true),
        Decision::Refuse => (
            format!("{error}, before the position that was durable ({durable})"),
            true,
        ),
        Decision::Cut => (format!("torn tail, cut at the next start: {error}"), false),
        Decision::Keep => return,
    };
    report.findings.push(Finding {
        path: found.path.clone(),
        offset,
        index: Some(table.next_index()),
        what,
        fatal,
    });
}

fn check_table(
    files: &dyn Files,
    found: &Opened,
    table: &Table,
    next: &Header,
    report: &mut Report,
) {
    if table.end == next.first && !table.fits(&found.header, next) {
        let what = format!(
            "entries up to {:?}, but the next segment follows {:?}",
            table.last(),
            next.prev
        );
        report.findings.push(fatal(&found.path, 0, None, what));
    }
    let path = found.path.with_extension("entries");
    let what = match Table::read(files, &path, &found.header, next) {
        Ok(Some(kept)) if kept == *table => return,
        Ok(_) => "the entry table is missing or damaged; it is rebuilt when needed".to_string(),
        Err(error) => error.to_string(),
    };
    report.findings.push(Finding {
        path,
        offset: 0,
        index: None,
        what,
        fatal: false,
    });
}

fn inspected<'a>(found: &'a Opened, record: &Record) -> Inspected<'a> {
    Inspected {
        path: &found.path,
        offset: HEADER_BYTES + (record.position - found.header.first),
        position: record.position,
        id: record.id,
        kind: match record.kind {
            Kind::Normal => "normal",
            Kind::Blank => "blank",
            Kind::Membership => "membership",
        },
        payload: record.payload.clone(),
    }
}

impl Inspected<'_> {
    /// Position of the first byte of the payload.
    pub fn payload_position(&self) -> Position {
        self.position + FRAME_BYTES as u64
    }
}
