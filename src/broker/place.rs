//! Where a request is served: here, at the leader, later, or not at all. Decisions only.

use quorumlog_raft::{NodeId, Refusal};

use crate::protocol::codes::request as code;

/// What a request needs of the node that serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The leader, with the gate open.
    Write,
    /// The leader, with a lease that is not half over.
    Read,
}

/// What a request code needs.
pub fn access_of(request_code: i32) -> Access {
    match request_code {
        code::PULL_MESSAGE
        | code::QUERY_CONSUMER_OFFSET
        | code::SEARCH_OFFSET_BY_TIMESTAMP
        | code::GET_MAX_OFFSET
        | code::GET_MIN_OFFSET
        | code::GET_EARLIEST_MSG_STORETIME => Access::Read,
        _ => Access::Write,
    }
}

/// What to do with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Here,
    Pass(NodeId),
    /// Nobody can serve it now, but somebody may in a moment.
    Hold,
    /// This node leads, and may serve it as soon as a majority has answered it again.
    Wait(Refusal),
    /// Waiting would not help within the time a client gives.
    Refuse(Refusal),
    /// It was passed to a node that cannot serve it: the node it came to must look again.
    HandBack,
}

/// Decides by what the gate (or the lease, for reads) of this node says. `forwarded`: another node passed
/// the request to this one; it is never passed on again.
pub fn place(node: NodeId, access: Access, gate: Result<(), Refusal>, forwarded: bool) -> Place {
    match gate {
        Ok(()) => Place::Here,
        Err(Refusal::NotLeader { .. } | Refusal::NotReady | Refusal::Stopping) if forwarded => {
            Place::HandBack
        }
        Err(Refusal::NotLeader {
            leader: Some(leader),
        }) if leader != node => Place::Pass(leader),
        Err(Refusal::NotLeader { .. } | Refusal::NotReady) => Place::Hold,
        // Half a lease without an answer is often no more than a busy machine, and reads are worth waiting for: a
        // C++ client takes any error of 14 for "never consumed".
        Err(refusal @ Refusal::NoLease { .. }) if access == Access::Read => Place::Wait(refusal),
        // A leader that lost its majority finds it again, or steps down, later than a client waits; and a full
        // disk does not empty itself.
        Err(
            refusal @ (Refusal::NoLease { .. }
            | Refusal::DiskFull { .. }
            | Refusal::ReplicasFull
            | Refusal::TooLarge { .. }
            | Refusal::Stopping),
        ) => Place::Refuse(refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_where_the_table_says() {
        let no_lease = Refusal::NoLease {
            since_ms: 400,
            lease_ms: 300,
        };
        let full = Refusal::DiskFull {
            free: 1,
            reserve: 2,
        };
        let not_leader = |leader| Err(Refusal::NotLeader { leader });
        // What the gate says, and what becomes of a client's request and of one that a peer passed on.
        let table = [
            (Ok(()), Place::Here, Place::Here),
            (not_leader(Some(2)), Place::Pass(2), Place::HandBack),
            (not_leader(Some(1)), Place::Hold, Place::HandBack),
            (not_leader(None), Place::Hold, Place::HandBack),
            (Err(Refusal::NotReady), Place::Hold, Place::HandBack),
            (
                Err(full.clone()),
                Place::Refuse(full.clone()),
                Place::Refuse(full),
            ),
            (
                Err(Refusal::Stopping),
                Place::Refuse(Refusal::Stopping),
                Place::HandBack,
            ),
        ];
        for access in [Access::Write, Access::Read] {
            for (gate, of_a_client, of_a_peer) in &table {
                let place = |forwarded| place(1, access, gate.clone(), forwarded);
                assert_eq!(place(false), *of_a_client, "{access:?} {gate:?}");
                assert_eq!(place(true), *of_a_peer, "{access:?} {gate:?}");
            }
        }
        for forwarded in [false, true] {
            let place = |access| place(1, access, Err(no_lease.clone()), forwarded);
            assert_eq!(place(Access::Write), Place::Refuse(no_lease.clone()));
            assert_eq!(place(Access::Read), Place::Wait(no_lease.clone()));
        }
    }

    #[test]
    fn only_requests_that_change_nothing_are_reads() {
        for read in [11, 14, 29, 30, 31, 32] {
            assert_eq!(access_of(read), Access::Read, "{read}");
        }
        for write in [10, 310, 320, 36, 17, 215, 15, 41, 42, 34] {
            assert_eq!(access_of(write), Access::Write, "{write}");
        }
    }
}
