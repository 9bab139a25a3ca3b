//! Ends and errors at chosen system calls, by strace.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Launch, RigError};

const ATTACHES_WITHIN: Duration = Duration::from_secs(10);

/// Starts a node so that its process is killed right before its `nth` call of `syscall` (counted from its
/// start, all threads together). `-D`: the tracer is the grandchild, so that signals reach the node itself.
pub fn killed_at(syscall: &str, nth: usize) -> Launch {
    let wrapper = [
        "strace".to_owned(),
        "-D".to_owned(),
        "-f".to_owned(),
        "-qqq".to_owned(),
        "-o".to_owned(),
        "/dev/null".to_owned(),
        "-e".to_owned(),
        format!("trace={syscall}"),
        "-e".to_owned(),
        format!("inject={syscall}:signal=KILL:when={nth}"),
    ];
    Launch {
        wrapper: wrapper.to_vec(),
        environment: Vec::new(),
    }
}

/// A tracer at a running process. Dropping it lets the process go on without.
pub struct Tracer {
    child: Child,
}

impl Tracer {
    /// Attaches to every thread of `pid` and injects as strace writes it (`fdatasync:error=EIO:when=1`).
    /// Returns when the process is traced.
    pub fn attach(pid: u32, syscall: &str, inject: &str) -> Result<Tracer, RigError> {
        let child = Command::new("strace")
            .args(["-f", "-qqq", "-o", "/dev/null", "-p", &pid.to_string()])
            .args(["-e", &format!("trace={syscall}")])
            .args(["-e", &format!("inject={syscall}:{inject}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(RigError::io("strace cannot be started"))?;
        let tracer = Tracer { child };
        let begun = Instant::now();
        while !is_traced(pid) {
            if begun.elapsed() > ATTACHES_WITHIN {
                let late = std::io::ErrorKind::TimedOut.into();
                return Err(RigError::io(format!("strace at {pid}"))(late));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(tracer)
    }
}

/// Whether a process is traced, or has ended because of it.
fn is_traced(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => status
            .lines()
            .filter_map(|line| line.strip_prefix("TracerPid:"))
            .any(|tracer| tracer.trim() != "0"),
        Err(_) => true,
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // Both fail only for a tracer that has ended with its process.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}
