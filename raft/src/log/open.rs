//! Opening a data directory: lock, identity, vote, segments, recovery. Everything that can refuse, refuses
//! here, before anything is changed.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::cache::Cache;
use super::codec::group_tag;
use super::fill;
use super::identity::{self, Identity};
use super::purged::{Purged, PurgedFile};
use super::queue::Queue;
use super::recovery::{Decision, recover};
use super::segment::{self, HEADER_BYTES, Header, HeaderError, Mark, Segment};
use super::state::State;
use super::table::Table;
use super::vote::{Vote, VoteFile};
use super::writer::{Start, Writer, cut};
use super::{
    LOCK, LOG, Log, MAX_SEGMENT, NODE_ID, OpenError, Options, PURGED, Shared, UNFILLED, VOTE, run,
};
use crate::env::{DirLock, Env, Files, LogFile};
use crate::sabotage::{self, Sabotage};
use crate::types::{EntryId, Position};

impl OpenError {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> OpenError {
        OpenError::Io {
            path: path.to_path_buf(),
            source,
        }
    }
}

/// The segments of a log as they were found, after recovery.
struct Segments {
    all: Vec<Arc<Segment>>,
    active: Option<Table>,
    /// Sequence and content of the active segment's newest mark.
    mark: (u64, Mark),
}

/// Opens (or sets up) the directory and starts the log writer.
pub(crate) fn open(mut options: Options, env: &Env) -> Result<Log, OpenError> {
    options.segment_bytes = options.segment_bytes.clamp(1, MAX_SEGMENT);
    let files = env.files.as_ref();
    let log_dir = options.dir.join(LOG);
    files
        .create_dir_all(&log_dir)
        .map_err(|source| OpenError::io(&log_dir, source))?;
    let lock = take_lock(files, &options.dir)?;
    let (mut vote_file, vote) = claim(files, &options)?;
    let unfilled = fill::stands(files, &options.dir.join(UNFILLED))?;
    let purged_path = options.dir.join(PURGED);
    let (mut purged_file, purged) = PurgedFile::open(files, &purged_path)?;
    let group = group_tag(&options.group);
    miss_newest(files, &log_dir, vote_file.newest())?;
    let found = find(files, &log_dir, group, (purged, vote_file.newest()))?;
    vote_file
        .renew()
        .map_err(|source| OpenError::io(&options.dir.join(VOTE), source))?;
    purged_file
        .renew(purged)
        .map_err(|source| OpenError::io(&purged_path, source))?;
    let segments = drop_purged(files, &log_dir, found, purged, &mut vote_file)?;
    // One that was made just before a crash counts from here on.
    if let Some(last) = segments.all.last() {
        vote_file
            .save_newest(Some(last.header.first))
            .map_err(|source| OpenError::io(&options.dir.join(VOTE), source))?;
    }
    let state = initial_state(&options, &log_dir, group, &segments, purged, vote);
    let start = Start {
        vote: vote_file,
        purged: purged_file,
        active: segments
            .all
            .last()
            .map(|last| (last.clone(), segments.mark.0, segments.mark.1)),
        last: state.last,
        end: state.end,
        lock,
    };
    let (fatal, _) = watch::channel(None);
    let shared = Arc::new(Shared {
        options,
        log_dir: log_dir.clone(),
        group,
        files: env.files.clone(),
        writer: env.writer,
        state: Mutex::new(state),
        queue: Queue::default(),
        unfilled: AtomicBool::new(unfilled),
        lacks_next: AtomicBool::new(false),
        fatal,
    });
    let io = |source| OpenError::io(&log_dir, source);
    let writer = Writer::new(shared.clone(), start).map_err(io)?;
    run::start(&shared, writer, env.clock.clone()).map_err(io)?;
    Ok(Log::of(shared))
}

fn take_lock(files: &dyn Files, dir: &Path) -> Result<Box<dyn DirLock>, OpenError> {
    let path = match sabotage::on(Sabotage::LockNotTaken) {
        true => dir.join(format!("{LOCK}.{}", std::process::id())), // D16
        false => dir.join(LOCK),
    };
    files.lock(&path).map_err(|source| {
        if source.kind() == std::io::ErrorKind::WouldBlock {
            OpenError::Locked {
                path: dir.to_path_buf(),
            }
        } else {
            OpenError::io(&path, source)
        }
    })
}

