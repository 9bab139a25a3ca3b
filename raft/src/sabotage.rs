//! Mistakes made on purpose, to prove that the tests notice them. Only a build with the feature `sabotage`
//! contains them; no member of the workspace asks for it, and no other build reads the variable.
//!
//! One registry for the whole program, so that there is one list of names: the broker's mistakes stand
//! here too. Each is one condition at the place where the rule is kept; `chaos/teeth.tsv` says what catches it.
//! The rules of `commit-by-count` and `progress-unsorted` are kept by openraft, that of `write-without-lease` by it
//! as well: `chaos/teeth.patch` has those.

/// Names the mistake that a sabotage build makes: `QUORUMLOG_SABOTAGE=ack-before-sync`.
#[cfg(feature = "sabotage")]
const VARIABLE: &str = "QUORUMLOG_SABOTAGE";

/// Declares the mistakes: what is broken, and the name.
macro_rules! registry {
    ($($(#[doc = $broken:literal])+ $mistake:ident = $name:literal;)+) => {
        /// A mistake that a sabotage build can make.
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub enum Sabotage {
            $($(#[doc = $broken])+ $mistake,)+
        }

        /// Every mistake: itself, its name, and what is broken.
        #[cfg(feature = "sabotage")]
        const ALL: &[Entry] = &[
            $((Sabotage::$mistake, $name, concat!($($broken),+)),)+
        ];
    };
}

registry! {
    /// An append counts as durable once it is written, not when it is synced.
    AckBeforeSync = "ack-before-sync";
    /// A follower answers an append before its sync.
    FollowerUnsynced = "follower-unsynced";
    /// The leader takes an append that it has sent for one that was answered.
    AckOnSend = "ack-on-send";
    /// A vote is written, but not synced.
    VoteUnsynced = "vote-unsynced";
    /// A new segment is synced, but not the directory that has its name.
    SegmentNameUnsynced = "segment-name-unsynced";
    /// A failed sync is tried again, and what it should have saved is acknowledged.
    SyncRetried = "sync-retried";
    /// The durable mark says what is written, not what is synced.
    MarkAhead = "mark-ahead";
    /// The log is cut at damage in its middle.
    DamageCut = "damage-cut";
    /// Truncation keeps the first entry that conflicts.
    TruncateOneShort = "truncate-one-short";
    /// A conflict is reported to the leader as a match.
    ConflictMatched = "conflict-matched";
    /// An emptied node votes and follows before it has been filled.
    EmptiedVotes = "emptied-votes";
    /// A log whose newest segment is gone is taken for a shorter one.
    NewestNotMissed = "newest-not-missed";
    /// What a failed sync left in the page cache is trusted at the next start.
    CacheTrusted = "cache-trusted";
    /// A restarted leader goes on leading in its old term.
    LeaderRestored = "leader-restored";
    /// A restarted node votes and campaigns at once, whatever it promised before.
    NoRestartLease = "no-restart-lease";
    /// Entries of an earlier term are committed once a majority has them, without one of the leader's own term.
    CommitByCount = "commit-by-count";
    /// The list of how far the nodes are is not kept in order, so that its first half passes for a majority.
    ProgressUnsorted = "progress-unsorted";
    /// A node asks for votes without asking first whether it could get them.
    NoPreVote = "no-pre-vote";
    /// The leader answers reads of the newest state without a lease.
    ReadWithoutLease = "read-without-lease";
    /// The leader proposes without a lease.
    WriteWithoutLease = "write-without-lease";
    /// A new leader answers before it has applied what was committed before it.
    NotReady = "not-ready";
    /// An entry that lost its leader is reported as refused.
    DiscardedRefused = "discarded-refused";
    /// A write that is not confirmed in time is reported as refused.
    LateRefused = "late-refused";
    /// A write passed to a leader that does not answer is reported as refused.
    UnansweredRefused = "unanswered-refused";
    /// The Raft core waits for the disk.
    DiskOnCore = "disk-on-core";
    /// The lock of a data directory is each process's own.
    LockNotTaken = "lock-not-taken";
    /// A data directory of another node is taken.
    ForeignDirectory = "foreign-directory";
    /// The checksum of a frame between nodes is not compared.
    FrameUnchecked = "frame-unchecked";
    /// Any node of any group may connect.
    HelloUnchecked = "hello-unchecked";
    /// A node that restarts from a checkpoint skips the entry after it.
    EntrySkipped = "entry-skipped";
    /// A checkpoint says that it holds one entry more than it does.
    CheckpointLate = "checkpoint-late";
    /// The window of recent keys is not in the checkpoint.
    WindowNotKept = "window-not-kept";
    /// Queues count on from zero after a restart from a checkpoint.
    EndsNotRestored = "ends-not-restored";
    /// A consumer's progress is kept by the node that got it, not by the group.
    OffsetLocal = "offset-local";
    /// A retried message is stored again.
    NoDeduplication = "no-deduplication";
    /// The checksum of a record is not compared when it is read.
    RecordUnchecked = "record-unchecked";
    /// Every node answers reads of the newest state.
    FollowerReads = "follower-reads";
    /// A frame gets a buffer of the length that it announces.
    AnnouncedLength = "announced-length";
}

/// Whether this mistake is made. Constant, so that no other build keeps a trace of it.
#[cfg(not(feature = "sabotage"))]
#[must_use]
pub const fn on(_: Sabotage) -> bool {
    false
}

/// Whether this mistake is made.
#[cfg(feature = "sabotage")]
#[must_use]
pub fn on(mistake: Sabotage) -> bool {
    matches!(chosen(), Ok(Some(chosen)) if chosen.0 == mistake)
}

/// Nothing to say: this build makes no mistake on purpose.
#[cfg(not(feature = "sabotage"))]
pub const fn warning() -> Result<Option<String>, String> {
    Ok(None)
}

/// What to warn of before anything is started. `Err`: the variable names no mistake, so nothing may start.
#[cfg(feature = "sabotage")]
pub fn warning() -> Result<Option<String>, String> {
    let (_, name, broken) = match chosen() {
        Ok(Some(chosen)) => chosen,
        Ok(None) => return Ok(None),
        Err(unknown) => return Err(unknown),
    };
    Ok(Some(format!(
        "SABOTAGED by {VARIABLE}={name}:{broken} This process breaks its promises on purpose"
    )))
}

#[cfg(feature = "sabotage")]
type Entry = (Sabotage, &'static str, &'static str);

/// The mistake that the variable names; read once.
#[cfg(feature = "sabotage")]
fn chosen() -> Result<Option<Entry>, String> {
    static CHOSEN: std::sync::OnceLock<Result<Option<Entry>, String>> = std::sync::OnceLock::new();
    let read = || match std::env::var_os(VARIABLE) {
        Some(name) => find(&name.to_string_lossy()),
        None => Ok(None),
    };
    CHOSEN.get_or_init(read).clone()
}

#[cfg(feature = "sabotage")]
fn find(name: &str) -> Result<Option<Entry>, String> {
    if name.is_empty() {
        return Ok(None);
    }
    let found = ALL.iter().find(|entry| entry.1 == name);
    found.copied().map(Some).ok_or_else(|| {
        let mut text = format!("{VARIABLE}={name} names no sabotage. There are:");
        for (_, name, broken) in ALL {
            text.push_str(&format!("\n{name}\t{}", broken.trim()));
        }
        text
    })
}

#[cfg(all(test, feature = "sabotage"))]
mod tests {
    use super::*;

    #[test]
    fn every_sabotage_is_found_by_its_own_name_and_no_other_name_is_taken() {
        for (mistake, name, broken) in ALL {
            let found = find(name).expect("a name of the list").expect("one");
            assert!(found.0 == *mistake, "{name} is the name of two");
            assert!(!broken.trim().is_empty(), "{name}");
        }
        assert!(find("").expect("none is asked for").is_none());
        let unknown = find("ack-before-synk")
            .err()
            .expect("there is no such name");
        assert!(unknown.contains("\nack-before-sync\t"), "{unknown}");
    }
}
