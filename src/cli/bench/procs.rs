//! CPU time and memory of processes, from /proc.

use serde::Serialize;

/// What a process has used so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub pid: u32,
    pub cpu_us: u64,
    pub rss_bytes: u64,
}

/// What a process used in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Usage {
    pub pid: u32,
    pub cpu_us_per_message: f64,
    pub rss_bytes: u64,
}

/// Samples all of the processes; one that is gone is an error that names it.
pub(super) fn sample(pids: &[u32]) -> Result<Vec<Sample>, String> {
    pids.iter().map(|pid| one(*pid)).collect()
}

fn one(pid: u32) -> Result<Sample, String> {
    let read = |name: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/{name}"))
            .map_err(|error| format!("process {pid} (--pids) cannot be looked at: {error}"))
    };
    let odd = |what: &str| format!("/proc/{pid}/{what} is not as expected");
    let ticks = cpu_ticks(&read("stat")?).ok_or_else(|| odd("stat"))?;
    let rss_kib = rss_kib(&read("status")?).ok_or_else(|| odd("status"))?;
    Ok(Sample {
        pid,
        cpu_us: ticks * 1_000_000 / rustix::param::clock_ticks_per_second().max(1),
        rss_bytes: rss_kib * 1024,
    })
}

/// User and system ticks in a `/proc/PID/stat` line. The name in brackets may hold blanks and brackets.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let behind_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = behind_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn rss_kib(status: &str) -> Option<u64> {
    let line = status.lines().find(|l| l.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Usage between two samples of the same processes, per message.
pub(super) fn usage(before: &[Sample], after: &[Sample], messages: u64) -> Vec<Usage> {
    before
        .iter()
        .zip(after)
        .map(|(before, after)| Usage {
            pid: after.pid,
            cpu_us_per_message: per_message(after.cpu_us.saturating_sub(before.cpu_us), messages),
            rss_bytes: after.rss_bytes,
        })
        .collect()
}

fn per_message(cpu_us: u64, messages: u64) -> f64 {
    cpu_us as f64 / messages.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_a_name_with_blanks_and_brackets() {
        let stat = "42 (a b) c) S 1 2 3 4 5 6 7 8 9 10 100 23 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu_ticks(stat), Some(123));
        assert_eq!(cpu_ticks("42 (x"), None);
    }

    #[test]
    fn resident_memory_is_read_in_kib() {
        assert_eq!(rss_kib("Name:\tx\nVmRSS:\t    2048 kB\n"), Some(2048));
        assert_eq!(rss_kib("Name:\tx\n"), None);
    }

    #[test]
    fn this_process_can_be_sampled_and_a_missing_one_is_named() {
        let own = sample(&[std::process::id()]).unwrap();
        assert!(own[0].rss_bytes > 0);
        let error = sample(&[u32::MAX]).unwrap_err();
        assert!(error.contains("4294967295"), "{error}");
    }

    #[test]
    fn usage_is_the_difference_per_message() {
        let at = |cpu_us| Sample {
            pid: 7,
            cpu_us,
            rss_bytes: 4096,
        };
        let used = usage(&[at(1_000)], &[at(5_000)], 400);
        assert_eq!(used[0].cpu_us_per_message, 10.0);
        assert_eq!(usage(&[at(0)], &[at(10)], 0)[0].cpu_us_per_message, 10.0);
    }
}
