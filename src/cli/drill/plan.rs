//! Says beforehand exactly what drills would do to a given group, and asks for consent by a flag.

use std::fmt::Write as _;
use std::path::Path;

use quorumlog_chaos::drill::{Given, Kind};

use crate::cli::CliError;

/// The group, when its owner has agreed; otherwise the plan is printed, and nothing happens.
pub(super) fn agreed(file: &Path, kinds: &[Kind], yes: bool) -> Result<Option<Given>, CliError> {
    let given = Given::read(file).map_err(|error| CliError::new(error.to_string()))?;
    println!("{}", text(&given, kinds));
    if yes {
        return Ok(Some(given));
    }
    println!("Nothing was done. To do this to that group, add --yes-damage-this-group");
    Ok(None)
}

/// What would be done, in words and commands.
fn text(given: &Given, kinds: &[Kind]) -> String {
    let mut text = String::from("On the group of");
    for node in &given.nodes {
        // Writing to a text cannot fail.
        let _ = write!(text, " {} ({})", node.name, node.address);
    }
    text.push_str(
        "\na topic is made for each drill and filled with some hundred messages a second. It is not removed.\n",
    );
    for kind in kinds {
        let _ = write!(text, "\n{kind}: {}\n", kind.what());
        for verb in kind.needs() {
            for (at, node) in given.nodes.iter().enumerate() {
                let _ = match given.command(at, *verb) {
                    Some(command) => {
                        writeln!(text, "  {} of {} may run: {command}", verb.key(), node.name)
                    }
                    None => writeln!(text, "  SKIP: there is no `{}.{}`", node.name, verb.key()),
                };
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_names_every_command_that_may_run_and_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("group.conf");
        let mut lines = String::new();
        for at in 0..3 {
            lines += &format!(
                "n{at}.address = 127.0.0.1:{}\nn{at}.kill = kill-{at}\n",
                at + 1
            );
        }
        lines += "n0.start = start-0\n";
        std::fs::write(&file, lines).unwrap();
        let given = Given::read(&file).unwrap();
        let text = text(&given, &[Kind::LeaderKill]);
        for expected in [
            "kill of n2 may run: kill-2",
            "start of n0 may run: start-0",
            "no `n1.start`",
        ] {
            assert!(text.contains(expected), "{text}");
        }
        assert!(agreed(&file, &[Kind::LeaderKill], false).unwrap().is_none());
    }
}
