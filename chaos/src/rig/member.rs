//! One node: its configuration file, its log, and its process while it runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::leftover::{OWNER, owner};
use super::site::Site;
use super::{BROKER, RigError, Setup};

/// How a node's process is started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Words in front of the server's own (`strace -D ...`). What they start must become the server itself:
    /// signals go to the process that was started.
    pub wrapper: Vec<String>,
    pub environment: Vec<(String, String)>,
}

/// A node.
pub(super) struct Member {
    pub name: String,
    pub address: SocketAddr,
    pub name_server: SocketAddr,
    pub peer: SocketAddr,
    /// Where it keeps everything.
    pub store: PathBuf,
    pub conf: PathBuf,
    pub log: PathBuf,
    pub launch: Launch,
    pub process: Option<Child>,
    pub paused: bool,
}

impl Member {
    /// Writes the configuration of node `at`.
    pub fn prepare(site: &Site, at: usize, setup: &Setup) -> Result<Member, RigError> {
        let name = format!("n{at}");
        let store = match setup.stores.get(at) {
            Some(store) => store.clone(),
            None => setup.dir.join(&name),
        };
        std::fs::create_dir_all(&store).map_err(RigError::io(store.display().to_string()))?;
        let conf = setup.dir.join(format!("{name}.conf"));
        let text = configuration(site, at, &store, setup);
        std::fs::write(&conf, text).map_err(RigError::io(conf.display().to_string()))?;
        let (ip, port) = (site.address(at), site.first_port(at));
        Ok(Member {
            address: SocketAddr::new(ip, port),
            name_server: SocketAddr::new(ip, port + 3),
            peer: SocketAddr::new(ip, port + 4),
            log: setup.dir.join(format!("{name}.log")),
            launch: setup.launch.get(at).cloned().unwrap_or_default(),
            process: None,
            paused: false,
            store,
            conf,
            name,
        })
    }

    /// Starts the process. It ends when this program ends, however that comes about: its standard input is
    /// a pipe from here.
    pub fn start(&self, server: &Path) -> Result<Child, RigError> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(RigError::io(self.log.display().to_string()))?;
        let errors = log
            .try_clone()
            .map_err(RigError::io(self.log.display().to_string()))?;
        let mut words = self.launch.wrapper.iter().map(PathBuf::from);
        let mut command = match words.next() {
            None => Command::new(server),
            Some(first) => {
                let mut command = Command::new(first);
                command.args(words).arg(server);
                command
            }
        };
        let environment = self.launch.environment.iter();
        command
            .args(["serve", "--with-parent", "-c"])
            .arg(&self.conf)
            .env(OWNER, owner())
            .envs(environment.map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(RigError::io(format!("starting {}", self.name)))
    }

    pub fn running(&self) -> Result<&Child, RigError> {
        self.process.as_ref().ok_or_else(|| RigError::NotRunning {
            node: self.name.clone(),
        })
    }

    pub fn signal(&self, signal: Signal) -> Result<(), RigError> {
        kill_process(Pid::from_child(self.running()?), signal)
            .map_err(|error| RigError::io(format!("signal to {}", self.name))(error.into()))
    }

    /// How the process ended, if it has.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, RigError> {
        let Some(process) = &mut self.process else {
            return Ok(None);
        };
        process
            .try_wait()
            .map_err(RigError::io(format!("the end of {}", self.name)))
    }

    /// Everything its processes wrote, all starts together.
    pub fn log_text(&self) -> Result<String, RigError> {
        match std::fs::read(&self.log) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            // Never started.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(RigError::io(self.log.display().to_string())(error)),
        }
    }

    /// The last lines of the log, for an error.
    pub fn last_words(&self) -> String {
        let text = self.log_text().unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// A number from a line `NAME: 123 ...` of `/proc/PID/status`.
    pub fn status_number(&self, name: &str) -> Result<u64, RigError> {
        let path = format!("/proc/{}/status", self.running()?.id());
        let text = std::fs::read_to_string(&path).map_err(RigError::io(path.clone()))?;
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
            .ok_or_else(|| {
                let missing = std::io::Error::other(format!("no line {name}"));
                RigError::io(path)(missing)
            })
    }

    /// Open file descriptors.
    pub fn fds(&self) -> Result<u64, RigError> {
        let path = format!("/proc/{}/fd", self.running()?.id());
        let entries = std::fs::read_dir(&path).map_err(RigError::io(path))?;
        Ok(entries.count() as u64)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // Both fail only for a process that has ended already.
            let _ended = process.kill();
            let _ended = process.wait();
        }
    }
}

fn configuration(site: &Site, at: usize, store: &Path, setup: &Setup) -> String {
    let peers: Vec<String> = (0..site.nodes())
        .map(|at| format!("n{at}-{}:{}", site.address(at), site.first_port(at) + 4))
        .collect();
    let port = site.first_port(at);
    let usual = [
        ("brokerClusterName", "DefaultCluster".to_owned()),
        ("brokerName", BROKER.to_owned()),
        ("brokerIP1", site.address(at).to_string()),
        ("listenPort", port.to_string()),
        ("namesrvListenPort", (port + 3).to_string()),
        ("storePathRootDir", store.display().to_string()),
        ("enableDLegerCommitLog", "true".to_owned()),
        ("dLegerGroup", BROKER.to_owned()),
        ("dLegerPeers", peers.join(";")),
        ("dLegerSelfId", format!("n{at}")),
        ("slaveReadEnable", "true".to_owned()),
    ];
    let mut lines: BTreeMap<&str, &str> = usual
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    let own = setup.overrides_of.get(at).into_iter().flatten();
    for (key, value) in setup.overrides.iter().chain(own) {
        lines.insert(key, value);
    }
    let mut text = String::new();
    for (key, value) in lines {
        // Writing to a text cannot fail.
        let _ = writeln!(text, "{key}={value}");
    }
    text
}
