//! R6: many connections whose requests arrive one byte at a time, each between those of the others.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::probe::Probe;
use crate::scenario::context::PATIENCE;
use crate::scenario::{Run, Stop};
use crate::wire::{
    Connection, HeaderKind, Message, Pull, SendOptions, SendOutcome, classify, split,
};
use crate::workload::{body, key_of};

const TOPIC: &str = "fragments";
const CONNECTIONS: usize = 48;
const REQUESTS: usize = 12;
/// For all messages of one client.
const SENT_WITHIN: Duration = Duration::from_secs(120);
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

pub async fn one_byte_fragments(run: &mut Run) -> Result<(), Stop> {
    run.start(run.setup()).await?;
    run.rig()?.create_topic(TOPIC, 1).await?;
    let leader = run.rig()?.leader().await?;
    let address = run.rig()?.address(leader);
    let probe = Probe::start(run, leader).await?;
    run.fault("one-byte-fragments", &[]);
    let together = Arc::new(Barrier::new(CONNECTIONS));
    let mut clients = JoinSet::new();
    for id in 0..CONNECTIONS {
        clients.spawn(client(address, id, Arc::clone(&together)));
    }
    let (mut acknowledged, mut fragments) = (BTreeMap::new(), 0);
    for ended in clients.join_all().await {
        let (own, bytes) = ended.map_err(Stop::Violated)?;
        acknowledged.extend(own);
        fragments += bytes;
    }
    run.fault_over("one-byte-fragments");
    run.figure("one-byte writes", fragments as f64);
    run.figure("messages acknowledged", acknowledged.len() as f64);
    let wanted = CONNECTIONS * REQUESTS;
    run.require(acknowledged.len() == wanted, || {
        format!("{} of {wanted} were acknowledged", acknowledged.len())
    });
    for at in 0..run.rig()?.len() {
        compare(run, at, &acknowledged).await?;
    }
    probe.goes_on("beside the fragments").await?;
    probe.end(run).await
}

/// Sends its requests byte by byte; returns its keys with their offsets, and how many bytes it wrote.
async fn client(
    to: SocketAddr,
    id: usize,
    together: Arc<Barrier>,
) -> Result<(Vec<(i64, String)>, usize), String> {
    let stream = TcpStream::connect(to)
        .await
        .map_err(|error| error.to_string());
    // Everybody arrives, or all would wait for this one.
    together.wait().await;
    let mut stream = stream?;
    stream
        .set_nodelay(true)
        .map_err(|error| error.to_string())?;
    let kind = [HeaderKind::Json, HeaderKind::Binary][id % 2];
    let (mut own, mut written) = (Vec::new(), 0);
    let begun = Instant::now();
    let mut number = 0;
    while number < REQUESTS {
        let key = format!("fragment-{id}-{number}");
        let message = Message::new(TOPIC, 0, &key, body(&key, 64 + id * 7));
        let mut frame = SendOptions::default().request(&message);
        frame.opaque = number as i32;
        for byte in frame.encode(kind) {
            let sent = stream.write_all(&[byte]).await;
            sent.map_err(|error| format!("{key}: {error}"))?;
            written += 1;
            tokio::task::yield_now().await;
        }
        let mut input = BytesMut::new();
        let answer = async {
            loop {
                match split(&mut input) {
                    Ok(Some(frame)) => return Ok(frame),
                    Ok(None) => {}
                    Err(error) => return Err(error.to_string()),
                }
                match stream.read_buf(&mut input).await {
                    Ok(0) => return Err("closed".to_owned()),
                    Ok(_) => {}
                    Err(error) => return Err(error.to_string()),
                }
            }
        };
        let answer = tokio::time::timeout(ANSWER_WITHIN, answer).await;
        let answer = answer.unwrap_or(Err("no answer".to_owned()));
        let frame = answer.map_err(|error| format!("{key}: {error}"))?;
        match classify(Ok(frame)) {
            SendOutcome::Ok(stored) => {
                own.push((stored.offset, key));
                number += 1;
            }
            // A busy machine's group may elect meanwhile: the same message again.
            _ if begun.elapsed() < SENT_WITHIN => {}
            outcome => return Err(format!("{key}: {outcome:?}")),
        }
    }
    Ok((own, written))
}

/// Everything that node `at` has is what its own producer sent, at the offset that it was told.
async fn compare(run: &mut Run, at: usize, sent: &BTreeMap<i64, String>) -> Result<(), Stop> {
    let connection = run.rig()?.connect(at).await?;
    let name = run.rig()?.name(at).to_owned();
    let begun = Instant::now();
    let (mut next, mut same) = (0, 0);
    while next < sent.len() as i64 && begun.elapsed() < PATIENCE {
        let records = pull(&connection, next).await;
        if records.is_empty() {
            // A follower may be behind.
            run.sleep(Duration::from_millis(50)).await;
        }
        for record in records {
            let (offset, key) = (record.offset, record.key().map(str::to_owned));
            let made = key_of(&record.body);
            let right = sent.get(&offset) == key.as_ref() && made.as_ref().ok() == key.as_ref();
            same += usize::from(right);
            run.require(right, || {
                format!("{name}: at {offset} is {key:?}, whose body is that of {made:?}")
            });
            next = offset + 1;
        }
    }
    run.figure(
        &format!("bodies as their producers sent them, {name}"),
        same as f64,
    );
    run.require(same == sent.len(), || {
        format!("{name} has {same} of {} messages", sent.len())
    });
    Ok(())
}

async fn pull(connection: &Connection, from: i64) -> Vec<crate::wire::Record> {
    let pulled = connection.pull(&Pull::new("readers", TOPIC, 0, from)).await;
    pulled.map(|pulled| pulled.records).unwrap_or_default()
}
