//! R4: the largest body and the largest properties, and one byte more, in every form and over every node.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::probe::Probe;
use crate::scenario::context::PATIENCE;
use crate::scenario::{Run, Stop};
use crate::wire::{
    Connection, Message, Pull, SendForm, SendOptions, SendOutcome, batch_body, code,
};

const TOPIC: &str = "sizes";
const BODY_MAX: usize = 4 * 1024 * 1024;
const PROPERTIES_MAX: usize = 32767;
const FORMS: [SendForm; 3] = [SendForm::V1, SendForm::V2, SendForm::Batch];

pub async fn size_limits(run: &mut Run) -> Result<(), Stop> {
    run.start(run.setup()).await?;
    run.rig()?.create_topic(TOPIC, 1).await?;
    let leader = run.rig()?.leader().await?;
    let probe = Probe::start(run, leader).await?;
    run.fault("oversized-messages", &[]);
    let (mut taken, mut refused) = (0, 0);
    for at in 0..run.rig()?.len() {
        let connection = run.rig()?.connect(at).await?;
        let connection = connection.with_timeout(Duration::from_secs(20));
        let role = if at == leader { "leader" } else { "follower" };
        for form in FORMS {
            let key = format!("{role}{at}-{form:?}");
            taken += accepted(run, &connection, &key, form).await?;
            refused += turned_away(run, &connection, &key, form).await?;
        }
    }
    run.fault_over("oversized-messages");
    run.figure("largest ones taken", f64::from(taken));
    run.figure("one byte more refused", f64::from(refused));
    let end = end_of(run).await?;
    run.require(end == i64::from(taken), || {
        format!("{end} messages are stored, {taken} were acknowledged")
    });
    probe.end(run).await
}

/// The queue's end, as the leader has it.
async fn end_of(run: &mut Run) -> Result<i64, Stop> {
    let begun = Instant::now();
    loop {
        let leader = run.rig()?.leader().await?;
        let connection = run.rig()?.connect(leader).await?;
        match connection.max_offset(TOPIC, 0).await {
            Ok(end) => return Ok(end),
            Err(error) if begun.elapsed() > PATIENCE => {
                return Err(Stop::Violated(format!("no end of the queue: {error}")));
            }
            Err(_) => run.sleep(Duration::from_millis(50)).await,
        }
    }
}

/// The message with `bytes` in what the limit is about: the body, or the whole batch.
fn with_body(key: &str, form: SendForm, bytes: usize) -> Message {
    if form != SendForm::Batch {
        return Message::new(TOPIC, 0, key, vec![7; bytes]);
    }
    let around = batch_body(&[Message::new(TOPIC, 0, key, Bytes::new())]).len();
    let inner = Message::new(TOPIC, 0, key, vec![7; bytes - around]);
    Message::new(TOPIC, 0, "", batch_body(&[inner]))
}

/// The message with a properties text of `bytes`.
fn with_properties(key: &str, form: SendForm, bytes: usize) -> Message {
    // `UNIQ_KEY`, the key, the name `p`, and the marks between them.
    let around = "UNIQ_KEY".len() + key.len() + "p".len() + 4;
    let long = "x".repeat(bytes - around);
    let message = Message::new(TOPIC, 0, key, &b"x"[..]).with_property("p", &long);
    match form {
        SendForm::Batch => Message::new(TOPIC, 0, "", batch_body(&[message])),
        SendForm::V1 | SendForm::V2 => message,
    }
}

/// Sends until the group takes or refuses the message for what it is: while it elects it refuses everything.
async fn send(connection: &Connection, message: &Message, form: SendForm) -> SendOutcome {
    let options = SendOptions {
        form,
        ..SendOptions::default()
    };
    let begun = Instant::now();
    loop {
        let outcome = connection.send(message, &options).await;
        let elects = match &outcome {
            SendOutcome::Fail { code, .. } => *code == code::SYSTEM_ERROR,
            SendOutcome::Info { .. } => true,
            SendOutcome::Ok(_) => false,
        };
        if !elects || begun.elapsed() > PATIENCE {
            return outcome;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The largest body is stored as it was sent.
async fn accepted(
    run: &mut Run,
    connection: &Connection,
    key: &str,
    form: SendForm,
) -> Result<i32, Stop> {
    let message = with_body(key, form, BODY_MAX);
    let stored = match send(connection, &message, form).await {
        SendOutcome::Ok(stored) => stored,
        outcome => {
            run.require(false, || format!("{key}: {BODY_MAX} bytes: {outcome:?}"));
            return Ok(0);
        }
    };
    let leader = run.rig()?.leader().await?;
    let reader = run.rig()?.connect(leader).await?;
    let pulled = reader
        .pull(&Pull::new("readers", TOPIC, 0, stored.offset))
        .await;
    let same = pulled.as_ref().is_ok_and(|pulled| {
        let record = pulled.records.first();
        record.is_some_and(|record| {
            record.key() == Some(key)
                && record.body.iter().all(|byte| *byte == 7)
                && (form == SendForm::Batch || record.body.len() == BODY_MAX)
        })
    });
    run.require(same, || {
        let shown = pulled.map(|pulled| pulled.records.len());
        format!("{key}: the largest message does not come back: {shown:?}")
    });
    Ok(1)
}

/// One byte more in the body, and in the properties, is refused as illegal.
async fn turned_away(
    run: &mut Run,
    connection: &Connection,
    key: &str,
    form: SendForm,
) -> Result<i32, Stop> {
    let end = end_of(run).await?;
    let mut refused = 0;
    for (what, message) in [
        ("body", with_body(&format!("{key}+"), form, BODY_MAX + 1)),
        (
            "properties",
            with_properties(&format!("{key}++"), form, PROPERTIES_MAX + 1),
        ),
    ] {
        let outcome = send(connection, &message, form).await;
        let illegal =
            matches!(&outcome, SendOutcome::Fail { code, .. } if *code == code::MESSAGE_ILLEGAL);
        run.require(illegal, || {
            format!("{key}: {what} one byte too long: {outcome:?}")
        });
        refused += i32::from(illegal);
    }
    let now = end_of(run).await?;
    run.require(now == end, || {
        format!("{key}: the queue grew from {end} to {now} by refused messages")
    });
    Ok(refused)
}
