//! What a process takes and holds, as the kernel says it, and its limit of open files.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::RigError;

/// Processor time that a process has used so far, all threads together.
pub fn processor_time(pid: u32) -> Result<Duration, RigError> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).map_err(RigError::io(path.clone()))?;
    // The name in brackets may hold spaces; user and system time are the 12th and 13th word behind it.
    let behind = text.rsplit_once(')').map_or("", |(_, behind)| behind);
    let ticks = |at: usize| {
        let word = behind.split_whitespace().nth(at)?;
        word.parse::<u64>().ok()
    };
    let Some(total) = ticks(11).zip(ticks(12)).map(|(user, system)| user + system) else {
        let short = std::io::Error::other("no processor times in it");
        return Err(RigError::io(path)(short));
    };
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Ok(Duration::from_millis(total * 1000 / per_second))
}

/// Sets how many files a running process may have open; the hard limit stays. Returns the old one.
pub fn limit_files(pid: u32, limit: u64) -> Result<u64, RigError> {
    let what = || format!("the limit of open files of process {pid}");
    let pid_of = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let gone = || RigError::io(what())(std::io::ErrorKind::NotFound.into());
    let pid_of = pid_of.ok_or_else(gone)?;
    let failed = |error: rustix::io::Errno| RigError::io(what())(error.into());
    let old = rustix::process::getrlimit(Resource::Nofile);
    let maximum = read_hard_limit(pid).unwrap_or(old.maximum);
    let new = Rlimit {
        current: Some(limit),
        maximum,
    };
    let before = prlimit(Some(pid_of), Resource::Nofile, new).map_err(failed)?;
    Ok(before.current.unwrap_or(u64::MAX))
}

/// The hard limit of a process; outside `None`: not readable, inside `None`: there is none.
fn read_hard_limit(pid: u32) -> Option<Option<u64>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("Max open files"))?;
    let word = line.split_whitespace().nth(4)?;
    Some(word.parse().ok())
}

/// Lets the most memory that a process had resident be measured from now on.
pub fn reset_peak(pid: u32) -> Result<(), RigError> {
    let path = format!("/proc/{pid}/clear_refs");
    std::fs::write(&path, "5").map_err(RigError::io(path))
}

/// The most memory that a process had resident since [`reset_peak`], bytes.
pub fn peak(pid: u32) -> Result<u64, RigError> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).map_err(RigError::io(path.clone()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let word = line.and_then(|line| line.split_whitespace().next());
    let kib = word.and_then(|word| word.parse::<u64>().ok());
    let missing = || RigError::io(path)(std::io::Error::other("no line VmHWM"));
    Ok(kib.ok_or_else(missing)? * 1024)
}

/// Regular files that a process has open.
pub fn open_files(pid: u32) -> Result<Vec<PathBuf>, RigError> {
    let path = format!("/proc/{pid}/fd");
    let entries = std::fs::read_dir(&path).map_err(RigError::io(path.clone()))?;
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(RigError::io(path.clone()))?;
        // A descriptor may be closed between the two calls.
        if let Ok(target) = std::fs::read_link(entry.path())
            && target.is_absolute()
            && !target.starts_with("/dev")
        {
            files.push(target);
        }
    }
    files.sort();
    Ok(files)
}

/// Processes that a process has started and that live.
pub fn children(pid: u32) -> Result<Vec<u32>, RigError> {
    let path = format!("/proc/{pid}/task");
    let entries = std::fs::read_dir(&path).map_err(RigError::io(path.clone()))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(RigError::io(path.clone()))?;
        // A thread may end between the two calls.
        let text = std::fs::read_to_string(entry.path().join("children")).unwrap_or_default();
        found.extend(
            text.split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_seen_to_work_to_open_files_and_to_start_others() {
        let me = std::process::id();
        let before = processor_time(me).unwrap();
        let begun = std::time::Instant::now();
        while processor_time(me).unwrap() < before + Duration::from_millis(50) {
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
        reset_peak(me).unwrap();
        let before = peak(me).unwrap();
        let taken = vec![1_u8; 64 << 20];
        assert!(peak(me).unwrap() >= before + (32 << 20), "{}", taken.len());
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(open_files(me).unwrap().contains(&file.path().to_owned()));
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        assert!(children(me).unwrap().contains(&child.id()));
        let old = limit_files(child.id(), 64).unwrap();
        assert_eq!(limit_files(child.id(), old).unwrap(), 64);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
