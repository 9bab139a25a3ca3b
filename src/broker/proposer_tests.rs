use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc;

use super::*;
use crate::store::entry::encode_outcomes;

/// A log whose entries are settled by the test.
struct FakeLog {
    gate: Mutex<Result<(), Refusal>>,
    refuse: Mutex<Option<Refusal>>,
    /// Takes no entry, and does not refuse it either.
    stuck: Mutex<bool>,
    proposed: mpsc::UnboundedSender<Proposed>,
}

struct Proposed {
    payload: Bytes,
    settle: oneshot::Sender<Result<Bytes, ProposeError>>,
}

impl Log for FakeLog {
    fn gate(&self) -> Result<(), Refusal> {
        self.gate.lock().unwrap().clone()
    }

    fn propose(&self, payload: Bytes) -> BoxFuture<'_, Result<Outcome, ProposeError>> {
        if let Some(refusal) = self.refuse.lock().unwrap().clone() {
            return async move { Err(ProposeError::Refused(refusal)) }.boxed();
        }
        if *self.stuck.lock().unwrap() {
            return std::future::pending().boxed();
        }
        let (settle, settled) = oneshot::channel();
        self.proposed.send(Proposed { payload, settle }).unwrap();
        let outcome = settled.map(|result| {
            result.unwrap_or_else(|_| Err(ProposeError::Unknown("the node stopped".to_string())))
        });
        async move { Ok(outcome.boxed()) }.boxed()
    }
}

struct Rig {
    log: Arc<FakeLog>,
    proposer: Proposer,
    proposed: mpsc::UnboundedReceiver<Proposed>,
}

fn rig() -> Rig {
    let (tell, proposed) = mpsc::unbounded_channel();
    let log = Arc::new(FakeLog {
        gate: Mutex::new(Ok(())),
        refuse: Mutex::new(None),
        stuck: Mutex::new(false),
        proposed: tell,
    });
    Rig {
        proposer: Proposer::over(log.clone()),
        log,
        proposed,
    }
}

type Told = oneshot::Receiver<Result<UnitOutcome, WriteError>>;

impl Rig {
    fn submit_until(&self, deadline: Instant, name: &str) -> Told {
        let command = Command::DeleteTopic {
            name: name.to_string(),
        };
        let (tell, told) = oneshot::channel();
        self.proposer.submit(
            deadline,
            |entry| entry.push_command(&command),
            // A test may not look at every outcome.
            move |outcome| drop(tell.send(outcome)),
        );
        told
    }

    fn submit(&self, name: &str) -> Told {
        self.submit_until(Instant::now() + Duration::from_secs(60), name)
    }

    async fn next(&mut self) -> Proposed {
        let next = tokio::time::timeout(Duration::from_secs(20), self.proposed.recv());
        next.await.expect("an entry is proposed").unwrap()
    }
}

/// Outcomes that can be told apart.
fn stored(offsets: impl IntoIterator<Item = i64>) -> Bytes {
    let outcomes: Vec<UnitOutcome> = offsets
        .into_iter()
        .map(|queue_offset| UnitOutcome::Stored {
            queue_offset,
            position: 0,
            duplicate: false,
        })
        .collect();
    encode_outcomes(&outcomes)
}

async fn offset_of(told: Told) -> i64 {
    match told.await.unwrap() {
        Ok(UnitOutcome::Stored { queue_offset, .. }) => queue_offset,
        other => panic!("{other:?}"),
    }
}

fn in_ms(ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(ms)
}

#[tokio::test]
async fn the_first_unit_goes_out_alone_and_the_next_ones_gather_while_places_are_taken() {
    let mut rig = rig();
    let mut alone = Vec::new();
    let mut taken = Vec::new();
    for n in 0..IN_FLIGHT_MAX {
        alone.push(rig.submit(&format!("alone{n}")));
        taken.push(rig.next().await);
    }
    let gathered: Vec<Told> = (0..3).map(|n| rig.submit(&format!("g{n}"))).collect();
    assert!(rig.proposed.recv().now_or_never().is_none());
    for (n, entry) in taken.into_iter().enumerate() {
        entry.settle.send(Ok(stored([n as i64]))).unwrap();
    }
    for (n, told) in alone.into_iter().enumerate() {
        assert_eq!(offset_of(told).await, n as i64);
    }
    let entry = rig.next().await;
    entry.settle.send(Ok(stored([10, 11, 12]))).unwrap();
    for (n, told) in gathered.into_iter().enumerate() {
        assert_eq!(offset_of(told).await, 10 + n as i64, "in the units' order");
    }
}