/// Checks that the directory is this node's, or makes it so when nothing was ever written to it.
fn claim(files: &dyn Files, options: &Options) -> Result<(VoteFile, Option<Vote>), OpenError> {
    let path = options.dir.join(NODE_ID);
    let vote_path = options.dir.join(VOTE);
    let own = Identity {
        group: options.group.clone(),
        node: options.node,
    };
    let foreign = |found: String| OpenError::Foreign {
        path: options.dir.clone(),
        found,
        expected: own.to_string(),
    };
    match identity::read(files, &path)? {
        // D16: a node must not go by the vote and the log of another.
        Some(found) if found == own || sabotage::on(Sabotage::ForeignDirectory) => {
            return VoteFile::open(files, &vote_path);
        }
        Some(found) => return Err(foreign(found.to_string())),
        None => {}
    }
    // No identity: either the first start (maybe cut short before), or somebody lost the file.
    let log_dir = options.dir.join(LOG);
    let names = files
        .list(&log_dir)
        .map_err(|source| OpenError::io(&log_dir, source))?;
    if names.iter().any(|name| segment::parse_name(name).is_some()) {
        return Err(foreign(format!(
            "an unknown node (there is a log, but no {NODE_ID})"
        )));
    }
    if let Ok((_, Some(_))) = VoteFile::open(files, &vote_path) {
        return Err(foreign(format!(
            "an unknown node (there is a vote, but no {NODE_ID})"
        )));
    }
    fill::make(files, &options.dir.join(UNFILLED))?;
    let file = VoteFile::create(files, &vote_path)?;
    files
        .sync_dir(&options.dir)
        .map_err(|source| OpenError::io(&options.dir, source))?;
    identity::write(files, &path, &own)?;
    // The directory itself must be found again, too.
    if let Some(parent) = options.dir.parent() {
        let io = |source| OpenError::io(parent, source);
        if files.exists(parent).map_err(io)? && !parent.as_os_str().is_empty() {
            files.sync_dir(parent).map_err(io)?;
        }
    }
    Ok((file, None))
}

/// Refuses when the segment that is known to have been the newest is gone, and no newer one is there.
fn miss_newest(files: &dyn Files, dir: &Path, newest: Option<Position>) -> Result<(), OpenError> {
    let Some(first) = newest else {
        return Ok(());
    };
    if sabotage::on(Sabotage::NewestNotMissed) {
        return Ok(()); // D25: a log without its end would pass for a shorter one.
    }
    let names = files
        .list(dir)
        .map_err(|source| OpenError::io(dir, source))?;
    let found = names.iter().filter_map(|name| segment::parse_name(name));
    if found.max() >= newest {
        return Ok(());
    }
    let path = dir.join(segment::file_name(first));
    Err(OpenError::Missing { path, first })
}

