//! What runs that were killed left behind. Everything that outlives a process has its id in the name.

use rustix::process::{Pid, Signal, kill_process};

use super::{RigError, cgroup, netns};

/// Environment variable of every node: the process that started it. A node ends with that process by itself,
/// unless it stands still.
pub(super) const OWNER: &str = "QUORUMLOG_CHAOS_OWNER";
const PREFIX: &str = "qlog";

/// Ends and removes it; returns the names of what there was.
pub fn remove_leftovers() -> Result<Vec<String>, RigError> {
    let mut removed = end_nodes();
    removed.extend(netns::remove_leftovers()?);
    removed.extend(cgroup::remove_leftovers());
    Ok(removed)
}

/// What [`OWNER`] is for nodes started by this process.
pub(super) fn owner() -> String {
    format!("{PREFIX}{}-node", std::process::id())
}

/// Kills nodes whose owner is gone.
fn end_nodes() -> Vec<String> {
    let mut ended = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.parse().ok().and_then(Pid::from_raw) else {
            continue;
        };
        // That of another user, or of a process that ended meanwhile, cannot be read.
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let of_a_dead_run = environment
            .split(|byte| *byte == 0)
            .filter_map(|line| std::str::from_utf8(line).ok()?.strip_prefix(OWNER))
            .filter_map(|line| line.strip_prefix('='))
            .any(|owner| is_of_a_dead_run(owner, PREFIX));
        if of_a_dead_run && kill_process(pid, Signal::KILL).is_ok() {
            ended.push(format!("process {name}"));
        }
    }
    ended
}

/// Whether a name is `prefix`, the id of a process that is gone, and more behind a dash.
pub(super) fn is_of_a_dead_run(name: &str, prefix: &str) -> bool {
    let owner = name
        .strip_prefix(prefix)
        .and_then(|rest| rest.split_once('-'))
        .and_then(|(pid, _)| pid.parse::<u32>().ok());
    owner.is_some_and(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_processes_that_are_gone_are_leftovers() {
        let own = format!("qlog{}-x", std::process::id());
        assert!(!is_of_a_dead_run(&own, "qlog"));
        // Above the largest process id of Linux.
        assert!(is_of_a_dead_run("qlog4194305-0-n1", "qlog"));
        for name in ["qlog4194305", "other4194305-x", "qlog-x", "qlogx-1"] {
            assert!(!is_of_a_dead_run(name, "qlog"), "{name}");
        }
    }
}
