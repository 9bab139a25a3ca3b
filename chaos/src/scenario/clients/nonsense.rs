//! R3: malformed frames at every door, and a thousand connections that announce far more than they send.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::malformed::{self, Malformed};
use super::probe::{Probe, bounded_growth};
use crate::scenario::{Run, Stop};
use crate::wire::{HeaderKind, Message, Reaction, SendOptions, poke};

const AT_ONCE: usize = 16;
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// Connections that announce the largest frame.
const ANNOUNCING: usize = 1000;
const GROWTH_MAX: u64 = 32 * 1024 * 1024;

pub async fn malformed_frames(run: &mut Run) -> Result<(), Stop> {
    run.start(run.setup()).await?;
    let leader = run.rig()?.leader().await?;
    let (broker, name_server) = (run.rig()?.address(leader), run.rig()?.name_server(leader));
    let front = SocketAddr::new(broker.ip(), broker.port() + 1);
    let probe = Probe::start(run, leader).await?;
    probe.goes_on("before").await?;
    let mut cases = malformed::all(&mut run.rng);
    cases.extend(every_cut());
    let cases = Arc::new(cases);

    run.fault("malformed-frames", &[]);
    for (door, to) in [
        ("broker", broker),
        ("name server", name_server),
        ("front", front),
    ] {
        let before = run.rig()?.resident(leader)?;
        let (closed, replied) = send_all(run, door, to, &cases).await?;
        run.figure(&format!("closed, {door}"), closed as f64);
        run.figure(&format!("answered, {door}"), replied as f64);
        bounded_growth(
            run,
            &format!("{} bad frames at the {door}", cases.len()),
            leader,
            before,
            GROWTH_MAX,
        )?;
        probe
            .goes_on(&format!("after bad frames at the {door}"))
            .await?;
    }
    announce(run, leader, broker).await?;
    run.fault_over("malformed-frames");
    probe.goes_on("in the end").await?;
    probe.end(run).await
}

/// A valid request cut off after each of its bytes.
fn every_cut() -> Vec<Malformed> {
    let message = Message::new("neighbour", 0, "cut", &b"never stored"[..]);
    let mut cases = Vec::new();
    for kind in [HeaderKind::Json, HeaderKind::Binary] {
        let whole = SendOptions::default().request(&message).encode(kind);
        cases.extend((0..whole.len()).map(|len| Malformed {
            what: format!("a {kind:?} request cut at {len}"),
            bytes: whole[..len].to_vec(),
            hopeless: false,
        }));
    }
    cases
}

/// Sends every case over a connection of its own; returns how many were closed and answered.
async fn send_all(
    run: &mut Run,
    door: &str,
    to: SocketAddr,
    cases: &Arc<Vec<Malformed>>,
) -> Result<(usize, usize), Stop> {
    let mut tasks = JoinSet::new();
    for lane in 0..AT_ONCE {
        let cases = Arc::clone(cases);
        tasks.spawn(async move {
            let mut reactions = Vec::new();
            for at in (lane..cases.len()).step_by(AT_ONCE) {
                let case = &cases[at];
                // What cannot become a request must be closed without waiting for its sender to hang up.
                let reaction = poke(to, &case.bytes, !case.hopeless, ANSWER_WITHIN).await;
                reactions.push((at, reaction));
            }
            reactions
        });
    }
    let (mut closed, mut replied) = (0, 0);
    for (at, reaction) in tasks.join_all().await.into_iter().flatten() {
        let case = &cases[at];
        match reaction {
            Ok(Reaction::Closed) => closed += 1,
            Ok(Reaction::Replied) => {
                replied += 1;
                run.require(!case.hopeless, || {
                    format!("{door}: {} was answered", case.what)
                });
            }
            Ok(Reaction::Silent) => run.require(false, || {
                format!("{door}: {}: neither an answer nor an end", case.what)
            }),
            Err(error) => run.require(false, || {
                format!("{door}: no connection for {}: {error}", case.what)
            }),
        }
    }
    Ok((closed, replied))
}

/// A thousand clients announce the largest frame and send a hundred bytes of it.
async fn announce(run: &mut Run, leader: usize, to: SocketAddr) -> Result<(), Stop> {
    let before = run.rig()?.resident(leader)?;
    let mut bytes = u32::to_be_bytes((1 << 24) - 4).to_vec();
    bytes.extend(100_u32.to_be_bytes());
    bytes.resize(100, b'x');
    let mut waiting = Vec::new();
    for _ in 0..ANNOUNCING {
        let connected = async {
            let mut stream = TcpStream::connect(to).await?;
            stream.write_all(&bytes).await?;
            Ok::<_, std::io::Error>(stream)
        };
        let stream = connected.await;
        waiting.push(stream.map_err(|error| Stop::Violated(format!("a connection: {error}")))?);
    }
    // Requests behind them have been served when they have been looked at.
    let other = run.rig()?.connect(leader).await?;
    for _ in 0..20 {
        let answer = other.runtime_info().await;
        run.require(answer.is_ok(), || format!("another client: {answer:?}"));
    }
    bounded_growth(
        run,
        "1,000 announced frames of 16 MiB",
        leader,
        before,
        GROWTH_MAX,
    )?;
    drop(waiting);
    Ok(())
}
