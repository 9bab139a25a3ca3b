//! `quorumlog log`: reads a node's files offline, entry by entry, and never writes.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use quorumlog_raft::env::Env;
use quorumlog_raft::log::inspect::{Inspected, Report, inspect};

use super::{CliError, CliResult, table};
use crate::protocol::message::{Record, property};
use crate::store::Command;
use crate::store::describe::{Described, describe};

/// Prints one line per entry (with `messages`, one per record too), then what is damaged.
pub(super) fn dump(dir: &Path, force: bool, messages: bool) -> CliResult {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut written = Ok(());
    let mut damaged = 0;
    let report = read(dir, force, &mut |entry| {
        let units = units(entry);
        damaged += u64::from(units.is_err());
        if written.is_ok() {
            written = out.write_all(entry_lines(entry, &units, messages).as_bytes());
        }
    })?;
    let findings = findings_text(&report);
    let written = written
        .and_then(|()| out.write_all(findings.as_bytes()))
        .and_then(|()| out.flush());
    match written {
        Ok(()) => {}
        // `| head` has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(error) => return Err(CliError::new(format!("standard output: {error}"))),
    }
    Ok(exit(report.sound() && damaged == 0))
}

/// Checks everything, and prints counts and damage.
pub(super) fn verify(dir: &Path, force: bool) -> CliResult {
    let mut counts = Counts::default();
    let report = read(dir, force, &mut |entry| counts.take(entry))?;
    print!("{}", verdict(&report, &counts));
    Ok(exit(report.sound() && counts.damaged.is_empty()))
}

fn exit(sound: bool) -> ExitCode {
    if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Walks the entries of a directory that no node uses.
fn read(
    dir: &Path,
    force: bool,
    visit: &mut dyn FnMut(&Inspected<'_>),
) -> Result<Report, CliError> {
    let files = Env::real().files;
    let lock = dir.join("LOCK");
    // A directory that was never used has no lock file, and a look must not make one.
    let held = match force || !lock.exists() {
        true => None,
        false => match files.lock(&lock) {
            Ok(held) => Some(held),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(CliError::new(format!(
                    "{} is in use by a running node. Stop it first, or read anyway with --force \
                     (the last entries may then look damaged)",
                    dir.display()
                )));
            }
            Err(error) => {
                return Err(CliError::new(format!(
                    "{}: {error}. Read without taking the lock with --force",
                    lock.display()
                )));
            }
        },
    };
    let report = inspect(dir, &*files, visit).map_err(|error| {
        CliError::new(format!(
            "{error}. Name a node's directory (storePathRootDir), it holds `log`"
        ))
    });
    drop(held);
    report
}

/// The units of a proposed entry; none of an entry that Raft made for itself.
fn units<'a>(entry: &'a Inspected<'_>) -> Result<Vec<Described<'a>>, String> {
    match entry.kind {
        "normal" => describe(&entry.payload),
        _ => Ok(Vec::new()),
    }
}

fn entry_lines(
    entry: &Inspected<'_>,
    units: &Result<Vec<Described<'_>>, String>,
    messages: bool,
) -> String {
    let file = entry.path.file_name().unwrap_or_default().to_string_lossy();
    let what = match units {
        Ok(units) => units_text(units),
        Err(error) => format!("DAMAGED: {error}"),
    };
    let mut text = format!(
        "{file} byte {} position {} entry {} {} {} bytes{what}\n",
        entry.offset,
        entry.position,
        entry.id,
        entry.kind,
        entry.payload.len()
    );
    if let (true, Ok(units)) = (messages, units) {
        for unit in units {
            match unit {
                Described::Send(records) => {
                    for record in records {
                        text.push_str(&record_line(record));
                    }
                }
                Described::Delivery { record, .. } => text.push_str(&record_line(record)),
                Described::Command(_) => {}
            }
        }
    }
    text
}

/// `: 2 sends (5 messages), 1 delivery, PutTopic T`.
fn units_text(units: &[Described<'_>]) -> String {
    if units.is_empty() {
        return String::new();
    }
    let (mut sends, mut messages, mut deliveries) = (0, 0, 0);
    let mut parts = Vec::new();
    for unit in units {
        match unit {
            Described::Send(records) => {
                sends += 1;
                messages += records.len();
            }
            Described::Delivery { .. } => deliveries += 1,
            Described::Command(command) => parts.push(command_text(command)),
        }
    }
    if deliveries > 0 {
        parts.insert(0, format!("deliveries {deliveries}"));
    }
    if sends > 0 {
        parts.insert(0, format!("sends {sends} (messages {messages})"));
    }
    format!(": {}", parts.join(", "))
}

fn command_text(command: &Command) -> String {
    match command {
        Command::PutTopic(topic) => format!("put topic {}", topic.name),
        Command::EnsureTopic(topic) => format!("ensure topic {}", topic.name),
        Command::DeleteTopic { name } => format!("delete topic {name}"),
        Command::PutGroup(group) => format!("put group {}", group.name),
        Command::EnsureGroup(group) => format!("ensure group {}", group.name),
        Command::CommitOffset {
            group,
            topic,
            queue,
            offset,
        } => format!("commit {group} {topic}/{queue} at {offset}"),
        Command::Lock { group, queues, .. } => format!("lock {} queues for {group}", queues.len()),
        Command::Unlock { group, queues, .. } => {
            format!("unlock {} queues for {group}", queues.len())
        }
        Command::AnnounceNode(node) => format!("node {} at {}", node.node, node.address),
    }
}

fn record_line(record: &Record<'_>) -> String {
    let properties = record.properties();
    let keys = properties.value(property::KEYS).unwrap_or("-");
    let unique = properties.value(property::UNIQ_KEY).unwrap_or("-");
    format!(
        "    {}/{} keys {keys} id {unique} body {} bytes\n",
        record.topic(),
        record.queue_id(),
        record.body().len()
    )
}

fn findings_text(report: &Report) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        let kind = if finding.fatal {
            "DAMAGED"
        } else {
            "repaired at the next start"
        };
        text.push_str(&format!("{kind}: {finding}\n"));
    }
    text
}

