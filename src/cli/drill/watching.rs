//! `quorumlog drill watch`: options and terminal of the measuring half alone.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use quorumlog_chaos::drill::report::Target;
use quorumlog_chaos::drill::{Watch, watch};

use super::{Clock, finish, make_out, places, terminal};
use crate::cli::{CliError, CliResult};

#[derive(Args, Debug)]
pub(in crate::cli) struct WatchArgs {
    /// Name servers of the group
    #[arg(
        long,
        value_name = "HOST:PORT[;HOST:PORT]",
        default_value = "127.0.0.1:9876"
    )]
    namesrv: String,
    /// Broker name, when the cluster has several
    #[arg(long)]
    broker: Option<String>,
    /// Topic to make and use; it must not exist yet. By default a new name
    #[arg(long)]
    topic: Option<String>,
    /// How long to watch: seconds, or with a unit as in 60s or 5m
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = time)]
    length: Duration,
    /// Command that does damage; can be given several times. They run spread evenly over the time
    #[arg(long, value_name = "COMMAND")]
    hook: Vec<String>,
    /// Where report.json, report.html and the history go
    #[arg(long, value_name = "DIR", default_value = "drill-report")]
    out: PathBuf,
    /// Sends of the probe in a second, over all nodes
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(200..=5000))]
    rate: u32,
    /// Milliseconds that an attempt of the probe waits for its answer
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    probe_timeout: u64,
    /// Decides what is sent
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A time as `90`, `90s` or `5m`.
fn time(text: &str) -> Result<Duration, String> {
    let (number, factor) = match text.strip_suffix('m') {
        Some(number) => (number, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    match number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
    {
        Some(seconds) if (1..=86_400).contains(&seconds) => Ok(Duration::from_secs(seconds)),
        _ => Err("a time from 1s to 1440m is wanted".to_owned()),
    }
}

pub(super) fn run(args: &WatchArgs) -> CliResult {
    make_out(&args.out)?;
    let clock = Clock::start();
    let what = Watch {
        name_servers: args.namesrv.clone(),
        broker: args.broker.clone(),
        topic: args.topic.clone(),
        length: args.length,
        hooks: args.hook.clone(),
        rate: args.rate,
        timeout: Duration::from_millis(args.probe_timeout),
        seed: args.seed,
        out: args.out.clone(),
    };
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| CliError::new(format!("the runtime cannot be started: {error}")))?;
    let watched = runtime
        .block_on(watch(&what, |line| println!("  {line}")))
        .map_err(|error| CliError::new(error.to_string()))?;
    println!("{}", terminal::drill_lines(&watched.drill));
    let kind = if watched.quorumlog {
        "quorumlog"
    } else {
        "RocketMQ protocol"
    };
    let target = Target {
        what: format!(
            "broker {} ({kind}), found by {}",
            watched.broker, args.namesrv
        ),
        nodes: places(watched.nodes.iter().map(|node| (&node.name, node.address))),
        rate: args.rate,
        probe_timeout_ms: args.probe_timeout as f64,
        seed: args.seed,
    };
    finish(&clock, target, vec![watched.drill], &args.out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_and_without_a_unit() {
        assert_eq!(time("90"), Ok(Duration::from_secs(90)));
        assert_eq!(time("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(time("5m"), Ok(Duration::from_secs(300)));
        for wrong in ["", "m", "0s", "-1", "1h", "100000000000000000000m", "2000m"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
