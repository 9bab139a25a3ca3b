//! Damaged files: what is cut, what is refused, what is rebuilt, and that bad bytes are never served.

use super::testing::*;
use super::{OpenError, ReadError};
use crate::env::Files;
use crate::env::faulty::FaultyFiles;

const BIG: u64 = 8192;
const HEADER: usize = 4096;
const FRAMED: usize = 58;

/// A log of three entries that are known to be durable and three that are not, as after a crash.
async fn crashed() -> FaultyFiles {
    let files = FaultyFiles::new(1);
    let log = open(&files, BIG).expect("opens");
    append_all(&log, 1, 0, &["00", "01", "02"]).await;
    // A quiet moment: the mark is written. (Time is simulated.)
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    append_all(&log, 1, 3, &["03", "04", "05"]).await;
    files.fork()
}

async fn reopened(files: &FaultyFiles, tail: Vec<u8>) -> Result<usize, OpenError> {
    let copy = files.fork();
    copy.put(&segment_path(0), tail);
    let log = open(&copy, BIG)?;
    let read = contents(&log).await;
    for (at, (term, index, text)) in read.iter().enumerate() {
        assert_eq!(
            (*term, *index, text.as_str()),
            (1, at as u64, &*format!("{at:02}"))
        );
    }
    // Whatever was cut stays away, also under a shorter append and another crash.
    let next = read.len() as u64;
    append_all(&log, 2, next, &["n"]).await;
    copy.power_cycle();
    let log = open(&copy, BIG).expect("opens after the next crash");
    let again = contents(&log).await;
    assert_eq!(again.len(), read.len() + 1);
    assert_eq!(again.last(), Some(&(2, next, "n".to_string())));
    Ok(read.len())
}

fn bytes(files: &FaultyFiles) -> Vec<u8> {
    files.bytes(&segment_path(0)).expect("the segment")
}

#[tokio::test(start_paused = true)]
async fn a_tail_torn_at_any_byte_loses_only_the_torn_entries() {
    let files = crashed().await;
    let whole = bytes(&files);
    let start = HEADER + 3 * FRAMED;
    let end = HEADER + 6 * FRAMED;
    for cut in start..=end {
        let expected = (cut - HEADER) / FRAMED;
        let found = reopened(&files, whole[..cut].to_vec())
            .await
            .expect("opens");
        assert_eq!(found, expected, "cut at {cut}");
        let mut zeros = whole.clone();
        zeros[cut..].fill(0);
        let found = reopened(&files, zeros).await.expect("opens");
        assert_eq!(found, expected, "zeros from {cut}");
        let mut garbage = whole.clone();
        for (at, byte) in garbage[cut..].iter_mut().enumerate() {
            *byte = (at as u8).wrapping_mul(31).wrapping_add(cut as u8 | 1);
        }
        let found = reopened(&files, garbage).await.expect("opens");
        assert_eq!(found, expected, "garbage from {cut}");
    }
}

