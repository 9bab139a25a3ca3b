//! Damage to a directory that is made here as the format says.

use super::*;

fn entry(index: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; FRAME_BYTES as usize];
    bytes[0..4].copy_from_slice(&ENTRY_MAGIC.to_le_bytes());
    bytes[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes[24..32].copy_from_slice(&3u64.to_le_bytes());
    bytes[32..40].copy_from_slice(&index.to_le_bytes());
    bytes.extend_from_slice(payload);
    let crc = crc32c::crc32c(&bytes[8..]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn mark(sequence: u64, position: u64) -> [u8; 64] {
    let mut slot = [0; 64];
    slot[0..4].copy_from_slice(&MARK_MAGIC.to_le_bytes());
    slot[8..16].copy_from_slice(&sequence.to_le_bytes());
    slot[16..24].copy_from_slice(&position.to_le_bytes());
    slot
}

/// A segment at position 1000 with three entries and a durable mark after the first, in a longer file.
fn example(dir: &Path) -> Segment {
    std::fs::create_dir_all(dir.join("log")).unwrap();
    let path = dir.join("log").join(format!("{:020}.seg", 1000));
    let mut bytes = vec![0; HEADER_BYTES as usize];
    bytes[1024..1088].copy_from_slice(&mark(4, 1066));
    bytes[2048..2112].copy_from_slice(&mark(3, 1000));
    for (at, payload) in [&b"0123456789"[..], b"", &[7; 2000]].iter().enumerate() {
        bytes.extend(entry(40 + at as u64, payload));
    }
    bytes.resize(20_000, 0);
    std::fs::write(&path, bytes).unwrap();
    std::fs::write(dir.join("log").join("next.tmp"), "").unwrap();
    last_segment(dir).unwrap()
}

#[test]
fn entries_and_the_durable_mark_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let segment = example(dir.path());
    assert_eq!(segments(dir.path()).unwrap().len(), 1);
    let entries = segment.entries().unwrap();
    let ids: Vec<(u64, u64)> = entries
        .iter()
        .map(|entry| (entry.term, entry.index))
        .collect();
    assert_eq!(ids, [(3, 40), (3, 41), (3, 42)]);
    assert_eq!(entries[0].bytes, 4096..4162);
    assert_eq!(entries[1].bytes, 4162..4218);
    assert_eq!(entries[2].bytes, 4218..6274);
    assert_eq!(segment.durable().unwrap(), 4162);
}

#[test]
fn damage_is_where_it_was_wanted_and_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let segment = example(dir.path());
    let whole = std::fs::read(&segment.path).unwrap();
    let entries = segment.entries().unwrap();
    let changed = |damage: &dyn Fn()| {
        damage();
        let now = std::fs::read(&segment.path).unwrap();
        let changed: Vec<u64> = (0..whole.len() as u64)
            .filter(|at| now.get(*at as usize) != Some(&whole[*at as usize]))
            .collect();
        std::fs::write(&segment.path, &whole).unwrap();
        (
            *changed.first().unwrap(),
            *changed.last().unwrap(),
            changed.len(),
        )
    };
    let path = &segment.path;
    assert_eq!(
        changed(&|| flip_entry(&segment, &entries[0]).unwrap()),
        (4157, 4157, 1)
    );
    assert_eq!(
        changed(&|| flip_entry(&segment, &entries[1]).unwrap()),
        (4190, 4190, 1)
    );
    assert_eq!(
        changed(&|| zero(path, 5000..5010).unwrap()),
        (5000, 5009, 10)
    );
    let (first, last, _) = changed(&|| garbage(path, 6274..8000, 1).unwrap());
    assert!(first >= 6274 && last < 8000);
    let (first, last, _) = changed(&|| recycle(&segment, 2).unwrap());
    assert!(first == 6274 && last < 6274 + 2112);
    let lost = changed(&|| {
        assert_eq!(lose_sector(path, 4218..6274).unwrap(), 5120..5632);
    });
    assert_eq!(lost, (5120, 5631, 512));
    assert!(lose_sector(path, 4218..4600).is_err());
    truncate(path, 5000).unwrap();
    assert_eq!(std::fs::metadata(path).unwrap().len(), 5000);
}

