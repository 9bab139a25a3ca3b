//! Proposals under way: their budget, and what openraft's answers mean.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::errors::{ClientWriteError, ForwardReason, ForwardToLeader};
use openraft::raft::ClientWriteResult;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use super::ProposeError;
use crate::sabotage::{self, Sabotage};
use crate::storage::entry::TypeConfig;
use crate::types::Refusal;

/// Payload bytes of proposals that are not done with. openraft bounds them in number only.
const BUDGET_BYTES: u32 = 64 << 20;
/// What an entry costs besides its payload.
const ENTRY_BYTES: usize = 256;
/// Largest payload of one entry: with the 1 MiB of entries that may precede it in a batch it still fits
/// in a frame between nodes, which is at most 8 MiB.
pub const MAX_PAYLOAD_BYTES: usize = 6 << 20;
/// How often a proposal that waits for the budget looks at the gate again.
const GATE_EVERY: Duration = Duration::from_millis(50);

/// Bounds the bytes of proposals under way.
#[derive(Clone)]
pub(crate) struct Budget(Arc<Semaphore>);

impl Budget {
    pub(crate) fn new() -> Budget {
        Budget(Arc::new(Semaphore::new(BUDGET_BYTES as usize)))
    }

    /// Waits for a share for `payload` bytes, as long as the gate stays open.
    pub(crate) async fn share(
        &self,
        payload: usize,
        gate: impl Fn() -> Result<(), Refusal>,
    ) -> Result<OwnedSemaphorePermit, Refusal> {
        let bytes = u32::try_from(payload + ENTRY_BYTES).unwrap_or(BUDGET_BYTES);
        let share = self.0.clone().acquire_many_owned(bytes.min(BUDGET_BYTES));
        tokio::pin!(share);
        loop {
            match timeout(GATE_EVERY, &mut share).await {
                Ok(Ok(share)) => return Ok(share),
                // Never closed; and if it were, nothing was proposed.
                Ok(Err(_)) => return Err(Refusal::Stopping),
                Err(_) => gate()?,
            }
        }
    }

    /// Waits until no proposal is under way.
    pub(crate) async fn all_done(&self) {
        let _ = self.0.acquire_many(BUDGET_BYTES).await;
    }
}

/// Waits for what becomes of a proposal.
pub(crate) async fn outcome(
    result: oneshot::Receiver<ClientWriteResult<TypeConfig>>,
    lease: Duration,
) -> Result<Bytes, ProposeError> {
    match result.await {
        Ok(Ok(response)) => Ok(response.data.0),
        Ok(Err(error)) => Err(meaning(error, lease)),
        Err(_) => Err(ProposeError::Unknown("the Raft core stopped".into())),
    }
}

/// What an error says about the entry.
///
/// `ForwardToLeader` is sent for proposals that were never appended, and for no others. In openraft
/// 0.10.0-alpha.37 there are three places: `RaftCore::write_entries` sends it to all proposals of a batch
/// before `leader_append_entries` assigns any log id (core/raft_core.rs:657-665), the check of an expected
/// leader returns before `write_entries` (core/raft_core.rs:1763-1778; not used by us), and membership changes
/// (core/raft_core.rs:482-485, 524-529; not used by us). Proposals that were appended and then lost their place
/// get `LogEntryDiscarded` (core/raft_core.rs:2476, 2498), or nothing when the core stops.
fn meaning(error: ClientWriteError<TypeConfig>, lease: Duration) -> ProposeError {
    match error {
        ClientWriteError::ForwardToLeader(forward) => {
            ProposeError::Refused(refusal(forward, lease))
        }
        // I-3: the next leader may have it.
        ClientWriteError::LogEntryDiscarded(_) if sabotage::on(Sabotage::DiscardedRefused) => {
            ProposeError::Refused(Refusal::NotLeader { leader: None })
        }
        ClientWriteError::LogEntryDiscarded(_) => ProposeError::Unknown(
            "leadership was lost before the entry was committed; the new leader may have it".into(),
        ),
        error @ (ClientWriteError::ChangeMembershipError(_)
        | ClientWriteError::PreconditionFailed(_)) => ProposeError::Unknown(error.to_string()),
    }
}

fn refusal(forward: ForwardToLeader<TypeConfig>, lease: Duration) -> Refusal {
    let lease_ms = lease.as_millis() as u64;
    match forward.reason {
        ForwardReason::NotLeader | ForwardReason::LeadershipTransfer => Refusal::NotLeader {
            leader: forward.leader_id,
        },
        // It expired after our own look at it, a moment ago.
        ForwardReason::LeaseExpired => Refusal::NoLease {
            since_ms: lease_ms,
            lease_ms,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Peer;

    #[test]
    fn only_what_was_never_appended_is_refused() {
        let lease = Duration::from_millis(300);
        let forward = ForwardToLeader::new(2, Peer::default());
        let elsewhere = Refusal::NotLeader { leader: Some(2) };
        let table = [
            (forward.clone(), elsewhere.clone()),
            (
                forward
                    .clone()
                    .with_reason(ForwardReason::LeadershipTransfer),
                elsewhere,
            ),
            (
                ForwardToLeader::empty().with_reason(ForwardReason::LeaseExpired),
                Refusal::NoLease {
                    since_ms: 300,
                    lease_ms: 300,
                },
            ),
            (
                ForwardToLeader::empty(),
                Refusal::NotLeader { leader: None },
            ),
        ];
        for (forward, refused) in table {
            let error = ClientWriteError::ForwardToLeader(forward);
            assert_eq!(meaning(error, lease), ProposeError::Refused(refused));
        }
        let discarded = ClientWriteError::LogEntryDiscarded(forward);
        assert!(matches!(
            meaning(discarded, lease),
            ProposeError::Unknown(_)
        ));
    }

    #[tokio::test]
    async fn a_core_that_drops_a_proposal_leaves_it_unknown() {
        let (sender, receiver) = oneshot::channel();
        drop(sender);
        let outcome = outcome(receiver, Duration::ZERO).await;
        assert!(
            matches!(outcome, Err(ProposeError::Unknown(_))),
            "{outcome:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_budget_bounds_bytes_and_a_closed_gate_ends_the_wait_for_it() {
        let budget = Budget::new();
        let open = || Ok(());
        let mut held = Vec::new();
        for _ in 0..10 {
            held.push(budget.share(MAX_PAYLOAD_BYTES, open).await.unwrap());
        }
        let more = timeout(
            Duration::from_secs(5),
            budget.share(MAX_PAYLOAD_BYTES, open),
        )
        .await;
        assert!(more.is_err(), "60 MiB are under way, 6 more were let in");
        let closed = budget
            .share(MAX_PAYLOAD_BYTES, || Err(Refusal::Stopping))
            .await;
        assert_eq!(closed.unwrap_err(), Refusal::Stopping);
        held.pop();
        held.push(budget.share(MAX_PAYLOAD_BYTES, open).await.unwrap());
        drop(held);
        budget.all_done().await;
    }
}
