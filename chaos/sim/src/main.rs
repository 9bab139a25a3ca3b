//! `quorumlog-sim`: one seed, many seeds, or one seed twice. Exit status 0: everything held; 1: a violation
//! or a difference; 2: the run means nothing, or could not be made.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use clap::{Parser, Subcommand};
use quorumlog_sim::plan::Plan;
use quorumlog_sim::report::{Line, repeat};
use quorumlog_sim::sweep::{Sweep, sweep};
use quorumlog_sim::trace::Trace;

const BUILD: &str = "this program was built without the flag that makes a seed mean one run; build it with\n\
    RUSTFLAGS=\"--cfg tokio_unstable\" cargo build --profile sim -p quorumlog-sim";

/// This program as it runs, even when its file has been replaced since.
const OURSELVES: &str = "/proc/self/exe";

#[derive(Parser)]
#[command(about = "Deterministic simulation of quorumlog", version)]
struct Args {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Run one seed and print its verdict as one line of JSON
    Seed {
        seed: u64,
        /// Simulated seconds, at least
        #[arg(long, default_value_t = 20)]
        seconds: u64,
        /// Write everything that happens to this file
        #[arg(long)]
        trace: Option<PathBuf>,
        /// Print the plan first
        #[arg(long)]
        plan: bool,
    },
    /// Run many seeds, one process each
    Sweep {
        #[arg(long)]
        from: u64,
        #[arg(long)]
        count: u64,
        #[arg(long, default_value_t = 20)]
        seconds: u64,
        /// Processes at a time; default: one a core
        #[arg(long)]
        jobs: Option<usize>,
    },
    /// Run one seed in two fresh processes and compare all that happened, byte for byte
    Determinism {
        #[arg(long)]
        seed: u64,
        #[arg(long, default_value_t = 20)]
        seconds: u64,
    },
}

fn main() -> ExitCode {
    if !quorumlog_sim::is_deterministic() {
        eprintln!("{BUILD}");
        return ExitCode::from(2);
    }
    let outcome = match Args::parse().command {
        What::Seed {
            seed,
            seconds,
            trace,
            plan,
        } => run_seed(seed, seconds, trace.as_deref(), plan),
        What::Sweep {
            from,
            count,
            seconds,
            jobs,
        } => run_sweep(Sweep {
            from,
            count,
            seconds,
            jobs: jobs
                .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
        }),
        What::Determinism { seed, seconds } => run_twice(seed, seconds),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("quorumlog-sim: {error}");
        ExitCode::from(2)
    })
}

fn run_seed(
    seed: u64,
    seconds: u64,
    trace: Option<&Path>,
    show: bool,
) -> std::io::Result<ExitCode> {
    start_logging();
    quorumlog_sim::panics::remember();
    let trace = Arc::new(Trace::new(trace)?);
    let plan = Plan::new(seed, seconds);
    if show {
        eprintln!("{plan:#?}");
    }
    let outcome = quorumlog_sim::world::run(plan, trace.clone());
    trace.finish()?;
    let line = Line::new(seed, &outcome, trace.digest());
    println!("{}", serde_json::to_string(&line)?);
    let Some(violation) = outcome.violation else {
        return Ok(ExitCode::SUCCESS);
    };
    eprintln!(
        "seed {seed}: {}\n{}",
        violation.invariant, violation.evidence
    );
    eprintln!("repeat: {}", repeat(seed, seconds));
    Ok(ExitCode::FAILURE)
}

/// The nodes' own lines, for whoever looks for the cause of a violation: `RUST_LOG` decides, none by default.
fn start_logging() {
    if std::env::var_os("RUST_LOG").is_some() {
        let started = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_writer(std::io::stderr)
            .without_time()
            .try_init();
        // Only a second subscriber can fail.
        drop(started);
    }
}

fn run_sweep(plan: Sweep) -> std::io::Result<ExitCode> {
    let swept = sweep(Path::new(OURSELVES), &plan)?;
    let (from, to) = (plan.from, plan.from + plan.count - 1);
    println!("coverage: {}", serde_json::to_string(&swept.totals)?);
    let missing = swept.totals.missing();
    for what in &missing {
        println!("too little of {what}");
    }
    let (passed, failed) = (swept.passed, swept.failed.len());
    let word = match (failed, missing.is_empty()) {
        (0, true) => "ok",
        (0, false) => "INVALID",
        _ => "FAILED",
    };
    println!(
        "seeds {from}..={to}: {passed} passed, {failed} failed {:?}: {word}",
        swept.failed
    );
    Ok(match word {
        "ok" => ExitCode::SUCCESS,
        "INVALID" => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    })
}

fn run_twice(seed: u64, seconds: u64) -> std::io::Result<ExitCode> {
    let dir = tempfile::tempdir()?;
    let traces = ["first", "second"].map(|name| dir.path().join(name));
    for trace in &traces {
        let status = Command::new(OURSELVES)
            .args([
                "seed",
                &seed.to_string(),
                "--seconds",
                &seconds.to_string(),
                "--trace",
            ])
            .arg(trace)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if status.code().is_none_or(|code| code > 1) {
            return Err(std::io::Error::other(format!(
                "the run of seed {seed} ended with {status}"
            )));
        }
    }
    let [first, second] = [std::fs::read(&traces[0])?, std::fs::read(&traces[1])?];
    if first == second {
        let lines = first.iter().filter(|byte| **byte == b'\n').count();
        println!(
            "seed {seed}: two runs, the same {lines} lines ({} bytes)",
            first.len()
        );
        return Ok(ExitCode::SUCCESS);
    }
    let differs = first
        .split(|byte| *byte == b'\n')
        .zip(second.split(|byte| *byte == b'\n'))
        .enumerate()
        .find(|(_, (first, second))| first != second);
    match differs {
        Some((at, (first, second))) => println!(
            "seed {seed}: the runs differ from line {} on:\n  {}\n  {}",
            at + 1,
            String::from_utf8_lossy(first),
            String::from_utf8_lossy(second)
        ),
        None => println!("seed {seed}: one run is the beginning of the other"),
    }
    Ok(ExitCode::FAILURE)
}
