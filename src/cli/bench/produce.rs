//! `quorumlog bench produce`: threads of connections, a warm-up, a measured window, a report.

use std::cell::RefCell;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::load::{Plan, Tally, drive};
use super::procs;
use super::report::{Latency, Report};
use super::target::{Finder, Target};
use super::{ProduceArgs, progress};
use crate::cli::{CliError, CliResult};

/// How long replies are awaited after the last request.
const DRAIN: Duration = Duration::from_secs(3);

pub(super) fn run(args: &ProduceArgs) -> CliResult {
    let common = &args.common;
    let finder = Finder::new(common);
    let targets = finder.find_or_make()?;
    let wall = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let start = Instant::now();
    let measure_from = start + Duration::from_secs_f64(args.warm_up);
    let plan = Arc::new(Plan {
        finder,
        topic: common.topic.clone(),
        size: args.size as usize,
        batch: args.batch as usize,
        in_flight: args.in_flight as usize,
        born_ms: wall.as_millis() as i64,
        measure_from,
        measure_until: measure_from + Duration::from_secs_f64(args.duration),
    });
    // Tells this run's keys from those of any other: the broker recognises repeated ones.
    let run = (wall.as_nanos() as u64) ^ (u64::from(std::process::id()) << 48);
    let threads: Vec<JoinHandle<Result<Tally, CliError>>> = (0..args.threads)
        .map(|thread| {
            let numbers = (thread..common.connections).step_by(args.threads as usize);
            let (plan, targets) = (Arc::clone(&plan), targets.clone());
            let numbers: Vec<usize> = numbers.map(|n| n as usize).collect();
            std::thread::spawn(move || connections(plan, &targets, &numbers, run))
        })
        .collect();
    let window = watch_window(&plan, &common.pids, common.json)?;
    let mut tally = Tally::new();
    for thread in threads {
        let part = thread
            .join()
            .map_err(|_| CliError::new("a thread of the generator panicked"))??;
        tally.merge(&part);
    }
    let report = report(args, &targets, &tally, &window);
    report.print(common.json);
    Ok(match report.messages {
        0 => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

/// Runs the connections of one thread until all are done, or the drain time is over.
fn connections(
    plan: Arc<Plan>,
    targets: &[Target],
    numbers: &[usize],
    run: u64,
) -> Result<Tally, CliError> {
    let tally = Rc::new(RefCell::new(Tally::new()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| CliError::new(format!("the generator cannot be started: {e}")))?;
    let local = tokio::task::LocalSet::new();
    for &number in numbers {
        let target = targets[number % targets.len()].clone();
        local.spawn_local(drive(
            Arc::clone(&plan),
            target,
            number,
            run,
            Rc::clone(&tally),
        ));
    }
    let until = tokio::time::Instant::from_std(plan.measure_until + DRAIN);
    runtime.block_on(async {
        // What is left when the drain time is over counts as unanswered by what was sent.
        let _ = tokio::time::timeout_at(until, local).await;
    });
    drop(runtime);
    Rc::try_unwrap(tally)
        .map(RefCell::into_inner)
        .map_err(|_| CliError::new("a connection of the generator outlived its thread"))
}

/// What the processes used between the window's ends.
struct Window {
    seconds: f64,
    before: Vec<procs::Sample>,
    after: Vec<procs::Sample>,
}

/// Sleeps through the run, drawing a bar, and samples processes at both ends of the measured window. The
/// last process is this program.
fn watch_window(plan: &Plan, pids: &[u32], json: bool) -> Result<Window, CliError> {
    let mut pids = pids.to_vec();
    pids.push(std::process::id());
    let total = plan.measure_until.saturating_duration_since(Instant::now());
    let bar = if json {
        indicatif::ProgressBar::hidden()
    } else {
        progress(total.as_millis() as u64, "{bar:40} {percent:>3}% {msg}")
    };
    bar.set_message("warming up");
    let start = Instant::now();
    let sleep_until = |until: Instant| {
        while Instant::now() < until {
            bar.set_position(start.elapsed().as_millis() as u64);
            let left = until.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(Duration::from_millis(250)));
        }
    };
    sleep_until(plan.measure_from);
    let before = procs::sample(&pids).map_err(CliError::new)?;
    let from = Instant::now();
    bar.set_message("measuring");
    sleep_until(plan.measure_until);
    let seconds = from.elapsed().as_secs_f64();
    let after = procs::sample(&pids).map_err(CliError::new)?;
    bar.finish_and_clear();
    Ok(Window {
        seconds,
        before,
        after,
    })
}

fn report(args: &ProduceArgs, targets: &[Target], tally: &Tally, window: &Window) -> Report {
    let messages = tally.acknowledged * u64::from(args.batch);
    let mut usage = procs::usage(&window.before, &window.after, messages);
    let own = usage.pop().map_or(0.0, |own| own.cpu_us_per_message);
    let seconds = window.seconds.max(1e-9);
    Report {
        what: "produce",
        topic: args.common.topic.clone(),
        brokers: targets.iter().map(|t| t.address.clone()).collect(),
        connections: args.common.connections,
        in_flight: args.in_flight,
        messages_a_request: args.batch,
        body_bytes: u64::from(args.size),
        seconds,
        messages,
        messages_per_s: messages as f64 / seconds,
        mb_per_s: messages as f64 * f64::from(args.size) / seconds / 1e6,
        latency: Latency::of(&tally.latency_us),
        codes: tally.codes.clone(),
        remarks: tally.remarks.clone(),
        errors: tally.errors.clone(),
        unanswered: tally.unanswered,
        own_cpu_us_per_message: own,
        cpu_us_per_message: (!usage.is_empty())
            .then(|| usage.iter().map(|u| u.cpu_us_per_message).sum()),
        processes: usage,
    }
}
