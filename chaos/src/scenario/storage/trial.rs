//! Recovery, many times: a copy of one node's files is torn at one byte, a server is started on it, and what it
//! serves is compared with what must be left. Groups of one, several at a time; none of them is in the history.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::tail::{TEARS, Tear, tear};
use super::{ENDS_WITHIN, small_segments};
use crate::rig::damage::{self, Entry, Segment};
use crate::rig::{Placement, Rig, RigError, Setup, Site};
use crate::scenario::Stop;
use crate::scenario::context::{PATIENCE, QUEUES, Run, TOPIC};
use crate::wire::{Connection, Message, Pull, SendOptions};

/// Servers that run at a time.
const SIDE_BY_SIDE: usize = 6;
/// Entries at the end of the log that are torn.
const TORN: usize = 3;
const WITHIN: Duration = Duration::from_secs(5);

/// A message as it was read: queue, offset, its key and position.
type Read = BTreeMap<(i32, i64), (String, i64)>;

/// One tear to try.
#[derive(Clone, Copy, Debug)]
struct Trial {
    how: Tear,
    /// File offset.
    from: u64,
}

/// The files of one node, as a kill under load left them.
struct Template {
    dir: PathBuf,
    entries: Vec<Entry>,
    /// File offset up to which the segment says to be durable.
    durable: u64,
    /// First position of the last segment.
    first: u64,
    whole: Read,
}

/// The scenario: every `step`th byte of the last entries, torn in every way at some of them.
pub(super) async fn run(run: &mut Run, step: usize) -> Result<(), Stop> {
    run.start(small_segments(run)).await?;
    let sites = (0..SIDE_BY_SIDE)
        .map(|_| Site::create(Placement::Loopback, 1).map(Arc::new))
        .collect::<Result<Vec<_>, _>>()?;
    let template = template(run, &sites[0]).await?;
    let trials = trials(&template, step);
    run.fault("tear", &[("trials", &trials.len().to_string())]);
    let (mut refused, mut cut) = (0, 0);
    for some in trials.chunks(SIDE_BY_SIDE) {
        let mut running = Vec::new();
        for (trial, site) in some.iter().zip(&sites) {
            running.push((trial, begin(run, &template, trial, site)?));
        }
        for (trial, started) in running {
            match outcome(&template, trial, started).await? {
                Outcome::Refused => refused += 1,
                Outcome::Cut => cut += 1,
                Outcome::Wrong(why) => run.require(false, || format!("{trial:?}: {why}")),
            }
        }
    }
    run.figure("trials that cut", f64::from(cut));
    run.figure("trials that refused", f64::from(refused));
    run.fault_over("tear");
    let load = run.producers()?;
    run.begin(&load);
    run.progress(50, PATIENCE).await
}

/// Kills a node of its own under a load of short messages until its log ends in enough entries that are not
/// marked durable, and keeps the files.
async fn template(run: &mut Run, site: &Arc<Site>) -> Result<Template, Stop> {
    for attempt in 0..20 {
        let dir = run.dir.join(format!("template-{attempt}"));
        let mut rig = start(run, site, &dir, None)?;
        rig.wait_serving().await?;
        rig.create_topic(TOPIC, QUEUES).await?;
        let connection = rig.connect(0).await?;
        for number in 0..60 + run.rng.below(16) {
            send(&connection, &format!("k{number}"), (number % 4) as i32).await?;
        }
        rig.kill(&[0])?;
        let store = rig.store(0).to_owned();
        drop(rig);
        let segment = damage::last_segment(&store)?;
        let (entries, durable) = (segment.entries()?, segment.durable()?);
        let unmarked = entries.iter().filter(|entry| entry.bytes.start >= durable);
        if unmarked.count() < TORN {
            continue;
        }
        let mut whole = start(run, site, &run.dir.join("whole"), Some(&store))?;
        whole.wait_serving().await?;
        return Ok(Template {
            whole: read(&whole.connect(0).await?).await?,
            first: segment.first,
            dir: store,
            entries,
            durable,
        });
    }
    Err(Stop::Invalid(
        "every entry was marked durable in twenty attempts".to_owned(),
    ))
}

