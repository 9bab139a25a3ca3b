//! What the log's tests share: a log on a file system in memory, its writer a task.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::codec::{Kind, Record};
use super::{FlushMode, Log, NewEntry, OpenError, Options};
use crate::env::faulty::FaultyFiles;
use crate::env::{Env, WriterMode};
use crate::types::EntryId;

pub(crate) const DIR: &str = "/data/n1";

pub(crate) fn env(files: &FaultyFiles) -> Env {
    Env {
        files: Arc::new(files.clone()),
        writer: WriterMode::Task,
        ..Env::real()
    }
}

pub(crate) fn options(segment_bytes: u64) -> Options {
    Options {
        dir: PathBuf::from(DIR),
        group: "g".to_string(),
        node: 1,
        segment_bytes,
        cache_bytes: 0,
        reserve: 0,
        flush: FlushMode::Sync,
    }
}

pub(crate) fn open(files: &FaultyFiles, segment_bytes: u64) -> Result<Log, OpenError> {
    Log::open(options(segment_bytes), &env(files))
}

/// Path of the segment that begins at `first`.
pub(crate) fn segment_path(first: u64) -> PathBuf {
    Path::new(DIR)
        .join("log")
        .join(super::segment::file_name(first))
}

pub(crate) fn entry(term: u64, index: u64, payload: &str) -> NewEntry {
    NewEntry {
        kind: Kind::Normal,
        id: EntryId { term, index },
        payload: Bytes::copy_from_slice(payload.as_bytes()),
    }
}

/// Queues entries; the receiver gets the outcome.
pub(crate) fn queue(log: &Log, entries: Vec<NewEntry>) -> oneshot::Receiver<io::Result<()>> {
    let (sender, receiver) = oneshot::channel();
    let refused = log.append(
        entries,
        Box::new(move |result| {
            let _ = sender.send(result);
        }),
    );
    // A refusal drops the sender: the receiver sees that.
    drop(refused);
    receiver
}

/// Appends entries and waits until they are durable.
pub(crate) async fn append(log: &Log, entries: Vec<NewEntry>) -> io::Result<()> {
    queue(log, entries)
        .await
        .unwrap_or_else(|_| Err(io::Error::other("refused")))
}

/// Appends `payloads` as entries of `term` from `index` on, in one group.
pub(crate) async fn append_all(log: &Log, term: u64, index: u64, payloads: &[&str]) {
    let entries = payloads
        .iter()
        .zip(index..)
        .map(|(payload, index)| entry(term, index, payload))
        .collect();
    append(log, entries).await.expect("appended");
}

/// Everything in the log, read back by index.
pub(crate) async fn contents(log: &Log) -> Vec<(u64, u64, String)> {
    log.read_entries(0..u64::MAX, u64::MAX)
        .await
        .expect("every entry is readable")
        .into_iter()
        .map(text)
        .collect()
}

pub(crate) fn text(record: Record) -> (u64, u64, String) {
    let payload = String::from_utf8(record.payload.to_vec()).expect("tests append text");
    (record.id.term, record.id.index, payload)
}
