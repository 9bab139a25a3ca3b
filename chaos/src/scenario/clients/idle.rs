//! R2: connections that do nothing, that trickle, and that stop in the middle of a frame.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::probe::{Probe, bounded_growth, compare};
use crate::scenario::context::PATIENCE;
use crate::scenario::{Run, Stop};
use crate::wire::{HeaderKind, Message, SendOptions};

const IDLE: usize = 2000;
const TRICKLING: usize = 100;
const HALF: usize = 200;
const TRICKLE_EVERY: Duration = Duration::from_secs(10);
/// The server gives up a connection without a byte, and a frame that does not end, after 120 s.
const CLOSED_AFTER: Duration = Duration::from_secs(120);
const GRACE: Duration = Duration::from_secs(30);
const BYTES_PER_CONNECTION_MAX: u64 = 64 * 1024;

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Idle,
    Trickling,
    Half,
}

pub async fn idle_clients(run: &mut Run) -> Result<(), Stop> {
    run.start(run.setup()).await?;
    let leader = run.rig()?.leader().await?;
    let address = run.rig()?.address(leader);
    let probe = Probe::start(run, leader).await?;
    let quiet = probe.measure("before").await?;

    let before = run.rig()?.resident(leader)?;
    run.fault("idle-clients", &[]);
    let begun = Instant::now();
    let mut clients = connect_all(address).await?;
    let all = (IDLE + TRICKLING + HALF) as u64;
    let mut open = run.rig()?.fds(leader)?;
    // Connections wait in the backlog until the node takes them.
    while open < all && begun.elapsed() < PATIENCE {
        run.sleep(Duration::from_millis(50)).await;
        open = run.rig()?.fds(leader)?;
    }
    run.figure("files open with all of them", open as f64);
    run.require(open >= all, || {
        format!("the node holds {open} files, not {all} connections")
    });
    let busy = probe.measure("beside 2,300 idle clients").await?;
    compare(run, "beside 2,300 idle clients", &quiet, &busy);
    let max = all * BYTES_PER_CONNECTION_MAX;
    let grown = bounded_growth(run, "with 2,300 idle clients", leader, before, max)?;
    run.figure(
        "KiB for a connection",
        (grown * 10 / all / 1024) as f64 / 10.0,
    );

    let mut last = Duration::ZERO;
    let deadline = Instant::now() + CLOSED_AFTER + GRACE;
    let mut closed = [0_usize; 3];
    let mut early = 0;
    loop {
        let ended = tokio::time::timeout_at(deadline.into(), clients.join_next()).await;
        let Ok(Some(ended)) = ended else { break };
        let kind = ended.map_err(|error| Stop::Invalid(format!("an idle client: {error}")))?;
        closed[kind as usize] += 1;
        last = begun.elapsed();
        early += usize::from(last < CLOSED_AFTER - GRACE);
    }
    for (kind, wanted) in [
        (Kind::Idle, IDLE),
        (Kind::Trickling, TRICKLING),
        (Kind::Half, HALF),
    ] {
        let got = closed[kind as usize];
        run.figure(&format!("closed by the node: {kind:?}"), got as f64);
        run.require(got == wanted, || {
            format!(
                "{got} of {wanted} {kind:?} connections were closed within {:?}",
                CLOSED_AFTER + GRACE
            )
        });
    }
    run.require(early == 0, || {
        format!("{early} were closed long before their time")
    });
    run.figure(
        "seconds until the last was closed",
        last.as_secs_f64().round(),
    );
    clients.shutdown().await;
    run.fault_over("idle-clients");
    probe.end(run).await
}

/// Connects all of them; each task ends when the server closes its connection.
async fn connect_all(to: SocketAddr) -> Result<JoinSet<Kind>, Stop> {
    let message = Message::new("neighbour", 0, "half", vec![7; 2000]);
    let frame = SendOptions::default()
        .request(&message)
        .encode(HeaderKind::Json);
    let mut clients = JoinSet::new();
    for at in 0..IDLE + TRICKLING + HALF {
        let kind = match at {
            at if at < IDLE => Kind::Idle,
            at if at < IDLE + TRICKLING => Kind::Trickling,
            _ => Kind::Half,
        };
        let mut stream = TcpStream::connect(to)
            .await
            .map_err(|error| Stop::Violated(format!("connection {at} was not taken: {error}")))?;
        if kind == Kind::Half {
            let half = &frame[..frame.len() / 2];
            let sent = stream.write_all(half).await;
            sent.map_err(|error| Stop::Violated(format!("half a frame was not taken: {error}")))?;
        }
        let frame = frame.clone();
        clients.spawn(async move {
            let (mut read, mut write) = stream.split();
            let trickle = async {
                for byte in frame.iter().filter(|_| kind == Kind::Trickling) {
                    if write.write_all(&[*byte]).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(TRICKLE_EVERY).await;
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                _end = async { read.read(&mut [0; 1]).await } => {}
                () = trickle => {}
            }
            kind
        });
    }
    Ok(clients)
}
