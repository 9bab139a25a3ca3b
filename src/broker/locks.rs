//! Queue locks of orderly consumers.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::Instant;

use super::{Broker, Request};
use crate::protocol::body::{LockBatch, MessageQueue, locked_queues};
use crate::protocol::codes::response;
use crate::protocol::frame::Reply;
use crate::store::command::QueueId;
use crate::store::{Command, CommandOutcome};

/// The clock that locks expire by: set once, when this process begins, and going on evenly whatever happens to
/// the machine's clock. A lock must not end early because that one is put forward.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockClock {
    set_to_ms: i64,
    at: Instant,
}

impl LockClock {
    pub(super) fn set(now_ms: i64) -> LockClock {
        LockClock {
            set_to_ms: now_ms,
            at: Instant::now(),
        }
    }

    /// Milliseconds since the epoch.
    fn now_ms(&self) -> i64 {
        self.set_to_ms + self.at.elapsed().as_millis() as i64
    }
}

impl Broker {
    /// Grants queues to a client, by a command of the log: a lock holds whoever leads. The queues are named
    /// back as the client named them.
    pub(super) fn on_lock(self: &Arc<Self>, request: Request) {
        let Some((request, batch)) = self.claim_batch(request) else {
            return;
        };
        let opaque = request.frame.header.opaque;
        let queues = self.known_queues(&batch.queues);
        if queues.is_empty() {
            return request.reply.send(locked(opaque, &[]));
        }
        let command = Command::Lock {
            group: batch.consumer_group,
            client: batch.client_id,
            queues: queues.into_iter().collect(),
            now_ms: self.lock_clock.now_ms(),
        };
        let broker = self.clone();
        tokio::spawn(async move {
            let deadline = request.origin.deadline();
            match broker.proposer.command(deadline, &command).await {
                Ok(CommandOutcome::Locked(granted)) => {
                    let granted = granted_of(batch.queues, &granted.into_iter().collect());
                    request.reply.send(locked(opaque, &granted));
                }
                Ok(other) => unreachable!("a lock command ended as {other:?}"),
                Err(error) => request.fail(&error),
            }
        });
    }

    pub(super) fn on_unlock(self: &Arc<Self>, request: Request) {
        let Some((request, batch)) = self.claim_batch(request) else {
            return;
        };
        let opaque = request.frame.header.opaque;
        let queues = self.known_queues(&batch.queues);
        if queues.is_empty() {
            return request.reply.send(Reply::new(response::SUCCESS, opaque));
        }
        let command = Command::Unlock {
            group: batch.consumer_group,
            client: batch.client_id,
            queues: queues.into_iter().collect(),
        };
        let broker = self.clone();
        tokio::spawn(async move {
            let deadline = request.origin.deadline();
            match broker.proposer.command(deadline, &command).await {
                Ok(_) => request.reply.send(Reply::new(response::SUCCESS, opaque)),
                Err(error) => request.fail(&error),
            }
        });
    }

    /// The request and its body, if it is to be served here and can be read.
    fn claim_batch(self: &Arc<Self>, request: Request) -> Option<(Request, LockBatch)> {
        let request = self.claim(request)?;
        match LockBatch::parse(&request.frame.body) {
            Ok(batch) => Some((request, batch)),
            Err(error) => {
                let reply = Reply::new(response::SYSTEM_ERROR, request.frame.header.opaque);
                request.reply.send(reply.with_remark(error.to_string()));
                None
            }
        }
    }

    /// The queues that there are: locks of others would fill the state with what a client makes up.
    fn known_queues(&self, queues: &[MessageQueue]) -> BTreeSet<QueueId> {
        let mut known = BTreeSet::new();
        for queue in queues {
            let topic = self.store.topic(&queue.topic);
            let count = topic.map_or(0, |topic| topic.read_queues.max(topic.write_queues));
            if u32::try_from(queue.queue_id).is_ok_and(|queue| queue < count) {
                known.insert(QueueId {
                    topic: queue.topic.clone(),
                    queue: queue.queue_id,
                });
            }
        }
        known
    }
}

/// The client's names of the queues that were granted.
fn granted_of(asked: Vec<MessageQueue>, granted: &BTreeSet<QueueId>) -> Vec<MessageQueue> {
    let is_granted = |queue: &MessageQueue| {
        granted.contains(&QueueId {
            topic: queue.topic.clone(),
            queue: queue.queue_id,
        })
    };
    asked.into_iter().filter(is_granted).collect()
}

fn locked(opaque: i32, queues: &[MessageQueue]) -> Reply {
    Reply::new(response::SUCCESS, opaque).with_body(locked_queues(queues))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(broker: &str, queue_id: i32) -> MessageQueue {
        MessageQueue {
            broker_name: broker.into(),
            queue_id,
            topic: "t".into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn locks_expire_by_the_time_that_passed_and_not_by_the_machines_clock() {
        let clock = LockClock::set(1_000);
        assert_eq!(clock.now_ms(), 1_000);
        // The machine's clock does not go on with simulated time.
        tokio::time::advance(std::time::Duration::from_secs(59)).await;
        assert_eq!(clock.now_ms(), 60_000);
    }

    #[test]
    fn granted_queues_are_named_back_as_the_client_named_them() {
        let asked = vec![queue("b", 0), queue("b-front-n0", 1), queue("b", 2)];
        let granted = [0, 1].map(|queue| QueueId {
            topic: "t".into(),
            queue,
        });
        let named = granted_of(asked, &granted.into_iter().collect());
        assert_eq!(named, [queue("b", 0), queue("b-front-n0", 1)]);
    }
}
