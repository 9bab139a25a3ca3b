//! Single recorded requests to one node over one connection: for what a scenario wants to ask at a certain
//! moment. Reads that may not be stale are recorded as such.

use std::sync::Arc;
use std::time::Duration;

use super::drain::got_of;
use super::produce::Attempt;
use super::{Node, payload};
use crate::history::{Call, Recorder, Reply, What};
use crate::wire::{Connection, Message, Pull, Pulled, SendOptions, SendOutcome, WireError};

/// One connection to one node. Used by one task at a time, as one actor.
pub struct Probe {
    actor: String,
    node: Node,
    topic: String,
    timeout: Duration,
    recorder: Arc<Recorder>,
    connection: Option<Connection>,
}

impl Probe {
    /// `actor` must be unique in the history. Each request waits up to `timeout` for its answer.
    pub fn new(
        actor: &str,
        node: Node,
        topic: &str,
        timeout: Duration,
        recorder: &Arc<Recorder>,
    ) -> Probe {
        Probe {
            actor: actor.to_owned(),
            node,
            topic: topic.to_owned(),
            timeout,
            recorder: Arc::clone(recorder),
            connection: None,
        }
    }

    /// Connects ahead of the first request.
    pub async fn connect(&mut self) -> Result<&Connection, WireError> {
        let open = match self.connection.take() {
            Some(open) => open,
            None => Connection::open(self.node.address, self.timeout).await?,
        };
        Ok(self.connection.insert(open))
    }

    /// Sends one message of this key and a body made from it.
    pub async fn send(&mut self, queue: i32, key: &str) -> SendOutcome {
        let message = Message::new(&self.topic, queue, key, payload::body(key, 64));
        let options = SendOptions {
            timeout: Some(self.timeout),
            ..SendOptions::default()
        };
        let attempt = Attempt {
            actor: &self.actor,
            node: &self.node,
            message: &message,
            number: 1,
            options: &options,
        };
        let outcome = attempt.send(&self.recorder, &mut self.connection).await;
        if matches!(outcome, SendOutcome::Info { code: None, .. }) {
            self.connection = None;
        }
        outcome
    }

    /// The offset that the queue's next message gets, as the leader knows it.
    pub async fn max_offset(&mut self, queue: i32) -> Result<i64, WireError> {
        let topic = self.topic.clone();
        let call = Call::MaxOffset {
            topic: topic.clone(),
            q: queue,
            node: self.node.name.clone(),
            linear: true,
        };
        self.ask(
            call,
            async move |open: &Connection| open.max_offset(&topic, queue).await,
            |off| Reply::Offset { off: Some(*off) },
        )
        .await
    }

    /// What the group has committed, as the leader knows it.
    pub async fn consumer_offset(
        &mut self,
        group: &str,
        queue: i32,
    ) -> Result<Option<i64>, WireError> {
        let topic = self.topic.clone();
        let call = Call::QueryOffset {
            group: group.to_owned(),
            topic: topic.clone(),
            q: queue,
            node: self.node.name.clone(),
            linear: true,
        };
        self.ask(
            call,
            async move |open: &Connection| open.consumer_offset(group, &topic, queue).await,
            |off| Reply::Offset { off: *off },
        )
        .await
    }

    /// Commits an offset of a group.
    pub async fn commit(&mut self, group: &str, queue: i32, offset: i64) -> Result<(), WireError> {
        let topic = self.topic.clone();
        let call = Call::CommitOffset {
            group: group.to_owned(),
            topic: topic.clone(),
            q: queue,
            off: offset,
            node: self.node.name.clone(),
        };
        self.ask(
            call,
            async move |open: &Connection| open.commit_offset(group, &topic, queue, offset).await,
            |()| Reply::CommitOffset,
        )
        .await
    }

    /// Pulls from `offset`, as one that may not be shown an old state when `linear`.
    pub async fn pull(
        &mut self,
        queue: i32,
        offset: i64,
        linear: bool,
    ) -> Result<Pulled, WireError> {
        let topic = self.topic.clone();
        let call = Call::Pull {
            topic: topic.clone(),
            q: queue,
            from_off: offset,
            node: self.node.name.clone(),
            linear,
            filtered: false,
        };
        let pull = Pull::new("chaos_probe", &topic, queue, offset);
        self.ask(
            call,
            async move |open: &Connection| open.pull(&pull).await,
            |pulled| Reply::Pull {
                code: pulled.code,
                got: pulled
                    .records
                    .iter()
                    .map(|record| got_of(record, &topic, queue))
                    .collect(),
                next: pulled.next,
                min: pulled.min,
                max: pulled.max,
            },
        )
        .await
    }

    /// One recorded request. A connection without an answer is not used again.
    async fn ask<T>(
        &mut self,
        call: Call,
        request: impl AsyncFnOnce(&Connection) -> Result<T, WireError>,
        reply: impl FnOnce(&T) -> Reply,
    ) -> Result<T, WireError> {
        let op = self.recorder.invoke(&self.actor, call);
        let result = match self.connect().await {
            Ok(open) => request(open).await,
            Err(error) => Err(error),
        };
        let end = match &result {
            Ok(answer) => What::Ok(reply(answer)),
            Err(error) => end_of(error),
        };
        self.recorder.complete(&self.actor, op, end);
        if matches!(result, Err(WireError::Closed(_) | WireError::Timeout(_))) {
            self.connection = None;
        }
        result
    }
}

/// A read or a commit that has no good answer is unknown, unless nothing was sent or it was refused.
fn end_of(error: &WireError) -> What {
    match error {
        WireError::Connect { .. } => What::Fail {
            code: -1,
            remark: error.to_string(),
        },
        WireError::Code { code, remark } if remark.starts_with("[REFUSED]") => What::Fail {
            code: *code,
            remark: remark.clone(),
        },
        WireError::Code { code, remark } => What::Info {
            code: Some(*code),
            why: remark.clone(),
        },
        WireError::Closed(_) | WireError::Timeout(_) | WireError::Malformed(_) => What::Info {
            code: None,
            why: error.to_string(),
        },
    }
}
