//! Client scripts as child processes that report by JSON lines and stop when their input ends.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The Python of a virtual environment that has the client installed. Made once a build directory.
pub fn python() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().expect("nobody panics while installing");
    MADE.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cpp-client");
        let python = dir.join("bin/python");
        if !python.exists() {
            run(Command::new("python3").args(["-m", "venv"]).arg(&dir));
        }
        let requirements = scripts().join("requirements.txt");
        run(Command::new(&python)
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "-r",
            ])
            .arg(requirements));
        python
    })
    .clone()
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{errors}",
        output.status
    );
}

/// A running script and what it has reported so far.
pub struct Script {
    process: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Value>,
    pub rows: Vec<Value>,
}

impl Script {
    /// Starts a script and waits until it says that its client has started. Logs of the client itself go
    /// to `home`.
    pub fn start(name: &str, arguments: &[&str], home: &Path) -> Script {
        let mut process = Command::new(python())
            .arg(scripts().join(name))
            .args(arguments)
            .env("HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the script starts");
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The client's library prints lines of its own.
                if let Ok(row) = serde_json::from_str(&line)
                    && sender.send(row).is_err()
                {
                    return;
                }
            }
        });
        let mut script = Script {
            process,
            input,
            lines,
            rows: Vec::new(),
        };
        script.wait(Duration::from_secs(60), |rows| {
            rows.iter().any(|row| row["started"] == true)
        });
        script.rows.clear();
        script
    }

    /// Waits until what was reported satisfies `enough`.
    pub fn wait(&mut self, within: Duration, enough: impl Fn(&[Value]) -> bool) {
        let begun = Instant::now();
        while !enough(&self.rows) {
            let left = within.saturating_sub(begun.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(row) => self.rows.push(row),
                Err(RecvTimeoutError::Timeout) => {
                    panic!(
                        "after {within:?} only {} reports, the last: {:?}",
                        self.rows.len(),
                        self.rows.last()
                    )
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!(
                        "the script ended after {} reports: {:?}",
                        self.rows.len(),
                        self.process.wait()
                    )
                }
            }
        }
    }

    /// Ends the script's input, waits for its end, and returns everything it reported.
    pub fn finish(mut self) -> Vec<Value> {
        drop(self.input.take());
        self.wait(Duration::from_secs(60), |rows| {
            rows.iter().any(|row| row["done"] == true)
        });
        self.rows.retain(|row| row["done"] != true);
        std::mem::take(&mut self.rows)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // It has usually ended by itself; both calls fail then.
        let _ended = self.process.kill();
        let _ended = self.process.wait();
    }
}
