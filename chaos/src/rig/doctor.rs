//! What this machine can do: each facility that faults need is tried for real, on things made for the trial.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use super::RigError;
use super::netns::Namespace;
use super::tool::tool;

/// Something that a fault needs and not every machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Facility {
    Root,
    Namespaces,
    SwitchRules,
    Queue,
    Bandwidth,
    SocketKill,
    Strace,
    Cgroups,
    LoopXfs,
    SmallTmpfs,
    Freeze,
    FakeTime,
}

/// Why a facility is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    pub why: String,
    /// What gives it.
    pub remedy: &'static str,
}

/// A facility as `chaos doctor` prints it.
struct Row {
    facility: Facility,
    name: &'static str,
    gives: &'static str,
    remedy: &'static str,
    try_it: fn() -> Result<(), RigError>,
}

const ROWS: &[Row] = &[
    Row {
        facility: Facility::Root,
        name: "root",
        gives: "everything below",
        remedy: "run as root",
        try_it: root,
    },
    Row {
        facility: Facility::Namespaces,
        name: "namespaces",
        gives: "a network of its own for each group",
        remedy: "run as root with CAP_SYS_ADMIN; install iproute2",
        try_it: namespaces,
    },
    Row {
        facility: Facility::SwitchRules,
        name: "switch-rules",
        gives: "partitions, one direction at a time, between any two nodes",
        remedy: "install nftables; the kernel needs nf_tables with the bridge family",
        try_it: switch_rules,
    },
    Row {
        facility: Facility::Queue,
        name: "queue",
        gives: "delay, jitter, reordering and loss of packets",
        remedy: "install iptables (iptables-legacy); the kernel needs xt_NFQUEUE",
        try_it: queue,
    },
    Row {
        facility: Facility::Bandwidth,
        name: "bandwidth",
        gives: "slow links, and packets that come twice",
        remedy: "install iproute2; the kernel needs sch_tbf, cls_u32 and act_mirred",
        try_it: bandwidth,
    },
    Row {
        facility: Facility::SocketKill,
        name: "socket-kill",
        gives: "reset storms",
        remedy: "install iproute2; the kernel needs INET_DIAG_DESTROY",
        try_it: socket_kill,
    },
    Row {
        facility: Facility::Strace,
        name: "strace",
        gives: "ends and errors at a chosen system call",
        remedy: "install strace; ptrace must be allowed",
        try_it: strace,
    },
    Row {
        facility: Facility::Cgroups,
        name: "cgroups",
        gives: "memory limits (out-of-memory kills) and processor quotas",
        remedy: "mount the controllers memory and cpu of cgroup v1, writable, below /sys/fs/cgroup",
        try_it: cgroups,
    },
    Row {
        facility: Facility::LoopXfs,
        name: "loop-xfs",
        gives: "power cuts",
        remedy: "install xfsprogs; loop devices and XFS must be allowed",
        try_it: loop_xfs,
    },
    Row {
        facility: Facility::SmallTmpfs,
        name: "small-tmpfs",
        gives: "full disks, and syncs that fail once",
        remedy: "mounting tmpfs must be allowed",
        try_it: small_tmpfs,
    },
    Row {
        facility: Facility::Freeze,
        name: "freeze",
        gives: "stalled disks",
        remedy: "install util-linux (fsfreeze) and what loop-xfs needs",
        try_it: freeze,
    },
    Row {
        facility: Facility::FakeTime,
        name: "faketime",
        gives: "jumps of the wall clock",
        remedy: "install faketime",
        try_it: fake_time,
    },
];

impl Facility {
    /// All, in the order in which `chaos doctor` prints them.
    pub fn all() -> impl Iterator<Item = Facility> {
        ROWS.iter().map(|row| row.facility)
    }

    fn row(self) -> &'static Row {
        let found = ROWS.iter().find(|row| row.facility == self);
        found.unwrap_or(&ROWS[0])
    }

    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Which faults need it.
    pub fn gives(self) -> &'static str {
        self.row().gives
    }

    /// Tries it. What was made for the trial is removed again.
    pub fn probe(self) -> Result<(), Missing> {
        let row = self.row();
        (row.try_it)().map_err(|error| Missing {
            why: error.to_string(),
            remedy: row.remedy,
        })
    }
}

fn root() -> Result<(), RigError> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err(RigError::io("this user")(
            std::io::ErrorKind::PermissionDenied.into(),
        )),
    }
}

fn namespaces() -> Result<(), RigError> {
    Namespace::scratch()?.run(|| Ok(()))
}

