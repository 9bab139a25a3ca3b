//! Damage to files that a real node wrote: what is torn is not called damage, what is damaged is not called
//! torn, and each difference between replicas is found by its invariant.

use std::path::Path;
use std::time::Duration;

use quorumlog_chaos::checker::Invariant;
use quorumlog_chaos::offline::{self, NodeFiles};

use crate::common::{Cluster, Setup};
use crate::copies::{copy, edit, of_kind};

const TOPIC: &str = "damage";
const HEADER: usize = 4096;
const FRAME: usize = 56;

/// A stopped single node with some segments.
async fn stopped_node(dir: &Path) {
    let setup = Setup {
        nodes: 1,
        ..Setup::default()
    };
    let mut cluster = Cluster::start_with(setup.with("mappedFileSizeCommitLog", "1048576")).await;
    cluster.create_topic(TOPIC, 2).await;
    let recorder = cluster.recorder();
    let mut load = cluster.producers(TOPIC, 2);
    load.body = (1024, 16 * 1024);
    let load = load.start(&recorder);
    assert!(load.progress(400, Duration::from_secs(90)).await);
    load.stop().await;
    assert!(cluster.terminate(0).await.success());
    copy(&cluster.dir().join("n0"), dir);
}

fn read(dir: &Path) -> NodeFiles {
    offline::read(dir).expect("readable files")
}

/// A copy of `good` with one change.
fn changed(good: &Path, name: &str, change: impl FnOnce(&Path)) -> NodeFiles {
    let dir = good.with_file_name(name);
    copy(good, &dir);
    change(&dir);
    read(&dir)
}

fn found(nodes: &[NodeFiles], committed: Option<u64>) -> Vec<Invariant> {
    let mut found: Vec<Invariant> = offline::compare(nodes, committed)
        .into_iter()
        .map(|violation| violation.invariant)
        .collect();
    found.dedup();
    found
}

