//! The gate in front of every proposal and every read of the newest state: a pure decision.

use std::time::Duration;

use crate::sabotage::{self, Sabotage};
use crate::types::{NodeId, Refusal, Role};

/// How many times as fast as another node's the monotonic clock of a node may run, for reads of the newest state
/// to be right. Kernels correct a clock by 0.05 % at most.
pub(crate) const CLOCK_RATES_MAX: u32 = 2;

/// What the gate looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GateInput {
    pub role: Role,
    pub leader: Option<NodeId>,
    /// See `View::ready`, for the term this node is in now.
    pub ready: bool,
    /// Time since the newest message was *sent* that a majority has answered. `None`: none was.
    pub since_quorum: Option<Duration>,
    pub lease: Duration,
    /// A group of one needs no answers.
    pub alone: bool,
    /// See `Room::handed_over`, for the term this node is in now.
    pub handed_over: bool,
    pub stopping: bool,
}

/// How long after a message that a majority answered the leader may answer reads. The followers refuse their
/// votes to others for a whole `lease` after it, but by their own clocks: one that runs up to
/// [`CLOCK_RATES_MAX`] times as fast as the leader's is done after that part of the leader's lease.
pub(crate) fn read_lease(lease: Duration) -> Duration {
    lease / CLOCK_RATES_MAX
}

/// May this node, as the leader, answer reads of the newest state now? Another one may lead, and have acknowledged
/// more, once the votes of a majority are free; see [`read_lease`].
pub(crate) fn read(input: &GateInput) -> Result<(), Refusal> {
    lead(&GateInput {
        lease: read_lease(input.lease),
        ..*input
    })?;
    // Whom it asked to take over is elected without regard to any lease.
    match input.handed_over {
        true => Err(Refusal::NotReady),
        false => Ok(()),
    }
}

/// May this node act as the leader now? The lease ends one `lease` after the sending of the newest message
/// that a majority answered. Whoever proposes by it need not be right: no write is acknowledged before a majority
/// has it in this leader's term, whatever the clocks say. It makes refusals come soon.
pub(crate) fn lead(input: &GateInput) -> Result<(), Refusal> {
    if input.stopping {
        return Err(Refusal::Stopping);
    }
    if input.role != Role::Leader {
        return Err(Refusal::NotLeader {
            leader: input.leader,
        });
    }
    if !input.alone {
        let since = match input.since_quorum {
            Some(since) => since,
            // Just elected: the answers to its first messages are under way.
            None if !input.ready => return Err(Refusal::NotReady),
            None => input.lease,
        };
        if since >= input.lease {
            return Err(Refusal::NoLease {
                since_ms: since.as_millis() as u64,
                lease_ms: input.lease.as_millis() as u64,
            });
        }
    }
    // I-8: the state may lack what the leader before has acknowledged.
    if !input.ready && !sabotage::on(Sabotage::NotReady) {
        return Err(Refusal::NotReady);
    }
    Ok(())
}

/// Free space as last looked at, with the memory that keeps a nearly full disk from flapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    pub free: u64,
    /// Nothing new is proposed.
    pub full: bool,
    /// Nothing that others propose is taken either: what was under way when it became full had half of the
    /// reserve, the other half is for votes, checkpoints and indexes.
    pub cramped: bool,
}

/// More than the reserve that must be free before a disk that was full takes writes again: a sixteenth.
const HYSTERESIS_DIVISOR: u64 = 16;

impl Disk {
    /// What is known after another look.
    pub(crate) fn look(self, free: u64, reserve: u64) -> Disk {
        let enough = match self.full {
            true => reserve.saturating_add(reserve / HYSTERESIS_DIVISOR),
            false => reserve,
        };
        Disk {
            free,
            full: free < enough,
            cramped: free < enough / 2,
        }
    }

