//! What a history shows of a span of time: how sends ended, who led, how long nothing was acknowledged.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::history::{Call, Event, What};

/// How one attempt to send ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendEnd<'a> {
    Acknowledged,
    Refused(&'a str),
    Unknown(&'a str),
}

/// One attempt to send that has ended; times in nanoseconds since the history began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent<'a> {
    pub actor: &'a str,
    pub to: &'a str,
    pub begun: u64,
    pub done: u64,
    pub end: SendEnd<'a>,
}

impl Sent<'_> {
    pub fn took(&self) -> Duration {
        Duration::from_nanos(self.done - self.begun)
    }

    pub fn is_acknowledged(&self) -> bool {
        self.end == SendEnd::Acknowledged
    }

    /// Refused by the gate, in the words of the contract.
    pub fn is_refused_by_the_gate(&self) -> bool {
        matches!(self.end, SendEnd::Refused(why) if why.starts_with("[REFUSED] in-sync replicas not enough"))
    }
}

/// All attempts that were begun at `from` or later, and before `until`.
pub fn sends(events: &[Event], from: u64, until: u64) -> Vec<Sent<'_>> {
    let mut open = BTreeMap::new();
    let mut sends = Vec::new();
    for event in events {
        if let What::Invoke(Call::Send { to, .. }) = &event.what
            && (from..until).contains(&event.t)
        {
            open.insert(event.op, (event.t, to.as_str()));
            continue;
        }
        let end = match &event.what {
            What::Ok(_) => SendEnd::Acknowledged,
            What::Fail { remark, .. } => SendEnd::Refused(remark),
            What::Info { why, .. } => SendEnd::Unknown(why),
            _ => continue,
        };
        if let Some((begun, to)) = open.remove(&event.op) {
            sends.push(Sent {
                actor: &event.a,
                to,
                begun,
                done: event.t,
                end,
            });
        }
    }
    sends
}

/// Sends whose acknowledgement came from `from` on and before `until`.
pub fn acknowledged(events: &[Event], from: u64, until: u64) -> usize {
    sends(events, 0, until)
        .iter()
        .filter(|sent| sent.is_acknowledged() && (from..until).contains(&sent.done))
        .count()
}

/// All the time in a span during which nothing was acknowledged for longer than `over`.
pub fn unavailable(events: &[Event], from: u64, until: u64, over: Duration) -> Duration {
    let mut times: Vec<u64> = sends(events, 0, until)
        .iter()
        .filter(|sent| sent.is_acknowledged() && (from..until).contains(&sent.done))
        .map(|sent| sent.done)
        .collect();
    times.push(until);
    let mut last = from;
    let mut sum = Duration::ZERO;
    for t in times {
        let gap = Duration::from_nanos(t - last);
        if gap > over {
            sum += gap;
        }
        last = t;
    }
    sum
}

/// The leader of each term that a node claimed in a span.
pub fn leaders(events: &[Event], from: u64, until: u64) -> BTreeMap<u64, &str> {
    let mut leaders = BTreeMap::new();
    for (node, role, term) in observations(events, from, until) {
        if role == "leader" {
            leaders.insert(term, node);
        }
    }
    leaders
}

/// By how much the highest term that a node told grew in a span.
pub fn term_growth(events: &[Event], from: u64, until: u64) -> u64 {
    let highest = |from, until| {
        observations(events, from, until)
            .map(|(_, _, term)| term)
            .max()
            .unwrap_or(0)
    };
    let before = highest(0, from);
    highest(0, until).saturating_sub(before)
}

/// How often leadership went from one node to another in a span.
pub fn leader_changes(events: &[Event], from: u64, until: u64) -> usize {
    let leaders: Vec<&str> = leaders(events, from, until).into_values().collect();
    leaders.windows(2).filter(|two| two[0] != two[1]).count()
}

fn observations(
    events: &[Event],
    from: u64,
    until: u64,
) -> impl Iterator<Item = (&str, &str, u64)> {
    events
        .iter()
        .filter(move |event| (from..until).contains(&event.t))
        .filter_map(|event| match &event.what {
            What::Obs { node, table } => Some((
                node.as_str(),
                table.get("raftRole")?.as_str(),
                table.get("raftTerm")?.parse().ok()?,
            )),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Reply;

    fn event(t: u64, op: u64, what: What) -> Event {
        Event {
            t,
            a: "p0".to_owned(),
            op,
            what,
        }
    }

    fn send(t: u64, op: u64) -> Event {
        let call = Call::Send {
            topic: "t".to_owned(),
            q: 0,
            key: format!("k{op}"),
            attempt: 1,
            hash: 0,
            len: 0,
            to: "n0".to_owned(),
            timeout_ms: 1,
        };
        event(t, op, What::Invoke(call))
    }

    fn ok(t: u64, op: u64) -> Event {
        let reply = Reply::Send {
            q: 0,
            off: 0,
            pos: None,
            code: 0,
        };
        event(t, op, What::Ok(reply))
    }

    fn obs(t: u64, node: &str, role: &str, term: u64) -> Event {
        let table = [
            ("raftRole", role.to_owned()),
            ("raftTerm", term.to_string()),
        ];
        let table = table.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        let node = node.to_owned();
        event(t, 0, What::Obs { node, table })
    }

    #[test]
    fn sends_are_joined_with_their_ends_within_the_span() {
        let refused = What::Fail {
            code: 1,
            remark: "[REFUSED] in-sync replicas not enough: no lease".to_owned(),
        };
        let events = [
            send(1, 1),
            send(5, 2),
            ok(6, 1),
            event(9, 2, refused),
            send(9, 3),
        ];
        let all = sends(&events, 0, 100);
        assert_eq!(all.len(), 2);
        assert!(all[0].is_acknowledged() && all[1].is_refused_by_the_gate());
        assert_eq!(all[1].took(), Duration::from_nanos(4));
        assert_eq!(sends(&events, 2, 100).len(), 1);
        assert_eq!(acknowledged(&events, 2, 7), 1);
        assert_eq!(acknowledged(&events, 7, 100), 0);
    }

    #[test]
    fn time_without_an_acknowledgement_counts_when_it_is_long_and_at_both_ends() {
        let mut events = Vec::new();
        for (op, t) in [100, 110, 200].into_iter().enumerate() {
            events.push(send(t - 1, op as u64));
            events.push(ok(t, op as u64));
        }
        let over = Duration::from_nanos(50);
        let lost = unavailable(&events, 0, 300, over);
        assert_eq!(lost, Duration::from_nanos(100 + 90 + 100));
        assert_eq!(unavailable(&events, 90, 120, over), Duration::ZERO);
    }

    #[test]
    fn terms_and_leaders_are_those_of_the_span() {
        let events = [
            obs(1, "n0", "leader", 3),
            obs(5, "n1", "candidate", 4),
            obs(6, "n1", "leader", 5),
            obs(7, "n0", "follower", 5),
            obs(9, "n0", "leader", 8),
        ];
        assert_eq!(term_growth(&events, 5, 9), 2);
        assert_eq!(term_growth(&events, 5, 10), 5);
        assert_eq!(leader_changes(&events, 0, 10), 2);
        assert_eq!(leader_changes(&events, 5, 9), 0);
        assert_eq!(leaders(&events, 0, 8), [(3, "n0"), (5, "n1")].into());
    }
}
