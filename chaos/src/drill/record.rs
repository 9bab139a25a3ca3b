//! One attempt to send, written into the history before and after.

use std::time::Duration;

use crate::history::{Call, Recorder, Reply, What};
use crate::wire::{Connection, Message, SendOptions, SendOutcome};
use crate::workload::{Node, hash};

/// Sends `message` over `connection`; without one it is certainly not sent.
pub(super) async fn recorded_send(
    recorder: &Recorder,
    actor: &str,
    node: &Node,
    connection: Option<&Connection>,
    attempt: u32,
    message: &Message,
    options: &SendOptions,
) -> SendOutcome {
    let timeout = options.timeout.unwrap_or(Duration::from_secs(3));
    let call = Call::Send {
        topic: message.topic.clone(),
        q: message.queue,
        key: message.key.clone(),
        attempt,
        hash: hash(&message.body),
        len: message.body.len(),
        to: node.name.clone(),
        timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
    };
    let op = recorder.invoke(actor, call);
    let outcome = match connection {
        Some(connection) => connection.send(message, options).await,
        None => SendOutcome::Fail {
            code: -1,
            remark: "no connection".to_owned(),
        },
    };
    let end = match outcome.clone() {
        SendOutcome::Ok(stored) => What::Ok(Reply::Send {
            q: stored.queue,
            off: stored.offset,
            pos: stored.position,
            code: stored.code,
        }),
        SendOutcome::Fail { code, remark } => What::Fail { code, remark },
        SendOutcome::Info { code, why } => What::Info { code, why },
    };
    recorder.complete(actor, op, end);
    outcome
}
