//! Limits of memory and processor time for one process, by cgroups of version 1. Names carry the process id,
//! so that what a killed run left behind is found and removed by the next one.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::RigError;

const ROOT: &str = "/sys/fs/cgroup";
const PREFIX: &str = "qlog";
/// A cgroup cannot be removed before its processes are really gone.
const EMPTIES_WITHIN: Duration = Duration::from_secs(5);

/// One cgroup of one controller; removed when dropped. Its processes must have ended, or have moved.
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// A cgroup that limits memory: whatever is touched from now on counts, and beyond `bytes` the process is
    /// killed.
    pub fn memory(name: &str, bytes: u64) -> Result<Cgroup, RigError> {
        let cgroup = Cgroup::create("memory", name)?;
        cgroup.write("memory.limit_in_bytes", &bytes.to_string())?;
        Ok(cgroup)
    }

    /// A cgroup that gives `percent` of one processor, in slices of 100 ms.
    pub fn processor(name: &str, percent: u32) -> Result<Cgroup, RigError> {
        let cgroup = Cgroup::create("cpu", name)?;
        cgroup.write("cpu.cfs_period_us", "100000")?;
        cgroup.write("cpu.cfs_quota_us", &(percent * 1000).to_string())?;
        Ok(cgroup)
    }

    fn create(controller: &str, name: &str) -> Result<Cgroup, RigError> {
        let name = format!("{PREFIX}{}-{name}", std::process::id());
        let path = Path::new(ROOT).join(controller).join(name);
        std::fs::create_dir_all(&path).map_err(RigError::io(path.display().to_string()))?;
        Ok(Cgroup { path })
    }

    /// Moves a process in.
    pub fn take(&self, pid: u32) -> Result<(), RigError> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// Processes that were killed because the memory was used up.
    pub fn oom_kills(&self) -> Result<u64, RigError> {
        let path = self.path.join("memory.oom_control");
        let text =
            std::fs::read_to_string(&path).map_err(RigError::io(path.display().to_string()))?;
        let kills = text
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill "))
            .and_then(|count| count.trim().parse().ok());
        Ok(kills.unwrap_or(0))
    }

    fn write(&self, file: &str, value: &str) -> Result<(), RigError> {
        let path = self.path.join(file);
        std::fs::write(&path, value).map_err(RigError::io(path.display().to_string()))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        release(&self.path);
    }
}

/// Moves the processes of a cgroup out and removes it.
fn release(path: &Path) {
    let begun = Instant::now();
    let parent = path.parent().map(|parent| parent.join("cgroup.procs"));
    while std::fs::remove_dir(path).is_err() && begun.elapsed() < EMPTIES_WITHIN {
        let pids = std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        for pid in pids.lines() {
            if let Some(parent) = &parent {
                // One that has ended meanwhile cannot be moved.
                let _gone = std::fs::write(parent, pid);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Removes the cgroups of runs that are no longer alive; returns their names.
pub(super) fn remove_leftovers() -> Vec<String> {
    let mut removed = Vec::new();
    for controller in ["memory", "cpu"] {
        let entries = std::fs::read_dir(Path::new(ROOT).join(controller));
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if super::leftover::is_of_a_dead_run(&name, PREFIX) {
                release(&entry.path());
                removed.push(format!("{controller}/{name}"));
            }
        }
    }
    removed
}
