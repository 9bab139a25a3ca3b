//! RocketMQ's configuration keys, read once at the edge and turned into checked values.
//!
//! The rest of the program sees [`Config`] only. Every key of a file is either used, or named in a warning
//! at start with the reason; a wrong value is an error that names key, file, line and the fix.

mod group;
mod keys;
mod promises;
mod properties;
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use promises::Shape;
use read::Source;

/// One node's configuration, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `brokerClusterName`, default `DefaultCluster`.
    pub cluster: String,
    /// `brokerName`; in a group all nodes carry the same. Default: `dLegerGroup`, else `broker-a`.
    pub broker_name: String,
    /// `brokerIP1`: the IPv4 address that clients reach this node at. Default: the host's first one.
    pub broker_ip: Ipv4Addr,
    /// `listenPort`, default 10911.
    pub listen_port: u16,
    /// `writeFrontPort`, default `listenPort + 1` (the port that RocketMQ's `haListenPort` takes).
    pub front_port: u16,
    /// `namesrvListenPort`, default 9876; 0 turns the built-in name server off.
    pub namesrv_port: u16,
    /// `storePathRootDir`.
    pub dir: PathBuf,
    /// `enableDLegerCommitLog`, `dLegerGroup`, `dLegerPeers`, `dLegerSelfId`; a single-voter group when off.
    pub group: GroupKeys,
    /// `flushDiskType`: SYNC_FLUSH (default) or ASYNC_FLUSH.
    pub sync_flush: bool,
    /// `flushIntervalCommitLog`: how often ASYNC_FLUSH syncs.
    pub flush_interval: Duration,
    /// `mappedFileSizeCommitLog`: bytes of a log segment; default 64 MiB.
    pub segment_bytes: u64,
    /// `raftHeartbeatInterval`, `raftElectionTimeoutMin`, `raftElectionTimeoutMax` (ms): 50, 150, 300.
    pub heartbeat: Duration,
    pub election_min: Duration,
    pub election_max: Duration,
    /// `diskReserveBytes`: free bytes below which writes are refused with code 14. Default 512 MiB.
    pub disk_reserve: u64,
    /// `writeFronts`, default true.
    pub write_fronts: bool,
    /// `writeHoldTimeout` (ms), default 1000: how long a node without a leader holds a write.
    pub write_hold: Duration,
    /// `brokerDeduplication`, default true.
    pub deduplicate: bool,
    /// `slaveReadEnable`, default false.
    pub slave_read: bool,
    /// `autoCreateTopicEnable`, default true.
    pub auto_create_topic: bool,
    /// `autoCreateSubscriptionGroup`, default true.
    pub auto_create_group: bool,
    /// `defaultTopicQueueNums`, default 8: queues of TBW102.
    pub default_topic_queues: u32,
    /// `maxMessageSize`, default and at most 4 MiB.
    pub message_bytes_max: usize,
    /// `messageDelayLevel`, default RocketMQ's 18 levels.
    pub delay_levels: Vec<Duration>,
    /// Lines for the operator about keys that were not understood or have no effect.
    pub warnings: Vec<String>,
}

/// The group this node belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupKeys {
    pub name: String,
    /// This node's id: the number in `dLegerSelfId` plus one (`n0` is 1), as RocketMQ gives broker ids.
    pub node: u64,
    /// `n0`, `n1`, ... as written, by node id.
    pub names: BTreeMap<u64, String>,
    /// Peer addresses `host:port` by node id. One entry for a single broker (`127.0.0.1:0`: nobody dials it).
    pub peers: BTreeMap<u64, String>,
}

/// What is wrong with a configuration: names key, file, line, and the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {problem}. {fix}", line.map(|l| format!(":{l}")).unwrap_or_default())]
pub struct ConfigError {
    pub file: String,
    pub line: Option<usize>,
    pub problem: String,
    pub fix: String,
}

/// Bytes of a body that RocketMQ's clients and this server bound a message by.
const MESSAGE_BYTES_MAX: u64 = crate::protocol::message::BODY_BYTES_MAX as u64;
/// RocketMQ's `messageDelayLevel`.
const DELAY_LEVELS: &str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";
const MIB: u64 = 1024 * 1024;