#[tokio::test]
async fn a_batch_ends_at_its_bound_of_units() {
    let mut rig = rig();
    let mut first = Vec::new();
    for n in 0..IN_FLIGHT_MAX {
        drop(rig.submit(&format!("f{n}")));
        first.push(rig.next().await);
    }
    let told: Vec<Told> = (0..BATCH_UNITS + 1).map(|_| rig.submit("t")).collect();
    for entry in first {
        // Settled as unknown: only their places matter here.
        drop(entry);
    }
    let entry = rig.next().await;
    entry
        .settle
        .send(Ok(stored(0..BATCH_UNITS as i64)))
        .unwrap();
    let last = rig.next().await;
    last.settle.send(Ok(stored([-1]))).unwrap();
    let mut offsets = Vec::new();
    for told in told {
        offsets.push(offset_of(told).await);
    }
    let mut wanted: Vec<i64> = (0..BATCH_UNITS as i64).collect();
    wanted.push(-1);
    assert_eq!(offsets, wanted);
}

#[tokio::test]
async fn a_closed_gate_refuses_at_once_and_encodes_nothing() {
    let rig = rig();
    *rig.log.gate.lock().unwrap() = Err(Refusal::NoLease {
        since_ms: 400,
        lease_ms: 300,
    });
    rig.proposer.submit(
        in_ms(1000),
        |_| panic!("nothing is to be encoded"),
        |outcome| assert!(matches!(outcome, Err(WriteError::Refused(_)))),
    );
    let late = rig.submit_until(Instant::now(), "late").await.unwrap();
    assert!(matches!(late, Err(WriteError::Refused(_))));
}

#[tokio::test]
async fn a_refused_proposal_refuses_its_units_and_frees_the_place() {
    let mut rig = rig();
    *rig.log.refuse.lock().unwrap() = Some(Refusal::NotLeader { leader: Some(2) });
    for n in 0..IN_FLIGHT_MAX + 1 {
        let outcome = rig.submit(&format!("r{n}")).await.unwrap();
        assert_eq!(outcome, Err(WriteError::NotLeader { leader: Some(2) }));
    }
    *rig.log.refuse.lock().unwrap() = None;
    let told = rig.submit("after");
    rig.next().await.settle.send(Ok(stored([5]))).unwrap();
    assert_eq!(offset_of(told).await, 5);
}

#[tokio::test]
async fn an_unknown_entry_makes_all_its_units_unknown() {
    let mut rig = rig();
    let told = rig.submit("u");
    let lost = ProposeError::Unknown("leadership was lost".to_string());
    rig.next().await.settle.send(Err(lost)).unwrap();
    let outcome = told.await.unwrap();
    assert_eq!(
        outcome,
        Err(WriteError::Unknown("leadership was lost".to_string()))
    );
}

#[tokio::test]
async fn a_deadline_makes_a_proposed_unit_unknown_and_a_gathering_one_refused() {
    let mut rig = rig();
    let patient = rig.submit("patient");
    let mut taken = vec![rig.next().await];
    let proposed = rig.submit_until(in_ms(50), "proposed");
    taken.push(rig.next().await);
    while taken.len() < IN_FLIGHT_MAX {
        drop(rig.submit_until(in_ms(60_000), "filler"));
        taken.push(rig.next().await);
    }
    let gathering = rig.submit_until(in_ms(100), "gathering");
    assert!(matches!(
        proposed.await.unwrap(),
        Err(WriteError::Unknown(_))
    ));
    assert!(matches!(
        gathering.await.unwrap(),
        Err(WriteError::Refused(_))
    ));
    taken.remove(0).settle.send(Ok(stored([7]))).unwrap();
    assert_eq!(offset_of(patient).await, 7, "a late entry still settles");
    assert!(
        rig.proposed.recv().now_or_never().is_none(),
        "what was refused is never proposed"
    );
}

