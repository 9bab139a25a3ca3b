//! Reading everything from one node with damaged files: what it serves must be what was sent, and what it
//! cannot serve it must say.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::super::Stop;
use super::super::context::{PATIENCE, QUEUES, Run, TOPIC};
use crate::rig::View;
use crate::wire::{Connection, Pull, Pulled, WireError};
use crate::workload;

const WITHIN: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);

/// What a node answered.
#[derive(Debug, Default)]
pub(super) struct ReadBack {
    /// Messages that were read, each with its own bytes.
    pub whole: u64,
    /// Queue offsets that could not be read, with the answer.
    pub failed: Vec<(i32, i64, String)>,
}

/// Pulls every queue from its beginning to its end, message by message where an answer fails. A body that is not
/// what its key says is a violation.
pub(super) async fn read_back(run: &mut Run, at: usize) -> Result<ReadBack, Stop> {
    answers_itself(run, at).await?;
    let (address, name) = (run.rig()?.address(at), run.rig()?.name(at).to_owned());
    let mut back = ReadBack::default();
    for queue in 0..QUEUES {
        // A group that the run's readers are: a new one would have to be written down first.
        let mut pull = Pull::new("chaos_tail", TOPIC, queue, i64::from(i32::MAX));
        let ends = ask(address, &pull).await?;
        let ends =
            ends.map_err(|error| Stop::Violated(format!("{name}, queue {queue}: {error}")))?;
        pull.offset = ends.min;
        while pull.offset < ends.max {
            // A failed answer to many says nothing of which one is bad.
            let answer = match ask(address, &pull).await? {
                Err(_) if pull.max_messages > 1 => {
                    pull.max_messages = 1;
                    continue;
                }
                answer => answer,
            };
            pull.max_messages = 32;
            match answer {
                Ok(pulled) if !pulled.records.is_empty() => {
                    for record in &pulled.records {
                        let key = workload::key_of(&record.body);
                        let right = key.as_deref().ok() == record.key();
                        back.whole += 1;
                        run.require(right && record.offset >= pull.offset, || {
                            format!(
                                "{name} served at {queue}/{} the body {key:?} under the key {:?}",
                                record.offset,
                                record.key()
                            )
                        });
                    }
                    pull.offset = pulled.next;
                }
                Ok(pulled) => {
                    let code = format!("code {} and nothing", pulled.code);
                    back.failed.push((queue, pull.offset, code));
                    pull.offset += 1;
                }
                // Only this client has noticed: to the node the bytes were good.
                Err(WireError::Malformed(what)) => {
                    run.require(false, || {
                        format!(
                            "I-5: {name} served damaged bytes at {queue}/{}: {what}",
                            pull.offset
                        )
                    });
                    pull.offset += 1;
                }
                Err(error) => {
                    back.failed.push((queue, pull.offset, error.to_string()));
                    pull.offset += 1;
                }
            }
        }
    }
    Ok(back)
}

/// Waits until a node reads its own files: one that has just started passes pulls to the leader, whose files are
/// whole.
async fn answers_itself(run: &mut Run, at: usize) -> Result<(), Stop> {
    let (begun, address) = (Instant::now(), run.rig()?.address(at));
    loop {
        let view = View::of(address, WITHIN).await;
        if view.as_ref().is_ok_and(|view| view.ready) {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            let why = format!("n{at} was not ready within {PATIENCE:?}: {view:?}");
            return Err(Stop::Late(why));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// One pull; asked again while the group has no leader, which says nothing of the files.
async fn ask(address: SocketAddr, pull: &Pull) -> Result<Result<Pulled, WireError>, Stop> {
    let begun = Instant::now();
    loop {
        let connection = Connection::open(address, WITHIN).await;
        let connection = connection
            .map_err(|error| Stop::Violated(format!("a node with damaged files: {error}")))?;
        match connection.pull(pull).await {
            Err(error) if leaderless(&error) && begun.elapsed() < PATIENCE => {
                tokio::time::sleep(PAUSE).await;
            }
            answer => return Ok(answer),
        }
    }
}

fn leaderless(error: &WireError) -> bool {
    error
        .to_string()
        .contains("[REFUSED] in-sync replicas not enough")
}