/// Finds the segments, checks how they hang together, and recovers the last one.
fn find(
    files: &dyn Files,
    dir: &Path,
    group: u32,
    (purged, newest): (Option<Purged>, Option<Position>),
) -> Result<Segments, OpenError> {
    let names = files
        .list(dir)
        .map_err(|source| OpenError::io(dir, source))?;
    let count = names.len();
    let mut all: Vec<Arc<Segment>> = Vec::new();
    let mut mark = (0, Mark::default());
    for (at, name) in names.iter().enumerate() {
        let Some(first) = segment::parse_name(name) else {
            continue;
        };
        let is_last = !names[at + 1..count]
            .iter()
            .any(|name| segment::parse_name(name).is_some());
        let path = dir.join(name);
        let io = |source| OpenError::io(&path, source);
        let file = files.open(&path, false).map_err(io)?;
        // I-19: what is read is perhaps on no disk.
        if is_last && !sabotage::on(Sabotage::CacheTrusted) {
            // A process before this one may have ended because a sync failed: then memory shows what no disk has.
            file.forget_cached().map_err(io)?;
        }
        let block = segment::read_block(file.as_ref()).map_err(io)?;
        let header = match Header::decode(&block) {
            Ok(header) if header.first == first && header.group == group => header,
            Err(HeaderError::Version(found)) => {
                return Err(OpenError::Version {
                    path,
                    found,
                    known: 1,
                });
            }
            _ if is_last && Some(first) > newest && never_used(file.as_ref()).map_err(io)? => {
                tracing::warn!(path = %path.display(), "dropping a segment that was never begun");
                files.remove(&path).map_err(io)?;
                files.sync_dir(dir).map_err(io)?;
                continue;
            }
            _ => return Err(damaged(&path, "header", 0)),
        };
        if let Some(before) = all.last() {
            check_neighbours(before, &header)?;
        } else {
            check_beginning(&path, &header, purged)?;
        }
        mark = match segment::read_mark(&block) {
            Some(mark) => mark,
            // Both marks unreadable: nothing says what was durable, so nothing may be cut.
            None if is_last => return Err(damaged(&path, "durable marks", header.first)),
            None => mark,
        };
        all.push(Arc::new(Segment::existing(path, header, file)));
    }
    let mut found = Segments {
        all,
        active: None,
        mark,
    };
    recover_last(&mut found)?;
    Ok(found)
}

fn recover_last(found: &mut Segments) -> Result<(), OpenError> {
    let Some(last) = found.all.last().cloned() else {
        return Ok(());
    };
    let io = |source| OpenError::io(&last.path, source);
    let file = last.file().map_err(io)?;
    let recovered = recover(&last.path, file, &last.header, &found.mark.1)?;
    let table = recovered.table;
    if recovered.decision == Decision::Cut {
        tracing::warn!(
            path = %last.path.display(),
            end = table.end,
            reason = recovered.reason.map(|reason| reason.to_string()),
            "cutting a torn tail that was never reported durable"
        );
    }
    forget_lost(found, file.as_ref(), table.last().or(last.header.prev)).map_err(io)?;
    write_again(file.as_ref(), &last, found.mark.1.position, table.end).map_err(io)?;
    // Also when nothing was seen after the end: bytes further on must never be read as entries.
    cut(file.as_ref(), &last, table.end).map_err(io)?;
    if table.is_empty() && last.header.prev.is_none() {
        // Any index may begin an empty log: let the first entry begin the segment.
        found.all.pop();
        return Ok(());
    }
    found.active = Some(table);
    Ok(())
}

/// Writes the header and what is beyond the mark once more; the caller syncs. A process before this one may have
/// ended because a sync failed: the kernel counts such pages as clean, they can be read, and no sync writes them.
fn write_again(
    file: &dyn LogFile,
    segment: &Segment,
    mark: Position,
    end: Position,
) -> std::io::Result<()> {
    const PIECE: u64 = 1 << 20;
    if sabotage::on(Sabotage::CacheTrusted) {
        return Ok(()); // I-19
    }
    let mut ranges = vec![(0, HEADER_BYTES)];
    let mut at = segment.offset(mark);
    while at < segment.offset(end) {
        let next = (at + PIECE).min(segment.offset(end));
        ranges.push((at, next));
        at = next;
    }
    for (from, to) in ranges {
        let mut bytes = bytes::BytesMut::new();
        file.read_at(&mut bytes, (to - from) as usize, from)?;
        file.write_all_at(&[&bytes], from)?;
    }
    Ok(())
}

/// A mark must not call committed what this log has lost: other entries may get those indexes.
fn forget_lost(
    found: &mut Segments,
    file: &dyn LogFile,
    last: Option<EntryId>,
) -> std::io::Result<()> {
    let (sequence, mark) = &mut found.mark;
    let known = mark.committed.map(|committed| committed.index);
    if known <= last.map(|last| last.index) {
        return Ok(());
    }
    mark.committed = last;
    for _ in 0..2 {
        *sequence += 1;
        segment::write_mark(file, *sequence, mark)?;
    }
    Ok(())
}

