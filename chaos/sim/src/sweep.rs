//! Many seeds, each in a process of its own: what a seed does may depend on nothing that an earlier one left.

use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::report::{Line, Totals};

/// A seed that has not ended after this long hangs: a run takes seconds.
const HANGS_AFTER: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Which seeds, and how.
#[derive(Clone, Debug)]
pub struct Sweep {
    pub from: u64,
    pub count: u64,
    pub seconds: u64,
    pub jobs: usize,
}

/// What became of all of them.
#[derive(Debug, Default)]
pub struct Swept {
    pub passed: u64,
    pub failed: Vec<u64>,
    pub totals: Totals,
}

struct Running {
    seed: u64,
    child: Child,
    since: Instant,
    output: tempfile::NamedTempFile,
}

/// Runs the seeds with `program`, this one; says on standard output which fail.
pub fn sweep(program: &Path, sweep: &Sweep) -> std::io::Result<Swept> {
    let mut waiting: VecDeque<u64> = (sweep.from..sweep.from + sweep.count).collect();
    let mut running: Vec<Running> = Vec::new();
    let mut swept = Swept::default();
    while !waiting.is_empty() || !running.is_empty() {
        while running.len() < sweep.jobs.max(1)
            && let Some(seed) = waiting.pop_front()
        {
            running.push(start(program, seed, sweep.seconds)?);
        }
        std::thread::sleep(LOOK_EVERY);
        let mut at = 0;
        while at < running.len() {
            let one = &mut running[at];
            let hangs = one.since.elapsed() > HANGS_AFTER;
            if hangs {
                one.child.kill()?;
            }
            match one.child.try_wait()? {
                None => at += 1,
                Some(_) => ended(running.swap_remove(at), hangs, sweep.seconds, &mut swept)?,
            }
        }
    }
    swept.failed.sort_unstable();
    Ok(swept)
}

fn start(program: &Path, seed: u64, seconds: u64) -> std::io::Result<Running> {
    let output = tempfile::NamedTempFile::new()?;
    let child = Command::new(program)
        .args(["seed", &seed.to_string(), "--seconds", &seconds.to_string()])
        .stdin(Stdio::null())
        .stdout(output.reopen()?)
        .stderr(Stdio::null())
        .spawn()?;
    Ok(Running {
        seed,
        child,
        since: Instant::now(),
        output,
    })
}

fn ended(run: Running, hangs: bool, seconds: u64, swept: &mut Swept) -> std::io::Result<()> {
    let text = std::fs::read_to_string(run.output.path())?;
    let line = text
        .lines()
        .next()
        .and_then(|line| serde_json::from_str::<Line>(line).ok());
    match line {
        Some(line) if line.violation.is_none() => {
            swept.passed += 1;
            swept.totals.add(&line);
            return Ok(());
        }
        Some(line) => {
            swept.totals.add(&line);
            let mut out = std::io::stdout().lock();
            writeln!(
                out,
                "seed {} FAILED: {}",
                run.seed,
                line.violation.unwrap_or_default()
            )?;
            writeln!(out, "{}", line.evidence.unwrap_or_default())?;
        }
        None if hangs => println!("seed {} FAILED: it hangs", run.seed),
        None => println!("seed {} FAILED: it ended without a word", run.seed),
    }
    println!("  repeat: {}", crate::report::repeat(run.seed, seconds));
    swept.failed.push(run.seed);
    Ok(())
}
