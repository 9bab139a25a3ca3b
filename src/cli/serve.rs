//! `quorumlog serve`: one node, from its configuration file to the last reply.

use std::io::{IsTerminal, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::{CliError, CliResult};
use crate::broker::Broker;
use crate::config::Config;
use crate::net::server::{self, Door};

#[derive(clap::Args, Debug)]
pub(super) struct ServeArgs {
    /// RocketMQ configuration file (key=value); conf/broker-n0.conf is one of a group
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    config: PathBuf,
    /// Take this node's empty directory as missing nothing: let it vote and found the group at once, although
    /// another node does not answer. Messages that only the emptied or silent nodes held are lost
    #[arg(long)]
    accept_empty: bool,
    /// Stop when standard input ends: a node must not outlive the program that started it
    #[arg(long, hide = true)]
    with_parent: bool,
}

/// Longest wait for the hand-over of leadership and the last writes when stopping.
const STOP_WITHIN: Duration = Duration::from_secs(5);

pub(super) fn run(args: &ServeArgs) -> CliResult {
    start_logging();
    abort_on_panic();
    let config = Config::load(&args.config).map_err(|e| CliError::new(e.to_string()))?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    prepare_dir(&config.dir)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers())
        .thread_name("broker")
        .enable_all()
        .build()
        .map_err(|e| CliError::new(format!("the runtime cannot be started: {e}")))?;
    let outcome = runtime.block_on(serve(config, args));
    // Nothing that still runs may keep the process from ending.
    runtime.shutdown_timeout(Duration::from_millis(200));
    outcome
}

/// Half the cores: the log writer, the kernel's side of sockets and disk, and the other nodes of a small
/// machine need the rest. On two cores one worker costs a third fewer context switches than two.
fn workers() -> usize {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    (cores / 2).max(1)
}

async fn serve(config: Config, args: &ServeArgs) -> CliResult {
    let mut stop = Stop::new(args.with_parent)?;
    let doors = bind(&config).await?;
    let line = serving_line(&config);
    let broker = super::node::start(config, args.accept_empty).await?;
    for (listener, door) in doors {
        tokio::spawn(server::serve(listener, door, Arc::clone(&broker)));
    }
    say(std::io::stdout(), &line);
    let reason = stop.asked().await;
    tracing::info!("stopping: {reason}");
    if tokio::time::timeout(STOP_WITHIN, stop_node(&broker))
        .await
        .is_err()
    {
        tracing::warn!(
            "stopping took longer than {STOP_WITHIN:?}; what was acknowledged is on disk"
        );
    }
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

async fn stop_node(broker: &Arc<Broker>) {
    broker.group.shutdown().await;
}

/// The one line that says where clients and operators find this node.
fn serving_line(config: &Config) -> String {
    let naming = match config.namesrv_port {
        0 => "no name server".to_string(),
        port => format!("name server at {}:{port}", config.broker_ip),
    };
    format!(
        "serving clients at {}:{}, {naming}, group {} node {} (state dir {})",
        config.broker_ip,
        config.listen_port,
        config.group.name,
        config.node_name(),
        config.dir.display()
    )
}

/// Opens all doors before anything is started, so that a port in use changes nothing.
async fn bind(config: &Config) -> Result<Vec<(TcpListener, Door)>, CliError> {
    let mut doors = vec![("listenPort", config.listen_port, Door::Broker)];
    if config.write_fronts {
        doors.push(("writeFrontPort", config.front_port, Door::WriteFront));
    }
    if config.namesrv_port != 0 {
        doors.push(("namesrvListenPort", config.namesrv_port, Door::NameServer));
    }
    let mut bound = Vec::new();
    for (key, port, door) in doors {
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let listener = server::bind(address, key).await.map_err(CliError::new)?;
        bound.push((listener, door));
    }
    Ok(bound)
}

/// Makes the node's directory and checks that files can be made in it.
fn prepare_dir(dir: &Path) -> Result<(), CliError> {
    let probe = dir.join(".writable");
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(&probe, b""))
        .and_then(|()| std::fs::remove_file(&probe))
        .map_err(|error| {
            CliError::new(format!(
                "{} cannot be written: {error}. Give this user the right to write there, or change storePathRootDir",
                dir.display()
            ))
        })
}

/// What may ask this process to stop.
struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    parent: tokio::sync::oneshot::Receiver<()>,
    // Kept so that `parent` never resolves when there is none to watch.
    _no_parent: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Stop {
    fn new(with_parent: bool) -> Result<Stop, CliError> {
        let listen = |kind| {
            signal(kind).map_err(|e| CliError::new(format!("signals cannot be received: {e}")))
        };
        let (gone, parent) = tokio::sync::oneshot::channel();
        let mut keep = Some(gone);
        if with_parent && let Some(gone) = keep.take() {
            watch_parent(gone);
        }
        Ok(Stop {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            parent,
            _no_parent: keep,
        })
    }

    async fn asked(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = &mut self.parent => "the program that started this node has ended",
        }
    }
}

/// The parent holds the other end of standard input: it ends with the parent, however that ends. A thread
/// of its own, since reading standard input cannot be cancelled.
fn watch_parent(gone: tokio::sync::oneshot::Sender<()>) {
    std::thread::spawn(move || {
        let mut rest = [0u8; 64];
        let mut input = std::io::stdin().lock();
        while matches!(input.read(&mut rest), Ok(count) if count > 0) {}
        // A node that is stopping already no longer listens.
        let _ = gone.send(());
    });
}

/// A line that nobody can take is dropped: a node serves on when the disk under its log file is full, or
/// when the program that read its output is gone.
fn say(mut to: impl Write, line: &str) {
    let written = writeln!(to, "{line}");
    drop(written);
}

/// Logs go to standard error; `RUST_LOG` decides how much. openraft is silent unless asked for: what an
/// operator must know of it, a dead core above all, is said by our own lines.
fn start_logging() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,openraft=off"));
    let started = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        // Would be told to the same standard error, with a panic where that fails.
        .log_internal_errors(false)
        .try_init();
    // Only a second subscriber in one process can fail, and then the first one logs.
    drop(started);
}

/// A panic anywhere ends the process: a node that lost a task must not look alive.
fn abort_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        say(
            std::io::stderr(),
            "quorumlog: this node ends because of the panic above; the log on disk is intact",
        );
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_cannot_be_written_is_dropped() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        say(full.expect("a file that is always full"), "serving clients");
        let mut kept = Vec::new();
        say(&mut kept, "serving clients");
        assert_eq!(kept, b"serving clients\n");
    }
}