/// Zeros where the first entry would be: the file was renamed into place, but never written to.
fn never_used(file: &dyn LogFile) -> std::io::Result<bool> {
    let mut bytes = bytes::BytesMut::new();
    file.read_at(&mut bytes, HEADER_BYTES as usize, HEADER_BYTES)?;
    Ok(bytes.iter().all(|byte| *byte == 0))
}

fn check_beginning(path: &Path, header: &Header, purged: Option<Purged>) -> Result<(), OpenError> {
    let purged = purged.map(|purged| purged.id.index);
    let begins_after = header.prev.map(|prev| prev.index);
    if begins_after > purged {
        return Err(damaged(path, "segment before it (missing)", header.first));
    }
    Ok(())
}

fn check_neighbours(before: &Segment, header: &Header) -> Result<(), OpenError> {
    let used = header.first - before.header.first;
    let len = before
        .file()
        .and_then(|file| file.len())
        .map_err(|source| OpenError::io(&before.path, source))?;
    let missing = used > before.header.capacity
        || len < HEADER_BYTES + used
        || header.prev.is_none_or(|prev| {
            prev.index + 1 != header.first_index || prev.index < before.header.first_index
        });
    if missing {
        return Err(OpenError::Damaged {
            path: before.path.clone(),
            offset: len.min(HEADER_BYTES + before.header.capacity),
            entry: "after its last (a part of the log is missing)".to_string(),
            durable: header.first,
        });
    }
    Ok(())
}

fn damaged(path: &Path, entry: &str, durable: u64) -> OpenError {
    OpenError::Damaged {
        path: path.to_path_buf(),
        offset: 0,
        entry: entry.to_string(),
        durable,
    }
}

/// Finishes a purge that a crash cut short.
fn drop_purged(
    files: &dyn Files,
    dir: &Path,
    mut found: Segments,
    purged: Option<Purged>,
    vote: &mut VoteFile,
) -> Result<Segments, OpenError> {
    let Some(purged) = purged else {
        return Ok(found);
    };
    let last = found.active.as_ref().and_then(Table::last);
    let last = last.or(found.all.last().and_then(|last| last.header.prev));
    let count = if last.is_none_or(|last| last.index < purged.id.index) {
        found.active = None;
        found.all.len()
    } else {
        found
            .all
            .windows(2)
            .take_while(|pair| pair[1].header.first_index <= purged.id.index + 1)
            .count()
    };
    if count == found.all.len() {
        let io = |source| OpenError::io(dir, source);
        vote.save_newest(None).map_err(io)?;
    }
    for segment in found.all.drain(..count) {
        let io = |source| OpenError::io(&segment.path, source);
        files.remove(&segment.path).map_err(io)?;
        if files.exists(&segment.table_path()).map_err(io)? {
            files.remove(&segment.table_path()).map_err(io)?;
        }
    }
    if count > 0 {
        files
            .sync_dir(dir)
            .map_err(|source| OpenError::io(dir, source))?;
    }
    Ok(found)
}

fn initial_state(
    options: &Options,
    log_dir: &Path,
    group: u32,
    segments: &Segments,
    purged: Option<Purged>,
    vote: Option<Vote>,
) -> State {
    let active = segments.active.clone();
    let purged_id = purged.map(|purged| purged.id);
    let last = match (&active, segments.all.last()) {
        (Some(table), Some(segment)) => table.last().or(segment.header.prev),
        _ => purged_id,
    };
    let end = active
        .as_ref()
        .map_or(purged.map_or(0, |purged| purged.end), |table| table.end);
    let committed = segments.mark.1.committed.filter(|_| active.is_some());
    State {
        dir: log_dir.to_path_buf(),
        group,
        segment_bytes: options.segment_bytes,
        cache_bytes: options.cache_bytes as u64,
        segments: segments.all.clone(),
        active,
        cache: Cache::default(),
        end,
        last,
        purged,
        written: end,
        durable: last,
        durable_end: end,
        vote,
        committed,
        generation: 0,
        failed: None,
        tables: VecDeque::new(),
    }
}