/// Writes an entry's checksum anew.
fn seal_entry(bytes: &mut [u8], at: usize) {
    let len = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().expect("four bytes"));
    let crc = crc32c::crc32c(&bytes[at + 8..at + FRAME + len as usize]);
    bytes[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_told_from_a_torn_tail_and_each_difference_by_its_invariant() {
    let temporary = tempfile::tempdir().expect("a directory");
    let good = temporary.path().join("good");
    stopped_node(&good).await;
    let whole = read(&good);
    let last = whole.last().expect("entries");
    assert_eq!((&whole.damage[..], whole.torn), (&[][..], 0));
    assert!(whole.segments.len() > 2 && whole.indexes.len() > 1);
    assert_eq!(found(std::slice::from_ref(&whole), Some(last)), []);
    let same = changed(&good, "same", |_| {});
    assert_eq!(found(&[whole.clone(), same], Some(last)), []);

    segments(&good, &whole);
    votes(&good, &whole);
    tails(&good, &whole);
    replicas(&good, &whole);
    indexes(&good, &whole);
}

fn segments(good: &Path, whole: &NodeFiles) {
    let flipped = changed(good, "flipped", |dir| {
        let first = &of_kind(dir, "seg")[0];
        edit(first, |bytes| bytes[HEADER + 5000] ^= 1);
    });
    assert_eq!(flipped.damage.len(), 2, "{:?}", flipped.damage);
    assert!(flipped.last() < whole.last());
    assert_eq!(found(&[flipped], None), [Invariant::Durable]);

    let header = changed(good, "header", |dir| {
        edit(&of_kind(dir, "seg")[1], |bytes| bytes[30] ^= 1);
    });
    assert_eq!(found(&[header], None), [Invariant::Durable]);

    let missing = changed(good, "missing", |dir| {
        std::fs::remove_file(&of_kind(dir, "seg")[1]).expect("removed");
    });
    assert_eq!(found(&[missing], None), [Invariant::Durable]);
}

fn votes(good: &Path, whole: &NodeFiles) {
    assert!(whole.vote.is_some_and(|vote| vote.term > 0 && vote.elected));
    let one = changed(good, "one-slot", |dir| {
        edit(&dir.join("vote"), |bytes| bytes[20] ^= 1);
    });
    assert_eq!((one.vote, one.damage.len()), (whole.vote, 0));
    let both = changed(good, "both-slots", |dir| {
        edit(&dir.join("vote"), |bytes| {
            bytes[20] ^= 1;
            bytes[4096 + 20] ^= 1;
        });
    });
    assert_eq!((both.vote, both.damage.len()), (None, 1));
    let identity = good.with_file_name("identity");
    copy(good, &identity);
    edit(&identity.join("node.id"), |bytes| bytes[17] ^= 1);
    let error = offline::read(&identity).expect_err("whose directory is it?");
    assert!(error.to_string().contains("node.id"), "{error}");
}

fn tails(good: &Path, whole: &NodeFiles) {
    let segment = *whole.segments.last().expect("segments");
    let end = whole.entries.last().expect("entries").end();
    let place = HEADER + (end - segment) as usize;
    let torn = changed(good, "torn", |dir| {
        let path = of_kind(dir, "seg").pop().expect("segments");
        edit(&path, |bytes| {
            bytes.resize(bytes.len().max(place + 4096), 0);
            bytes[place..place + 100].fill(0x5a);
        });
    });
    assert_eq!((torn.torn, torn.damage.len()), (100, 0));
    assert_eq!(torn.entries, whole.entries);
    assert_eq!(found(&[torn], whole.last()), []);

    // The same place, but an entry that was durable is gone: the node was stopped, and marked its end.
    let cut = changed(good, "cut", |dir| {
        let path = of_kind(dir, "seg").pop().expect("segments");
        let entry = whole.entries.last().expect("entries");
        let at = HEADER + (entry.position - segment) as usize;
        edit(&path, |bytes| bytes[at..place].fill(0));
    });
    assert_eq!((cut.torn, cut.damage.len()), (0, 1), "{:?}", cut.damage);
    assert_eq!(found(&[cut], None), [Invariant::Durable]);
}

fn replicas(good: &Path, whole: &NodeFiles) {
    // Whole by every checksum, but one byte of a blank entry's tag for later versions differs.
    let differs = changed(good, "differs", |dir| {
        let entry = &whole.entries[2];
        let at = HEADER + entry.position as usize;
        edit(&of_kind(dir, "seg")[0], |bytes| {
            bytes[at + 14] ^= 1;
            seal_entry(bytes, at);
        });
    });
    assert_eq!(differs.damage, []);
    let nodes = [whole.clone(), differs];
    assert_eq!(found(&nodes, None), [Invariant::LogMatching]);

    // Of three voters, one alone has the last entries.
    let mut short = whole.clone();
    short.entries.truncate(whole.entries.len() - 5);
    let nodes = [whole.clone(), short.clone(), short.clone()].map(|mut node| {
        node.voters = vec![1, 2, 3];
        node
    });
    assert_eq!(offline::common(&nodes), short.last());
    assert_eq!(found(&nodes, short.last()), []);
    assert_eq!(found(&nodes, whole.last()), [Invariant::Quorum]);
}

fn indexes(good: &Path, whole: &NodeFiles) {
    let bad = changed(good, "bad-index", |dir| {
        edit(&of_kind(dir, "index")[0], |bytes| bytes[60] ^= 1);
    });
    assert_eq!((bad.bad_indexes.len(), bad.damage.len()), (1, 0));
    assert_eq!(found(&[bad], whole.last()), []);
    // Whole by every checksum, but the second item of the first row is not where the message is.
    let wrong = changed(good, "wrong-index", |dir| {
        edit(&of_kind(dir, "index")[0], |bytes| {
            let directory = u64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes"));
            let block = 48 + directory as usize;
            let items = whole.indexes[0].rows[0].items.len().min(1024);
            assert!(items > 1);
            bytes[block + 16] ^= 1;
            let crc = crc32c::crc32c(&bytes[block..block + items * 16]);
            bytes[block + items * 16..][..4].copy_from_slice(&crc.to_le_bytes());
            let end = bytes.len() - 4;
            let crc = crc32c::crc32c(&bytes[..end]);
            bytes[end..].copy_from_slice(&crc.to_le_bytes());
        });
    });
    assert_eq!(wrong.bad_indexes, []);
    assert_eq!(found(&[wrong], whole.last()), [Invariant::QueueView]);
}