#[tokio::test]
async fn what_a_stuck_log_does_not_take_is_refused_at_its_deadline() {
    let mut rig = rig();
    *rig.log.stuck.lock().unwrap() = true;
    let first = rig.submit_until(in_ms(50), "first");
    let second = rig.submit_until(in_ms(60), "second");
    for told in [first, second] {
        assert!(matches!(told.await.unwrap(), Err(WriteError::Refused(_))));
    }
    *rig.log.stuck.lock().unwrap() = false;
    let after = rig.submit("after");
    rig.next().await.settle.send(Ok(stored([3]))).unwrap();
    assert_eq!(offset_of(after).await, 3);
}

#[tokio::test]
async fn writes_are_refused_as_busy_beyond_the_waiting_bytes() {
    let mut rig = rig();
    let mut taken = Vec::new();
    for _ in 0..IN_FLIGHT_MAX {
        drop(rig.submit("f"));
        taken.push(rig.next().await);
    }
    let big = "x".repeat(1024 * 1024);
    let mut waiting: Vec<Told> = (0..66).map(|_| rig.submit(&big)).collect();
    let refused: Vec<_> = waiting
        .iter_mut()
        .filter_map(|told| told.try_recv().ok())
        .collect();
    assert!(!refused.is_empty());
    for outcome in refused {
        assert!(matches!(outcome, Err(WriteError::Busy(_))), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_command_waits_for_its_outcome() {
    let mut rig = rig();
    let deadline = in_ms(60_000);
    let command = Command::DeleteTopic {
        name: "t".to_string(),
    };
    let asked = rig.proposer.command(deadline, &command);
    let settle = async {
        let entry = rig.proposed.recv().await.unwrap();
        assert!(!entry.payload.is_empty());
        let outcome = UnitOutcome::Command(CommandOutcome::NoSuchTopic);
        entry.settle.send(Ok(encode_outcomes(&[outcome]))).unwrap();
    };
    let (outcome, ()) = tokio::join!(asked, settle);
    assert_eq!(outcome, Ok(CommandOutcome::NoSuchTopic));
}

#[test]
fn errors_are_answered_as_the_contract_words_them() {
    let table = [
        (
            WriteError::Refused("why".to_string()),
            1,
            "[REFUSED] in-sync replicas not enough: why",
        ),
        (
            WriteError::NotLeader { leader: Some(2) },
            1,
            "[REFUSED] in-sync replicas not enough: this node is not the leader",
        ),
        (
            Refusal::NotReady.into(),
            1,
            "[REFUSED] in-sync replicas not enough: the new leader has not finished taking over",
        ),
        (
            Refusal::NoLease {
                since_ms: 400,
                lease_ms: 300,
            }
            .into(),
            1,
            "[REFUSED] in-sync replicas not enough: the leader has had no answer from a majority for 400 ms (lease 300 ms)",
        ),
        (
            Refusal::Stopping.into(),
            1,
            "[REFUSED] in-sync replicas not enough: this node is stopping",
        ),
        (
            Refusal::DiskFull {
                free: 1,
                reserve: 2,
            }
            .into(),
            14,
            "[REFUSED] service not available now: the disk has only 1 bytes left, 2 are kept in reserve (diskReserveBytes)",
        ),
        (
            Refusal::ReplicasFull.into(),
            14,
            "[REFUSED] service not available now: the disks of other nodes are nearly full (diskReserveBytes): no majority can take it",
        ),
        (
            Refusal::TooLarge { bytes: 9, limit: 8 }.into(),
            13,
            "[REFUSED] the message is illegal: it takes 9 bytes in the log, of at most 8",
        ),
        (
            WriteError::Busy("the write queue is full".to_string()),
            2,
            "[REFUSED] broker busy: the write queue is full",
        ),
        (
            WriteError::Unknown("why".to_string()),
            1,
            "[UNKNOWN] in-sync replicas not enough: why",
        ),
    ];
    for (error, code, remark) in table {
        assert_eq!(error.code_and_remark(), (code, remark.to_string()));
        assert_eq!(error.is_definite(), remark.starts_with("[REFUSED]"));
    }
}
