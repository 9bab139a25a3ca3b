//! Programs of the system (ip, nft, mount ...), run to their end, with their words as the error.

use std::io::Write as _;
use std::process::Stdio;

use super::RigError;

/// A program and its arguments.
pub struct Command {
    command: std::process::Command,
    input: Vec<u8>,
}

/// Prepares a call of `program`; `words` are its arguments, separated by spaces.
pub fn tool(program: &str, words: &str) -> Command {
    let mut command = std::process::Command::new(program);
    command.args(words.split_whitespace());
    Command {
        command,
        input: Vec::new(),
    }
}

impl Command {
    /// One more argument, taken as it is.
    pub fn arg(mut self, arg: impl AsRef<std::ffi::OsStr>) -> Command {
        self.command.arg(arg);
        self
    }

    /// More arguments, separated by spaces.
    pub fn words(mut self, words: &str) -> Command {
        self.command.args(words.split_whitespace());
        self
    }

    /// What the program reads from its standard input.
    pub fn input(mut self, input: &str) -> Command {
        self.input = input.as_bytes().to_vec();
        self
    }

    /// Runs it; returns its standard output. Any exit status but 0 is an error.
    pub fn run(mut self) -> Result<String, RigError> {
        let text = format!("{:?}", self.command).replace('"', "");
        let mut child = self
            .command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(RigError::io(format!("`{text}` cannot be started")))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that does not read its input says more by its exit status.
            let _unread = stdin.write_all(&self.input);
        }
        let output = child
            .wait_with_output()
            .map_err(RigError::io(format!("`{text}`")))?;
        if !output.status.success() {
            return Err(RigError::Tool {
                command: text,
                status: output.status,
                said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
