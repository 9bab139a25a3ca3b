//! The log on real files, its writer a thread.

use std::path::Path;
use std::sync::Arc;

use super::testing::*;
use super::{FlushMode, Log, Options};
use crate::env::Env;
use crate::env::faulty::FaultyFiles;
use crate::types::EntryId;

const SEGMENT: u64 = 1 << 16;

fn options(dir: &Path) -> Options {
    Options {
        dir: dir.to_path_buf(),
        group: "g".to_string(),
        node: 1,
        segment_bytes: SEGMENT,
        cache_bytes: 4096,
        reserve: 0,
        flush: FlushMode::Sync,
    }
}

fn opened(dir: &Path) -> Log {
    Log::open(options(dir), &Env::real()).expect("opens")
}

fn payload(index: u64) -> String {
    format!(
        "{index}:{}",
        "x".repeat(usize::try_from(index % 700).expect("small"))
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn many_entries_are_read_back_while_they_are_written_and_after_reopening() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = opened(dir.path());
    let mut waiting = Vec::new();
    for index in 0..2000 {
        waiting.push(queue(&log, vec![entry(1, index, &payload(index))]));
        if index % 97 == 0 {
            let from = index.saturating_sub(200);
            let read = log
                .read_entries(from..index + 1, u64::MAX)
                .await
                .expect("read");
            for (record, at) in read.into_iter().zip(from..) {
                assert_eq!(text(record), (1, at, payload(at)));
            }
        }
    }
    for answer in waiting {
        answer.await.expect("answered").expect("durable");
    }
    let last = EntryId {
        term: 1,
        index: 1999,
    };
    assert_eq!(log.durable(), Some(last));
    log.close().await.expect("closes");
    // The lock is free as soon as `close` returns.
    let log = opened(dir.path());
    log.close().await.expect("closes");
    let log = opened(dir.path());
    let all = contents(&log).await;
    assert_eq!(all.len(), 2000);
    assert!(
        all.iter()
            .zip(0..)
            .all(|((_, index, text), at)| *index == at && *text == payload(at))
    );
    let reader = log.reader();
    let mut scanned = 0;
    for (first, end) in reader.segments() {
        reader
            .scan(first, end, &mut |entry| {
                assert_eq!(&entry.payload[..], payload(entry.id.index).as_bytes());
                let bytes = reader
                    .read(entry.payload_position, entry.payload.len())
                    .expect("read");
                assert_eq!(bytes, entry.payload);
                scanned += 1;
            })
            .expect("scanned");
    }
    assert_eq!(scanned, 2000);
    // Just written, hence in the page cache.
    assert!(reader.read_cached(0, 60).expect("in range").is_some());
    assert!(reader.read(log.end_position(), 1).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_cannot_share_a_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = opened(dir.path());
    let second = Log::open(options(dir.path()), &Env::real());
    assert!(matches!(second, Err(super::OpenError::Locked { .. })));
    log.close().await.expect("closes");
    opened(dir.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_space_for_the_next_segment_the_active_one_still_takes_entries() {
    let files = FaultyFiles::new(1);
    let env = Env {
        files: Arc::new(files.clone()),
        ..Env::real()
    };
    let reserve = 2 * SEGMENT;
    let log = Log::open(
        Options {
            reserve,
            ..options(Path::new(DIR))
        },
        &env,
    )
    .expect("opens");
    let big = "x".repeat(40_000);
    append_all(&log, 1, 0, &[&big]).await;
    assert_eq!(log.last_room(), None);
    // Less than a segment and the reserve: what was accepted may use it, the next segment is not made.
    files.set_free(Some(reserve));
    append_all(&log, 1, 1, &[&big]).await;
    until(|| log.last_room().is_some()).await;
    assert!(log.last_room() < Some(SEGMENT - 40_000));
    append_all(&log, 1, 2, &["small"]).await;
    append_all(&log, 1, 3, &[&big]).await;
    log.make_next();
    append_all(&log, 1, 4, &["small"]).await;
    assert!(log.last_room().is_some());

    files.set_free(None);
    log.make_next();
    until(|| log.last_room().is_none()).await;
    append_all(&log, 1, 5, &[&big]).await;
    assert_eq!(contents(&log).await.len(), 6);
    assert_eq!(*log.fatal().borrow(), None);
}

async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), wait)
        .await
        .expect("in time");
}
