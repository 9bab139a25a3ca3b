//! A group that somebody else runs, described by a file: where its nodes are, and by which commands each can be hurt and
//! mended. Reads the file and runs the commands; when to do so is the drill's.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::kind::Verb;
use crate::workload::Node;

/// Longer than a slow node takes to stop.
const COMMAND_WITHIN: Duration = Duration::from_secs(60);

/// The group.
#[derive(Clone, Debug)]
pub struct Given {
    pub nodes: Vec<Node>,
    commands: Vec<BTreeMap<Verb, String>>,
}

/// Why there is no such group, or a command of it did not work.
#[derive(Debug, thiserror::Error)]
pub enum GivenError {
    #[error("{path}: {source}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path} line {line}: {why}")]
    Line {
        path: PathBuf,
        line: usize,
        why: String,
    },
    #[error("{path}: {why}")]
    Lacks { path: PathBuf, why: String },
    #[error("`{command}` {why}")]
    Command { command: String, why: String },
}

impl Given {
    /// Reads `NODE.address = HOST:PORT` and `NODE.VERB = COMMAND` lines; `#` begins a comment line.
    pub fn read(path: &Path) -> Result<Given, GivenError> {
        let text = std::fs::read_to_string(path).map_err(|source| GivenError::Read {
            path: path.to_owned(),
            source,
        })?;
        Given::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Given, GivenError> {
        let lacks = |why: String| GivenError::Lacks {
            path: path.to_owned(),
            why,
        };
        let mut found: BTreeMap<String, (Option<SocketAddr>, BTreeMap<Verb, String>)> =
            BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: String| GivenError::Line {
                path: path.to_owned(),
                line: at + 1,
                why,
            };
            let (node, key, value) = split(line).map_err(wrong)?;
            let entry = found.entry(node.to_owned()).or_default();
            if key == "address" {
                entry.0 = Some(resolve(value).map_err(wrong)?);
            } else {
                entry.1.insert(verb(key).map_err(wrong)?, value.to_owned());
            }
        }
        let mut given = Given {
            nodes: Vec::new(),
            commands: Vec::new(),
        };
        for (name, (address, commands)) in found {
            let address = address.ok_or_else(|| {
                lacks(format!(
                    "{name} has no address; add `{name}.address = HOST:PORT`"
                ))
            })?;
            given.nodes.push(Node { name, address });
            given.commands.push(commands);
        }
        if given.nodes.len() < 3 {
            let why = format!("{} nodes; a drill needs three or more", given.nodes.len());
            return Err(lacks(why));
        }
        Ok(given)
    }

    /// The command for a verb, if the file has one.
    pub fn command(&self, at: usize, verb: Verb) -> Option<&str> {
        self.commands.get(at)?.get(&verb).map(String::as_str)
    }

    /// Runs a command by `sh -c` and waits for its success.
    pub async fn run(&self, at: usize, verb: Verb) -> Result<(), GivenError> {
        let command = self.command(at, verb).unwrap_or_default().to_owned();
        run_shell(&command).await
    }
}

/// Runs `sh -c COMMAND` and waits for its success, a minute at most.
pub(super) async fn run_shell(command: &str) -> Result<(), GivenError> {
    let failed = |why: String| GivenError::Command {
        command: command.to_owned(),
        why,
    };
    let mut child = tokio::process::Command::new("sh")
        .arg("-c")
        .arg(command)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(format!("cannot be started: {error}")))?;
    match tokio::time::timeout(COMMAND_WITHIN, child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(failed(format!("ended with {status}"))),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed(format!("has not ended within {COMMAND_WITHIN:?}"))),
    }
}

fn split(line: &str) -> Result<(&str, &str, &str), String> {
    let parts = line.split_once('=').and_then(|(name, value)| {
        let (node, key) = name.trim().split_once('.')?;
        Some((node, key, value.trim()))
    });
    match parts {
        Some((node, key, value)) if !node.is_empty() && !value.is_empty() => Ok((node, key, value)),
        _ => Err(format!("`{line}` is no `NODE.KEY = VALUE`")),
    }
}

fn resolve(value: &str) -> Result<SocketAddr, String> {
    let mut found = value
        .to_socket_addrs()
        .map_err(|error| format!("address {value}: {error}"))?;
    found
        .next()
        .ok_or_else(|| format!("address {value} is unknown"))
}

fn verb(key: &str) -> Result<Verb, String> {
    let found = Verb::ALL.into_iter().find(|verb| verb.key() == key);
    found.ok_or_else(|| {
        let keys: Vec<&str> = Verb::ALL.iter().map(|verb| verb.key()).collect();
        format!("`{key}` is no key; there are address, {}", keys.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Given, String> {
        Given::parse(Path::new("f"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn nodes_and_their_commands_are_read() {
        let text = "# a group\n n0.address = 127.0.0.1:1\nn1.address=127.0.0.1:2\n\
                    n2.address=127.0.0.1:3\nn1.kill = kill -9 $(cat a=b)\n";
        let given = parse(text).unwrap();
        assert_eq!(given.nodes[2].address.port(), 3);
        assert_eq!(given.command(1, Verb::Kill), Some("kill -9 $(cat a=b)"));
        assert_eq!(given.command(0, Verb::Kill), None);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let two = "n0.address=127.0.0.1:1\nn1.address=127.0.0.1:2\n";
        for (text, expected) in [
            (
                "n0.address".to_owned(),
                "f line 1: `n0.address` is no `NODE.KEY = VALUE`",
            ),
            (format!("{two}n0.smash = x"), "f line 3: `smash` is no key"),
            (two.to_owned(), "f: 2 nodes; a drill needs three or more"),
            (format!("{two}n2.kill = x"), "f: n2 has no address"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[tokio::test]
    async fn a_command_that_fails_is_an_error() {
        assert!(run_shell("true").await.is_ok());
        let error = run_shell("exit 3").await.unwrap_err().to_string();
        assert!(
            error.starts_with("`exit 3` ended with exit status: 3"),
            "{error}"
        );
    }
}
