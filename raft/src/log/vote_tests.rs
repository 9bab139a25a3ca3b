use super::*;
use crate::env::faulty::{FaultyFiles, Op};

const PATH: &str = "/data/vote";
const BLOCK: usize = 4096;

fn vote(term: u64) -> Vote {
    Vote {
        term,
        voted_for: term + 1,
        committed: term.is_multiple_of(2),
    }
}

fn saved(terms: u64) -> FaultyFiles {
    let files = FaultyFiles::new(1);
    let mut file = VoteFile::create(&files, Path::new(PATH)).expect("created");
    for term in 1..=terms {
        file.save(&vote(term)).expect("saved");
    }
    files
}

fn read(files: &FaultyFiles) -> Result<Option<Vote>, OpenError> {
    VoteFile::open(files, Path::new(PATH)).map(|(_, vote)| vote)
}

#[test]
fn no_vote_is_told_from_a_vote_in_term_0() {
    assert_eq!(read(&saved(0)).expect("opens"), None);
    let files = saved(0);
    let (mut file, _) = VoteFile::open(&files, Path::new(PATH)).expect("opens");
    file.save(&Vote::default()).expect("saved");
    assert_eq!(read(&files).expect("opens"), Some(Vote::default()));
}

#[test]
fn the_last_vote_is_read_back() {
    for terms in 1..5 {
        assert_eq!(read(&saved(terms)).expect("opens"), Some(vote(terms)));
    }
}

#[test]
fn damage_to_either_slot_does_not_lose_the_vote() {
    for terms in 1..4 {
        for slot in [0, BLOCK] {
            for byte in 0..super::super::slots::SLOT_BYTES {
                let files = saved(terms);
                let mut bytes = files.bytes(Path::new(PATH)).expect("the file");
                bytes[slot + byte] ^= 0x55;
                files.put(Path::new(PATH), bytes);
                assert_eq!(
                    read(&files).expect("opens"),
                    Some(vote(terms)),
                    "slot at {slot}, byte {byte}"
                );
            }
        }
    }
}

#[test]
fn a_damaged_slot_is_repaired_by_the_next_vote() {
    let files = saved(3);
    let mut bytes = files.bytes(Path::new(PATH)).expect("the file");
    bytes[0] ^= 1;
    files.put(Path::new(PATH), bytes);
    let (mut file, _) = VoteFile::open(&files, Path::new(PATH)).expect("opens");
    file.save(&vote(4)).expect("saved");
    for slot in [0, BLOCK] {
        let copy = files.fork();
        let mut bytes = copy.bytes(Path::new(PATH)).expect("the file");
        bytes[slot..slot + 64].fill(0);
        copy.put(Path::new(PATH), bytes);
        assert_eq!(read(&copy).expect("opens"), Some(vote(4)));
    }
}

#[test]
fn both_slots_damaged_is_refused() {
    let files = saved(2);
    files.put(Path::new(PATH), vec![0; 2 * BLOCK]);
    assert!(matches!(read(&files), Err(OpenError::Vote { .. })));
    files.put(Path::new(PATH), Vec::new());
    assert!(matches!(read(&files), Err(OpenError::Vote { .. })));
}

#[test]
fn a_missing_file_is_refused() {
    assert!(matches!(
        read(&FaultyFiles::new(1)),
        Err(OpenError::Vote { .. })
    ));
}

#[test]
fn a_power_cut_at_any_moment_leaves_the_old_or_the_new_vote() {
    for seed in 0..50 {
        for changes in 0..4 {
            let files = saved(2).fork();
            files.reseed(seed);
            let (mut file, _) = VoteFile::open(&files, Path::new(PATH)).expect("opens");
            files.cut_after(changes);
            let result = file.save(&vote(3));
            files.power_cycle();
            let found = read(&files).expect("opens");
            if result.is_ok() {
                assert_eq!(found, Some(vote(3)));
            } else {
                assert!(
                    found == Some(vote(2)) || found == Some(vote(3)),
                    "{found:?}"
                );
            }
        }
    }
}

#[test]
fn a_failed_sync_is_reported() {
    let files = saved(1);
    let (mut file, _) = VoteFile::open(&files, Path::new(PATH)).expect("opens");
    files.fail_after(Op::Sync, 0);
    assert!(file.save(&vote(2)).is_err());
}

#[test]
fn the_newest_segment_and_the_vote_do_not_disturb_each_other() {
    let files = saved(3);
    let open = || VoteFile::open(&files, Path::new(PATH)).expect("opens");
    assert_eq!(open().0.newest(), None);
    open().0.save_newest(Some(0)).expect("saved");
    assert_eq!((open().0.newest(), open().1), (Some(0), Some(vote(3))));
    open().0.save(&vote(4)).expect("saved");
    assert_eq!((open().0.newest(), open().1), (Some(0), Some(vote(4))));
    open().0.save_newest(None).expect("saved");
    assert_eq!((open().0.newest(), open().1), (None, Some(vote(4))));
}
