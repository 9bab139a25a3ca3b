//! The group's processes: start, signals, ends, and what they hold. Who leads is `leading`'s.

use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::time::sleep;

use super::RigError;
use super::member::{Launch, Member};
use super::site::Site;
use crate::history::Recorder;
use crate::workload::Node;

const ENDING_WITHIN: Duration = Duration::from_secs(15);

/// What differs from group to group.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The server's program.
    pub server: PathBuf,
    /// For configuration, logs and, where none is given, the nodes' own directories.
    pub dir: PathBuf,
    /// Configuration lines beyond the usual ones; a key given here replaces the usual one.
    pub overrides: Vec<(String, String)>,
    /// The nodes' own directories, in order.
    pub stores: Vec<PathBuf>,
    /// How the nodes' processes are started, in order.
    pub launch: Vec<Launch>,
    /// Configuration lines of single nodes, in order; they replace all others.
    pub overrides_of: Vec<Vec<(String, String)>>,
    /// Where starts and ends of processes are recorded.
    pub recorder: Option<Arc<Recorder>>,
}

impl Setup {
    pub fn new(server: &Path, dir: &Path) -> Setup {
        Setup {
            server: server.to_owned(),
            dir: dir.to_owned(),
            overrides: Vec::new(),
            stores: Vec::new(),
            launch: Vec::new(),
            overrides_of: Vec::new(),
            recorder: None,
        }
    }

    /// With one more configuration line.
    pub fn with(mut self, key: &str, value: &str) -> Setup {
        self.overrides.push((key.to_owned(), value.to_owned()));
        self
    }
}

/// An end of a process that nobody asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub node: String,
    pub status: ExitStatus,
}

/// A group. Dropping it kills the processes; its files stay.
pub struct Rig {
    site: Arc<Site>,
    server: PathBuf,
    pub(super) members: Vec<Member>,
    recorder: Option<Arc<Recorder>>,
    /// Ends that nobody asked for, in the order in which they were noticed.
    pub(super) ended: Vec<Ended>,
}

impl Rig {
    /// Writes the configuration of as many nodes as the site has room for. Starts nothing.
    pub fn prepare(site: &Arc<Site>, setup: &Setup) -> Result<Rig, RigError> {
        if !setup.server.is_file() {
            return Err(RigError::NoServer {
                path: setup.server.clone(),
            });
        }
        let members = (0..site.nodes())
            .map(|at| Member::prepare(site, at, setup))
            .collect::<Result<_, _>>()?;
        Ok(Rig {
            site: Arc::clone(site),
            server: setup.server.clone(),
            members,
            recorder: setup.recorder.clone(),
            ended: Vec::new(),
        })
    }

    /// Starts all nodes and waits until the group serves.
    pub async fn start(site: &Arc<Site>, setup: &Setup) -> Result<Rig, RigError> {
        let mut rig = Rig::prepare(site, setup)?;
        rig.restart_dead().await?;
        Ok(rig)
    }

    pub fn site(&self) -> &Arc<Site> {
        &self.site
    }

