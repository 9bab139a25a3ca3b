//! The group that is drilled: a throw-away one of the rig's, or a given one. Does what a verb says to a node; which verb
//! when is the scripts'.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::given::{Given, GivenError};
use super::isolate;
use super::kind::{Kind, Verb};
use crate::rig::disk::{Disk, DiskHome, Frozen, Kind as FileSystem};
use crate::rig::{
    Network, Placement, Rig, RigError, Setup, Site, View, agreed_leader, newest_leader,
};
use crate::workload::Node;

/// Left on a disk that is filled: less than the broker keeps in reserve.
const LEFT_BYTES: u64 = 1 << 20;
const VIEW_WITHIN: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);
/// A leader must be there within this time before a drill begins.
const LEADER_WITHIN: Duration = Duration::from_secs(30);

/// A group with what can be done to it.
pub struct Group {
    nodes: Vec<Node>,
    how: How,
}

enum How {
    Rig(Box<Throwaway>),
    Given(Given),
}

/// A throw-away group: its processes and, where they have some, their own disks.
struct Throwaway {
    rig: Rig,
    disks: Vec<Disk>,
    frozen: Vec<Option<Frozen>>,
    /// Why no node has a disk of its own.
    no_disks: Option<String>,
    _home: Option<DiskHome>,
}

/// Why something could not be done to the group.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    #[error(transparent)]
    Rig(#[from] RigError),
    #[error(transparent)]
    Given(#[from] GivenError),
    #[error("nobody leads the group after {0:?}")]
    NoLeader(Duration),
    #[error("the group is not whole after {within:?}: {why}")]
    NotWhole { within: Duration, why: String },
}

impl Group {
    /// Starts a throw-away group in `dir`. `disks`: each node gets a disk of its own, if the machine can do that.
    pub async fn throw_away(
        site: &Arc<Site>,
        server: &Path,
        dir: &Path,
        disks: bool,
    ) -> Result<Group, GroupError> {
        let mut setup = Setup::new(server, dir);
        let mut made = Vec::new();
        let mut home = None;
        let mut no_disks = None;
        if disks {
            match make_disks(site.nodes()) {
                Ok((place, disks)) => (home, made) = (Some(place), disks),
                Err(error) => {
                    no_disks = Some(format!("no disks of their own can be made: {error}"))
                }
            }
        }
        if !made.is_empty() {
            setup = setup
                .with("mappedFileSizeCommitLog", "8388608")
                .with("diskReserveBytes", "33554432");
            setup.stores = made.iter().map(|disk| disk.path().to_owned()).collect();
        }
        let rig = Rig::start(site, &setup).await?;
        Ok(Group {
            nodes: rig.nodes(),
            how: How::Rig(Box::new(Throwaway {
                frozen: made.iter().map(|_| None).collect(),
                disks: made,
                rig,
                no_disks,
                _home: home,
            })),
        })
    }

    pub fn given(given: Given) -> Group {
        Group {
            nodes: given.nodes.clone(),
            how: How::Given(given),
        }
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.name.clone()).collect()
    }

    /// Why a drill cannot be done here; `None` when it can.
    pub fn lacks(&self, kind: Kind) -> Option<String> {
        kind.needs().iter().find_map(|verb| self.lacks_verb(*verb))
    }

    fn lacks_verb(&self, verb: Verb) -> Option<String> {
        match &self.how {
            How::Given(given) => {
                let lacking =
                    (0..self.nodes.len()).find(|at| given.command(*at, verb).is_none())?;
                let node = &self.nodes[lacking].name;
                Some(format!("the file has no `{node}.{}`", verb.key()))
            }
            How::Rig(own) => match verb {
                Verb::Isolate | Verb::Heal if own.rig.site().placement() == Placement::Loopback => {
                    Some("needs root and network namespaces".to_owned())
                }
                Verb::CutPower
                | Verb::PowerOn
                | Verb::FillDisk
                | Verb::FreeDisk
                | Verb::StallDisk
                | Verb::ReleaseDisk
                    if own.disks.is_empty() =>
                {
                    let why = "needs root and loop devices".to_owned();
                    Some(own.no_disks.clone().unwrap_or(why))
                }
                _ => None,
            },
        }
    }

    /// Does it to all of `nodes`, as much at once as can be.
    pub async fn act(&mut self, verb: Verb, nodes: &[usize]) -> Result<(), GroupError> {
        match &mut self.how {
            How::Rig(own) => own.act(verb, nodes).await,
            How::Given(given) => {
                let all = nodes.iter().map(|at| given.run(*at, verb));
                for done in futures_util::future::join_all(all).await {
                    done?;
                }
                Ok(())
            }
        }
    }

    /// Which node leads, in the highest term that anybody claims. Waits for one.
    pub async fn leader(&self) -> Result<usize, GroupError> {
        let begun = Instant::now();
        while begun.elapsed() < LEADER_WITHIN {
            if let Some(at) = newest_leader(&self.views().await) {
                return Ok(at);
            }
            sleep(LOOK).await;
        }
        Err(GroupError::NoLeader(LEADER_WITHIN))
    }

    /// Waits until all nodes answer, agree on a leader, and lag behind it by less than a moment's writes.
    pub async fn wait_whole(&self, within: Duration) -> Result<(), GroupError> {
        let begun = Instant::now();
        loop {
            let views = self.views().await;
            let why = match apart(&views) {
                None => return Ok(()),
                Some(why) => why,
            };
            if begun.elapsed() > within {
                return Err(GroupError::NotWhole { within, why });
            }
            sleep(LOOK).await;
        }
    }

    async fn views(&self) -> Vec<(usize, Option<View>)> {
        let ask = |(at, node): (usize, &Node)| {
            let address = node.address;
            async move { (at, View::of(address, VIEW_WITHIN).await.ok()) }
        };
        futures_util::future::join_all(self.nodes.iter().enumerate().map(ask)).await
    }

    /// Ends of processes that nobody asked for, in words; empty when there are none.
    pub fn unexpected_ends(&mut self) -> String {
        let How::Rig(own) = &mut self.how else {
            return String::new();
        };
        let mut words = String::new();
        match own.rig.unexpected_ends() {
            Ok(ends) => {
                for end in ends {
                    // Writing to a text cannot fail.
                    let _ = write!(words, "{} ended by itself with {}; ", end.node, end.status);
                }
            }
            Err(error) => words = error.to_string(),
        }
        words
    }
}

