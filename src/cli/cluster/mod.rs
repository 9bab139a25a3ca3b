//! `quorumlog cluster`: a group of real node processes on this machine that checks itself.

mod check;
mod nodes;
mod plan;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::signal::unix::{SignalKind, signal};

use self::check::ReadBack;
use self::nodes::Nodes;
use self::plan::Node;
use super::status::{Figures, node_name};
use super::{CliError, CliResult, table};

/// How often the nodes are looked after.
const LOOK_AFTER: Duration = Duration::from_millis(200);

#[derive(clap::Args, Debug)]
pub(super) struct ClusterArgs {
    /// Keep configuration, logs and data here, and continue with what is there; otherwise everything lies in
    /// a temporary directory that is removed at the end
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Client port P of the first node. Clients: P, P+10, P+20; peers: P+10000, P+10001, ...; name servers:
    /// 9876, 9877, ... for 30911, else P-20000, ... (P+20000, ... below 21024)
    #[arg(long, value_name = "P", default_value_t = plan::BASE_PORT, value_parser = clap::value_parser!(u16).range(1024..))]
    base_port: u16,
    /// Nodes of the group
    #[arg(long, default_value = "3", value_parser = ["1", "3", "5"])]
    nodes: String,
    /// Stop after the check, exit 0 only if it passed
    #[arg(long)]
    check: bool,
}

pub(super) fn run(args: &ClusterArgs) -> CliResult {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| CliError::new(format!("the runtime cannot be started: {e}")))?;
    let count = args.nodes.parse().unwrap_or(3);
    // Removed when dropped, after the nodes have stopped.
    let (dir, _temporary) = directory(args.dir.as_deref())?;
    let planned = plan::plan(count, args.base_port, &dir)?;
    nodes::check_ports(&planned)?;
    let outcome = runtime.block_on(async {
        // Before the first node is started: from now on a signal leaves no node behind.
        let mut interrupted = Interrupted::new()?;
        let mut group = Nodes::start(planned)?;
        let outcome = attend(&mut group, &mut interrupted, args.check).await;
        // Nothing else runs on this runtime that blocking could delay.
        group.stop();
        outcome
    });
    // An interrupted check may still wait for an answer; nobody needs it.
    runtime.shutdown_background();
    outcome
}

/// Checks the group, then stays with it unless only the check was asked for.
async fn attend(group: &mut Nodes, interrupted: &mut Interrupted, check_only: bool) -> CliResult {
    println!(
        "starting {} nodes (pids {}), files in {}",
        group.nodes.len(),
        group
            .pids()
            .iter()
            .map(u32::to_string)
            .collect::<Vec<_>>()
            .join(", "),
        group.nodes[0]
            .dir
            .parent()
            .unwrap_or(Path::new("/"))
            .display()
    );
    let nodes = group.nodes.clone();
    let mut checking = tokio::task::spawn_blocking(move || check_group(&nodes, &topic_name()));
    let passed = loop {
        tokio::select! {
            done = &mut checking => break done.map_err(|_| CliError::new("the check panicked"))??,
            () = interrupted.wait() => return Err(CliError::new("interrupted")),
            () = tokio::time::sleep(LOOK_AFTER) => {
                if let Some(line) = group.newly_ended().pop() {
                    return Err(CliError::new(line));
                }
            }
        }
    };
    if !passed {
        return Ok(ExitCode::FAILURE);
    }
    if check_only {
        return Ok(ExitCode::SUCCESS);
    }
    println!("\n{}", how_to_connect(&group.nodes));
    loop {
        tokio::select! {
            () = interrupted.wait() => return Ok(ExitCode::SUCCESS),
            () = tokio::time::sleep(LOOK_AFTER) => {
                for line in group.newly_ended() {
                    println!("{line}");
                }
            }
        }
    }
}

fn directory(dir: Option<&Path>) -> Result<(PathBuf, Option<tempfile::TempDir>), CliError> {
    match dir {
        Some(dir) => {
            let absolute = std::path::absolute(dir)
                .map_err(|e| CliError::new(format!("--dir {}: {e}", dir.display())))?;
            Ok((absolute, None))
        }
        None => {
            let made = tempfile::Builder::new()
                .prefix("quorumlog-cluster-")
                .tempdir()
                .map_err(|e| {
                    CliError::new(format!(
                        "no temporary directory can be made: {e}. Name one with --dir"
                    ))
                })?;
            Ok((made.path().to_path_buf(), Some(made)))
        }
    }
}

