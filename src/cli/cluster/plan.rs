//! Ports, directories and configuration files of a group on this machine.

use std::path::{Path, PathBuf};

use crate::cli::CliError;

/// Client port of the first node when nothing else is asked for: RocketMQ's quick start.
pub(super) const BASE_PORT: u16 = 30911;
/// Between the client ports of two nodes.
const STEP: u32 = 10;
/// Peer ports are this far above the base port: 40911, 40912, 40913.
const PEER_DISTANCE: u32 = 10_000;
/// Name servers' ports at the usual base port: 9876, 9877, 9878.
const NAMESRV_PORT: u32 = 9876;
/// Name servers' ports are this far below another base port.
const NAMESRV_DISTANCE: u32 = 20_000;

const GROUP: &str = "RaftNode00";

/// One node of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// `n0`, `n1`, ...
    pub name: String,
    pub client_port: u16,
    pub peer_port: u16,
    pub namesrv_port: u16,
    pub dir: PathBuf,
}

impl Node {
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.client_port)
    }

    pub fn namesrv(&self) -> String {
        format!("127.0.0.1:{}", self.namesrv_port)
    }

    pub fn config_file(&self) -> PathBuf {
        self.dir.join("broker.conf")
    }

    pub fn log_file(&self) -> PathBuf {
        self.dir.join("broker.log")
    }

    /// The ports that this node listens on, with the key that sets each.
    pub fn ports(&self) -> [(&'static str, u16); 4] {
        [
            ("listenPort", self.client_port),
            ("writeFrontPort", self.client_port + 1),
            ("namesrvListenPort", self.namesrv_port),
            ("dLegerPeers", self.peer_port),
        ]
    }
}

/// Plans `count` nodes below `dir`. With base port P: clients P, P+10, P+20, ...; peers P+10000, P+10001, ...;
/// name servers 9876, 9877, ... for the usual base port, else P-20000, P-19999, ... (P+20000, ... when P is
/// below 21024).
pub(super) fn plan(count: u16, base: u16, dir: &Path) -> Result<Vec<Node>, CliError> {
    let wide = u32::from(base);
    let namesrv = match base {
        BASE_PORT => NAMESRV_PORT,
        _ if wide >= NAMESRV_DISTANCE + 1024 => wide - NAMESRV_DISTANCE,
        _ => wide + NAMESRV_DISTANCE,
    };
    let port = |number: u32| {
        u16::try_from(number).map_err(|_| {
            CliError::new(format!(
                "--base-port {base} leads to port {number}, beyond 65535; the peers are {PEER_DISTANCE} above it, so stay below 55000"
            ))
        })
    };
    (0..u32::from(count))
        .map(|n| {
            Ok(Node {
                name: format!("n{n}"),
                client_port: port(wide + STEP * n)?,
                peer_port: port(wide + PEER_DISTANCE + n)?,
                namesrv_port: port(namesrv + n)?,
                dir: dir.join(format!("n{n}")),
            })
        })
        .collect()
}

/// The configuration of `node` within its group, as an operator would write it.
pub(super) fn config_text(node: &Node, nodes: &[Node]) -> String {
    let peers: Vec<String> = nodes
        .iter()
        .map(|n| format!("{}-127.0.0.1:{}", n.name, n.peer_port))
        .collect();
    format!(
        "# Written by `quorumlog cluster`.\n\
         brokerClusterName=RaftCluster\n\
         brokerName={GROUP}\n\
         brokerIP1=127.0.0.1\n\
         listenPort={}\n\
         namesrvListenPort={}\n\
         storePathRootDir={}\n\
         enableDLegerCommitLog=true\n\
         dLegerGroup={GROUP}\n\
         dLegerPeers={}\n\
         dLegerSelfId={}\n\
         slaveReadEnable=true\n",
        node.client_port,
        node.namesrv_port,
        escaped(&node.dir.join("store")),
        peers.join(";"),
        node.name,
    )
}

/// A path as a properties value.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace('\\', "\\\\")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn ports(nodes: &[Node]) -> Vec<(u16, u16, u16)> {
        nodes
            .iter()
            .map(|n| (n.client_port, n.peer_port, n.namesrv_port))
            .collect()
    }

    #[test]
    fn the_usual_ports_are_those_of_the_quick_start() {
        let nodes = plan(3, BASE_PORT, Path::new("/d")).unwrap();
        assert_eq!(
            ports(&nodes),
            [
                (30911, 40911, 9876),
                (30921, 40912, 9877),
                (30931, 40913, 9878)
            ]
        );
        assert_eq!(nodes[2].dir, Path::new("/d/n2"));
    }

    #[test]
    fn another_base_port_moves_all_of_them() {
        let high = plan(2, 31000, Path::new("/d")).unwrap();
        assert_eq!(ports(&high), [(31000, 41000, 11000), (31010, 41001, 11001)]);
        let low = plan(1, 12000, Path::new("/d")).unwrap();
        assert_eq!(ports(&low), [(12000, 22000, 32000)]);
    }

    #[test]
    fn a_base_port_that_is_too_high_is_refused_with_the_flag() {
        let error = plan(3, 60000, Path::new("/d")).unwrap_err().to_string();
        assert!(
            error.starts_with("--base-port 60000 leads to port 70000"),
            "{error}"
        );
    }

    #[test]
    fn no_two_ports_of_a_group_are_the_same() {
        for base in [BASE_PORT, 1024, 5000, 12000, 21024, 30000, 50000] {
            let nodes = plan(5, base, Path::new("/d")).unwrap();
            let mut all: Vec<u16> = nodes
                .iter()
                .flat_map(|n| n.ports().map(|(_, p)| p))
                .collect();
            let count = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), count, "base port {base}");
        }
    }

    #[test]
    fn the_written_configuration_is_read_back_without_a_warning() {
        let nodes = plan(3, BASE_PORT, Path::new("/d e")).unwrap();
        let config = Config::parse(&config_text(&nodes[1], &nodes), "n1").unwrap();
        assert_eq!(config.warnings, Vec::<String>::new());
        assert_eq!((config.listen_port, config.namesrv_port), (30921, 9877));
        assert_eq!(config.group.node, 2);
        assert_eq!(config.peer_listen(), "127.0.0.1:40912");
        assert_eq!(config.dir, Path::new("/d e/n1/store"));
        assert!(config.slave_read);
    }
}
