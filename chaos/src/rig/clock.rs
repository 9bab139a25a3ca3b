//! The wall clock as one process sees it: jumps while it runs. The monotonic clock and every other process
//! keep the real time. By the preloaded library libfaketime.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Launch, RigError};

/// The library's thread-safe form, where Debian's package `libfaketime` puts it.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// The wall clock of the processes that were started with [`WallClock::apply`].
#[derive(Debug)]
pub struct WallClock {
    path: PathBuf,
    written: AtomicU64,
}

impl WallClock {
    /// A clock that shows the real time until it jumps. The file `path` drives it.
    pub fn create(path: &Path) -> Result<WallClock, RigError> {
        std::fs::metadata(LIBRARY).map_err(RigError::io(format!(
            "{LIBRARY} (install the package faketime)"
        )))?;
        let clock = WallClock {
            path: path.to_owned(),
            written: AtomicU64::new(0),
        };
        clock.set("+0")?;
        Ok(clock)
    }

    /// What a process's environment needs to see this clock.
    pub fn environment(&self) -> Vec<(String, String)> {
        [
            ("LD_PRELOAD", LIBRARY.to_owned()),
            (
                "FAKETIME_TIMESTAMP_FILE",
                self.path.to_string_lossy().into_owned(),
            ),
            // A jump is seen at the next look at the clock.
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            // File times stay real, and a library that answers `stat` itself is one more thing to go wrong.
            ("NO_FAKE_STAT", "1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// Lets a node see this clock from its next start on.
    pub fn apply(&self, launch: &mut Launch) {
        launch.environment.extend(self.environment());
    }

    /// From now on the clock is `by` ahead of the real time.
    pub fn ahead(&self, by: Duration) -> Result<(), RigError> {
        self.set(&format!("+{}", by.as_secs()))
    }

    /// From now on the clock is `by` behind the real time.
    pub fn behind(&self, by: Duration) -> Result<(), RigError> {
        self.set(&format!("-{}", by.as_secs()))
    }

    /// Back to the real time.
    pub fn right(&self) -> Result<(), RigError> {
        self.set("+0")
    }

    /// The file is replaced as a whole: a half-written one would be taken for the year 1970.
    fn set(&self, offset: &str) -> Result<(), RigError> {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let beside = self.path.with_extension(format!("{number}.tmp"));
        std::fs::write(&beside, format!("{offset}\n"))
            .and_then(|()| std::fs::rename(&beside, &self.path))
            .map_err(RigError::io(self.path.display().to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    fn real() -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        i64::try_from(since.as_secs()).unwrap()
    }

    /// Seconds by which `date` sees another time than this process.
    fn seen(clock: &WallClock) -> i64 {
        let mut date = std::process::Command::new("date");
        date.arg("+%s").envs(clock.environment());
        let text = String::from_utf8(date.output().unwrap().stdout).unwrap();
        text.trim().parse::<i64>().unwrap() - real()
    }

    #[test]
    #[ignore = "needs libfaketime"]
    fn a_process_sees_the_jumps_and_nobody_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let clock = WallClock::create(&dir.path().join("clock")).unwrap();
        let hour = Duration::from_secs(3600);
        assert!(seen(&clock).abs() <= 1);
        clock.ahead(hour).unwrap();
        assert!((seen(&clock) - 3600).abs() <= 1);
        clock.behind(10 * 365 * 24 * hour).unwrap();
        assert!((seen(&clock) + 10 * 365 * 24 * 3600).abs() <= 1);
        clock.right().unwrap();
        assert!(seen(&clock).abs() <= 1);
    }
}