/// What a verification counted.
#[derive(Default)]
struct Counts {
    entries: BTreeMap<&'static str, u64>,
    units: u64,
    messages: u64,
    body_bytes: u64,
    /// Entries whose payload cannot be read, though their own checksum is right.
    damaged: Vec<String>,
}

impl Counts {
    fn take(&mut self, entry: &Inspected<'_>) {
        *self.entries.entry(entry.kind).or_default() += 1;
        let units = match units(entry) {
            Ok(units) => units,
            Err(error) => {
                self.damaged.push(format!(
                    "{} at byte {}, entry {}: {error}",
                    entry.path.display(),
                    entry.offset,
                    entry.id
                ));
                return;
            }
        };
        self.units += units.len() as u64;
        for unit in &units {
            match unit {
                Described::Send(records) => records.iter().for_each(|r| self.take_record(r)),
                Described::Delivery { record, .. } => self.take_record(record),
                Described::Command(_) => {}
            }
        }
    }

    fn take_record(&mut self, record: &Record<'_>) {
        self.messages += 1;
        self.body_bytes += record.body().len() as u64;
    }
}

fn verdict(report: &Report, counts: &Counts) -> String {
    let rows: Vec<Vec<String>> = report
        .segments
        .iter()
        .map(|segment| {
            vec![
                segment
                    .path
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                segment.first_index.to_string(),
                segment.last.map_or("-".to_string(), |id| id.to_string()),
                segment.entries.to_string(),
                (segment.end - segment.first).to_string(),
                if segment.sealed { "sealed" } else { "active" }.to_string(),
            ]
        })
        .collect();
    let mut text = table::render(
        &["SEGMENT", "FIRST", "LAST", "ENTRIES", "BYTES", "STATE"],
        &rows,
    );
    let kinds: Vec<String> = counts
        .entries
        .iter()
        .map(|(kind, count)| format!("{} {kind}", table::thousands(*count)))
        .collect();
    text.push_str(&format!(
        "\nentries: {}\nunits: {}, messages: {} ({} bytes of bodies)\n",
        if kinds.is_empty() {
            "none".to_string()
        } else {
            kinds.join(", ")
        },
        table::thousands(counts.units),
        table::thousands(counts.messages),
        table::thousands(counts.body_bytes)
    ));
    for damaged in &counts.damaged {
        text.push_str(&format!("DAMAGED: {damaged}\n"));
    }
    text.push_str(&findings_text(report));
    let sound = report.sound() && counts.damaged.is_empty();
    text.push_str(if sound { "sound\n" } else { "NOT SOUND\n" });
    text
}

#[cfg(test)]
mod tests;