/// Entries that a node may be behind while writes go on.
const LEVEL: u64 = 300;

/// Why the nodes are not one whole group; `None` when they are.
fn apart(views: &[(usize, Option<View>)]) -> Option<String> {
    if let Some((at, _)) = views.iter().find(|(_, view)| view.is_none()) {
        return Some(format!("node {at} does not answer"));
    }
    if agreed_leader(views).is_none() {
        return Some("the nodes do not agree on a leader".to_owned());
    }
    let applied = |view: &Option<View>| view.as_ref().and_then(|view| view.applied).unwrap_or(0);
    let furthest = views
        .iter()
        .map(|(_, view)| applied(view))
        .max()
        .unwrap_or(0);
    let behind = views
        .iter()
        .find(|(_, view)| applied(view) + LEVEL < furthest);
    behind.map(|(at, view)| {
        let lag = furthest - applied(view);
        format!("node {at} is {lag} entries behind")
    })
}

impl Throwaway {
    fn network(&self) -> Result<&Network, RigError> {
        let missing = || RigError::Io {
            what: "cutting a node off".to_owned(),
            source: std::io::Error::other("the group is on loopback"),
        };
        self.rig.site().network().ok_or_else(missing)
    }

    async fn act(&mut self, verb: Verb, nodes: &[usize]) -> Result<(), GroupError> {
        match verb {
            Verb::Kill => self.rig.kill(nodes)?,
            Verb::CutPower => {
                std::thread::scope(|scope| {
                    let cuts: Vec<_> = nodes
                        .iter()
                        .map(|at| scope.spawn(|| self.disks[*at].cut()))
                        .collect();
                    cuts.into_iter().try_for_each(|cut| match cut.join() {
                        Ok(done) => done,
                        Err(panic) => std::panic::resume_unwind(panic),
                    })
                })?;
                // A node whose disk is gone ends by itself, or is ended.
                let running: Vec<usize> = nodes
                    .iter()
                    .copied()
                    .filter(|at| self.rig.is_running(*at))
                    .collect();
                self.rig.kill(&running)?;
            }
            _ => {
                for at in nodes {
                    self.act_on(verb, *at).await?;
                }
            }
        }
        Ok(())
    }

    async fn act_on(&mut self, verb: Verb, at: usize) -> Result<(), GroupError> {
        match verb {
            Verb::Kill | Verb::CutPower => {}
            Verb::Start => self.rig.spawn(at)?,
            Verb::Stop => {
                self.rig.terminate(at).await?;
            }
            Verb::Pause => self.rig.pause(at)?,
            Verb::Resume => self.rig.resume(at)?,
            Verb::Isolate => isolate::isolate(self.network()?, at)?,
            Verb::Heal => isolate::heal(self.network()?)?,
            Verb::PowerOn => self.disks[at].power_on()?,
            Verb::FillDisk => self.disks[at].fill(LEFT_BYTES)?,
            Verb::FreeDisk => self.disks[at].empty()?,
            Verb::StallDisk => self.frozen[at] = Some(self.disks[at].freeze()?),
            Verb::ReleaseDisk => {
                if let Some(frozen) = self.frozen[at].take() {
                    frozen.thaw()?;
                }
            }
        }
        Ok(())
    }
}

fn make_disks(count: usize) -> Result<(DiskHome, Vec<Disk>), RigError> {
    let home = DiskHome::create()?;
    let disks = (0..count)
        .map(|at| Disk::create(home.path(), &format!("disk{at}"), FileSystem::Xfs))
        .collect::<Result<_, _>>()?;
    Ok((home, disks))
}

impl Drop for Throwaway {
    fn drop(&mut self) {
        // A frozen file system would hold its node's end up, and the nodes hold the disks.
        self.frozen.clear();
        let running: Vec<usize> = (0..self.rig.len())
            .filter(|at| self.rig.is_running(*at))
            .collect();
        // What cannot be killed here is ended by the rig's own drop.
        let _killed = self.rig.kill(&running);
    }
}