    /// Nodes, running or not.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn name(&self, at: usize) -> &str {
        &self.members[at].name
    }

    /// Where a node's clients dial.
    pub fn address(&self, at: usize) -> SocketAddr {
        self.members[at].address
    }

    pub fn name_server(&self, at: usize) -> SocketAddr {
        self.members[at].name_server
    }

    /// Where the other nodes dial it.
    pub fn peer_address(&self, at: usize) -> SocketAddr {
        self.members[at].peer
    }

    /// The node's own directory.
    pub fn store(&self, at: usize) -> &Path {
        &self.members[at].store
    }

    /// The node's configuration file.
    pub fn configuration(&self, at: usize) -> &Path {
        &self.members[at].conf
    }

    /// All nodes as the workload names them.
    pub fn nodes(&self) -> Vec<Node> {
        (0..self.len()).map(|at| self.node(at)).collect()
    }

    pub fn node(&self, at: usize) -> Node {
        Node {
            name: self.members[at].name.clone(),
            address: self.address(at),
        }
    }

    /// How the node's next process is started.
    pub fn launch_mut(&mut self, at: usize) -> &mut Launch {
        &mut self.members[at].launch
    }

    pub fn is_running(&self, at: usize) -> bool {
        self.members[at].process.is_some()
    }

    pub fn is_paused(&self, at: usize) -> bool {
        self.members[at].paused
    }

    /// Process id of a running node.
    pub fn pid(&self, at: usize) -> Result<u32, RigError> {
        Ok(self.members[at].running()?.id())
    }

    /// Starts a node that is not running. Does not wait for it.
    pub fn spawn(&mut self, at: usize) -> Result<(), RigError> {
        let member = &self.members[at];
        if member.process.is_some() {
            return Err(RigError::Running {
                node: member.name.clone(),
            });
        }
        if let Some(recorder) = &self.recorder {
            recorder.boot(&member.name);
        }
        let process = self.site.at_node(at, || member.start(&self.server))?;
        let member = &mut self.members[at];
        member.process = Some(process);
        member.paused = false;
        Ok(())
    }

    /// Starts every node that is not running, and waits until the group serves.
    pub async fn restart_dead(&mut self) -> Result<(), RigError> {
        for at in 0..self.len() {
            if !self.is_running(at) {
                self.spawn(at)?;
            }
        }
        self.wait_serving().await
    }

    /// Kills nodes (SIGKILL to all before the first is waited for). One that has ended already is an error.
    pub fn kill(&mut self, nodes: &[usize]) -> Result<(), RigError> {
        for at in nodes {
            self.members[*at].signal(Signal::KILL)?;
        }
        for at in nodes {
            let member = &mut self.members[*at];
            if let Some(mut process) = member.process.take() {
                let status = process
                    .wait()
                    .map_err(RigError::io(format!("the end of {}", member.name)))?;
                // Otherwise it ended by itself before the signal came.
                let by_us = status.signal() == Some(Signal::KILL.as_raw());
                self.note_end(*at, status, by_us);
            }
        }
        Ok(())
    }

    /// SIGSTOP: the node stands still, its connections stay.
    pub fn pause(&mut self, at: usize) -> Result<(), RigError> {
        self.members[at].signal(Signal::STOP)?;
        self.members[at].paused = true;
        Ok(())
    }

    /// SIGCONT.
    pub fn resume(&mut self, at: usize) -> Result<(), RigError> {
        self.members[at].signal(Signal::CONT)?;
        self.members[at].paused = false;
        Ok(())
    }

    /// SIGTERM, and how the node ended.
    pub async fn terminate(&mut self, at: usize) -> Result<ExitStatus, RigError> {
        self.members[at].signal(Signal::TERM)?;
        self.wait_end(at, ENDING_WITHIN).await
    }

    /// Waits for an end that the caller expects, and returns it.
    pub async fn wait_end(&mut self, at: usize, within: Duration) -> Result<ExitStatus, RigError> {
        let begun = Instant::now();
        let member = &mut self.members[at];
        member.running()?;
        loop {
            if let Some(status) = member.ended()? {
                self.note_end(at, status, true);
                return Ok(status);
            }
            if begun.elapsed() > within {
                return Err(RigError::Lasting {
                    node: member.name.clone(),
                    within,
                });
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Looks for processes that ended by themselves. Returns all of them since the start.
    pub fn unexpected_ends(&mut self) -> Result<&[Ended], RigError> {
        for at in 0..self.len() {
            if let Some(status) = self.members[at].ended()? {
                self.note_end(at, status, false);
            }
        }
        Ok(&self.ended)
    }

    fn note_end(&mut self, at: usize, status: ExitStatus, expected: bool) {
        let member = &mut self.members[at];
        member.process = None;
        member.paused = false;
        let node = member.name.clone();
        if let Some(recorder) = &self.recorder {
            recorder.exit(&node, &status.to_string(), expected);
        }
        if !expected {
            self.ended.push(Ended { node, status });
        }
    }

    /// Resident memory of a running node, bytes.
    pub fn resident(&self, at: usize) -> Result<u64, RigError> {
        Ok(self.members[at].status_number("VmRSS")? * 1024)
    }

    pub fn threads(&self, at: usize) -> Result<u64, RigError> {
        self.members[at].status_number("Threads")
    }

    /// Open file descriptors of a running node.
    pub fn fds(&self, at: usize) -> Result<u64, RigError> {
        self.members[at].fds()
    }

    /// Everything that a node's processes wrote.
    pub fn log_text(&self, at: usize) -> Result<String, RigError> {
        self.members[at].log_text()
    }
}