#[test]
fn torn_entries_follow_the_last_one_and_their_checksum_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let segment = example(dir.path());
    let last = segment.entries().unwrap().pop().unwrap();
    let original = read(&segment.path, last.bytes.clone()).unwrap();
    let end = append_torn(&segment, &last, 2).unwrap();
    let entries = segment.entries().unwrap();
    let indexes: Vec<u64> = entries.iter().map(|entry| entry.index).collect();
    assert_eq!(indexes, [40, 41, 42, 43, 44]);
    assert_eq!(entries[4].bytes.end, end);
    // The checksum is that of the entry it was copied from; index and position are not.
    let torn = read(&segment.path, entries[3].bytes.clone()).unwrap();
    assert_eq!(torn[..32], original[..32]);
    assert_ne!(torn[32..48], original[32..48]);
    assert_eq!(
        number64(&torn, 40),
        1000 + entries[3].bytes.start - HEADER_BYTES
    );
    assert_eq!(last_index(dir.path()).unwrap(), Some(44));
    assert_eq!(last_whole_index(dir.path()).unwrap(), Some(42));
    flip_entry(&segment, &entries[2]).unwrap();
    assert_eq!(last_whole_index(dir.path()).unwrap(), Some(41));
}

#[test]
fn the_newer_slot_of_a_vote_file_counts() {
    let dir = tempfile::tempdir().unwrap();
    let slot = |sequence: u64, term: u64, given: u8| {
        let mut slot = [0; 64];
        slot[0..4].copy_from_slice(&VOTE_MAGIC.to_le_bytes());
        slot[8..16].copy_from_slice(&sequence.to_le_bytes());
        slot[16..24].copy_from_slice(&term.to_le_bytes());
        slot[24..32].copy_from_slice(&2u64.to_le_bytes());
        slot[32] = given;
        slot
    };
    let path = dir.path().join("vote");
    let mut file = vec![0; 8192];
    file[..64].copy_from_slice(&slot(4, 7, 1));
    file[4096..4160].copy_from_slice(&slot(3, 9, 1));
    std::fs::write(&path, &file).unwrap();
    let vote = SavedVote {
        term: 7,
        voted_for: 2,
    };
    assert_eq!(saved_vote(dir.path()).unwrap(), Some(vote));
    file[..64].copy_from_slice(&slot(0, 0, 0));
    file[4096..4160].copy_from_slice(&slot(1, 0, 0));
    std::fs::write(&path, &file).unwrap();
    assert_eq!(saved_vote(dir.path()).unwrap(), None);
}

#[test]
fn a_vote_file_can_be_hurt_in_every_way() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vote");
    let whole = vec![1; 8192];
    for (how, flipped) in [(VoteDamage::OneSlot, 1), (VoteDamage::BothSlots, 2)] {
        std::fs::write(&path, &whole).unwrap();
        damage_vote(dir.path(), how).unwrap();
        let now = std::fs::read(&path).unwrap();
        assert_eq!(now.iter().filter(|byte| **byte != 1).count(), flipped);
    }
    damage_vote(dir.path(), VoteDamage::Empty).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"");
    damage_vote(dir.path(), VoteDamage::Missing).unwrap();
    assert!(!path.exists());
}

#[test]
fn directories_are_swapped_and_rolled_back_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    let (older, spare) = (dir.path().join("older"), dir.path().join("spare"));
    std::fs::create_dir_all(one.join("deep")).unwrap();
    std::fs::create_dir_all(&other).unwrap();
    std::fs::write(one.join("deep").join("a"), vec![5; 100_000]).unwrap();
    std::fs::write(other.join("b"), "b").unwrap();
    copy_dir(&one, &older).unwrap();
    std::fs::write(one.join("deep").join("a"), "newer").unwrap();
    swap_dirs(&one, &other, &spare).unwrap();
    assert_eq!(std::fs::read(one.join("b")).unwrap(), b"b");
    assert_eq!(
        std::fs::read(other.join("deep").join("a")).unwrap(),
        b"newer"
    );
    roll_back_dir(&other, &older).unwrap();
    assert_eq!(
        std::fs::read(other.join("deep").join("a")).unwrap(),
        vec![5; 100_000]
    );
    assert!(!other.join("b").exists());
}