fn switch_rules() -> Result<(), RigError> {
    let rules = "table bridge trial { chain c { type filter hook forward priority 0;\n\
                 ether type ip ip saddr 10.99.0.1 ip daddr 10.99.0.2 drop\n}\n}";
    in_scratch(|_| tool("nft", "-f -").input(rules).run().map(drop))
}

fn queue() -> Result<(), RigError> {
    in_scratch(|_| super::nfq::trial())
}

fn bandwidth() -> Result<(), RigError> {
    in_scratch(|_| {
        tool(
            "tc",
            "qdisc add dev lo root tbf rate 1mbit burst 16kb latency 50ms",
        )
        .run()
        .map(drop)
    })
}

/// Kills one connection and looks whether it is dead.
fn socket_kill() -> Result<(), RigError> {
    in_scratch(|_| {
        let io = || RigError::io("a connection for the trial");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(io())?;
        let port = listener.local_addr().map_err(io())?.port();
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(io())?;
        let (mut server, _) = listener.accept().map_err(io())?;
        server.write_all(b"x").map_err(io())?;
        client
            .set_read_timeout(Some(Duration::from_secs(2)))
            .map_err(io())?;
        client.read_exact(&mut [0]).map_err(io())?;
        tool("ss", "-K dport =").arg(port.to_string()).run()?;
        match client.read(&mut [0]) {
            Ok(0) => Ok(()),
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => Ok(()),
            Ok(_) | Err(_) => Err(RigError::io("ss -K")(std::io::Error::other(
                "the connection lives on",
            ))),
        }
    })
}

fn strace() -> Result<(), RigError> {
    let ran = tool(
        "strace",
        "-o /dev/null -e trace=getpid -e inject=getpid:retval=4711",
    )
    .words("sh -c")
    .arg("exit 0")
    .run();
    ran.map(drop)
}

fn cgroups() -> Result<(), RigError> {
    super::cgroup::Cgroup::memory("trial", 1 << 30)?;
    super::cgroup::Cgroup::processor("trial", 50).map(drop)
}

fn loop_xfs() -> Result<(), RigError> {
    in_mount("xfs", |mount| {
        tool("xfs_io", "-x -c shutdown").arg(mount).run().map(drop)
    })
}

fn small_tmpfs() -> Result<(), RigError> {
    in_mount("tmpfs", |mount| {
        match std::fs::write(mount.join("f"), vec![0; 2 << 20]) {
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => Ok(()),
            _ => Err(RigError::io("tmpfs")(std::io::Error::other(
                "holds more than its size",
            ))),
        }
    })
}

fn freeze() -> Result<(), RigError> {
    in_mount("xfs", |mount| {
        tool("fsfreeze", "-f").arg(mount).run()?;
        tool("fsfreeze", "-u").arg(mount).run().map(drop)
    })
}

fn fake_time() -> Result<(), RigError> {
    let year = tool("faketime", "")
        .arg("2001-02-03 04:05:06")
        .words("date +%Y")
        .run()?;
    match year.trim() {
        "2001" => Ok(()),
        _ => Err(RigError::io("faketime")(std::io::Error::other(
            "has no effect",
        ))),
    }
}

fn in_scratch(
    work: impl FnOnce(&Namespace) -> Result<(), RigError> + Send,
) -> Result<(), RigError> {
    let namespace = Namespace::scratch()?;
    namespace.run(|| work(&namespace))
}

/// With a file system of 300 MiB on a loop device, or a tmpfs of 1 MiB.
fn in_mount(kind: &str, work: impl FnOnce(&Path) -> Result<(), RigError>) -> Result<(), RigError> {
    let dir = tempfile::Builder::new()
        .prefix("quorumlog-trial-")
        .tempdir()
        .map_err(RigError::io("a temporary directory"))?;
    let (image, mount) = (dir.path().join("image"), dir.path().join("mount"));
    std::fs::create_dir(&mount).map_err(RigError::io(mount.display().to_string()))?;
    if kind == "tmpfs" {
        tool("mount", "-t tmpfs -o size=1m none")
            .arg(&mount)
            .run()?;
    } else {
        std::fs::File::create(&image)
            .and_then(|file| file.set_len(320 << 20))
            .map_err(RigError::io(image.display().to_string()))?;
        tool("mkfs.xfs", "-q").arg(&image).run()?;
        tool("mount", "-o loop").arg(&image).arg(&mount).run()?;
    }
    let result = work(&mount);
    tool("umount", "").arg(&mount).run()?;
    result
}
