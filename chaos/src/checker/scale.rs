//! How much memory a long history takes to check. Not part of an ordinary run: `cargo test -p
//! quorumlog-chaos --release -- --ignored --nocapture five_million`.

use super::{Options, check};
use crate::history::{Call, Event, Got, Reply, What};

const QUEUES: i32 = 8;

/// Sends and their acknowledgements, then a last drain of every queue from three nodes.
fn long(sends: usize) -> Vec<Event> {
    let mut events = Vec::with_capacity(2 * sends + 64);
    let mut logs: Vec<Vec<Got>> = vec![Vec::new(); QUEUES as usize];
    let push = |events: &mut Vec<Event>, a: &str, op: usize, what| {
        let t = events.len() as u64;
        let a = a.to_owned();
        let op = op as u64;
        events.push(Event { t, a, op, what });
    };
    for op in 0..sends {
        let q = (op % QUEUES as usize) as i32;
        let key = format!("p{}-{op}", op % 32);
        let call = Call::Send {
            topic: "topic".to_owned(),
            q,
            key: key.clone(),
            attempt: 1,
            hash: op as u64,
            len: 100,
            to: "n0".to_owned(),
            timeout_ms: 3000,
        };
        push(&mut events, "p", op, What::Invoke(call));
        let log = &mut logs[q as usize];
        let (off, pos) = (log.len() as i64, op as i64 * 300);
        let hash = op as u64;
        log.push(Got {
            off,
            key,
            hash,
            pos,
        });
        let reply = Reply::Send {
            q,
            off,
            pos: Some(pos),
            code: 0,
        };
        push(&mut events, "p", op, What::Ok(reply));
    }
    for (at, node) in ["n0", "n1", "n2"].into_iter().enumerate() {
        for q in 0..QUEUES {
            let op = sends + at * QUEUES as usize + q as usize;
            let call = Call::Drain {
                topic: "topic".to_owned(),
                q,
                node: node.to_owned(),
                last: true,
            };
            push(&mut events, node, op, What::Invoke(call));
            let got = logs[q as usize].clone();
            let max = got.len() as i64;
            push(
                &mut events,
                node,
                op,
                What::Ok(Reply::Drain { got, min: 0, max }),
            );
        }
    }
    events
}

/// A figure of this process in MiB.
fn mib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}

#[test]
#[ignore = "takes gigabytes; measured by hand"]
fn five_million_events_are_checked_in_bounded_memory() {
    let events = long(2_500_000);
    let (count, before) = (events.len(), mib("VmRSS:"));
    let begun = std::time::Instant::now();
    let report = check(&events, &Options::default());
    let peak = mib("VmHWM:");
    println!(
        "{count} events: {before} MiB for the history, {peak} MiB at most while checking, {:?}",
        begun.elapsed()
    );
    assert!(report.is_green(), "{report}");
    assert_eq!(report.coverage.acknowledged, 2_500_000);
    assert!(peak < 8 * 1024, "{peak} MiB");
}