impl Config {
    /// Reads a properties file (`key=value`, `#` comments, Java's escapes as RocketMQ reads them).
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
            file: file.clone(),
            line: None,
            problem: format!("the configuration cannot be read: {error}"),
            fix: "Check the path behind -c; the file must be UTF-8 text".to_string(),
        })?;
        Config::parse(&text, &file)
    }

    /// As [`Config::load`] from a text; `file` is what errors call it.
    pub fn parse(text: &str, file: &str) -> Result<Config, ConfigError> {
        let mut warnings = Vec::new();
        let source = Source::parse(text, file, &mut warnings)?;
        let broker_name = match (source.name("brokerName")?, source.name("dLegerGroup")?) {
            (Some(name), _) | (None, Some(name)) => name,
            (None, None) => "broker-a".to_string(),
        };
        let group = group::read(&source, &broker_name, &mut warnings)?;
        let shape = match (
            source.flag("enableDLegerCommitLog", false)?,
            group.peers.len(),
        ) {
            (true, voters) => Shape::Group { voters },
            (false, _) => Shape::Single,
        };
        promises::check(&source, shape, &mut warnings)?;
        name_the_rest(&source, &mut warnings);
        let config = Config {
            cluster: source
                .name("brokerClusterName")?
                .unwrap_or_else(|| "DefaultCluster".to_string()),
            broker_name,
            broker_ip: broker_ip(&source, &mut warnings)?,
            listen_port: source.port("listenPort", 1)?.unwrap_or(10911),
            front_port: 0,
            namesrv_port: source.port("namesrvListenPort", 0)?.unwrap_or(9876),
            dir: source
                .value("storePathRootDir")
                .map_or_else(default_dir, PathBuf::from),
            group,
            sync_flush: sync_flush(&source, &mut warnings)?,
            flush_interval: source.millis("flushIntervalCommitLog", 1, 60_000, 500)?,
            segment_bytes: source
                .number("mappedFileSizeCommitLog", MIB, 4096 * MIB)?
                .unwrap_or(64 * MIB),
            heartbeat: source.millis("raftHeartbeatInterval", 5, 10_000, 50)?,
            election_min: source.millis("raftElectionTimeoutMin", 10, 60_000, 150)?,
            election_max: source.millis("raftElectionTimeoutMax", 20, 120_000, 300)?,
            disk_reserve: source
                .number("diskReserveBytes", 0, u64::MAX / 2)?
                .unwrap_or(512 * MIB),
            write_fronts: source.flag("writeFronts", true)?,
            write_hold: source.millis("writeHoldTimeout", 0, 2000, 1000)?,
            deduplicate: source.flag("brokerDeduplication", true)?,
            slave_read: source.flag("slaveReadEnable", false)?,
            auto_create_topic: source.flag("autoCreateTopicEnable", true)?,
            auto_create_group: source.flag("autoCreateSubscriptionGroup", true)?,
            default_topic_queues: source
                .number("defaultTopicQueueNums", 1, 1024)?
                .unwrap_or(8) as u32,
            message_bytes_max: source
                .number("maxMessageSize", 1, MESSAGE_BYTES_MAX)?
                .unwrap_or(MESSAGE_BYTES_MAX) as usize,
            delay_levels: delay_levels(&source)?,
            warnings,
        };
        check_timers(&source, &config)?;
        with_front_port(&source, config)
    }

    /// Where the peer listener of this node listens: the port of its own entry in `dLegerPeers`, on loopback
    /// if the entry names a loopback address, else on all addresses (the entry may be a translated one).
    pub fn peer_listen(&self) -> String {
        let own = &self.group.peers[&self.group.node];
        match own.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => own.clone(),
            _ => match own.rsplit_once(':') {
                Some((_, port)) => format!("0.0.0.0:{port}"),
                None => own.clone(),
            },
        }
    }

    /// This node's name in the group (`n0`).
    pub fn node_name(&self) -> &str {
        &self.group.names[&self.group.node]
    }
}

/// Names every key that is not read: without effect and why, or unknown and what was probably meant.
fn name_the_rest(source: &Source<'_>, warnings: &mut Vec<String>) {
    for property in source.properties() {
        let key = property.key.as_str();
        if keys::READ.contains(&key) || keys::PROMISES.contains(&key) {
            continue;
        }
        let text = match (keys::no_effect(key), keys::nearest(key)) {
            (Some(reason), _) => format!("has no effect: {reason}"),
            (None, Some(near)) => format!("is unknown and has no effect; did you mean {near}?"),
            (None, None) => "is unknown and has no effect".to_string(),
        };
        warnings.push(source.warn(key, &text));
    }
}

fn broker_ip(source: &Source<'_>, warnings: &mut Vec<String>) -> Result<Ipv4Addr, ConfigError> {
    let Some(value) = source.value("brokerIP1") else {
        return Ok(first_address().unwrap_or_else(|| {
            warnings.push(
                "no address of this host was found; clients are told 127.0.0.1 (set brokerIP1)"
                    .to_string(),
            );
            Ipv4Addr::LOCALHOST
        }));
    };
    match value.parse::<Ipv4Addr>() {
        Ok(ip) if !ip.is_unspecified() && !ip.is_broadcast() && !ip.is_multicast() => Ok(ip),
        _ => Err(source.error(
            "brokerIP1",
            &format!("brokerIP1={value} is not an IPv4 address that clients can dial"),
            "Write the address that clients reach this node at, for example brokerIP1=10.0.0.5",
        )),
    }
}

