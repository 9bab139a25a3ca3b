//! The `chaos` command: what this machine can do, which scenarios there are, and running them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use quorumlog_chaos::checker;
use quorumlog_chaos::rig::disk::remove_leftover_disks;
use quorumlog_chaos::rig::doctor::Facility;
use quorumlog_chaos::rig::remove_leftovers;
use quorumlog_chaos::scenario::{
    self, Record, RunError, Runner, Scenario, Skips, Tier, Verdict, exit_status,
};

#[derive(Parser, Debug)]
#[command(
    name = "chaos",
    version,
    about = "Hurts a group of real quorumlog processes and checks what it promised",
    after_help = "Exit status: 0 all valid, 1 a promise is broken, 2 a run proves nothing, 3 everything was skipped."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Say which faults this machine can do
    Doctor,
    /// List the scenarios: name, rows of the fault catalogue, tier, property
    List,
    /// Run scenarios by name
    Run {
        #[arg(required = true)]
        names: Vec<String>,
        #[command(flatten)]
        options: RunOptions,
    },
    /// Run every scenario of a tier and of the ones before it
    Tier {
        tier: Tier,
        #[command(flatten)]
        options: RunOptions,
    },
    /// Judge a run again by what it left: history.jsonl, options.json, the nodes' directories
    Check { dir: PathBuf },
    /// The same as `tier nightly`
    Nightly {
        #[command(flatten)]
        options: RunOptions,
    },
    /// The same as `tier release`
    Release {
        #[command(flatten)]
        options: RunOptions,
    },
}

#[derive(clap::Args, Debug)]
struct RunOptions {
    /// Seed of the first run; each further run takes the next one
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs of each scenario
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// The server's program [default: quorumlog beside this program]
    #[arg(long)]
    server: Option<PathBuf>,
    /// Directory for the runs [default: quorumlog-chaos in the temporary directory]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Scenarios that must not be skipped, separated by commas
    #[arg(long, value_delimiter = ',')]
    must_run: Vec<String>,
    /// The only scenarios that may be skipped, separated by commas ("" for none)
    #[arg(long, value_delimiter = ',')]
    allow_skip: Option<Vec<String>>,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Doctor => Ok(doctor()),
        Command::List => Ok(list()),
        Command::Run { names, options } => by_names(&names).and_then(|all| run(&all, &options)),
        Command::Tier { tier, options } => run(&of_tier(tier), &options),
        Command::Check { dir } => return check(&dir),
        Command::Nightly { options } => run(&of_tier(Tier::Nightly), &options),
        Command::Release { options } => run(&of_tier(Tier::Release), &options),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn doctor() -> u8 {
    for facility in Facility::all() {
        let (name, gives) = (facility.name(), facility.gives());
        match facility.probe() {
            Ok(()) => println!("OK  {name:<14} {gives}"),
            Err(missing) => {
                println!("NO  {name:<14} {gives}");
                println!("    {:<14} {}", "", missing.why);
                println!("    {:<14} to get it: {}", "", missing.remedy);
            }
        }
    }
    0
}

fn check(dir: &Path) -> ExitCode {
    match checker::run_dir(dir) {
        Ok(report) => {
            print!("{report}");
            ExitCode::from(match report.verdict() {
                checker::Verdict::Valid => 0,
                checker::Verdict::Violated => 1,
                checker::Verdict::Invalid(_) => 2,
            })
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn list() -> u8 {
    for scenario in scenario::all() {
        let (name, rows) = (scenario.name, scenario.rows.join(" "));
        let tier = format!("{:?}", scenario.tier).to_lowercase();
        println!("{name:<28} {rows:<10} {tier:<8} {}", scenario.about);
    }
    0
}

fn by_names(names: &[String]) -> Result<Vec<&'static Scenario>, RunError> {
    let found = |name: &String| {
        scenario::find(name).ok_or_else(|| RunError::NoScenario { name: name.clone() })
    };
    names.iter().map(found).collect()
}

fn of_tier(tier: Tier) -> Vec<&'static Scenario> {
    let all = scenario::all().into_iter();
    all.filter(|scenario| scenario.tier <= tier).collect()
}

fn run(scenarios: &[&Scenario], options: &RunOptions) -> Result<u8, RunError> {
    let mut leftovers = remove_leftovers()?;
    leftovers.extend(remove_leftover_disks()?);
    if !leftovers.is_empty() {
        println!("removed what dead runs left: {}", leftovers.join(" "));
    }
    let server = match &options.server {
        Some(server) => server.clone(),
        None => beside_this_program()?,
    };
    let out = match &options.out {
        Some(out) => out.clone(),
        None => std::env::temp_dir().join("quorumlog-chaos"),
    };
    let skips = Skips {
        must_run: options.must_run.clone(),
        allowed: options.allow_skip.clone(),
    };
    let mut runner = Runner::new(server, out, skips);
    let mut verdicts = Vec::new();
    for scenario in scenarios {
        for seed in options.seed..options.seed + options.runs {
            let record = runner.run(scenario, seed)?;
            print(&record);
            verdicts.push(record.verdict);
        }
    }
    summary(&verdicts);
    Ok(exit_status(&verdicts))
}

fn beside_this_program() -> Result<PathBuf, RunError> {
    let this = std::env::current_exe().map_err(|source| RunError::Io {
        path: PathBuf::from("this program"),
        source,
    })?;
    Ok(this.with_file_name("quorumlog"))
}

fn print(record: &Record) {
    let (name, seed, seconds) = (&record.scenario, record.seed, record.seconds);
    println!("{:<8} {name} seed {seed} ({seconds:.1} s)", record.verdict);
    if record.verdict == Verdict::Skipped {
        println!("         {}", record.reason);
        return;
    }
    let c = &record.coverage;
    println!(
        "         {} acknowledged, {} refused, {} unknown ({} found), {} leader changes, faults {:?}",
        c.acknowledged, c.refused, c.unknown, c.unknown_found, c.leader_changes, c.faults
    );
    for (fault, times) in &record.rto_ms {
        println!("         acknowledged again after {fault}: {times:?} ms");
    }
    for (name, values) in &record.figures {
        println!("         {name}: {values:?}");
    }
    if record.verdict != Verdict::Valid {
        println!("         {}", record.reason);
        for violation in &record.violations {
            println!("         - {violation}");
        }
        println!("         files: {}", record.dir.display());
    }
}

fn summary(verdicts: &[Verdict]) {
    let count = |verdict| verdicts.iter().filter(|each| **each == verdict).count();
    println!(
        "{} runs: {} valid, {} violated, {} invalid, {} skipped",
        verdicts.len(),
        count(Verdict::Valid),
        count(Verdict::Violated),
        count(Verdict::Invalid),
        count(Verdict::Skipped)
    );
}
