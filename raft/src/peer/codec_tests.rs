use proptest::prelude::*;

use openraft::Membership;

use super::*;
use crate::storage::entry::RaftLogId;
use crate::types::Peer;

type AppendRequest = AppendEntriesRequest<TypeConfig>;

fn vote(term: u64, node: NodeId, committed: bool) -> Vote {
    Vote::from_leader_id(RaftLeaderId::new(term, node), committed)
}

fn log_id(term: u64, index: u64) -> RaftLogId {
    raft_log_id(EntryId { term, index })
}

fn three_nodes() -> Membership<NodeId, Peer> {
    let peer = |id: NodeId| {
        let address = format!("host{id}:40911");
        (id, Peer { address })
    };
    let voters = vec![[1, 2].into(), [1, 2, 3].into()];
    let nodes: std::collections::BTreeMap<NodeId, Peer> = [1, 2, 3].map(peer).into();
    Membership::new(voters, nodes).unwrap()
}

/// An append request of node 1 with entries of these payload sizes; every seventh is a membership, every
/// fifth is blank.
fn append(first: u64, sizes: &[usize]) -> AppendRequest {
    let mut entries = Vec::new();
    for (index, size) in (first..).zip(sizes) {
        let content = match index % 35 {
            at if at % 7 == 6 => EntryPayload::Membership(three_nodes()),
            at if at % 5 == 4 => EntryPayload::Blank,
            _ => EntryPayload::Normal(Payload(Bytes::from(vec![index as u8; *size]))),
        };
        entries.push(LogEntry {
            id: log_id(3 + index / 10, index),
            content,
            position: 0,
        });
    }
    AppendEntriesRequest {
        vote: vote(9, 1, true),
        prev_log_id: first.checked_sub(1).map(|index| log_id(3, index)),
        entries,
        leader_commit: Some(log_id(2, 5)),
    }
}

fn wire(request: &AppendRequest, stream: u64) -> Bytes {
    let (mut head, body) = encode_append(request, stream);
    body.iter().for_each(|payload| head.extend(payload));
    Bytes::from(head)
}

fn assert_same(read: &AppendRequest, sent: &AppendRequest) {
    assert_eq!(read.vote, sent.vote);
    assert_eq!(read.prev_log_id, sent.prev_log_id);
    assert_eq!(read.leader_commit, sent.leader_commit);
    assert_eq!(read.entries.len(), sent.entries.len());
    for (read, sent) in read.entries.iter().zip(&sent.entries) {
        assert_eq!(read.id, sent.id);
        assert_eq!(read.content, sent.content);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn append_requests_come_back_as_they_were_sent(
        first in 0u64..100,
        sizes in proptest::collection::vec(0usize..3000, 0..40),
        stream in any::<u64>(),
    ) {
        let sent = append(first, &sizes);
        let (read, read_stream) = decode_append(&wire(&sent, stream), 1).unwrap();
        prop_assert_eq!(read_stream, stream);
        assert_same(&read, &sent);
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), version in any::<bool>()) {
        let mut bytes = bytes;
        if version && !bytes.is_empty() {
            bytes[0] = VERSION;
        }
        let shared = Bytes::from(bytes.clone());
        let _ = decode_append(&shared, 1);
        let _ = decode_vote(&bytes, 1);
        let _ = decode_vote_answer(&bytes);
        let _ = decode_append_answer(&bytes);
        let _ = decode_transfer(&bytes, 1);
        let _ = decode_transfer_answer(&bytes);
    }

    #[test]
    fn a_damaged_append_request_never_panics(at in 0usize..400, byte in any::<u8>()) {
        let mut bytes = wire(&append(3, &[20, 0, 40, 7, 1]), 1).to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = decode_append(&Bytes::from(bytes), 1);
    }
}

#[test]
fn every_truncation_of_an_append_request_is_an_error() {
    let whole = wire(&append(0, &[20, 0, 40, 7, 1, 9, 100]), 1);
    assert!(decode_append(&whole, 1).is_ok());
    for cut in 0..whole.len() {
        let read = decode_append(&whole.slice(..cut), 1);
        assert!(read.is_err(), "cut at {cut}: {read:?}");
    }
    let mut longer = whole.to_vec();
    longer.push(0);
    let read = decode_append(&Bytes::from(longer), 1);
    assert!(matches!(read, Err(CodecError::Trailing { .. })), "{read:?}");
}

