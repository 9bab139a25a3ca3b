//! Delivers delayed messages when their time has come: on the leader, level by level.
//!
//! How far a level is delivered stands in the store, and a delivery is applied only if it is the next one:
//! what is proposed twice, by this node or by two leaders one after the other, is delivered once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::{Broker, REPLY_WITHIN, wait_for_change};
use crate::protocol::message::{NewRecord, Record, property, push_property, records};
use crate::protocol::names::SCHEDULE_TOPIC;
use crate::store::{ReadLimits, ReadOutcome, UnitOutcome, Wait};

/// How often the leader looks whether something is due. RocketMQ's own lateness is 50 to 300 ms.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Deliveries of one level proposed before the first one's outcome is known.
const PIPELINE: usize = 32;
const READ_BYTES_MAX: usize = 1024 * 1024;
/// After an error, before the next try.
const PAUSE: Duration = Duration::from_millis(500);

/// What is known of one level, so that an idle level costs two look-ups and no read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Level {
    /// The first undelivered message and when it is due (ms since the epoch).
    next: Option<(i64, i64)>,
}

impl Level {
    /// Whether the message at `progress` has to be read now.
    fn is_to_be_read(&self, progress: i64, end: i64, now_ms: i64) -> bool {
        progress < end
            && self
                .next
                .is_none_or(|(offset, due_ms)| offset != progress || due_ms <= now_ms)
    }
}

/// Runs until the process ends.
pub(super) async fn run(broker: Arc<Broker>) {
    let mut view = broker.group.view();
    loop {
        if !broker.leads() {
            wait_for_change(&mut view, PAUSE).await;
            continue;
        }
        let mut levels = vec![Level::default(); broker.config.delay_levels.len()];
        while broker.leads() {
            for (index, level) in levels.iter_mut().enumerate() {
                if let Err(why) = deliver_level(&broker, index, level).await {
                    tracing::warn!(level = index + 1, why, "delayed messages wait");
                    *level = Level::default();
                    sleep(PAUSE).await;
                }
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

/// Delivers what is due of one level, up to one pipeline full.
async fn deliver_level(
    broker: &Arc<Broker>,
    index: usize,
    level: &mut Level,
) -> Result<(), String> {
    let queue = index as i32;
    let number = index as u32 + 1;
    let Some((first, end)) = broker.store.queue_bounds(SCHEDULE_TOPIC, queue) else {
        return Ok(());
    };
    let progress = broker.store.delay_progress(number).max(first);
    let delay_ms = broker.config.delay_levels[index].as_millis() as i64;
    if !level.is_to_be_read(progress, end, broker.wall_ms()) {
        return Ok(());
    }
    let Some(found) = read(broker, queue, progress).await? else {
        return Ok(());
    };
    let now_ms = broker.wall_ms();
    let mut told = Vec::new();
    for record in records(&found) {
        let record = record.map_err(|error| error.to_string())?;
        let due_ms = record.store_ms().saturating_add(delay_ms);
        if due_ms > now_ms {
            level.next = Some((record.queue_offset(), due_ms));
            break;
        }
        told.push(propose(broker, number, &record));
    }
    for outcome in told {
        match outcome.await {
            // A topic or queue that is gone takes nothing; the level goes on behind the message.
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err("this node is stopping".to_string()),
        }
    }
    Ok(())
}

async fn read(broker: &Arc<Broker>, queue: i32, from: i64) -> Result<Option<Bytes>, String> {
    let mode = broker.group.env().writer;
    let broker = broker.clone();
    let read = mode.spawn_blocking(move || {
        let limits = ReadLimits {
            messages_max: PIPELINE,
            bytes_max: READ_BYTES_MAX,
        };
        let everything = |_| true;
        broker.store.read(
            SCHEDULE_TOPIC,
            queue,
            from,
            limits,
            &everything,
            broker.address(),
            Wait::Yes,
        )
    });
    match read.await {
        Ok(Ok(ReadOutcome::Found { records, .. })) => Ok(Some(records)),
        Ok(Ok(_)) => Ok(None),
        Ok(Err(error)) => Err(error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

type Told = oneshot::Receiver<Result<UnitOutcome, super::proposer::WriteError>>;

fn propose(broker: &Arc<Broker>, level: u32, record: &Record<'_>) -> Told {
    let delivery = Delivery::of(record);
    let again = NewRecord {
        topic: delivery.topic,
        queue_id: delivery.queue,
        flag: record.flag(),
        sys_flag: record.sys_flag(),
        born_ms: record.born_ms(),
        born_host: record.born_host(),
        store_ms: broker.wall_ms(),
        store_host: broker.address(),
        reconsume_times: record.reconsume_times(),
        prepared_transaction_offset: record.prepared_transaction_offset(),
        body: record.body(),
        properties: &delivery.properties,
    };
    let (tell, told) = oneshot::channel();
    broker.proposer.submit(
        Instant::now() + REPLY_WITHIN,
        |entry| entry.push_delivery(level, record.queue_offset(), &again),
        move |outcome| {
            let _ = tell.send(outcome);
        },
    );
    told
}

/// Where a delayed message goes, and the properties it has there.
#[derive(Debug, PartialEq, Eq)]
struct Delivery<'a> {
    topic: &'a str,
    queue: i32,
    properties: Vec<u8>,
}

impl<'a> Delivery<'a> {
    fn of(record: &Record<'a>) -> Delivery<'a> {
        let mut delivery = Delivery {
            // Without a destination it goes to no topic: it is passed over, not delivered in a loop.
            topic: "",
            queue: 0,
            properties: Vec::with_capacity(256),
        };
        for (name, value) in record.properties().iter() {
            match name {
                property::REAL_TOPIC => delivery.topic = value,
                property::REAL_QID => delivery.queue = value.parse().unwrap_or(0),
                property::DELAY => {}
                _ => push_property(&mut delivery.properties, name, value),
            }
        }
        delivery
    }
}

#[cfg(test)]
#[path = "delay_tests.rs"]
mod tests;
