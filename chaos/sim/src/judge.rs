//! The end of a run: everything that every node has is read, and the history goes through the checker.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quorumlog::store::{ReadLimits, ReadOutcome, Store, Wait};
use quorumlog_chaos::checker::{self, Options};
use quorumlog_chaos::history::{Call, Got, Reply, What};
use quorumlog_chaos::wire::decode_records;
use quorumlog_chaos::workload::got_of;

use crate::clients::TOPIC;
use crate::counts::Counts;
use crate::host::{Seat, host_name};
use crate::plan::Plan;
use crate::trace::Trace;
use crate::watch::{Verdict, broken};

/// Drains all nodes, and checks the whole history.
pub fn judge(plan: &Plan, seats: &[Arc<Seat>], trace: &Trace, counts: &mut Counts) -> Verdict {
    let mut views = Vec::new();
    for seat in seats {
        let Some(store) = seat
            .seen()
            .running
            .as_ref()
            .map(|running| running.store.clone())
        else {
            return broken(
                "I-20 all nodes are up at the end",
                format!("n{} is not", seat.node),
            );
        };
        drain(plan, seat, &store, trace)?;
        views.push((seat.node, view(&store, plan)));
    }
    if let Some((node, other)) = views.iter().find(|(_, view)| *view != views[0].1) {
        return broken(
            "I-18 the state is a function of the log",
            format!("n{}: {}\nn{node}: {other}", views[0].0, views[0].1),
        );
    }
    let options = Options {
        deduplication: plan.deduplication,
        lease: plan.election.1 + Duration::from_millis(100),
        ..Options::default()
    };
    let report = checker::check(&trace.events(), &options);
    let coverage = &report.coverage;
    counts.acknowledged = coverage.acknowledged as u64;
    counts.refused = coverage.refused as u64;
    counts.unknown = coverage.unknown as u64;
    counts.unknown_found = coverage.unknown_found as u64;
    counts.drained = coverage.records_drained as u64;
    match report.violations.first() {
        Some(first) => broken(&first.invariant.to_string(), report.to_string()),
        None => Ok(()),
    }
}

/// Reads everything that a node has, through its own read path.
fn drain(plan: &Plan, seat: &Seat, store: &Store, trace: &Trace) -> Verdict {
    for queue in 0..plan.queues {
        let node = host_name(seat.node);
        let actor = format!("drain-{node}");
        let call = Call::Drain {
            topic: TOPIC.to_owned(),
            q: queue,
            node,
            last: true,
        };
        let op = trace.invoke(&actor, call);
        let (min, max) = store.queue_bounds(TOPIC, queue).unwrap_or((0, 0));
        let mut got = Vec::new();
        let mut from = min;
        while from < max {
            match read(store, queue, from) {
                Ok((records, next)) if next > from => {
                    got.extend(records);
                    from = next;
                }
                other => {
                    let evidence = format!("n{} queue {queue} offset {from}: {other:?}", seat.node);
                    return broken("I-1 everything can be read", evidence);
                }
            }
        }
        trace.complete(&actor, op, What::Ok(Reply::Drain { got, min, max }));
    }
    Ok(())
}

fn read(store: &Store, queue: i32, from: i64) -> Result<(Vec<Got>, i64), String> {
    let limits = ReadLimits {
        messages_max: 64,
        bytes_max: 1 << 20,
    };
    let host = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
    let read = store.read(TOPIC, queue, from, limits, &|_| true, host, Wait::Yes);
    match read.map_err(|error| error.to_string())? {
        ReadOutcome::Found { records, next, .. } => Ok((decode(records, queue)?, next)),
        other => Err(format!("{other:?}")),
    }
}

fn decode(records: Bytes, queue: i32) -> Result<Vec<Got>, String> {
    let records = decode_records(records).map_err(|error| error.to_string())?;
    Ok(records
        .iter()
        .map(|record| got_of(record, TOPIC, queue))
        .collect())
}

/// A node's tables in words, to compare with the others'.
fn view(store: &Store, plan: &Plan) -> String {
    let bounds: Vec<_> = (0..plan.queues)
        .map(|queue| store.queue_bounds(TOPIC, queue))
        .collect();
    let offsets: Vec<_> = (0..2)
        .flat_map(|group| (0..plan.queues).map(move |queue| (group, queue)))
        .map(|(group, queue)| store.consumer_offset(&format!("sim_consumers{group}"), TOPIC, queue))
        .collect();
    format!(
        "{:?} {:?} {:?} {bounds:?} {offsets:?}",
        store.topics(),
        store.groups(),
        store.nodes()
    )
}