/// A name that no earlier check has used.
fn topic_name() -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format!("ClusterCheck-{}-{}", std::process::id(), now.as_millis())
}

/// Waits until the group serves, checks it, prints the table. True when everything was read back.
fn check_group(nodes: &[Node], topic: &str) -> Result<bool, CliError> {
    check::wait_serving(nodes)?;
    let sent = check::send_all(nodes, topic)?;
    let read: Vec<ReadBack> = nodes
        .iter()
        .map(|node| check::read_back(node, topic, &sent))
        .collect();
    let figures = check::wait_serving(nodes)?;
    print!("{}", render(nodes, &figures, sent.len(), &read));
    let mut passed = true;
    for result in &read {
        let problem = match (&result.problem, result.read) {
            (Some(problem), _) => problem.clone(),
            (None, read) if read != check::MESSAGES => format!("{read} messages were read"),
            (None, _) => continue,
        };
        passed = false;
        println!("{}: {problem}", result.node);
    }
    Ok(passed)
}

fn render(nodes: &[Node], figures: &[Figures], sent: usize, read: &[ReadBack]) -> String {
    let rows: Vec<Vec<String>> = nodes
        .iter()
        .zip(figures)
        .zip(read)
        .map(|((node, figures), read)| {
            vec![
                node_name(figures.node),
                figures.role.clone(),
                figures.term.to_string(),
                node.address(),
                node.namesrv(),
                format!(
                    "{} / {}",
                    table::thousands(sent as u64),
                    table::thousands(read.read as u64)
                ),
            ]
        })
        .collect();
    table::render(
        &[
            "NODE",
            "ROLE",
            "TERM",
            "ADDRESS",
            "NAME SERVER",
            "SENT / READ BACK",
        ],
        &rows,
    )
}

/// How clients of the usual kinds are pointed at the group.
fn how_to_connect(nodes: &[Node]) -> String {
    let servers: Vec<String> = nodes.iter().map(Node::namesrv).collect();
    let list = servers.join(";");
    let quoted: Vec<String> = servers.iter().map(|s| format!("\"{s}\"")).collect();
    format!(
        "connect with any RocketMQ client:\n  \
         Java     producer.setNamesrvAddr(\"{list}\");\n  \
         Go       producer.WithNsResolver(primitive.NewPassthroughResolver([]string{{{}}}))\n  \
         C++      producer.setNamesrvAddr(\"{list}\");\n  \
         Python   producer.set_name_server_address(\"{list}\")\n\
         who leads:     quorumlog status --namesrv {}\n\
         put load on:   quorumlog bench produce --namesrv {} -c 64 -i 16\n\
         The group runs until Ctrl-C.",
        quoted.join(", "),
        servers[0],
        servers[0],
    )
}

/// SIGINT and SIGTERM.
struct Interrupted {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Interrupted {
    fn new() -> Result<Interrupted, CliError> {
        let listen = |kind| {
            signal(kind).map_err(|e| CliError::new(format!("signals cannot be received: {e}")))
        };
        Ok(Interrupted {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_each_node_and_what_was_read_there() {
        let nodes = plan::plan(1, plan::BASE_PORT, Path::new("/d")).unwrap();
        let figures = [Figures {
            node: 1,
            role: "leader".into(),
            term: 3,
            ..Figures::default()
        }];
        let read = [ReadBack {
            node: "n0".into(),
            read: 1000,
            problem: None,
        }];
        assert_eq!(
            render(&nodes, &figures, 1000, &read),
            "NODE  ROLE    TERM  ADDRESS          NAME SERVER     SENT / READ BACK\n\
             n0    leader  3     127.0.0.1:30911  127.0.0.1:9876  1,000 / 1,000\n"
        );
    }

    #[test]
    fn clients_are_told_all_name_servers() {
        let nodes = plan::plan(3, plan::BASE_PORT, Path::new("/d")).unwrap();
        let text = how_to_connect(&nodes);
        assert!(text.contains("setNamesrvAddr(\"127.0.0.1:9876;127.0.0.1:9877;127.0.0.1:9878\")"));
        assert!(
            text.contains("[]string{\"127.0.0.1:9876\", \"127.0.0.1:9877\", \"127.0.0.1:9878\"}")
        );
    }
}
