//! `quorumlog bench disk`: what one synced append costs here, and how fast synced writes run in a row.
//!
//! Figures of a broker that syncs before it acknowledges mean little without these two beside them.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::DiskArgs;
use super::report::Latency;
use crate::cli::{CliError, CliResult};

const APPEND_BYTES: usize = 1024;
const BLOCK_BYTES: usize = 1024 * 1024;
/// Preallocated bytes, as for a log segment; both measurements begin again at the front when it is full.
const FILE_BYTES: u64 = 256 * 1024 * 1024;

#[derive(Debug, PartialEq, Serialize)]
struct DiskReport {
    dir: String,
    appends: u64,
    append_bytes: usize,
    /// Write of 1 KiB at the end of what was written, and fdatasync.
    append: Latency,
    blocks: u64,
    /// 10^6 bytes a second, 1 MiB writes with an fdatasync each.
    synced_mb_per_s: f64,
}

pub(super) fn run(args: &DiskArgs) -> CliResult {
    let file = Scratch::new(&args.dir)?;
    let limit = Duration::from_secs_f64(args.duration.max(0.1));
    let fail = |error: std::io::Error| {
        CliError::new(format!(
            "{} cannot be written: {error}",
            file.path.display()
        ))
    };
    let appended = synced_writes(&file.file, APPEND_BYTES, limit).map_err(fail)?;
    let blocks = synced_writes(&file.file, BLOCK_BYTES, limit).map_err(fail)?;
    let report = DiskReport {
        dir: args.dir.display().to_string(),
        appends: appended.micros.len(),
        append_bytes: APPEND_BYTES,
        append: Latency::of(&appended.micros),
        blocks: blocks.micros.len(),
        synced_mb_per_s: blocks.micros.len() as f64 * BLOCK_BYTES as f64 / blocks.seconds / 1e6,
    };
    match serde_json::to_string(&report) {
        Ok(text) if args.json => println!("{text}"),
        _ => println!("{}", text(&report)),
    }
    Ok(ExitCode::SUCCESS)
}

fn text(report: &DiskReport) -> String {
    format!(
        "disk of {}\n  1 KiB append + fdatasync, preallocated: p50 {:.3} ms  p99 {:.3} ms  max {:.3} ms  ({} of them)\n  \
         1 MiB writes, each with fdatasync: {:.0} MB/s  ({} of them)",
        report.dir,
        report.append.p50_ms,
        report.append.p99_ms,
        report.append.max_ms,
        report.appends,
        report.synced_mb_per_s,
        report.blocks
    )
}

struct Measured {
    micros: Histogram<u64>,
    seconds: f64,
}

fn synced_writes(file: &File, bytes: usize, limit: Duration) -> std::io::Result<Measured> {
    let block = vec![0x5a; bytes];
    let mut micros =
        Histogram::new_with_bounds(1, 120_000_000, 3).map_err(std::io::Error::other)?;
    let start = Instant::now();
    let mut offset = 0;
    while start.elapsed() < limit {
        let begun = Instant::now();
        file.write_all_at(&block, offset)?;
        file.sync_data()?;
        micros.saturating_record((begun.elapsed().as_micros() as u64).max(1));
        offset = (offset + bytes as u64) % FILE_BYTES;
    }
    Ok(Measured {
        micros,
        seconds: start.elapsed().as_secs_f64().max(1e-9),
    })
}

/// A preallocated file that is removed again.
struct Scratch {
    path: PathBuf,
    file: File,
}

impl Scratch {
    fn new(dir: &Path) -> Result<Scratch, CliError> {
        let path = dir.join(format!("quorumlog-bench-{}.tmp", std::process::id()));
        let fail = |error: std::io::Error| {
            CliError::new(format!(
                "{} cannot be made: {error}. Name a writable directory with 256 MiB free (--dir)",
                path.display()
            ))
        };
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(fail)?;
        let scratch = Scratch {
            path: path.clone(),
            file,
        };
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&scratch.file, flags, 0, FILE_BYTES)
            .map_err(std::io::Error::from)
            .and_then(|()| scratch.file.sync_all())
            .map_err(fail)?;
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Whoever removed it first did our work.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let args = DiskArgs {
            dir: dir.path().to_path_buf(),
            duration: 0.1,
            json: true,
        };
        run(&args).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_is_not_there_is_named_with_the_flag() {
        let args = DiskArgs {
            dir: "/no/such/dir".into(),
            duration: 0.1,
            json: false,
        };
        let error = run(&args).unwrap_err().to_string();
        assert!(
            error.contains("/no/such/dir") && error.contains("--dir"),
            "{error}"
        );
    }
}
