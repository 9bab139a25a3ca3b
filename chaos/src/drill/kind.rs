//! The drills there are: name, what each does in words, and what it needs. No I/O.

use std::fmt;
use std::str::FromStr;

/// Something that is done to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// End it at once (SIGKILL, power off).
    Kill,
    /// Ask it to stop (SIGTERM) and wait until it has.
    Stop,
    /// Start it again.
    Start,
    /// Let it stand still (SIGSTOP).
    Pause,
    Resume,
    /// Cut it off from the other nodes, both ways.
    Isolate,
    Heal,
    /// Cut its power: what was not synced is lost.
    CutPower,
    /// Give power back; the node is started by [`Verb::Start`].
    PowerOn,
    /// Leave no room on its disk.
    FillDisk,
    FreeDisk,
    /// Let its disk stand still: no write and no sync ends.
    StallDisk,
    ReleaseDisk,
}

impl Verb {
    /// The key of its command in the file of a given group.
    pub fn key(self) -> &'static str {
        match self {
            Verb::Kill => "kill",
            Verb::Stop => "stop",
            Verb::Start => "start",
            Verb::Pause => "pause",
            Verb::Resume => "resume",
            Verb::Isolate => "isolate",
            Verb::Heal => "heal",
            Verb::CutPower => "cutPower",
            Verb::PowerOn => "powerOn",
            Verb::FillDisk => "fillDisk",
            Verb::FreeDisk => "freeDisk",
            Verb::StallDisk => "stallDisk",
            Verb::ReleaseDisk => "releaseDisk",
        }
    }

    pub const ALL: [Verb; 13] = [
        Verb::Kill,
        Verb::Stop,
        Verb::Start,
        Verb::Pause,
        Verb::Resume,
        Verb::Isolate,
        Verb::Heal,
        Verb::CutPower,
        Verb::PowerOn,
        Verb::FillDisk,
        Verb::FreeDisk,
        Verb::StallDisk,
        Verb::ReleaseDisk,
    ];
}

/// A drill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    LeaderKill,
    LeaderPause,
    LeaderIsolate,
    MajorityLoss,
    PowerCut,
    RollingRestart,
    DiskFull,
    SlowDisk,
    FollowerLag,
    Transfer,
}

impl Kind {
    /// All, in the order in which `all` runs them.
    pub const ALL: [Kind; 10] = [
        Kind::LeaderKill,
        Kind::LeaderPause,
        Kind::LeaderIsolate,
        Kind::MajorityLoss,
        Kind::PowerCut,
        Kind::RollingRestart,
        Kind::DiskFull,
        Kind::SlowDisk,
        Kind::FollowerLag,
        Kind::Transfer,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::LeaderKill => "leader-kill",
            Kind::LeaderPause => "leader-pause",
            Kind::LeaderIsolate => "leader-isolate",
            Kind::MajorityLoss => "majority-loss",
            Kind::PowerCut => "power-cut",
            Kind::RollingRestart => "rolling-restart",
            Kind::DiskFull => "disk-full",
            Kind::SlowDisk => "slow-disk",
            Kind::FollowerLag => "follower-lag",
            Kind::Transfer => "transfer",
        }
    }

    /// What is done to the group, one sentence.
    pub fn what(self) -> &'static str {
        match self {
            Kind::LeaderKill => {
                "The leader's process is killed (SIGKILL) under load, and started again when another node leads."
            }
            Kind::LeaderPause => {
                "The leader stands still (SIGSTOP) for 1.5 s under load and wakes up as the leader that it no longer is."
            }
            Kind::LeaderIsolate => {
                "The leader is cut off from the other nodes for 1.5 s while clients still reach it."
            }
            Kind::MajorityLoss => {
                "One follower is killed, then the other: the leader alone must refuse every write; then both are started again."
            }
            Kind::PowerCut => {
                "All nodes lose power at the same moment under load: what was not synced is gone. Then all are started again."
            }
            Kind::RollingRestart => {
                "Every node is stopped (SIGTERM) and started again, one after the other, as in an upgrade."
            }
            Kind::DiskFull => {
                "The leader's disk is filled up under load for 1 s, then room is made again."
            }
            Kind::SlowDisk => {
                "The leader's disk stands still for 1.5 s: no write and no sync ends."
            }
            Kind::FollowerLag => {
                "A follower is killed, stays away for 2 s of load, and has to catch up."
            }
            Kind::Transfer => {
                "The leader is asked to stop (SIGTERM): it must hand leadership over first."
            }
        }
    }

    /// What must be possible on every node.
    pub fn needs(self) -> &'static [Verb] {
        match self {
            Kind::LeaderKill | Kind::MajorityLoss | Kind::FollowerLag => &[Verb::Kill, Verb::Start],
            Kind::LeaderPause => &[Verb::Pause, Verb::Resume],
            Kind::LeaderIsolate => &[Verb::Isolate, Verb::Heal],
            Kind::PowerCut => &[Verb::CutPower, Verb::PowerOn, Verb::Start],
            Kind::RollingRestart | Kind::Transfer => &[Verb::Stop, Verb::Start],
            Kind::DiskFull => &[Verb::FillDisk, Verb::FreeDisk],
            Kind::SlowDisk => &[Verb::StallDisk, Verb::ReleaseDisk],
        }
    }

    /// The longest that writes may be away after the fault (of `majority-loss` and `power-cut`: after the nodes were
    /// ordered back). The bar is generous; the goal is what good looks like.
    pub fn recovers_within_ms(self) -> f64 {
        match self {
            Kind::PowerCut => 30_000.0,
            Kind::MajorityLoss | Kind::DiskFull => 10_000.0,
            _ => 5_000.0,
        }
    }

    /// The p99 that is aimed at.
    pub fn recovery_goal_ms(self) -> Option<f64> {
        match self {
            Kind::LeaderKill | Kind::LeaderPause | Kind::LeaderIsolate => Some(700.0),
            Kind::Transfer => Some(500.0),
            Kind::MajorityLoss => Some(3_000.0),
            _ => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A name that no drill has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no drill `{0}`; there are leader-kill, leader-pause, leader-isolate, majority-loss, power-cut, rolling-restart, disk-full, slow-disk, follower-lag and transfer"
)]
pub struct NoSuchDrill(String);

impl FromStr for Kind {
    type Err = NoSuchDrill;

    fn from_str(text: &str) -> Result<Kind, NoSuchDrill> {
        let named = |kind: &&Kind| kind.name() == text;
        let found = Kind::ALL.iter().find(named).copied();
        found.ok_or_else(|| NoSuchDrill(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drill_is_found_by_its_name_and_named_in_the_error() {
        let error = "x".parse::<Kind>().unwrap_err().to_string();
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert!(error.contains(kind.name()), "{kind}");
        }
    }

    #[test]
    fn every_verb_is_needed_by_some_drill() {
        for verb in Verb::ALL {
            assert!(
                Kind::ALL.iter().any(|kind| kind.needs().contains(&verb)),
                "{verb:?}"
            );
        }
    }
}
