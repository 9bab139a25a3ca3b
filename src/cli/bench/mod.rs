//! `quorumlog bench`: a load generator for any RocketMQ broker, and a measurement of the disk.
//!
//! The generator shares the machine with what it measures, so it must cost next to nothing: requests are
//! encoded once and patched, replies are scanned for two numbers.

mod consume;
mod disk;
mod load;
mod procs;
mod produce;
mod report;
mod target;
mod template;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use super::CliResult;

#[derive(Subcommand, Debug)]
pub(super) enum BenchCommand {
    /// Send messages as fast as the broker acknowledges them
    Produce(ProduceArgs),
    /// Read a backlog, and check that no queue offset is missing
    Consume(ConsumeArgs),
    /// Measure a directory's disk: synced appends and synced bandwidth
    Disk(DiskArgs),
}

/// What both directions need.
#[derive(Args, Debug)]
struct Common {
    /// Name server of the broker
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9876")]
    namesrv: String,
    /// Use this broker and ask no name server
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "namesrv")]
    broker: Option<String>,
    /// Topic; created when it is missing
    #[arg(long, default_value = "BenchTopic")]
    topic: String,
    /// Queues of the topic when it is created
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    queues: u32,
    /// Connections
    #[arg(long, short = 'c', default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: u32,
    /// Processes (the nodes) whose CPU time and memory are shown
    #[arg(long, value_delimiter = ',', value_name = "PID,PID")]
    pids: Vec<u32>,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(super) struct ProduceArgs {
    #[command(flatten)]
    common: Common,
    /// Requests in flight on each connection
    #[arg(long, short = 'i', default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    in_flight: u32,
    /// Bytes of a message's body
    #[arg(long, short = 's', default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    size: u32,
    /// Messages of a request; above 1 they go as a batch (request code 320)
    #[arg(long, short = 'b', default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    batch: u32,
    /// Seconds that are measured
    #[arg(long, short = 'd', default_value_t = 10.0, value_parser = seconds)]
    duration: f64,
    /// Seconds of load before the measurement
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    warm_up: f64,
    /// Threads of the generator
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    threads: u32,
}

#[derive(Args, Debug)]
pub(super) struct ConsumeArgs {
    #[command(flatten)]
    common: Common,
    /// Messages asked for by a pull
    #[arg(long, short = 'n', default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    messages: u32,
    /// Stop after so many seconds; otherwise when everything was read
    #[arg(long, short = 'd', default_value_t = 60.0, value_parser = seconds)]
    duration: f64,
}

#[derive(Args, Debug)]
pub(super) struct DiskArgs {
    /// Directory to measure; its files are removed again
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Seconds of each of the two measurements
    #[arg(long, short = 'd', default_value_t = 3.0, value_parser = seconds)]
    duration: f64,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

/// A duration in seconds, from 0 to a day.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.0..=86_400.0).contains(&number) => Ok(number),
        _ => Err("a number of seconds from 0 to 86400 is wanted".to_string()),
    }
}

pub(super) fn run(command: BenchCommand) -> CliResult {
    match command {
        BenchCommand::Produce(args) => produce::run(&args),
        BenchCommand::Consume(args) => consume::run(&args),
        BenchCommand::Disk(args) => disk::run(&args),
    }
}

/// A progress bar over `length` steps; drawn on a terminal only.
fn progress(length: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
