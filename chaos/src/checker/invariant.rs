//! The promises by name.

use std::fmt;

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// I-1: an acknowledged message is at its offset on every node.
    NoLoss,
    /// I-2: every message read was sent, with these bytes, before it was read.
    NoPhantom,
    /// I-3: a refused message is nowhere, not even in a log.
    FailMeansAbsent,
    /// I-4: a message is there once (per attempt, where retries are not deduplicated).
    AtMostOnce,
    /// I-5: one offset has one value, for everybody and for ever.
    OneValue,
    /// I-6: offsets have no gaps, and a queue's ends do not go back.
    Dense,
    /// I-7: what was acknowledged before a send began has a smaller offset.
    RealTimeOrder,
    /// I-8: reads skip nothing, see what was acknowledged before, and what was read stays.
    Reads,
    /// I-9: a committed consumer offset is not lost.
    ConsumerOffset,
    /// I-10: only old messages are deleted, and only where deleting is on.
    Retention,
    /// I-11: without a majority nothing is acknowledged, everything is answered in time and says why.
    Refusal,
    /// I-12: a term has one leader.
    ElectionSafety,
    /// I-13: a node's term and vote never go back, whatever happens to it.
    VoteKept,
    /// I-14: what a node committed and applied never goes back, and stands in its order.
    Progress,
    /// I-15: two logs with the same entry are the same up to it, and what is committed is the same everywhere.
    LogMatching,
    /// I-16: a leader has everything that was committed before its term.
    LeaderCompleteness,
    /// I-17: what is committed is durable on a majority.
    Quorum,
    /// I-18: the queues' index files are what the log says.
    QueueView,
    /// I-19: what was reported durable is there after a crash.
    Durable,
    /// I-20: a healed group has one leader, is level and acknowledges again.
    Recovers,
    /// I-21: a fault that leaves a majority does not stop writing.
    GoesOn,
    /// I-22: memory, files, threads and elections are bounded; no process ends or panics by itself.
    Bounded,
}

impl fmt::Display for Invariant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Invariant::NoLoss => "I-1 no loss",
            Invariant::NoPhantom => "I-2 no phantom",
            Invariant::FailMeansAbsent => "I-3 fail means absent",
            Invariant::AtMostOnce => "I-4 at most once",
            Invariant::OneValue => "I-5 one offset, one value",
            Invariant::Dense => "I-6 dense and monotonic",
            Invariant::RealTimeOrder => "I-7 real-time order",
            Invariant::Reads => "I-8 reads",
            Invariant::ConsumerOffset => "I-9 consumer offset",
            Invariant::Retention => "I-10 retention",
            Invariant::Refusal => "I-11 refusal",
            Invariant::ElectionSafety => "I-12 election safety",
            Invariant::VoteKept => "I-13 vote and term kept",
            Invariant::Progress => "I-14 committed and applied never go back",
            Invariant::LogMatching => "I-15 log matching",
            Invariant::LeaderCompleteness => "I-16 leader completeness",
            Invariant::Quorum => "I-17 committed means durable on a majority",
            Invariant::QueueView => "I-18 queues are what the log says",
            Invariant::Durable => "I-19 durable promise",
            Invariant::Recovers => "I-20 recovers after healing",
            Invariant::GoesOn => "I-21 goes on during a fault",
            Invariant::Bounded => "I-22 bounded",
        })
    }
}