fn trials(template: &Template, step: usize) -> Vec<Trial> {
    let torn = &template.entries[template.entries.len().saturating_sub(TORN)..];
    let mut trials = Vec::new();
    let (Some(first), Some(last)) = (torn.first(), torn.last()) else {
        return trials;
    };
    for from in (first.bytes.start..last.bytes.end).step_by(step) {
        trials.push(Trial {
            how: Tear::End,
            from,
        });
    }
    // Every way of tearing at the edges of frames and inside them, and once where it must be refused.
    for entry in torn {
        for from in [
            entry.bytes.start,
            entry.bytes.start + 1,
            entry.bytes.start + 9,
            entry.bytes.start + damage::FRAME_BYTES,
            entry.bytes.end - 1,
        ] {
            trials.extend(TEARS.map(|how| Trial { how, from }));
        }
    }
    if template.durable > damage::HEADER_BYTES {
        let from = template.durable - 1;
        trials.extend([Tear::End, Tear::Zeros, Tear::Garbage].map(|how| Trial { how, from }));
    }
    trials
}

/// A server that was started on torn files.
struct Started {
    rig: Rig,
    segment: Segment,
    /// The segment's bytes after the tear.
    torn: Vec<u8>,
}

fn begin(run: &Run, template: &Template, trial: &Trial, site: &Arc<Site>) -> Result<Started, Stop> {
    let dir = run.dir.join(format!("trial-{}", site.first_port(0)));
    let mut rig = prepare(run, site, &dir, Some(&template.dir))?;
    let segment = damage::last_segment(rig.store(0))?;
    let end = template.entries.last().map_or(0, |last| last.bytes.end);
    tear(&segment, trial.how, trial.from, end, trial.from)?;
    let torn = bytes(&segment)?;
    rig.spawn(0)?;
    Ok(Started { rig, segment, torn })
}

enum Outcome {
    Cut,
    Refused,
    Wrong(String),
}

async fn outcome(template: &Template, trial: &Trial, started: Started) -> Result<Outcome, Stop> {
    let Started {
        mut rig,
        segment,
        torn,
    } = started;
    let left = left_by(template, trial, &torn);
    if left.end < template.durable {
        let status = rig.wait_end(0, ENDS_WITHIN).await?;
        return Ok(if status.code().is_none_or(|code| code == 0) {
            Outcome::Wrong(format!("refused with {status}"))
        } else if bytes(&segment)? != torn {
            Outcome::Wrong("refused, but changed the file".to_owned())
        } else {
            Outcome::Refused
        });
    }
    rig.wait_serving().await?;
    let connection = rig.connect(0).await?;
    let found = read(&connection).await?;
    if found != left.messages {
        return Ok(Outcome::Wrong(format!(
            "serves {found:?}, of which {:?} must be left",
            left.messages
        )));
    }
    // What is written now lies where the torn bytes were: none of them may come back behind it.
    let mut expected = left.messages;
    let (queue, offset, position) = send(&connection, "after", 0).await?;
    expected.insert((queue, offset), ("after".to_owned(), position));
    rig.kill(&[0])?;
    rig.restart_dead().await?;
    let again = read(&rig.connect(0).await?).await?;
    Ok(match again == expected {
        true => Outcome::Cut,
        false => Outcome::Wrong(format!("after one more message serves {again:?}")),
    })
}

/// What a tear leaves: the end of the last whole entry, and the messages up to there.
struct Left {
    end: u64,
    messages: Read,
}

