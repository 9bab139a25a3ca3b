//! Reading everything from one node with damaged files: what it serves must be what was sent, and what it
//! cannot serve it must say.

use std::time::Duration;

use super::super::Stop;
use super::super::context::{QUEUES, Run, TOPIC};
use crate::wire::{Connection, Pull};
use crate::workload;

const WITHIN: Duration = Duration::from_secs(3);

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
    let (address, name) = (run.rig()?.address(at), run.rig()?.name(at).to_owned());
    let mut back = ReadBack::default();
    for queue in 0..QUEUES {
        let mut pull = Pull::new("chaos_read_back", TOPIC, queue, i64::from(i32::MAX));
        let ends = open(address).await?.pull(&pull).await;
        let ends =
            ends.map_err(|error| Stop::Violated(format!("{name}, queue {queue}: {error}")))?;
        pull.offset = ends.min;
        while pull.offset < ends.max {
            // A failed answer to many says nothing of which one is bad.
            let answer = match open(address).await?.pull(&pull).await {
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
                Err(error) => {
                    back.failed.push((queue, pull.offset, error.to_string()));
                    pull.offset += 1;
                }
            }
        }
    }
    Ok(back)
}

async fn open(address: std::net::SocketAddr) -> Result<Connection, Stop> {
    Connection::open(address, WITHIN)
        .await
        .map_err(|error| Stop::Violated(format!("a node with damaged files: {error}")))
}
