//! `quorumlog drill`: does a fault to a group under load, and reports how long service was away and whether a promise was
//! broken. The drills themselves are in the chaos crate; here are options, the place to run them in, and the terminal.

mod plan;
mod stage;
mod terminal;
mod watching;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use quorumlog_chaos::drill::report::{Drill, Place, Report, Target, VERSION, Verdict};
use quorumlog_chaos::drill::{Group, Kind, PROBE_TIMEOUT, Settings};

use super::{CliError, CliResult};

#[derive(Subcommand, Debug)]
pub(super) enum DrillCommand {
    /// Kill the leader, count how long writes are away
    LeaderKill(DrillArgs),
    /// Let the leader stand still (SIGSTOP), and wake up
    LeaderPause(DrillArgs),
    /// Cut the leader off from the other nodes (needs root)
    LeaderIsolate(DrillArgs),
    /// Kill to one of three: every write must be refused with IN_SYNC_REPLICAS_NOT_ENOUGH
    MajorityLoss(DrillArgs),
    /// Cut the power of all nodes at once (needs root)
    PowerCut(DrillArgs),
    /// Stop and start every node in turn, as in an upgrade
    RollingRestart(DrillArgs),
    /// Fill the leader's disk (needs root)
    DiskFull(DrillArgs),
    /// Let the leader's disk stand still (needs root)
    SlowDisk(DrillArgs),
    /// Keep a follower away, and let it catch up
    FollowerLag(DrillArgs),
    /// Ask the leader to stop: it must hand leadership over
    Transfer(DrillArgs),
    /// All of them, one report
    All(DrillArgs),
    /// Only measure, while you do the damage: any RocketMQ-compatible group
    Watch(watching::WatchArgs),
}

#[derive(Args, Debug, Clone)]
pub(super) struct DrillArgs {
    /// Repetitions of each drill
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeat: u32,
    /// Where report.json, report.html and the histories of what went wrong go
    #[arg(long, value_name = "DIR", default_value = "drill-report")]
    out: PathBuf,
    /// Decides when within a heartbeat each fault comes, and what is sent
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Sends of the probe in a second, over all nodes
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(200..=5000))]
    rate: u32,
    /// Drill this group instead of a throw-away one; the file names its nodes and the commands that hurt and mend them
    /// (see conf/drill-group.conf)
    #[arg(long, value_name = "FILE")]
    on: Option<PathBuf>,
    /// With --on: yes, do what was printed to that group
    #[arg(long, requires = "on")]
    yes_damage_this_group: bool,
    /// Use loopback and the usual file system, even as root; drills that need more are skipped
    #[arg(long, conflicts_with = "on")]
    loopback: bool,
    /// Keep every history, also those without a finding
    #[arg(long)]
    keep_histories: bool,
}

impl DrillArgs {
    fn settings(&self) -> Settings {
        Settings {
            repeat: self.repeat,
            rate: self.rate,
            seed: self.seed,
            out: self.out.clone(),
            keep_histories: self.keep_histories,
        }
    }
}

/// Exit code 1 says that a promise was broken: what ends a drill early is no verdict, and gets 2.
pub(super) fn run(command: DrillCommand) -> CliResult {
    perform(command).or_else(|error| {
        eprintln!("quorumlog: {error}");
        Ok(ExitCode::from(Verdict::Unjudged.exit_code()))
    })
}

fn perform(command: DrillCommand) -> CliResult {
    let (kinds, args) = match command {
        DrillCommand::LeaderKill(args) => (vec![Kind::LeaderKill], args),
        DrillCommand::LeaderPause(args) => (vec![Kind::LeaderPause], args),
        DrillCommand::LeaderIsolate(args) => (vec![Kind::LeaderIsolate], args),
        DrillCommand::MajorityLoss(args) => (vec![Kind::MajorityLoss], args),
        DrillCommand::PowerCut(args) => (vec![Kind::PowerCut], args),
        DrillCommand::RollingRestart(args) => (vec![Kind::RollingRestart], args),
        DrillCommand::DiskFull(args) => (vec![Kind::DiskFull], args),
        DrillCommand::SlowDisk(args) => (vec![Kind::SlowDisk], args),
        DrillCommand::FollowerLag(args) => (vec![Kind::FollowerLag], args),
        DrillCommand::Transfer(args) => (vec![Kind::Transfer], args),
        DrillCommand::All(args) => (Kind::ALL.to_vec(), args),
        DrillCommand::Watch(args) => return watching::run(&args),
    };
    make_out(&args.out)?;
    let clock = Clock::start();
    let (drills, what, nodes) = match &args.on {
        Some(file) => match plan::agreed(file, &kinds, args.yes_damage_this_group)? {
            Some(given) => {
                let nodes = places(given.nodes.iter().map(|n| (&n.name, n.address)));
                let drills = stage::on_given(given, &kinds, &args.settings())?;
                (drills, format!("the group of {}", file.display()), nodes)
            }
            None => return Ok(ExitCode::from(Verdict::Unjudged.exit_code())),
        },
        None => stage::on_throw_away(&kinds, &args.settings(), args.loopback)?,
    };
    let target = Target {
        what,
        nodes,
        rate: args.rate,
        probe_timeout_ms: PROBE_TIMEOUT.as_secs_f64() * 1000.0,
        seed: args.seed,
    };
    finish(&clock, target, drills, &args.out)
}

/// Writes the report, prints what matters of it.
fn finish(clock: &Clock, target: Target, drills: Vec<Drill>, out: &Path) -> CliResult {
    let report = Report {
        version: VERSION,
        tool: format!("quorumlog {}", env!("CARGO_PKG_VERSION")),
        command: command_line(),
        begun_ms: clock.wall_ms,
        took_ms: (clock.begun.elapsed().as_secs_f64() * 1000.0).round(),
        target,
        verdict: Verdict::of(drills.iter().map(|drill| drill.verdict)),
        drills,
    };
    report
        .write(out)
        .map_err(|error| CliError::new(error.to_string()))?;
    println!("{}", terminal::summary(&report));
    println!("report: {}", out.join("report.html").display());
    Ok(ExitCode::from(report.verdict.exit_code()))
}

fn command_line() -> String {
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let name = Path::new(&program)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    std::iter::once(name)
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

fn make_out(out: &Path) -> Result<(), CliError> {
    std::fs::create_dir_all(out).map_err(|error| {
        CliError::new(format!(
            "{} cannot be made: {error}. Choose another place with --out",
            out.display()
        ))
    })
}

fn places<'a>(nodes: impl Iterator<Item = (&'a String, std::net::SocketAddr)>) -> Vec<Place> {
    nodes
        .map(|(name, address)| Place {
            name: name.clone(),
            address: address.to_string(),
        })
        .collect()
}

fn places_of(group: &Group) -> Vec<Place> {
    places(group.nodes().iter().map(|node| (&node.name, node.address)))
}

/// When a command began, by both clocks.
struct Clock {
    begun: Instant,
    wall_ms: u64,
}

impl Clock {
    fn start() -> Clock {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Clock {
            begun: Instant::now(),
            wall_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        }
    }
}
