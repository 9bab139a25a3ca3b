//! The program's commands: their options here, one file or folder per command.
//!
//! A command returns its exit code, or one sentence for the operator that says what is wrong and what helps.

mod bench;
mod client;
mod cluster;
mod drill;
mod log;
mod node;
mod route;
mod serve;
mod status;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What ends a command early: a sentence for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CliError(pub String);

impl CliError {
    fn new(text: impl Into<String>) -> CliError {
        CliError(text.into())
    }
}

type CliResult = Result<ExitCode, CliError>;

#[cfg(not(feature = "sabotage"))]
const VERSION: &str = env!("CARGO_PKG_VERSION");
#[cfg(feature = "sabotage")]
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (sabotage build: never for use)"
);

/// The command line.
#[derive(Parser, Debug)]
#[command(
    name = "quorumlog",
    version = VERSION,
    about = "A message broker whose commit log is a Raft log; speaks the RocketMQ protocol",
    after_help = "Start with `quorumlog cluster`: three nodes on this machine that check themselves.\n\
                  RUST_LOG=debug,openraft=warn shows more of what a node does."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run one node from a RocketMQ configuration file
    Serve(serve::ServeArgs),
    /// Run a group of nodes on this machine, check it with 1,000 messages, and keep it running
    Cluster(cluster::ClusterArgs),
    /// Show who leads a running group, and how far each node is
    Status(status::StatusArgs),
    /// Measure a broker, or the disk
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Hurt a group under load; report how long service was away and whether a promise was broken
    #[command(subcommand)]
    Drill(drill::DrillCommand),
    /// Look into a node's files; only reads
    #[command(subcommand)]
    Log(LogCommand),
}

#[derive(Subcommand, Debug)]
enum LogCommand {
    /// Print one line per entry
    Dump {
        #[command(flatten)]
        place: LogPlace,
        /// Also print one line per message
        #[arg(long)]
        messages: bool,
    },
    /// Check every entry and record; exit 1 if something is damaged
    Verify {
        #[command(flatten)]
        place: LogPlace,
    },
}

#[derive(clap::Args, Debug)]
struct LogPlace {
    /// The node's directory (storePathRootDir)
    dir: PathBuf,
    /// Read although a node is running there: the last entries may be incomplete
    #[arg(long)]
    force: bool,
}

impl Cli {
    /// Runs the command.
    pub fn run(self) -> CliResult {
        match self.command {
            Command::Serve(args) => serve::run(&args),
            Command::Cluster(args) => cluster::run(&args),
            Command::Status(args) => status::run(&args),
            Command::Bench(command) => bench::run(command),
            Command::Drill(command) => drill::run(command),
            Command::Log(LogCommand::Dump { place, messages }) => {
                log::dump(&place.dir, place.force, messages)
            }
            Command::Log(LogCommand::Verify { place }) => log::verify(&place.dir, place.force),
        }
    }
}
