//! The log as its callers see it: appending, rolling, truncating, purging, reopening, failing.

use std::path::Path;
use std::time::Duration;

use super::testing::*;
use super::{FlushMode, Log, OpenError, Vote};
use crate::env::faulty::{FaultyFiles, Op};
use crate::types::EntryId;

const BIG: u64 = 1 << 16;
/// Room for two entries with payloads of two bytes.
const TWO: u64 = 120;

fn numbered(range: std::ops::Range<u64>, term: u64) -> Vec<(u64, u64, String)> {
    range
        .map(|index| (term, index, format!("{index:02}")))
        .collect()
}

async fn append_numbered(log: &Log, range: std::ops::Range<u64>, term: u64) {
    for index in range {
        append_all(log, term, index, &[&format!("{index:02}")]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_appended_is_there_after_reopening() {
    let files = FaultyFiles::new(1);
    let log = open(&files, BIG).expect("opens");
    append_numbered(&log, 0..5, 1).await;
    let end = log.end_position();
    log.close().await.expect("closes");
    let log = open(&files, BIG).expect("opens again");
    assert_eq!(contents(&log).await, numbered(0..5, 1));
    assert_eq!(log.end_position(), end);
    assert_eq!(end, 5 * 58);
    assert_eq!(log.durable(), Some(EntryId { term: 1, index: 4 }));
}

#[tokio::test(start_paused = true)]
async fn entries_can_be_read_before_they_are_written() {
    let files = FaultyFiles::new(1);
    let log = open(&files, TWO).expect("opens");
    let written = queue(&log, (0..5).map(|index| entry(1, index, "ab")).collect());
    assert_eq!(contents(&log).await.len(), 5);
    assert_eq!(log.durable(), None);
    let reader = log.reader();
    // The payload of the last entry, and the bytes around a boundary between entries.
    let position = log.end_position() - 2;
    assert_eq!(&reader.read(position, 2).expect("in memory")[..], b"ab");
    let before = reader.read(0, 58 + 58).expect("two whole entries");
    written.await.expect("answered").expect("written");
    assert_eq!(reader.read(0, 58 + 58).expect("from the file"), before);
    assert_eq!(log.durable().map(|id| id.index), Some(4));
}

/// After a restart memory holds only what was appended since: a range that begins in the file and ends in
/// what is not written yet comes from both.
#[tokio::test(start_paused = true)]
async fn a_range_across_the_written_end_is_read_from_file_and_memory() {
    let files = FaultyFiles::new(1);
    let log = open(&files, BIG).expect("opens");
    append_numbered(&log, 0..2, 1).await;
    log.close().await.expect("closes");
    let log = open(&files, BIG).expect("opens again");
    let written = queue(&log, (2..4).map(|index| entry(1, index, "ab")).collect());
    let reader = log.reader();
    let across = reader.read(56, 3 * 58).expect("three payloads and more");
    assert_eq!(&across[..2], b"00");
    assert_eq!(&across[3 * 58 - 58..3 * 58 - 56], b"ab");
    let cached = reader.read_cached(56, 3 * 58).expect("readable");
    assert_eq!(cached, Some(across.clone()));
    written.await.expect("answered").expect("written");
    assert_eq!(reader.read(56, 3 * 58).expect("all written"), across);
}

#[tokio::test(start_paused = true)]
async fn a_group_of_appends_takes_one_sync() {
    let files = FaultyFiles::new(1);
    let log = open(&files, BIG).expect("opens");
    append_numbered(&log, 0..1, 1).await;
    let before = files.count(Op::Sync);
    let waiting: Vec<_> = (1..50)
        .map(|index| queue(&log, vec![entry(1, index, "x")]))
        .collect();
    for answer in waiting {
        answer.await.expect("answered").expect("durable");
    }
    assert_eq!(files.count(Op::Sync) - before, 1);
}

#[tokio::test(start_paused = true)]
async fn segments_roll_and_are_read_again() {
    let files = FaultyFiles::new(1);
    let log = open(&files, TWO).expect("opens");
    append_numbered(&log, 0..9, 1).await;
    let segments: Vec<_> = (0..5u64)
        .map(|at| (at * 116, (at * 116 + 116).min(9 * 58)))
        .collect();
    assert_eq!(log.reader().segments(), segments);
    log.close().await.expect("closes");
    let log = open(&files, TWO).expect("opens again");
    assert_eq!(log.reader().segments(), segments);
    assert_eq!(contents(&log).await, numbered(0..9, 1));
    assert_eq!(log.segment_of(58 * 3), Some(116));
    append_numbered(&log, 9..12, 2).await;
    let mut expected = numbered(0..9, 1);
    expected.extend(numbered(9..12, 2));
    assert_eq!(contents(&log).await, expected);
    let read = log.read_entries(3..6, u64::MAX).await.expect("read");
    assert_eq!(
        read.into_iter().map(text).collect::<Vec<_>>(),
        numbered(3..6, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn an_entry_larger_than_a_segment_gets_one_of_its_own() {
    let files = FaultyFiles::new(1);
    let log = open(&files, TWO).expect("opens");
    let large = "x".repeat(3000);
    append_all(&log, 1, 0, &["a", &large, "b"]).await;
    let expected = vec![
        (1, 0, "a".to_string()),
        (1, 1, large),
        (1, 2, "b".to_string()),
    ];
    assert_eq!(contents(&log).await, expected);
    assert_eq!(log.reader().segments().len(), 3);
    log.close().await.expect("closes");
    assert_eq!(
        contents(&open(&files, TWO).expect("opens again")).await,
        expected
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_bounded_in_bytes_but_never_empty() {
    let files = FaultyFiles::new(1);
    for cached in [0, BIG as usize] {
        let mut options = options(BIG);
        options.cache_bytes = cached;
        let log = Log::open(options, &env(&files.fork())).expect("opens");
        append_numbered(&log, 0..9, 1).await;
        let count = async |limit| log.read_entries(2..8, limit).await.expect("read").len();
        assert_eq!(count(1).await, 1, "cache of {cached}");
        assert_eq!(count(58 * 3).await, 3, "cache of {cached}");
        assert_eq!(count(u64::MAX).await, 6, "cache of {cached}");
    }
}

#[tokio::test(start_paused = true)]
async fn entries_that_do_not_follow_are_refused() {
    let files = FaultyFiles::new(1);
    let log = open(&files, BIG).expect("opens");
    append_numbered(&log, 0..3, 2).await;
    for wrong in [entry(2, 4, "x"), entry(2, 2, "x"), entry(1, 3, "x")] {
        assert!(append(&log, vec![wrong]).await.is_err());
    }
    assert_eq!(contents(&log).await, numbered(0..3, 2));
    append_numbered(&log, 3..4, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_shorter_append_after_a_truncation_never_resurrects_old_entries() {
    for keep in 0..8u64 {
        let files = FaultyFiles::new(1);
        let log = open(&files, 58 * 4).expect("opens");
        append_numbered(&log, 0..9, 1).await;
        log.truncate_after(Some(keep)).await.expect("truncates");
        append_all(&log, 2, keep + 1, &["new"]).await;
        let mut expected = numbered(0..keep + 1, 1);
        expected.push((2, keep + 1, "new".to_string()));
        assert_eq!(contents(&log).await, expected);
        // Neither at once nor after a power cut.
        files.power_cycle();
        let log = open(&files, 58 * 4).expect("opens again");
        assert_eq!(contents(&log).await, expected, "kept up to {keep}");
    }
}

#[tokio::test(start_paused = true)]
async fn everything_can_be_truncated() {
    let files = FaultyFiles::new(1);
    let log = open(&files, TWO).expect("opens");
    append_numbered(&log, 0..5, 1).await;
    log.truncate_after(None).await.expect("truncates");
    assert_eq!((log.appended(), log.end_position()), (None, 0));
    append_numbered(&log, 0..2, 2).await;
    log.close().await.expect("closes");
    let log = open(&files, TWO).expect("opens again");
    assert_eq!(contents(&log).await, numbered(0..2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_truncation_overtaken_by_appends_keeps_the_new_entries_readable() {
    let files = FaultyFiles::new(1);
    let log = open(&files, TWO).expect("opens");
    append_numbered(&log, 0..2, 1).await;
    // Nothing of this is written yet when the truncation is planned.
    let old = queue(&log, (2..8).map(|index| entry(1, index, "old")).collect());
    let truncated = {
        let log = log.clone();
        async move { log.truncate_after(Some(3)).await }
    };
    let new = async {
        let entries = (4..7).map(|index| entry(2, index, "new")).collect();
        queue(&log, entries).await
    };
    let (truncated, new) = futures_util::future::join(truncated, new).await;
    truncated.expect("truncates");
    new.expect("answered").expect("durable");
    old.await.expect("answered").expect("durable");
    let read = contents(&log).await;
    let texts: Vec<&str> = read.iter().map(|(_, _, text)| text.as_str()).collect();
    assert_eq!(texts, ["00", "01", "old", "old", "new", "new", "new"]);
    assert_eq!(log.durable(), log.appended());
}

#[tokio::test(start_paused = true)]
async fn a_purge_removes_whole_segments_and_is_remembered() {
    let files = FaultyFiles::new(1);
    let log = open(&files, TWO).expect("opens");
    append_numbered(&log, 0..7, 1).await;
    log.purge(EntryId { term: 1, index: 2 }, None)
        .await
        .expect("purges");
    assert_eq!(contents(&log).await, numbered(3..7, 1));
    assert_eq!(log.reader().first_position(), 116);
    assert!(files.bytes(&segment_path(0)).is_none());
    files.power_cycle();
    let log = open(&files, TWO).expect("opens again");
    assert_eq!(contents(&log).await, numbered(3..7, 1));
    assert_eq!(log.purged(), Some(EntryId { term: 1, index: 2 }));
}

#[tokio::test(start_paused = true)]
async fn a_purge_beyond_the_end_begins_the_log_anew() {
    let files = FaultyFiles::new(1);
    let log = open(&files, TWO).expect("opens");
    append_numbered(&log, 0..5, 1).await;
    let upto = EntryId { term: 3, index: 99 };
    log.purge(upto, Some(12_345)).await.expect("purges");
    assert_eq!((log.appended(), log.end_position()), (Some(upto), 12_345));
    files.power_cycle();
    let log = open(&files, TWO).expect("opens again");
    assert_eq!((log.appended(), log.end_position()), (Some(upto), 12_345));
    append_all(&log, 3, 100, &["x"]).await;
    log.close().await.expect("closes");
    let log = open(&files, TWO).expect("opens once more");
    assert_eq!(contents(&log).await, [(3, 100, "x".to_string())]);
    assert_eq!(log.reader().segments(), [(12_345, 12_345 + 57)]);
}

#[tokio::test(start_paused = true)]
async fn the_last_entry_of_each_term_is_known() {
    let files = FaultyFiles::new(1);
    let log = open(&files, 58 * 3).expect("opens");
    let terms = [1, 1, 1, 1, 2, 2, 5, 5, 5, 5, 5, 5, 5, 5, 6];
    for (index, term) in (0..).zip(terms) {
        append_numbered(&log, index..index + 1, term).await;
    }
    let ids = |pairs: &[(u64, u64)]| -> Vec<EntryId> {
        pairs
            .iter()
            .map(|(term, index)| EntryId {
                term: *term,
                index: *index,
            })
            .collect()
    };
    let all = ids(&[(1, 3), (2, 5), (5, 13), (6, 14)]);
    assert_eq!(log.last_of_terms(0, 14).expect("found"), all);
    assert_eq!(
        log.last_of_terms(4, 8).expect("found"),
        ids(&[(2, 5), (5, 8)])
    );
    log.close().await.expect("closes");
    let log = open(&files, 58 * 3).expect("opens again");
    assert_eq!(log.last_of_terms(0, 14).expect("found"), all);
}

#[tokio::test(start_paused = true)]
async fn a_vote_is_read_back_after_reopening() {
    let files = FaultyFiles::new(1);
    let log = open(&files, BIG).expect("opens");
    assert_eq!(log.vote(), None);
    let vote = Vote {
        term: 7,
        voted_for: 3,
        committed: true,
    };
    log.save_vote(vote).await.expect("saved");
    files.power_cycle();
    assert_eq!(open(&files, BIG).expect("opens again").vote(), Some(vote));
}

#[tokio::test(start_paused = true)]
async fn a_directory_in_use_is_refused_until_its_log_is_closed() {
    let files = FaultyFiles::new(1);
    let log = open(&files, BIG).expect("opens");
    assert!(matches!(open(&files, BIG), Err(OpenError::Locked { .. })));
    log.close().await.expect("closes");
    open(&files, BIG).expect("opens again");
}

#[tokio::test(start_paused = true)]
async fn a_directory_of_another_node_or_group_is_refused() {
    let files = FaultyFiles::new(1);
    open(&files, BIG)
        .expect("opens")
        .close()
        .await
        .expect("closes");
    let mut other_node = options(BIG);
    other_node.node = 2;
    let mut other_group = options(BIG);
    other_group.group = "h".to_string();
    for foreign in [other_node, other_group] {
        let error = Log::open(foreign, &env(&files)).err().expect("refused");
        assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains("node 1 of group g"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_without_an_identity_is_refused() {
    let files = FaultyFiles::new(1);
    let log = open(&files, BIG).expect("opens");
    append_numbered(&log, 0..1, 1).await;
    log.close().await.expect("closes");
    crate::env::Files::remove(&files, &Path::new(DIR).join("node.id")).expect("removed");
    assert!(matches!(open(&files, BIG), Err(OpenError::Foreign { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_lost_vote_file_is_refused() {
    let files = FaultyFiles::new(1);
    open(&files, BIG)
        .expect("opens")
        .close()
        .await
        .expect("closes");
    crate::env::Files::remove(&files, &Path::new(DIR).join("vote")).expect("removed");
    assert!(matches!(open(&files, BIG), Err(OpenError::Vote { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_failed_sync_or_write_is_final() {
    for op in [Op::Sync, Op::Write] {
        let files = FaultyFiles::new(1);
        let log = open(&files, BIG).expect("opens");
        append_numbered(&log, 0..2, 1).await;
        let mut fatal = log.fatal();
        files.fail_after(op, 0);
        let first = queue(&log, vec![entry(1, 2, "x")]);
        let vote = log.save_vote(Vote::default());
        let truncate = log.truncate_after(Some(0));
        let (first, vote, truncate) = tokio::join!(first, vote, truncate);
        assert!(first.expect("answered").is_err());
        assert!(vote.is_err());
        assert!(truncate.is_err());
        fatal.changed().await.expect("told");
        assert!(fatal.borrow().is_some());
        // The disk works again; the log must not find out.
        let syncs = files.count(Op::Sync);
        assert!(append(&log, vec![entry(1, 1, "x")]).await.is_err());
        assert!(log.save_vote(Vote::default()).await.is_err());
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(files.count(Op::Sync), syncs);
        assert!(log.durable() <= Some(EntryId { term: 1, index: 1 }));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_start_reads_after_a_failed_sync_survives_a_power_cut() {
    for seed in 0..30 {
        let files = FaultyFiles::new(seed);
        if seed % 2 == 0 {
            files.keep_cached();
        }
        let log = open(&files, BIG).expect("opens");
        append_numbered(&log, 0..2, 1).await;
        files.fail_after(Op::Sync, 0);
        assert!(append(&log, vec![entry(1, 2, "x")]).await.is_err());
        log.close().await.expect_err("the log has failed");
        // The entry was never acknowledged: it may be lost now, but not after it was counted as durable.
        let log = open(&files, BIG).expect("opens");
        let found = log.durable().expect("entries").index;
        assert_eq!(found, if seed % 2 == 0 { 2 } else { 1 });
        append_numbered(&log, found + 1..found + 2, 1).await;
        log.close().await.expect("closes");
        files.power_cycle();
        let log = open(&files, BIG).expect("opens after the power cut");
        let last = EntryId {
            term: 1,
            index: found + 1,
        };
        assert_eq!(log.durable(), Some(last));
        assert_eq!(contents(&log).await.len() as u64, found + 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_vote_that_a_start_reads_after_a_failed_sync_survives_a_power_cut() {
    for seed in 0..30 {
        let files = FaultyFiles::new(seed);
        if seed % 2 == 0 {
            files.keep_cached();
        }
        let log = open(&files, BIG).expect("opens");
        let vote = Vote {
            term: 5,
            voted_for: 2,
            committed: false,
        };
        files.fail_after(Op::Sync, 0);
        assert!(log.save_vote(vote).await.is_err());
        log.close().await.expect_err("the log has failed");
        let log = open(&files, BIG).expect("opens");
        let found = log.vote();
        assert_eq!(found.is_some(), seed % 2 == 0);
        log.close().await.expect("closes");
        files.power_cycle();
        let log = open(&files, BIG).expect("opens after the power cut");
        assert_eq!(log.vote(), found);
    }
}

#[tokio::test(start_paused = true)]
async fn asynchronous_flushing_answers_after_the_write_and_syncs_on_a_timer() {
    let files = FaultyFiles::new(1);
    let mut options = options(BIG);
    options.flush = FlushMode::Async {
        interval: Duration::from_millis(500),
    };
    let log = Log::open(options, &env(&files)).expect("opens");
    append_numbered(&log, 0..3, 1).await;
    let syncs = files.count(Op::Sync);
    append_numbered(&log, 3..6, 1).await;
    assert_eq!(files.count(Op::Sync), syncs);
    assert_eq!(log.durable(), None);
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(log.durable(), Some(EntryId { term: 1, index: 5 }));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_log_records_how_far_it_is_durable() {
    let files = FaultyFiles::new(1);
    let log = open(&files, BIG).expect("opens");
    append_numbered(&log, 0..3, 1).await;
    log.set_committed(log.appended());
    tokio::time::sleep(Duration::from_millis(300)).await;
    let syncs = files.count(Op::Sync);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(files.count(Op::Sync), syncs, "quiet means quiet");
    files.power_cycle();
    let log = open(&files, BIG).expect("opens again");
    assert_eq!(log.committed(), Some(EntryId { term: 1, index: 2 }));
    // Losing an entry before the mark is damage now, not a torn tail.
    log.close().await.expect("closes");
    let mut bytes = files.bytes(&segment_path(0)).expect("the segment");
    bytes[4096 + 2 * 58..].fill(0);
    files.put(&segment_path(0), bytes);
    assert!(matches!(open(&files, BIG), Err(OpenError::Damaged { .. })));
}
