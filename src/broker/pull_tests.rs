//! What a held pull gets.

use std::path::PathBuf;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::*;

fn found(next: i64) -> ReadOutcome {
    ReadOutcome::Found {
        records: Bytes::from_static(b"records"),
        count: 1,
        next,
        min: 2,
        max: 9,
    }
}

fn held(from: i64) -> HeldPull {
    HeldPull {
        topic: Arc::from("t"),
        queue: 0,
        from,
        limits: ReadLimits {
            messages_max: 32,
            bytes_max: 1024,
        },
        filter: TagFilter::All,
        topic_sys_flag: 0,
        opaque: 1,
        reply: ReplyTo::Peer(oneshot::channel().0),
        customer: Customer::Node(1),
        deadline: Instant::now(),
    }
}

/// `code next` of an answer, or what else became of the pull.
fn told(outcome: Result<ReadOutcome, StoreError>, why: Why, sure: bool) -> String {
    match verdict(&held(4), outcome, why, || sure) {
        Verdict::Answer(reply) => {
            let next = reply.ext.text("nextBeginOffset").unwrap_or("-");
            format!("{} {next}", reply.code)
        }
        Verdict::Keep { from } => format!("keep {from}"),
        Verdict::ReadCold => "cold".to_string(),
    }
}

#[test]
fn a_held_pull_gets_what_its_case_says() {
    use Why::{Arrival, Deadline, Ended};
    let at_end = || Ok(ReadOutcome::AtEnd { min: 0, max: 4 });
    let none = || {
        Ok(ReadOutcome::NoneMatched {
            next: 6,
            min: 0,
            max: 6,
        })
    };
    let moved = || Ok(ReadOutcome::OutOfRange { min: 5, max: 6 });
    let damaged = || {
        Err(StoreError::Damaged {
            position: 1,
            what: "crc".into(),
        })
    };
    for (outcome, why, sure, wanted) in [
        (Ok(found(5)), Arrival, false, "0 5"),
        (Ok(found(5)), Deadline, false, "0 5"),
        (Ok(found(5)), Ended, false, "0 5"),
        (at_end(), Arrival, true, "keep 4"),
        (at_end(), Deadline, true, "19 4"),
        (at_end(), Deadline, false, "2 -"),
        (at_end(), Ended, true, "2 -"),
        (none(), Arrival, true, "keep 6"),
        (none(), Deadline, true, "20 6"),
        (none(), Ended, true, "2 -"),
        (moved(), Arrival, true, "21 5"),
        (moved(), Deadline, true, "21 5"),
        (Ok(ReadOutcome::WouldBlock), Arrival, true, "cold"),
        (Ok(ReadOutcome::WouldBlock), Deadline, true, "cold"),
        (damaged(), Arrival, true, "1 -"),
    ] {
        let what = format!("{outcome:?} {why:?} {sure}");
        assert_eq!(told(outcome, why, sure), wanted, "{what}");
    }
}

#[test]
fn unreadable_bytes_are_an_error_that_names_the_place() {
    let error = StoreError::Io {
        path: PathBuf::from("log/7.seg"),
        source: std::io::Error::other("broken"),
    };
    let reply = unreadable(1, &error);
    assert_eq!(reply.code, 1);
    assert!(reply.remark.unwrap().contains("log/7.seg"));
}