fn left_by(template: &Template, trial: &Trial, torn: &[u8]) -> Left {
    // A tear that happens to write what was there (zeros over zeros) has torn less.
    let original = std::fs::read(
        template
            .dir
            .join("log")
            .join(format!("{:020}.seg", template.first)),
    );
    let original = original.unwrap_or_default();
    let whole = |entry: &&Entry| {
        let range = entry.bytes.start as usize..entry.bytes.end as usize;
        torn.get(range.clone()) == original.get(range)
    };
    let kept = template.entries.iter().take_while(whole).last();
    let end = kept.map_or(damage::HEADER_BYTES, |entry| entry.bytes.end);
    debug_assert!(trial.from <= template.entries.last().map_or(0, |last| last.bytes.end));
    let position = (template.first + end - damage::HEADER_BYTES) as i64;
    let mut messages = template.whole.clone();
    messages.retain(|_, (_, at)| *at < position);
    Left { end, messages }
}

fn bytes(segment: &Segment) -> Result<Vec<u8>, Stop> {
    let len = std::fs::metadata(&segment.path).map_or(0, |metadata| metadata.len());
    Ok(damage::read(&segment.path, 0..len)?)
}

/// A group of one at `site`, its files in `dir`, a copy of `files` when given. Not started.
fn prepare(run: &Run, site: &Arc<Site>, dir: &Path, files: Option<&Path>) -> Result<Rig, RigError> {
    let at = || RigError::io(dir.display().to_string());
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(at()(error)),
        _ => {}
    }
    std::fs::create_dir_all(dir).map_err(at())?;
    if let Some(files) = files {
        damage::copy_dir(files, &dir.join("n0"))?;
    }
    let setup = Setup::new(&run.server, dir).with("mappedFileSizeCommitLog", "1048576");
    Rig::prepare(site, &setup)
}

fn start(run: &Run, site: &Arc<Site>, dir: &Path, files: Option<&Path>) -> Result<Rig, RigError> {
    let mut rig = prepare(run, site, dir, files)?;
    rig.spawn(0)?;
    Ok(rig)
}

/// Sends one message, which must be acknowledged; returns where it is.
async fn send(connection: &Connection, key: &str, queue: i32) -> Result<(i32, i64, i64), Stop> {
    let message = Message::new(TOPIC, queue, key, key.as_bytes().to_vec());
    let outcome = connection.send(&message, &SendOptions::default()).await;
    match outcome.stored() {
        Some(stored) => Ok((
            stored.queue,
            stored.offset,
            stored.position.unwrap_or_default(),
        )),
        None => Err(Stop::Violated(format!(
            "a group of one answered {outcome:?}"
        ))),
    }
}

/// Everything that a node serves.
async fn read(connection: &Connection) -> Result<Read, Stop> {
    let wire = |source| RigError::Wire {
        what: "reading back".to_owned(),
        source,
    };
    let mut found = Read::new();
    for queue in 0..QUEUES {
        let max = wait_max(connection, queue).await?;
        let mut pull = Pull::new("trial", TOPIC, queue, 0);
        while pull.offset < max {
            let pulled = connection.pull(&pull).await.map_err(wire)?;
            if pulled.next <= pull.offset {
                return Err(Stop::Violated(format!(
                    "queue {queue} cannot be read at {} of {max}: code {}",
                    pull.offset, pulled.code
                )));
            }
            for record in &pulled.records {
                let key = record.key().unwrap_or_default().to_owned();
                found.insert((queue, record.offset), (key, record.position));
            }
            pull.offset = pulled.next;
        }
    }
    Ok(found)
}

/// The end of a queue, once the node answers for its newest state.
async fn wait_max(connection: &Connection, queue: i32) -> Result<i64, Stop> {
    let begun = std::time::Instant::now();
    loop {
        match connection.max_offset(TOPIC, queue).await {
            Ok(max) => return Ok(max),
            Err(error) if begun.elapsed() > WITHIN => {
                return Err(Stop::Violated(format!("the end of queue {queue}: {error}")));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