#[tokio::test(start_paused = true)]
async fn old_entries_after_the_tail_are_not_taken_for_new_ones() {
    let files = crashed().await;
    let whole = bytes(&files);
    let from = |entry: usize| HEADER + entry * FRAMED..HEADER + (entry + 1) * FRAMED;
    for source in 0..6 {
        for target in 3..7 {
            if source == target {
                continue;
            }
            let mut recycled = whole.clone();
            recycled.copy_within(from(source), from(target).start);
            let found = reopened(&files, recycled).await.expect("opens");
            assert_eq!(
                found,
                target.min(6),
                "entry {source} at the place of {target}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hole_before_later_entries_cuts_them_too() {
    let files = crashed().await;
    let mut hole = bytes(&files);
    hole[HEADER + 3 * FRAMED..HEADER + 4 * FRAMED].fill(0);
    assert_eq!(reopened(&files, hole).await.expect("opens"), 3);
}

#[tokio::test(start_paused = true)]
async fn damage_before_the_durable_mark_is_refused_and_nothing_is_changed() {
    let files = crashed().await;
    let whole = bytes(&files);
    for at in HEADER..HEADER + 3 * FRAMED {
        let copy = files.fork();
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        copy.put(&segment_path(0), flipped.clone());
        let error = open(&copy, BIG).err().expect("refused");
        let OpenError::Damaged {
            path,
            offset,
            durable,
            ..
        } = &error
        else {
            panic!("byte {at}: {error}");
        };
        assert_eq!(*path, segment_path(0));
        assert_eq!(*offset as usize, HEADER + (at - HEADER) / FRAMED * FRAMED);
        assert_eq!(*durable as usize, 3 * FRAMED);
        assert_eq!(bytes(&copy), flipped, "the file was touched");
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_mark_falls_back_to_the_other_and_two_are_refused() {
    let files = crashed().await;
    let mut one = bytes(&files);
    one[1024] ^= 1;
    let mut other = bytes(&files);
    other[2048] ^= 1;
    for damaged in [one, other] {
        assert_eq!(reopened(&files, damaged).await.expect("opens"), 6);
    }
    let mut both = bytes(&files);
    both[1024] ^= 1;
    both[2048] ^= 1;
    assert!(reopened(&files, both).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_damaged_header_of_a_used_segment_is_refused() {
    let files = crashed().await;
    for at in 0..72 {
        let mut header = bytes(&files);
        header[at] ^= 1;
        assert!(reopened(&files, header).await.is_err(), "byte {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_last_segment_without_header_or_entries_is_dropped() {
    let files = FaultyFiles::new(1);
    let log = open(&files, 120).expect("opens");
    append_all(&log, 1, 0, &["00", "01", "02", "03"]).await;
    log.close().await.expect("closes");
    files.put(&segment_path(4 * 58), vec![0; 5000]);
    let log = open(&files, 120).expect("opens");
    assert_eq!(contents(&log).await.len(), 4);
    append_all(&log, 1, 4, &["04"]).await;
    assert_eq!(contents(&log).await.len(), 5);
}

/// Six entries in three segments, closed.
async fn three_segments() -> FaultyFiles {
    let files = FaultyFiles::new(1);
    let log = open(&files, 120).expect("opens");
    append_all(&log, 1, 0, &["00", "01", "02", "03", "04", "05"]).await;
    log.close().await.expect("closes");
    files
}

#[tokio::test(start_paused = true)]
async fn a_missing_or_damaged_entry_table_is_rebuilt() {
    let files = three_segments().await;
    let path = segment_path(116).with_extension("entries");
    let good = files.bytes(&path).expect("the table");
    let mut variants = vec![Vec::new(), vec![0; 8], good[..good.len() - 1].to_vec()];
    for at in 0..good.len() {
        let mut flipped = good.clone();
        flipped[at] ^= 4;
        variants.push(flipped);
    }
    // The table of another segment is no better.
    variants.push(
        files
            .bytes(&segment_path(0).with_extension("entries"))
            .expect("the table"),
    );
    for variant in variants {
        let copy = files.fork();
        copy.put(&path, variant);
        let log = open(&copy, 120).expect("opens");
        assert_eq!(contents(&log).await.len(), 6);
        assert_eq!(copy.bytes(&path).as_ref(), Some(&good));
    }
}

#[tokio::test(start_paused = true)]
async fn damage_in_a_sealed_segment_is_found_when_it_is_read_and_never_served() {
    let files = three_segments().await;
    let whole = bytes(&files);
    for at in HEADER..HEADER + 2 * FRAMED {
        let copy = files.fork();
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        copy.put(&segment_path(0), flipped);
        let log = open(&copy, 120).expect("sealed segments are not read at the start");
        let error = log.read_entries(0..6, u64::MAX).await.expect_err("found");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
        assert!(error.to_string().contains(".seg"), "{error}");
        let scanned = log.reader().scan(0, 116, &mut |_| {});
        assert!(
            matches!(scanned, Err(ReadError::Damaged { .. })),
            "byte {at}"
        );
        let rest = log.read_entries(2..6, u64::MAX).await.expect("the others");
        assert_eq!(rest.len(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_or_short_segment_is_refused() {
    let files = three_segments().await;
    for first in [0, 116] {
        let missing = files.fork();
        crate::env::Files::remove(&missing, &segment_path(first)).expect("removed");
        let error = open(&missing, 120).err().expect("refused");
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
        let short = files.fork();
        let whole = short.bytes(&segment_path(first)).expect("the segment");
        short.put(&segment_path(first), whole[..HEADER + 115].to_vec());
        let error = open(&short, 120).err().expect("refused");
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    }
}

/// Inspects a directory: how many entries it holds, and what was found wrong.
fn inspected(files: &FaultyFiles) -> (usize, super::inspect::Report) {
    let mut entries = 0;
    let report = super::inspect::inspect(std::path::Path::new(DIR), files, &mut |_| entries += 1)
        .expect("the directory is readable");
    (entries, report)
}

#[tokio::test(start_paused = true)]
async fn an_inspection_finds_nothing_wrong_with_a_sound_directory() {
    let (entries, report) = inspected(&three_segments().await);
    assert_eq!(entries, 6);
    assert_eq!(report.findings, []);
    let ends: Vec<_> = report.segments.iter().map(|found| found.end).collect();
    assert_eq!(ends, [116, 232, 348]);
    let mark = report.segments[2].mark.expect("a mark");
    assert_eq!((mark.position, mark.index), (348, Some(5)));
    assert_eq!(report.identity.map(|identity| identity.node), Some(1));
}

#[tokio::test(start_paused = true)]
async fn an_inspection_names_damage_and_tells_a_torn_tail_from_it() {
    let files = three_segments().await;
    let mut flipped = bytes(&files);
    flipped[HEADER + FRAMED + 57] ^= 1;
    files.put(&segment_path(0), flipped.clone());
    let (entries, report) = inspected(&files);
    assert_eq!(entries, 5);
    assert!(!report.sound());
    let finding = &report.findings[0];
    assert_eq!(
        (finding.offset as usize, finding.index),
        (HEADER + FRAMED, Some(1))
    );
    assert_eq!(bytes(&files), flipped, "an inspection changes nothing");

    let torn = crashed().await;
    let mut tail = bytes(&torn);
    tail[HEADER + 5 * FRAMED + 10] ^= 1;
    torn.put(&segment_path(0), tail);
    let (entries, report) = inspected(&torn);
    assert_eq!((entries, report.sound()), (5, true));
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.findings[0].index, Some(5));
}

fn segments(files: &FaultyFiles) -> Vec<String> {
    let names = files.list(&std::path::Path::new(DIR).join("log"));
    let names = names.expect("a directory").into_iter();
    names.filter(|name| name.ends_with(".seg")).collect()
}

#[tokio::test]
async fn the_newest_segments_are_missed_wherever_the_log_ends_without_them() {
    let files = three_segments().await;
    let names = segments(&files);
    assert_eq!(names.len(), 3);
    for kept in 0..names.len() {
        let copy = files.fork();
        for name in &names[kept..] {
            let path = std::path::Path::new(DIR).join("log").join(name);
            copy.remove(&path).expect("removed");
        }
        match open(&copy, 120) {
            Err(error @ OpenError::Missing { .. }) => {
                assert!(error.to_string().contains(&names[2]), "{error}");
            }
            Err(error) => panic!("{kept} kept: {error}"),
            Ok(_) => panic!("opens with {kept} of 3 segments"),
        }
    }
    assert_eq!(contents(&open(&files, 120).expect("opens")).await.len(), 6);
}

#[tokio::test]
async fn a_segment_that_was_truncated_away_is_not_missed() {
    let files = three_segments().await;
    let log = open(&files, 120).expect("opens");
    log.truncate_after(Some(0)).await.expect("truncates");
    log.close().await.expect("closes");
    let log = open(&files, 120).expect("opens");
    assert_eq!(contents(&log).await.len(), 1);
    log.truncate_after(None).await.expect("truncates");
    log.close().await.expect("closes");
    assert_eq!(segments(&files).len(), 0);
    open(&files, 120).expect("opens");
}