/// The address that this host would use towards the outside. Nothing is sent.
fn first_address() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // An address of the documentation block: only the route to it matters.
    socket.connect((Ipv4Addr::new(198, 51, 100, 1), 9)).ok()?;
    match socket.local_addr().ok()? {
        SocketAddr::V4(address) if !address.ip().is_unspecified() => Some(*address.ip()),
        _ => None,
    }
}

/// RocketMQ's default, `~/store`.
fn default_dir() -> PathBuf {
    match std::env::var_os("HOME") {
        Some(home) if !home.is_empty() => Path::new(&home).join("store"),
        _ => PathBuf::from("store"),
    }
}

fn sync_flush(source: &Source<'_>, warnings: &mut Vec<String>) -> Result<bool, ConfigError> {
    match source.value("flushDiskType") {
        None | Some("SYNC_FLUSH") => Ok(true),
        Some("ASYNC_FLUSH") => {
            warnings.push(source.warn(
                "flushDiskType",
                "acknowledges before the disk has a message: a power cut of several nodes can lose it",
            ));
            Ok(false)
        }
        Some(other) => Err(source.error(
            "flushDiskType",
            &format!("flushDiskType={other} is no flush type"),
            "Write SYNC_FLUSH (the default) or ASYNC_FLUSH",
        )),
    }
}

fn delay_levels(source: &Source<'_>) -> Result<Vec<Duration>, ConfigError> {
    let text = source.value("messageDelayLevel").unwrap_or(DELAY_LEVELS);
    let levels: Option<Vec<Duration>> = text.split_whitespace().map(delay_level).collect();
    match levels {
        Some(levels) if (1..=64).contains(&levels.len()) => Ok(levels),
        _ => Err(source.error(
            "messageDelayLevel",
            &format!("messageDelayLevel={text} is not 1 to 64 delays"),
            "Write numbers with s, m, h or d between blanks, for example 1s 5s 1m 2h",
        )),
    }
}

fn delay_level(text: &str) -> Option<Duration> {
    let unit = match text.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return None,
    };
    let number: u64 = text[..text.len() - 1].parse().ok()?;
    (number <= 1000).then(|| Duration::from_secs(number * unit))
}

fn check_timers(source: &Source<'_>, config: &Config) -> Result<(), ConfigError> {
    let ms = |d: Duration| d.as_millis();
    if config.election_min >= config.election_max {
        return Err(source.error(
            "raftElectionTimeoutMax",
            &format!(
                "raftElectionTimeoutMin ({} ms) is not below raftElectionTimeoutMax ({} ms)",
                ms(config.election_min),
                ms(config.election_max)
            ),
            "Make the maximum about twice the minimum, so that two nodes rarely stand at once",
        ));
    }
    if config.heartbeat * 2 > config.election_min {
        return Err(source.error(
            "raftHeartbeatInterval",
            &format!(
                "raftHeartbeatInterval ({} ms) is more than half of raftElectionTimeoutMin ({} ms)",
                ms(config.heartbeat),
                ms(config.election_min)
            ),
            "Make the heartbeat a third of the election timeout, so that one lost heartbeat costs no election",
        ));
    }
    Ok(())
}

/// Sets the write front's port, and makes sure that the node's four ports differ.
fn with_front_port(source: &Source<'_>, mut config: Config) -> Result<Config, ConfigError> {
    config.front_port = match (source.port("writeFrontPort", 1)?, config.listen_port) {
        (Some(port), _) => port,
        (None, u16::MAX) => {
            return Err(source.error(
                "listenPort",
                "listenPort=65535 leaves no port above it for the write front",
                "Use a smaller listenPort, or set writeFrontPort",
            ));
        }
        (None, listen) => listen + 1,
    };
    let peer = config.group.peers[&config.group.node]
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse::<u16>().ok())
        .unwrap_or(0);
    let mut ports = vec![
        ("listenPort", config.listen_port),
        ("namesrvListenPort", config.namesrv_port),
        ("dLegerPeers", peer),
    ];
    if config.write_fronts {
        ports.insert(1, ("writeFrontPort", config.front_port));
    }
    for (at, (key, port)) in ports.iter().enumerate() {
        let clash = ports[..at]
            .iter()
            .find(|(_, other)| *port != 0 && other == port);
        if let Some((other, _)) = clash {
            return Err(source.error(
                key,
                &format!("{key} and {other} both use port {port}"),
                &format!(
                    "Give each its own port (writeFrontPort is listenPort + 1 unless set); change {key} or {other}"
                ),
            ));
        }
    }
    Ok(config)
}