    pub(crate) fn check(self, reserve: u64) -> Result<(), Refusal> {
        match self.full {
            true => Err(Refusal::DiskFull {
                free: self.free,
                reserve,
            }),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(300);

    #[test]
    fn the_gate_opens_only_for_a_ready_leader_with_a_fresh_lease() {
        let since = |ms: u64| Some(Duration::from_millis(ms));
        let leading = GateInput {
            role: Role::Leader,
            leader: Some(1),
            ready: true,
            since_quorum: since(50),
            lease: LEASE,
            alone: false,
            handed_over: false,
            stopping: false,
        };
        let not_leader = |leader| Err(Refusal::NotLeader { leader });
        let no_lease = |since_ms| {
            Err(Refusal::NoLease {
                since_ms,
                lease_ms: 300,
            })
        };
        let table = [
            (leading, Ok(())),
            (
                GateInput {
                    stopping: true,
                    ..leading
                },
                Err(Refusal::Stopping),
            ),
            (
                GateInput {
                    role: Role::Follower,
                    leader: Some(2),
                    ..leading
                },
                not_leader(Some(2)),
            ),
            (
                GateInput {
                    role: Role::Candidate,
                    leader: None,
                    ..leading
                },
                not_leader(None),
            ),
            (
                GateInput {
                    role: Role::Stopped,
                    leader: None,
                    ..leading
                },
                not_leader(None),
            ),
            (
                GateInput {
                    since_quorum: since(299),
                    ..leading
                },
                Ok(()),
            ),
            (
                GateInput {
                    since_quorum: since(300),
                    ..leading
                },
                no_lease(300),
            ),
            (
                GateInput {
                    since_quorum: since(1000),
                    ..leading
                },
                no_lease(1000),
            ),
            // The lost lease is what an operator has to know, ready or not.
            (
                GateInput {
                    since_quorum: since(1000),
                    ready: false,
                    ..leading
                },
                no_lease(1000),
            ),
            (
                GateInput {
                    since_quorum: None,
                    ..leading
                },
                no_lease(300),
            ),
            (
                GateInput {
                    since_quorum: None,
                    ready: false,
                    ..leading
                },
                Err(Refusal::NotReady),
            ),
            (
                GateInput {
                    ready: false,
                    ..leading
                },
                Err(Refusal::NotReady),
            ),
            (
                GateInput {
                    since_quorum: None,
                    alone: true,
                    ..leading
                },
                Ok(()),
            ),
            (
                GateInput {
                    since_quorum: None,
                    alone: true,
                    ready: false,
                    ..leading
                },
                Err(Refusal::NotReady),
            ),
        ];
        for (input, expected) in table {
            assert_eq!(lead(&input), expected, "{input:?}");
        }
    }

    #[test]
    fn reads_end_with_half_a_lease_and_when_leadership_was_handed_over() {
        let since = |ms: u64| Some(Duration::from_millis(ms));
        let leading = GateInput {
            role: Role::Leader,
            leader: Some(1),
            ready: true,
            since_quorum: since(149),
            lease: LEASE,
            alone: false,
            handed_over: false,
            stopping: false,
        };
        let no_lease = |since_ms| {
            Err(Refusal::NoLease {
                since_ms,
                lease_ms: 150,
            })
        };
        let gave_away = GateInput {
            handed_over: true,
            ..leading
        };
        let old = |ms| GateInput {
            since_quorum: since(ms),
            ..leading
        };
        let unheard = GateInput {
            since_quorum: None,
            ..leading
        };
        let alone = GateInput {
            alone: true,
            ..unheard
        };
        let follower = GateInput {
            role: Role::Follower,
            leader: Some(2),
            ..gave_away
        };
        let new = GateInput {
            ready: false,
            ..unheard
        };
        // Reads, and writes beside them.
        let table = [
            (leading, Ok(()), Ok(())),
            (old(150), no_lease(150), Ok(())),
            (old(299), no_lease(299), Ok(())),
            (unheard, no_lease(150), lead(&unheard)),
            (alone, Ok(()), Ok(())),
            (new, Err(Refusal::NotReady), Err(Refusal::NotReady)),
            // The log itself turns writes away then.
            (gave_away, Err(Refusal::NotReady), Ok(())),
            (
                follower,
                lead(&follower),
                lead(&leading).and(lead(&follower)),
            ),
        ];
        for (input, of_a_read, of_a_write) in table {
            assert_eq!(read(&input), of_a_read, "{input:?}");
            assert_eq!(lead(&input), of_a_write, "{input:?}");
        }
    }

    /// The followers' promise, by the leader's clock, in µs: what it lasts by theirs, and how much faster theirs run.
    #[test]
    fn a_read_lease_ends_before_the_promise_of_the_fastest_follower_that_is_allowed() {
        for lease_ms in [20, 151, 300, 120_000] {
            let lease = Duration::from_millis(lease_ms);
            for (leader, follower) in [(1, 1), (1, 2), (1000, 1999), (2, 1), (1_000_000, 1_000_500)]
            {
                let promise = lease * leader / follower;
                assert!(
                    read_lease(lease) <= promise,
                    "{lease:?} {leader} {follower}"
                );
            }
        }
    }

    #[test]
    fn a_full_disk_takes_what_is_under_way_from_half_of_the_reserve() {
        for (free, full, cramped) in [
            (1600, false, false),
            (1599, true, false),
            (800, true, false),
            (799, true, true),
            (0, true, true),
        ] {
            let disk = Disk::default().look(free, 1600);
            assert_eq!((disk.full, disk.cramped), (full, cramped), "{free}");
        }
    }

    #[test]
    fn a_full_disk_opens_again_only_with_a_margin() {
        let reserve = 1600;
        let mut disk = Disk::default().look(5000, reserve);
        for (free, full) in [
            (1600, false),
            (1599, true),
            (1600, true),
            (1699, true),
            (1700, false),
            (1600, false),
        ] {
            disk = disk.look(free, reserve);
            assert_eq!((disk.free, disk.full), (free, full));
            let refusal = Err(Refusal::DiskFull { free, reserve });
            assert_eq!(disk.check(reserve), if full { refusal } else { Ok(()) });
        }
        assert_eq!(
            Disk::default().look(0, 0).check(0),
            Ok(()),
            "no reserve asked for"
        );
    }
}
