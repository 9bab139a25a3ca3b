//! Failures of single system calls of a running process, by strace: an error, a delay, a kill
//! at the nth call. Ends when the guard is dropped; the process then goes on untouched.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::RigError;

const ATTACHED_WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// What happens to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is not made and returns this error, by name: `EIO`.
    Error(&'static str),
    /// It begins late.
    Delay(Duration),
    /// It is made, and comes back late.
    Linger(Duration),
    /// The process is killed when it makes the call.
    Kill,
}

/// Which calls fail, and how.
#[derive(Clone, Debug)]
pub struct Fault {
    /// As strace names them, with commas between: `fdatasync`, `pwrite64,pwritev`.
    pub calls: String,
    pub effect: Effect,
    /// `1` the first, `3+` from the third on, `1+2` every other one.
    pub when: String,
    /// Only calls on these files; empty: on any.
    pub files: Vec<PathBuf>,
}

impl Fault {
    /// Every call of these.
    pub fn new(calls: &str, effect: Effect) -> Fault {
        Fault {
            calls: calls.to_owned(),
            effect,
            when: "1+".to_owned(),
            files: Vec::new(),
        }
    }

    /// Only some of them, see [`Fault::when`].
    pub fn when(mut self, when: &str) -> Fault {
        self.when = when.to_owned();
        self
    }

    /// Only on this file; more than one may be named.
    pub fn on(mut self, file: &Path) -> Fault {
        self.files.push(file.to_owned());
        self
    }

    fn arguments(&self) -> Vec<String> {
        let effect = match &self.effect {
            Effect::Error(name) => format!("error={name}"),
            Effect::Linger(by) => format!("delay_exit={}", by.as_micros()),
            Effect::Delay(by) => format!("delay_enter={}", by.as_micros()),
            Effect::Kill => "signal=SIGKILL".to_owned(),
        };
        let mut arguments = vec![
            "-e".to_owned(),
            format!("trace={}", self.calls),
            "-e".to_owned(),
            format!("inject={}:{effect}:when={}", self.calls, self.when),
        ];
        for file in &self.files {
            arguments.push("-P".to_owned());
            arguments.push(file.to_string_lossy().into_owned());
        }
        arguments
    }

    /// Puts the fault into a running process. Returns when all of its threads are watched, or when it has ended
    /// by the fault already.
    pub fn inject(&self, pid: u32) -> Result<Injected, RigError> {
        let mut command = Command::new("strace");
        command
            .args(["-f", "-qq", "-o", "/dev/null", "-p", &pid.to_string()])
            .args(self.arguments());
        let strace = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(RigError::io("strace cannot be started"))?;
        let mut injected = Injected { strace };
        let begun = Instant::now();
        while !is_traced(pid) {
            let ended = injected.strace.try_wait().ok().flatten();
            if ended.is_some_and(|status| status.success()) {
                // The fault took hold at once, and the process is no more.
                return Ok(injected);
            }
            if ended.is_some() || begun.elapsed() > ATTACHED_WITHIN {
                let words = std::io::Error::other(injected.words());
                return Err(RigError::io(format!("strace on process {pid}"))(words));
            }
            std::thread::sleep(POLL);
        }
        Ok(injected)
    }
}

/// Are all threads of the process being traced?
fn is_traced(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    let mut count = 0;
    for thread in threads.flatten() {
        let Ok(status) = std::fs::read_to_string(thread.path().join("status")) else {
            continue;
        };
        let tracer = status
            .lines()
            .find_map(|line| line.strip_prefix("TracerPid:"))
            .map(str::trim);
        if tracer.is_none_or(|tracer| tracer == "0") {
            return false;
        }
        count += 1;
    }
    count > 0
}

/// A fault in place while this lives.
#[derive(Debug)]
pub struct Injected {
    strace: Child,
}

impl Injected {
    fn words(&mut self) -> String {
        let _ended = self.strace.kill();
        let mut words = String::new();
        if let Some(mut errors) = self.strace.stderr.take() {
            let _read = std::io::Read::read_to_string(&mut errors, &mut words);
        }
        words.trim().to_owned()
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        if let Ok(Some(_)) = self.strace.try_wait() {
            return;
        }
        // By a signal that it can handle, strace lets the process go first.
        let pid = rustix::process::Pid::from_child(&self.strace);
        let _asked = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let begun = Instant::now();
        while begun.elapsed() < ATTACHED_WITHIN {
            if let Ok(Some(_)) = self.strace.try_wait() {
                return;
            }
            std::thread::sleep(POLL);
        }
        let _ended = self.strace.kill();
        let _ended = self.strace.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};

    use super::*;

    /// A shell that appends a line to a file whenever it is told to, and says whether that worked.
    struct Writer {
        shell: Child,
        answers: BufReader<std::process::ChildStdout>,
    }

    impl Writer {
        fn start(path: &Path) -> Writer {
            let script = "while read line; do printf '%s' \"$line\" >> \"$0\" && echo ok || echo failed; done";
            let mut shell = Command::new("dash")
                .args(["-c", script])
                .arg(path)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let answers = BufReader::new(shell.stdout.take().unwrap());
            Writer { shell, answers }
        }

        fn write(&mut self, text: &str) -> String {
            writeln!(self.shell.stdin.as_mut().unwrap(), "{text}").unwrap();
            let mut answer = String::new();
            self.answers.read_line(&mut answer).unwrap();
            answer.trim().to_owned()
        }
    }

    impl Drop for Writer {
        fn drop(&mut self) {
            let _ended = self.shell.kill();
            let _ended = self.shell.wait();
        }
    }

    #[test]
    #[ignore = "needs strace and the right to attach"]
    fn calls_fail_while_the_fault_is_in_place_and_only_on_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let other = dir.path().join("other");
        std::fs::write(&other, "").unwrap();
        let mut writer = Writer::start(&path);
        assert_eq!(writer.write("a"), "ok");
        let elsewhere = Fault::new("write", Effect::Error("EIO")).on(&other);
        let injected = elsewhere.inject(writer.shell.id()).unwrap();
        assert_eq!(writer.write("b"), "ok");
        drop(injected);
        let fault = Fault::new("write", Effect::Error("EIO")).on(&path);
        let injected = fault.inject(writer.shell.id()).unwrap();
        assert_eq!(writer.write("c"), "failed");
        drop(injected);
        assert_eq!(writer.write("d"), "ok");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "abd");
    }

    #[test]
    #[ignore = "needs strace and the right to attach"]
    fn only_the_call_that_was_named_fails() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut writer = Writer::start(&path);
        let fault = Fault::new("write", Effect::Error("ENOSPC"))
            .when("2")
            .on(&path);
        let _injected = fault.inject(writer.shell.id()).unwrap();
        let answers: Vec<String> = ["a", "b", "c"].map(|text| writer.write(text)).into();
        assert_eq!(answers, ["ok", "failed", "ok"]);
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let fault = Fault::new("write", Effect::Error("EIO"));
        // Process ids are below 2^22.
        let error = fault.inject(1 << 30).unwrap_err().to_string();
        assert!(
            error.contains("1073741824") || error.contains("cannot be started"),
            "{error}"
        );
    }
}
