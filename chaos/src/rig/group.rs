//! The group: start, signals, restart, who leads.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::member::{Launch, Member};
use super::site::Site;
use super::view::{View, agreed_leader, newest_leader};
use super::{OBSERVE_EVERY, RigError};
use crate::wire::{Connection, Topic, WireError};
use crate::workload::Node;

/// How long a group may take to start, elect and serve. Generous: test machines are busy.
const SERVING_WITHIN: Duration = Duration::from_secs(30);
const ENDING_WITHIN: Duration = Duration::from_secs(15);
const REQUEST_WITHIN: Duration = Duration::from_secs(5);
const VIEW_WITHIN: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);

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
}

impl Setup {
    pub fn new(server: &Path, dir: &Path) -> Setup {
        Setup {
            server: server.to_owned(),
            dir: dir.to_owned(),
            overrides: Vec::new(),
            stores: Vec::new(),
            launch: Vec::new(),
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
    members: Vec<Member>,
    /// Ends that nobody asked for, in the order in which they were noticed.
    ended: Vec<Ended>,
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
                // It ended by itself before the signal came.
                if std::os::unix::process::ExitStatusExt::signal(&status)
                    != Some(Signal::KILL.as_raw())
                {
                    self.ended.push(Ended {
                        node: member.name.clone(),
                        status,
                    });
                }
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
                member.process = None;
                member.paused = false;
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
        for member in &mut self.members {
            if let Some(status) = member.ended()? {
                member.process = None;
                member.paused = false;
                self.ended.push(Ended {
                    node: member.name.clone(),
                    status,
                });
            }
        }
        Ok(&self.ended)
    }

    /// Waits until one running node leads and all running nodes that are not paused say so. A node that ends
    /// meanwhile is an error.
    pub async fn wait_serving(&mut self) -> Result<(), RigError> {
        let begun = Instant::now();
        loop {
            self.all_alive()?;
            let views = self.views().await;
            if agreed_leader(&views).is_some() {
                return Ok(());
            }
            if begun.elapsed() > SERVING_WITHIN {
                return Err(not_serving(&views));
            }
            sleep(POLL).await;
        }
    }

    /// Which node leads. Waits for one.
    pub async fn leader(&self) -> Result<usize, RigError> {
        let begun = Instant::now();
        loop {
            let views = self.views().await;
            if let Some(at) = newest_leader(&views) {
                return Ok(at);
            }
            if begun.elapsed() > SERVING_WITHIN {
                return Err(not_serving(&views));
            }
            sleep(POLL).await;
        }
    }

    /// Running nodes that do not lead.
    pub async fn followers(&self) -> Result<Vec<usize>, RigError> {
        let leader = self.leader().await?;
        let follows = |at: &usize| *at != leader && self.is_running(*at);
        Ok((0..self.len()).filter(follows).collect())
    }

    /// What each node that can answer says of the group.
    pub async fn views(&self) -> Vec<(usize, Option<View>)> {
        let mut asked = JoinSet::new();
        for at in (0..self.len()).filter(|at| self.is_running(*at) && !self.is_paused(*at)) {
            let address = self.address(at);
            asked.spawn(async move { (at, View::of(address, VIEW_WITHIN).await.ok()) });
        }
        let mut views = asked.join_all().await;
        views.sort_by_key(|(at, _)| *at);
        views
    }

    /// A connection to a node.
    pub async fn connect(&self, at: usize) -> Result<Connection, RigError> {
        Connection::open(self.address(at), REQUEST_WITHIN)
            .await
            .map_err(|source| self.wire_error(at, source))
    }

    /// A connection to a node's name server.
    pub async fn connect_name_server(&self, at: usize) -> Result<Connection, RigError> {
        Connection::open(self.name_server(at), REQUEST_WITHIN)
            .await
            .map_err(|source| self.wire_error(at, source))
    }

    /// Creates a topic at the leader and waits until every node that can answer routes it.
    pub async fn create_topic(&self, name: &str, queues: i32) -> Result<(), RigError> {
        let topic = Topic::new(name, queues);
        let begun = Instant::now();
        loop {
            let leader = self.leader().await?;
            let created = match Connection::open(self.address(leader), REQUEST_WITHIN).await {
                Ok(connection) => connection.create_topic(&topic).await,
                Err(error) => Err(error),
            };
            match created {
                Ok(()) => break,
                Err(source) if begun.elapsed() > SERVING_WITHIN => {
                    return Err(self.wire_error(leader, source));
                }
                Err(_) => sleep(POLL).await,
            }
        }
        for at in (0..self.len()).filter(|at| self.is_running(*at) && !self.is_paused(*at)) {
            self.wait_route(at, name).await?;
        }
        Ok(())
    }

    async fn wait_route(&self, at: usize, topic: &str) -> Result<(), RigError> {
        let name_server = self.connect_name_server(at).await?;
        let begun = Instant::now();
        loop {
            match name_server.route(topic).await {
                Ok(_) => return Ok(()),
                Err(source) if begun.elapsed() > SERVING_WITHIN => {
                    return Err(self.wire_error(at, source));
                }
                Err(_) => sleep(OBSERVE_EVERY).await,
            }
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

    fn all_alive(&mut self) -> Result<(), RigError> {
        let before = self.ended.len();
        let Some(ended) = self.unexpected_ends()?.get(before).cloned() else {
            return Ok(());
        };
        let log = self
            .members
            .iter()
            .find(|member| member.name == ended.node)
            .map(Member::last_words);
        Err(RigError::Ended {
            node: ended.node,
            status: ended.status,
            log: log.unwrap_or_default(),
        })
    }

    fn wire_error(&self, at: usize, source: WireError) -> RigError {
        RigError::Wire {
            what: self.members[at].name.clone(),
            source,
        }
    }
}

fn not_serving(views: &[(usize, Option<View>)]) -> RigError {
    RigError::NotServing {
        within: SERVING_WITHIN,
        views: format!("{views:?}"),
    }
}
