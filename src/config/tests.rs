//! The table of errors and warnings, with their exact texts, and the files in `conf/`.

use super::*;

/// A good group configuration that the error cases change one line of.
const GROUP: &str = "brokerIP1=10.0.0.5
enableDLegerCommitLog=true
dLegerGroup=G
dLegerPeers=n0-10.0.0.5:40911;n1-10.0.0.6:40911;n2-10.0.0.7:40911
dLegerSelfId=n0
";
const SINGLE: &str = "brokerIP1=10.0.0.5\n";

fn error(base: &str, line: &str) -> String {
    let text = format!("{base}{line}\n");
    Config::parse(&text, "b.conf").unwrap_err().to_string()
}

/// The group with one of its lines exchanged.
fn group_with(key: &str, line: &str) -> String {
    let lines: Vec<&str> = GROUP
        .lines()
        .map(|old| if old.starts_with(key) { line } else { old })
        .collect();
    lines.join("\n")
}

#[test]
fn the_defaults_are_those_of_the_documentation() {
    let config = Config::parse(SINGLE, "b.conf").unwrap();
    assert_eq!(config.cluster, "DefaultCluster");
    assert_eq!(config.broker_name, "broker-a");
    let ports = (config.listen_port, config.front_port, config.namesrv_port);
    assert_eq!(ports, (10911, 10912, 9876));
    assert!(config.sync_flush && config.write_fronts && config.deduplicate);
    assert!(config.auto_create_topic && config.auto_create_group && !config.slave_read);
    assert_eq!(config.segment_bytes, 64 * 1024 * 1024);
    assert_eq!(config.disk_reserve, 512 * 1024 * 1024);
    assert_eq!(config.message_bytes_max, 4 * 1024 * 1024);
    assert_eq!(config.default_topic_queues, 8);
    let timers = [config.heartbeat, config.election_min, config.election_max];
    assert_eq!(timers, [50, 150, 300].map(Duration::from_millis));
    assert_eq!(config.write_hold, Duration::from_millis(1000));
    assert_eq!(config.delay_levels.len(), 18);
    assert_eq!(config.delay_levels[17], Duration::from_secs(7200));
    assert_eq!(config.warnings, Vec::<String>::new());
}

#[test]
fn a_broker_without_a_group_is_alone_in_one_named_by_its_broker_name() {
    let config = Config::parse("brokerIP1=10.0.0.5\nbrokerName=b", "b.conf").unwrap();
    assert_eq!(config.group.name, "b");
    assert_eq!(config.group.node, 1);
    assert_eq!(config.group.peers.len(), 1);
    assert_eq!(config.peer_listen(), "127.0.0.1:0");
}

#[test]
fn a_group_is_read_and_ids_do_not_depend_on_the_order_of_the_peers() {
    let config = Config::parse(GROUP, "b.conf").unwrap();
    assert_eq!(config.broker_name, "G");
    assert_eq!((config.group.node, config.node_name()), (1, "n0"));
    assert_eq!(config.peer_listen(), "0.0.0.0:40911");
    assert_eq!(config.warnings, Vec::<String>::new());
    let turned = group_with(
        "dLegerPeers",
        "dLegerPeers=n2-10.0.0.7:40911;n0-10.0.0.5:40911; n1-10.0.0.6:40911;",
    );
    assert_eq!(
        Config::parse(&turned, "b.conf").unwrap().group,
        config.group
    );
}

#[test]
fn a_host_name_with_hyphens_is_a_peer_address() {
    let text = group_with(
        "dLegerPeers",
        "dLegerPeers=n0-mq-0.mq-svc.ns:40911;n1-mq-1.mq-svc.ns:40911;n2-[::1]:40911",
    );
    let config = Config::parse(&text, "b.conf").unwrap();
    assert_eq!(config.group.peers[&1], "mq-0.mq-svc.ns:40911");
    assert_eq!(config.group.peers[&3], "[::1]:40911");
}