#[test]
fn received_payloads_are_slices_of_the_frame() {
    let bytes = wire(&append(0, &[5000]), 1);
    let (request, _) = decode_append(&bytes, 1).unwrap();
    let EntryPayload::Normal(payload) = &request.entries[0].content else {
        panic!("{request:?}");
    };
    let range = bytes.as_ptr_range();
    assert!(range.contains(&payload.0.as_ptr()));
}

#[test]
fn a_count_from_the_wire_reserves_nothing() {
    let mut bytes = encode(&AppendData {
        stream: 1,
        vote: VoteData::from(&vote(1, 1, true)),
        previous: None,
        committed: None,
        entries: MAX_ENTRIES as u64,
    });
    bytes.extend([0; 100]);
    let read = decode_append(&Bytes::from(bytes), 1);
    assert!(matches!(read, Err(CodecError::Short { .. })), "{read:?}");
    let bytes = encode(&AppendData {
        stream: 1,
        vote: VoteData::from(&vote(1, 1, true)),
        previous: None,
        committed: None,
        entries: u64::MAX,
    });
    let read = decode_append(&Bytes::from(bytes), 1);
    assert!(
        matches!(read, Err(CodecError::TooManyEntries(u64::MAX))),
        "{read:?}"
    );
}

#[test]
fn entries_with_a_gap_are_refused() {
    let mut request = append(4, &[1, 1, 1]);
    request.entries.remove(1);
    let read = decode_append(&wire(&request, 1), 1);
    assert!(
        matches!(read, Err(CodecError::NotConsecutive { .. })),
        "{read:?}"
    );
    let mut request = append(4, &[1]);
    request.prev_log_id = None;
    let read = decode_append(&wire(&request, 1), 1);
    assert!(
        matches!(read, Err(CodecError::NotConsecutive { .. })),
        "{read:?}"
    );
}

#[test]
fn a_node_speaks_for_itself_only() {
    let request = append(4, &[1]);
    let read = decode_append(&wire(&request, 1), 2);
    assert!(
        matches!(read, Err(CodecError::NotTheSender { signed: 1, from: 2 })),
        "{read:?}"
    );
    let request = VoteRequest::new(vote(3, 1, false), None);
    assert!(decode_vote(&encode_vote(&request), 1).is_ok());
    assert!(decode_vote(&encode_vote(&request), 2).is_err());
    let request = TransferLeaderRequest::new(vote(3, 1, true), 2, None);
    assert!(decode_transfer(&encode_transfer(&request), 1).is_ok());
    assert!(decode_transfer(&encode_transfer(&request), 3).is_err());
}

#[test]
fn votes_and_answers_come_back_as_they_were_sent() {
    for transfer in [false, true] {
        for last in [None, Some(log_id(2, 9))] {
            let mut request = VoteRequest::new(vote(u64::MAX, 1, false), last);
            request.leadership_transfer = transfer;
            assert_eq!(decode_vote(&encode_vote(&request), 1).unwrap(), request);
            let answer = VoteResponse::new(vote(7, 3, true), last, transfer);
            let read = decode_vote_answer(&encode_vote_answer(&answer)).unwrap();
            assert_eq!(read, answer);
            let request = TransferLeaderRequest::new(vote(7, 1, true), 2, last);
            let read = decode_transfer(&encode_transfer(&request), 1).unwrap();
            assert_eq!(read, request);
        }
    }
    let answers: [StreamAppendResult<TypeConfig>; 4] = [
        Ok(None),
        Ok(Some(log_id(1, 2))),
        Err(StreamAppendError::Conflict(log_id(3, 4))),
        Err(StreamAppendError::HigherVote(vote(5, 6, false))),
    ];
    for answer in answers {
        let read = decode_append_answer(&encode_append_answer(&answer)).unwrap();
        assert_eq!(read, answer);
    }
    let answers: [TransferLeaderResponse<TypeConfig>; 3] = [
        Ok(()),
        Err(TransferLeaderError::VoteChanged {
            expected: vote(1, 2, true),
            actual: vote(2, 3, false),
        }),
        Err(TransferLeaderError::LogNotFlushed {
            expected: Some(log_id(1, 2)),
            actual: None,
        }),
    ];
    for answer in answers {
        let read = decode_transfer_answer(&encode_transfer_answer(&answer)).unwrap();
        assert_eq!(read, answer);
    }
}

#[test]
fn another_payload_version_is_refused() {
    let mut bytes = encode_vote(&VoteRequest::new(vote(3, 1, false), None));
    bytes[0] = VERSION + 1;
    let read = decode_vote(&bytes, 1);
    assert!(matches!(read, Err(CodecError::Version(2))), "{read:?}");
}
