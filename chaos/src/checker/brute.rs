//! The checker against a search: on small histories of one queue, it must call exactly those good that some
//! order of appends, in agreement with real time, explains.

use proptest::prelude::*;

use super::{Options, check};
use crate::history::{Call, Event, Got, Reply, What};

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Ok(i64),
    Info,
    Fail,
}

#[derive(Clone, Copy, Debug)]
struct Send {
    invoke: u64,
    done: u64,
    outcome: Outcome,
}

#[derive(Clone, Debug)]
struct Small {
    sends: Vec<Send>,
    /// What the drain finds: indexes into `sends`, or a stranger.
    log: Vec<usize>,
}

/// Is there an order of appends that gives this log? Tries every order of every subset.
fn explained(small: &Small) -> bool {
    fn extend(small: &Small, order: &mut Vec<usize>) -> bool {
        if *order == small.log && complete(small, order) {
            return true;
        }
        for next in 0..small.sends.len() {
            if order.contains(&next) || matches!(small.sends[next].outcome, Outcome::Fail) {
                continue;
            }
            let invoke_before_done = order
                .iter()
                .all(|before| small.sends[*before].invoke <= effective_done(&small.sends[next]));
            if !invoke_before_done {
                continue;
            }
            order.push(next);
            if extend(small, order) {
                return true;
            }
            order.pop();
        }
        false
    }
    extend(small, &mut Vec::new())
}

/// An unknown send may take effect at any time.
fn effective_done(send: &Send) -> u64 {
    match send.outcome {
        Outcome::Ok(_) => send.done,
        Outcome::Info | Outcome::Fail => u64::MAX,
    }
}

fn complete(small: &Small, order: &[usize]) -> bool {
    small
        .sends
        .iter()
        .enumerate()
        .all(|(at, send)| match send.outcome {
            Outcome::Ok(off) => order.get(off as usize) == Some(&at),
            Outcome::Info | Outcome::Fail => true,
        })
}

fn history(small: &Small) -> Vec<Event> {
    let event = |t, op, what| Event {
        t,
        a: format!("p{op}"),
        op,
        what,
    };
    let topic = || "t".to_owned();
    let mut events = Vec::new();
    for (at, send) in small.sends.iter().enumerate() {
        let op = at as u64 + 1;
        let call = Call::Send {
            topic: topic(),
            q: 0,
            key: at.to_string(),
            attempt: 1,
            hash: at as u64,
            len: 1,
            to: "n0".to_owned(),
            timeout_ms: 3000,
        };
        events.push(event(send.invoke, op, What::Invoke(call)));
        let end = match send.outcome {
            Outcome::Ok(off) => What::Ok(Reply::Send {
                q: 0,
                off,
                pos: None,
                code: 0,
            }),
            Outcome::Info => What::Info {
                code: None,
                why: String::new(),
            },
            Outcome::Fail => What::Fail {
                code: 14,
                remark: String::new(),
            },
        };
        events.push(event(send.done, op, end));
    }
    let call = Call::Drain {
        topic: topic(),
        q: 0,
        node: "n0".to_owned(),
        last: true,
    };
    events.push(event(1000, 99, What::Invoke(call)));
    let got: Vec<Got> = small
        .log
        .iter()
        .enumerate()
        .map(|(off, at)| Got {
            off: off as i64,
            key: at.to_string(),
            hash: *at as u64,
            pos: off as i64,
        })
        .collect();
    let max = got.len() as i64;
    events.push(event(1001, 99, What::Ok(Reply::Drain { got, min: 0, max })));
    events.sort_by_key(|event| event.t);
    events
}

/// One send: times, the moment it is appended (if it is), and how it ends.
type Seed = (u64, u64, u64, u8);

/// A good history from `seeds`, then `damage` to it.
fn small(seeds: Vec<Seed>, damage: Vec<(u8, usize, usize)>) -> Small {
    let mut points = Vec::new();
    let mut sends = Vec::new();
    for (at, (invoke, length, point, end)) in seeds.into_iter().enumerate() {
        // Odd and even, so that no end and no beginning fall together.
        let (invoke, done) = (2 * invoke + 1, 2 * (invoke + length));
        let outcome = match end {
            0 => Outcome::Fail,
            1 | 2 => Outcome::Info,
            _ => Outcome::Ok(0),
        };
        sends.push(Send {
            invoke,
            done,
            outcome,
        });
        match outcome {
            Outcome::Ok(_) => points.push((invoke + point % (done - invoke + 1), at)),
            Outcome::Info if end == 1 => points.push((invoke + point * 3, at)),
            Outcome::Info | Outcome::Fail => {}
        }
    }
    points.sort_unstable();
    let mut log: Vec<usize> = points.into_iter().map(|(_, at)| at).collect();
    for (off, at) in log.iter().enumerate() {
        if let Outcome::Ok(place) = &mut sends[*at].outcome {
            *place = off as i64;
        }
    }
    for (kind, a, b) in damage {
        hurt(&mut sends, &mut log, kind, a, b);
    }
    Small { sends, log }
}

fn hurt(sends: &mut [Send], log: &mut Vec<usize>, kind: u8, a: usize, b: usize) {
    let (n, len) = (sends.len(), log.len());
    match kind {
        0 if len > 0 => {
            log.remove(a % len);
        }
        1 if len > 0 => log.swap(a % len, b % len),
        2 if len > 0 => log.push(log[a % len]),
        3 => log.push(n + a),
        4 => sends[a % n].outcome = Outcome::Fail,
        5 => sends[a % n].outcome = Outcome::Info,
        6 => sends[a % n].outcome = Outcome::Ok((b % (len + 1)) as i64),
        // Two messages change places consistently.
        7 if len > 0 => {
            let (a, b) = (a % len, b % len);
            log.swap(a, b);
            for off in [a, b] {
                if let Outcome::Ok(place) = &mut sends[log[off].min(n - 1)].outcome {
                    *place = off as i64;
                }
            }
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_checker_and_the_search_agree(
        seeds in prop::collection::vec((0u64..12, 1u64..8, 0u64..20, 0u8..8), 1..6),
        damage in prop::collection::vec((0u8..8, 0usize..6, 0usize..6), 0..3),
    ) {
        let small = small(seeds, damage);
        let report = check(&history(&small), &Options::default());
        prop_assert_eq!(report.is_green(), explained(&small), "{:?}\n{}", small, report);
    }
}
