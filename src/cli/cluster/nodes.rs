//! The node processes of a cluster: started, watched, and always stopped.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::plan::{Node, config_text};
use crate::cli::CliError;

/// How long the nodes have to stop by themselves.
const STOP_WITHIN: Duration = Duration::from_secs(6);

/// Running nodes. Dropping stops them. Should this process die without that, their standard input ends, and
/// they stop by themselves.
pub(super) struct Nodes {
    pub nodes: Vec<Node>,
    /// By node; `None` once it has ended.
    children: Vec<Option<Child>>,
}

/// Fails with a sentence when one of the ports is taken.
pub(super) fn check_ports(nodes: &[Node]) -> Result<(), CliError> {
    for node in nodes {
        for (key, port) in node.ports() {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).map_err(|error| {
                CliError::new(format!(
                    "port {port} ({key} of {}) cannot be used: {error}. Choose other ports with --base-port",
                    node.name
                ))
            })?;
        }
    }
    Ok(())
}

impl Nodes {
    /// Writes the configuration of each node and starts it.
    pub fn start(nodes: Vec<Node>) -> Result<Nodes, CliError> {
        let mut started = Nodes {
            nodes,
            children: Vec::new(),
        };
        for node in &started.nodes {
            let child = start_node(node, &started.nodes)?;
            started.children.push(Some(child));
        }
        Ok(started)
    }

    pub fn pids(&self) -> Vec<u32> {
        self.children.iter().flatten().map(Child::id).collect()
    }

    /// The nodes that ended since the last call, each with the last line of its log.
    pub fn newly_ended(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for (node, slot) in self.nodes.iter().zip(&mut self.children) {
            let Some(child) = slot else { continue };
            if let Ok(Some(exit)) = child.try_wait() {
                *slot = None;
                let log = std::fs::read_to_string(node.log_file()).unwrap_or_default();
                let last = log.lines().rev().find(|l| !l.trim().is_empty());
                lines.push(format!(
                    "node {} has ended ({exit}): {}",
                    node.name,
                    last.unwrap_or("its log is empty")
                ));
            }
        }
        lines
    }

    /// Asks all nodes to stop, and ends those that do not in time.
    pub fn stop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            if let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32)
                && matches!(child.try_wait(), Ok(None))
            {
                // It may have ended since; then there is nothing to stop.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
        }
        let deadline = Instant::now() + STOP_WITHIN;
        for child in self.children.iter_mut().flatten() {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
            }
            if matches!(child.try_wait(), Ok(None)) {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        self.children.clear();
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.stop();
    }
}

fn start_node(node: &Node, nodes: &[Node]) -> Result<Child, CliError> {
    let fail = |what: &str, error: std::io::Error| {
        CliError::new(format!(
            "{} {what}: {error}. Choose another directory with --dir",
            node.dir.display()
        ))
    };
    std::fs::create_dir_all(&node.dir).map_err(|e| fail("cannot be made", e))?;
    std::fs::write(node.config_file(), config_text(node, nodes))
        .map_err(|e| fail("cannot be written", e))?;
    let log = File::options()
        .create(true)
        .append(true)
        .open(node.log_file())
        .map_err(|e| fail("cannot be written", e))?;
    let also = log.try_clone().map_err(|e| fail("cannot be written", e))?;
    let program = std::env::current_exe()
        .map_err(|e| CliError::new(format!("this program cannot find itself: {e}")))?;
    Command::new(program)
        .arg("serve")
        .arg("--with-parent")
        .arg("-c")
        .arg(node.config_file())
        .stdin(Stdio::piped())
        .stdout(log)
        .stderr(also)
        .spawn()
        .map_err(|e| CliError::new(format!("node {} cannot be started: {e}", node.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::cluster::plan::plan;

    #[test]
    fn a_port_in_use_is_named_with_the_flag_that_helps() {
        let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let dir = tempfile::tempdir().unwrap();
        let mut nodes = plan(1, 5000, dir.path()).unwrap();
        nodes[0].client_port = port;
        let error = check_ports(&nodes).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("port {port} (listenPort of n0)")),
            "{error}"
        );
        assert!(
            error.ends_with("Choose other ports with --base-port"),
            "{error}"
        );
    }
}