#[test]
fn each_wrong_value_is_named_with_file_line_and_fix() {
    let port = "Give listenPort a number in these bounds, or remove it for the default";
    let own = "Give each its own port (writeFrontPort is listenPort + 1 unless set); change";
    let cases: &[(&str, String)] = &[
        ("listenPort=0", format!("b.conf:2: listenPort=0 is not a whole number from 1 to 65535. {port}")),
        ("listenPort=70000", format!("b.conf:2: listenPort=70000 is not a whole number from 1 to 65535. {port}")),
        ("listenPort=ten", format!("b.conf:2: listenPort=ten is not a whole number from 1 to 65535. {port}")),
        (
            "listenPort=65535",
            "b.conf:2: listenPort=65535 leaves no port above it for the write front. Use a smaller listenPort, or set writeFrontPort".into(),
        ),
        (
            "writeFrontPort=10911",
            format!("b.conf:2: writeFrontPort and listenPort both use port 10911. {own} writeFrontPort or listenPort"),
        ),
        (
            "namesrvListenPort=10912",
            format!("b.conf:2: namesrvListenPort and writeFrontPort both use port 10912. {own} namesrvListenPort or writeFrontPort"),
        ),
        (
            "brokerIP1=localhost",
            "b.conf:2: brokerIP1=localhost is not an IPv4 address that clients can dial. Write the address that clients reach this node at, for example brokerIP1=10.0.0.5".into(),
        ),
        (
            "flushDiskType=SYNC",
            "b.conf:2: flushDiskType=SYNC is no flush type. Write SYNC_FLUSH (the default) or ASYNC_FLUSH".into(),
        ),
        (
            "slaveReadEnable=yes",
            "b.conf:2: slaveReadEnable=yes is neither true nor false. Write true or false".into(),
        ),
        (
            "raftElectionTimeoutMin=300",
            "b.conf: raftElectionTimeoutMin (300 ms) is not below raftElectionTimeoutMax (300 ms). Make the maximum about twice the minimum, so that two nodes rarely stand at once".into(),
        ),
        (
            "raftHeartbeatInterval=76",
            "b.conf:2: raftHeartbeatInterval (76 ms) is more than half of raftElectionTimeoutMin (150 ms). Make the heartbeat a third of the election timeout, so that one lost heartbeat costs no election".into(),
        ),
        (
            "maxMessageSize=4194305",
            "b.conf:2: maxMessageSize=4194305 is not a whole number from 1 to 4194304. Give maxMessageSize a number in these bounds, or remove it for the default".into(),
        ),
        (
            "messageDelayLevel=1s 5x",
            "b.conf:2: messageDelayLevel=1s 5x is not 1 to 64 delays. Write numbers with s, m, h or d between blanks, for example 1s 5s 1m 2h".into(),
        ),
        (
            "brokerName=a b",
            "b.conf:2: brokerName=a b is no usable name. Use at most 127 letters, digits, '-', '_' and '.'".into(),
        ),
        (
            "dLegerPeers=n0-h:1",
            "b.conf:2: dLegerPeers is given, but enableDLegerCommitLog=true is not: messages would have one copy. Add enableDLegerCommitLog=true, or remove the dLeger keys for a single broker".into(),
        ),
        (
            "x=\\u12",
            "b.conf:2: the escape behind \\u is not four hexadecimal digits. Write the character itself (the file is UTF-8), or \\\\ for a backslash".into(),
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(error(SINGLE, line), *expected);
    }
}

#[test]
fn each_wrong_group_key_is_named_with_the_fix() {
    let form = "Write dLegerPeers=n0-host:port;n1-host:port;n2-host:port, the same on every node";
    let self_form = "Say which of dLegerPeers this node is, for example dLegerSelfId=n0";
    let cases: &[(&str, &str, String)] = &[
        ("dLegerGroup", "", "b.conf: enableDLegerCommitLog=true needs dLegerGroup, which is missing. Name the group, as brokerName: dLegerGroup=RaftNode00".into()),
        ("dLegerPeers", "", format!("b.conf: enableDLegerCommitLog=true needs dLegerPeers, which is missing. {form}")),
        ("dLegerSelfId", "", format!("b.conf: enableDLegerCommitLog=true needs dLegerSelfId, which is missing. {self_form}")),
        ("dLegerSelfId", "dLegerSelfId=n3", format!("b.conf:5: dLegerSelfId=n3 is not in dLegerPeers (n0, n1, n2). {self_form}")),
        ("dLegerPeers", "dLegerPeers=n0", format!("b.conf:4: dLegerPeers: n0 has no '-' between id and address. {form}")),
        ("dLegerPeers", "dLegerPeers=0-h:1", format!("b.conf:4: dLegerPeers: id 0 is not a letter and a number, as n0. {form}")),
        ("dLegerPeers", "dLegerPeers=n0-h", format!("b.conf:4: dLegerPeers: n0-h: the address has no port. {form}")),
        ("dLegerPeers", "dLegerPeers=n0-h:0", format!("b.conf:4: dLegerPeers: n0-h:0: port 0 is not from 1 to 65535. {form}")),
        ("dLegerPeers", "dLegerPeers=n0-:1", format!("b.conf:4: dLegerPeers: n0-:1: host \"\" is no host name. {form}")),
        ("dLegerPeers", "dLegerPeers=n0-h:1;n0-h:2", format!("b.conf:4: dLegerPeers: n0 and n0 are the same id. {form}")),
        ("dLegerPeers", "dLegerPeers=n0-h:1;n1-h:1", format!("b.conf:4: dLegerPeers: h:1 is given to two nodes. {form}")),
        ("dLegerPeers", "dLegerPeers=;", format!("b.conf:4: dLegerPeers names 0 nodes; allowed are 1 to 9. {form}")),
    ];
    for (key, line, expected) in cases {
        let text = group_with(key, line);
        let found = Config::parse(&text, "b.conf").unwrap_err().to_string();
        assert_eq!(found, *expected);
    }
}

#[test]
fn a_peer_port_that_is_a_client_port_too_is_refused() {
    assert_eq!(
        error(GROUP, "namesrvListenPort=40911"),
        "b.conf:4: dLegerPeers and namesrvListenPort both use port 40911. Give each its own port \
         (writeFrontPort is listenPort + 1 unless set); change dLegerPeers or namesrvListenPort"
    );
}

#[test]
fn what_would_promise_more_than_is_kept_is_refused() {
    let cases = [
        (
            SINGLE,
            "brokerRole=SYNC_MASTER",
            "b.conf:2: brokerRole=SYNC_MASTER asks for a copy on a slave",
        ),
        (
            SINGLE,
            "brokerRole=SLAVE",
            "b.conf:2: brokerRole=SLAVE: a slave of a classic pair is not built yet",
        ),
        (
            SINGLE,
            "inSyncReplicas=2",
            "b.conf:2: inSyncReplicas=2, but here an acknowledged message is on 1 of 1 nodes",
        ),
        (
            SINGLE,
            "totalReplicas=2",
            "b.conf:2: totalReplicas=2, but here",
        ),
        (
            GROUP,
            "inSyncReplicas=3",
            "b.conf:6: inSyncReplicas=3, but here an acknowledged message is on 2 of 3 nodes",
        ),
        (
            GROUP,
            "minInSyncReplicas=3",
            "b.conf:6: minInSyncReplicas=3, but here",
        ),
        (
            GROUP,
            "totalReplicas=4",
            "b.conf:6: totalReplicas=4, but here",
        ),
        (
            GROUP,
            "enableControllerMode=true",
            "b.conf:6: enableControllerMode=true: controller mode is not built yet",
        ),
        (
            GROUP,
            "allAckInSyncStateSet=true",
            "b.conf:6: allAckInSyncStateSet=true: waiting for all",
        ),
        (
            GROUP,
            "enableElectUncleanMaster=true",
            "b.conf:6: enableElectUncleanMaster=true: a replica without",
        ),
        (
            GROUP,
            "aclEnable=true",
            "b.conf:6: aclEnable=true: access control is not built yet",
        ),
    ];
    for (base, line, expected) in cases {
        let found = error(base, line);
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn what_is_kept_anyway_is_only_named() {
    let cases = [
        (
            GROUP,
            "brokerRole=SLAVE",
            "b.conf:6: brokerRole=SLAVE has no effect: the group elects its leader, and an acknowledged message is on a majority",
        ),
        (
            SINGLE,
            "brokerRole=ASYNC_MASTER",
            "b.conf:2: brokerRole=ASYNC_MASTER has no effect: a single broker acknowledges what is durable on this node",
        ),
        (
            GROUP,
            "inSyncReplicas=2",
            "b.conf:6: inSyncReplicas=2 has no effect: an acknowledged message is on 2 nodes anyway",
        ),
        (
            GROUP,
            "totalReplicas=3",
            "b.conf:6: totalReplicas=3 has no effect: an acknowledged message is on 2 nodes anyway",
        ),
        (
            GROUP,
            "enableControllerMode=false",
            "b.conf:6: enableControllerMode=false has no effect: this version has no such mode",
        ),
        (
            SINGLE,
            "flushDiskType=ASYNC_FLUSH",
            "b.conf:2: flushDiskType=ASYNC_FLUSH acknowledges before the disk has a message: a power cut of several nodes can lose it",
        ),
    ];
    for (base, line, expected) in cases {
        let config = Config::parse(&format!("{base}{line}\n"), "b.conf").unwrap();
        assert_eq!(config.warnings, [expected]);
    }
}

#[test]
fn every_other_key_is_named_with_a_reason_or_a_hint() {
    let text = format!(
        "{SINGLE}listenport=1\nsendMessageThreadPoolNums=16\nfoo=bar\nnamesrvAddr=h:9876\nlistenPort=11000\nlistenPort=12000\nslaveReadEnable=\n"
    );
    let config = Config::parse(&text, "b.conf").unwrap();
    assert_eq!(config.listen_port, 12000);
    assert_eq!(
        config.warnings,
        [
            "b.conf:7: listenPort is set a second time; the value of line 6 is dropped",
            "b.conf:8: slaveReadEnable has no value: it counts as not set",
            "b.conf:4: foo=bar is unknown and has no effect",
            "b.conf:2: listenport=1 is unknown and has no effect; did you mean listenPort?",
            "b.conf:5: namesrvAddr=h:9876 has no effect: the built-in name server answers from what Raft knows; nothing is registered elsewhere yet",
            "b.conf:3: sendMessageThreadPoolNums=16 has no effect: there are no thread pools: requests run on one runtime with a thread per core",
        ]
    );
}

#[test]
fn an_even_number_of_voters_is_named() {
    let text = group_with(
        "dLegerPeers",
        "dLegerPeers=n0-10.0.0.5:40911;n1-10.0.0.6:40911",
    );
    let config = Config::parse(&text, "b.conf").unwrap();
    assert_eq!(
        config.warnings,
        [
            "b.conf:4: dLegerPeers=n0-10.0.0.5:40911;n1-10.0.0.6:40911 names 2 nodes: an even number survives no more failures than one node less"
        ]
    );
}

#[test]
fn hints_are_given_for_near_names_only() {
    assert_eq!(
        keys::nearest("enableDLedgerCommitLog"),
        Some("enableDLegerCommitLog")
    );
    assert_eq!(keys::nearest("dLedgerPeers"), Some("dLegerPeers"));
    assert_eq!(keys::nearest("flushdisktype"), Some("flushDiskType"));
    assert_eq!(keys::nearest("zzzzzz"), None);
}

#[test]
fn no_key_is_in_two_tables() {
    let mut names: Vec<&str> = keys::READ.to_vec();
    names.extend(keys::PROMISES);
    names.extend(keys::NO_EFFECT.iter().map(|(name, _)| *name));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn a_missing_file_is_named() {
    let error = Config::load(Path::new("/no/such.conf"))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("/no/such.conf: the configuration cannot be read:"),
        "{error}"
    );
}

#[test]
fn the_files_to_copy_load_without_a_warning() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf");
    let load = |name: &str| {
        let config = Config::load(&dir.join(name)).unwrap();
        assert_eq!(config.warnings, Vec::<String>::new(), "{name}");
        config
    };
    let group: Vec<Config> = (0..3).map(|n| load(&format!("broker-n{n}.conf"))).collect();
    for (at, config) in group.iter().enumerate() {
        assert_eq!(config.group.node, at as u64 + 1);
        assert_eq!(config.group.peers, group[0].group.peers);
        assert_eq!(config.listen_port, 30911 + 10 * at as u16);
        assert_eq!(config.namesrv_port, 9876 + at as u16);
        assert_eq!(config.peer_listen(), format!("127.0.0.1:{}", 40911 + at));
    }
    assert_eq!(load("single.conf").group.peers.len(), 1);
}
