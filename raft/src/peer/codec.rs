//! What the payloads of frames mean: our own data, versioned, none of openraft's types.
//!
//! A payload begins with a version byte. Headers are bincode with a limit; entries follow a fixed header
//! table as they are, so that their payloads are neither copied on sending nor on receipt.

use bincode::Options;
use bytes::{BufMut, Bytes};
use openraft::entry::EntryPayload;
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::vote::{RaftLeaderId, RaftVote as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::frame::FirstBytes;
use super::standing::Standing;
use crate::storage::entry::{
    LogEntry, Payload, RaftVote as Vote, TypeConfig, entry_id, members, membership, raft_log_id,
};
use crate::types::{EntryId, Members, NodeId};

/// Version of the payloads. Another version is refused by the handshake, so a payload with another
/// version byte is malformed.
const VERSION: u8 = 1;
/// Largest encoded header; a header has a handful of numbers.
const MAX_HEADER_BYTES: u64 = 4 << 10;
/// Largest encoded membership.
const MAX_MEMBERS_BYTES: u64 = 64 << 10;
/// Entries in one request; the sender asks its log for at most 300.
const MAX_ENTRIES: usize = 4096;
/// Bytes of an entry in the table: term 8, index 8, kind 1, payload length 4.
const ENTRY_HEADER_BYTES: usize = 21;

const BLANK: u8 = 0;
const NORMAL: u8 = 1;
const MEMBERSHIP: u8 = 2;

/// Why a payload cannot be understood. The connection it came from is closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CodecError {
    #[error("payload version {0}, only {VERSION} is known")]
    Version(u8),
    #[error("{what}: {source} (first bytes {first})")]
    Header {
        what: &'static str,
        source: bincode::Error,
        first: FirstBytes,
    },
    #[error("{what} ends early ({bytes} bytes)")]
    Short { what: &'static str, bytes: usize },
    #[error("{count} bytes are left behind {what}")]
    Trailing { what: &'static str, count: usize },
    #[error("{0} entries in one request")]
    TooManyEntries(u64),
    #[error("entry {id} follows {previous:?}")]
    NotConsecutive {
        id: EntryId,
        previous: Option<EntryId>,
    },
    #[error("entry {id} has unknown kind {kind}")]
    EntryKind { id: EntryId, kind: u8 },
    #[error("membership of entry {id}: {what}")]
    Membership { id: EntryId, what: String },
    #[error("the request is signed by node {signed}, but node {from} sent it")]
    NotTheSender { signed: NodeId, from: NodeId },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct VoteData {
    term: u64,
    node: NodeId,
    committed: bool,
}

impl From<&Vote> for VoteData {
    fn from(vote: &Vote) -> VoteData {
        VoteData {
            term: vote.leader_id.term,
            node: vote.leader_id.voted_for,
            committed: vote.committed,
        }
    }
}

impl From<VoteData> for Vote {
    fn from(data: VoteData) -> Vote {
        let leader = RaftLeaderId::new(data.term, data.node);
        Vote::from_leader_id(leader, data.committed)
    }
}

#[derive(Serialize, Deserialize)]
struct VoteRequestData {
    vote: VoteData,
    last: Option<EntryId>,
    transfer: bool,
}

#[derive(Serialize, Deserialize)]
struct VoteAnswerData {
    vote: VoteData,
    last: Option<EntryId>,
    granted: bool,
}

#[derive(Serialize, Deserialize)]
struct AppendData {
    /// Which stream the request belongs to; 0 outside of streams.
    stream: u64,
    vote: VoteData,
    previous: Option<EntryId>,
    committed: Option<EntryId>,
    entries: u64,
}

#[derive(Serialize, Deserialize)]
enum AppendAnswerData {
    Matched(Option<EntryId>),
    Conflict(EntryId),
    HigherVote(VoteData),
}

#[derive(Serialize, Deserialize)]
struct TransferData {
    from: VoteData,
    to: NodeId,
    last: Option<EntryId>,
}

#[derive(Serialize, Deserialize)]
enum TransferAnswerData {
    Accepted,
    VoteChanged {
        expected: VoteData,
        actual: VoteData,
    },
    LogNotFlushed {
        expected: Option<EntryId>,
        actual: Option<EntryId>,
    },
}

fn options(limit: u64) -> impl Options {
    bincode::DefaultOptions::new().with_limit(limit)
}

fn encode<T: Serialize>(data: &T) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    options(MAX_HEADER_BYTES)
        .serialize_into(&mut bytes, data)
        .expect(
            "headers are a few numbers, far below the limit, and writing to memory cannot fail",
        );
    bytes
}

/// Decodes a header and returns what follows it.
fn decode_prefix<T: DeserializeOwned>(
    what: &'static str,
    payload: &[u8],
) -> Result<(T, usize), CodecError> {
    let (version, mut rest) = payload
        .split_first()
        .ok_or(CodecError::Short { what, bytes: 0 })?;
    if *version != VERSION {
        return Err(CodecError::Version(*version));
    }
    let data = options(MAX_HEADER_BYTES)
        .deserialize_from(&mut rest)
        .map_err(|source| CodecError::Header {
            what,
            source,
            first: FirstBytes::of(payload),
        })?;
    Ok((data, payload.len() - rest.len()))
}

fn decode<T: DeserializeOwned>(what: &'static str, payload: &[u8]) -> Result<T, CodecError> {
    let (data, used) = decode_prefix(what, payload)?;
    match payload.len() - used {
        0 => Ok(data),
        count => Err(CodecError::Trailing { what, count }),
    }
}

fn ids(id: &Option<crate::storage::entry::RaftLogId>) -> Option<EntryId> {
    id.as_ref().map(entry_id)
}

/// A node may only speak for itself.
fn signed_by(vote: &Vote, from: NodeId) -> Result<(), CodecError> {
    match vote.leader_id.voted_for {
        signed if signed == from => Ok(()),
        signed => Err(CodecError::NotTheSender { signed, from }),
    }
}

pub(crate) fn encode_vote(request: &VoteRequest<TypeConfig>) -> Vec<u8> {
    encode(&VoteRequestData {
        vote: (&request.vote).into(),
        last: ids(&request.last_log_id),
        transfer: request.leadership_transfer,
    })
}

/// `from` is the node at the other end of the connection; a candidate asks for its own vote only.
pub(crate) fn decode_vote(
    payload: &[u8],
    from: NodeId,
) -> Result<VoteRequest<TypeConfig>, CodecError> {
    let data: VoteRequestData = decode("a vote request", payload)?;
    let vote = data.vote.into();
    signed_by(&vote, from)?;
    let mut request = VoteRequest::new(vote, data.last.map(raft_log_id));
    request.leadership_transfer = data.transfer;
    Ok(request)
}

pub(crate) fn encode_vote_answer(answer: &VoteResponse<TypeConfig>) -> Vec<u8> {
    encode(&VoteAnswerData {
        vote: (&answer.vote).into(),
        last: ids(&answer.last_log_id),
        granted: answer.vote_granted,
    })
}

pub(crate) fn decode_vote_answer(payload: &[u8]) -> Result<VoteResponse<TypeConfig>, CodecError> {
    let data: VoteAnswerData = decode("a vote answer", payload)?;
    let vote: Vote = data.vote.into();
    Ok(VoteResponse::new(
        vote,
        data.last.map(raft_log_id),
        data.granted,
    ))
}

/// The head (header and entry table) and the entries' payloads, which follow it in order.
pub(crate) fn encode_append(
    request: &AppendEntriesRequest<TypeConfig>,
    stream: u64,
) -> (Vec<u8>, Vec<Bytes>) {
    let mut head = encode(&AppendData {
        stream,
        vote: (&request.vote).into(),
        previous: ids(&request.prev_log_id),
        committed: ids(&request.leader_commit),
        entries: request.entries.len() as u64,
    });
    head.reserve(request.entries.len() * ENTRY_HEADER_BYTES);
    let mut body = Vec::with_capacity(request.entries.len());
    for entry in &request.entries {
        let id = entry_id(&entry.id);
        let (kind, payload) = match &entry.content {
            EntryPayload::Blank => (BLANK, Bytes::new()),
            EntryPayload::Normal(payload) => (NORMAL, payload.0.clone()),
            EntryPayload::Membership(membership) => {
                (MEMBERSHIP, encode_members(&members(membership)))
            }
        };
        head.put_u64_le(id.term);
        head.put_u64_le(id.index);
        head.put_u8(kind);
        // A frame is at most 8 MiB, which `OutFrame` checks; a longer payload cannot leave this node.
        head.put_u32_le(u32::try_from(payload.len()).unwrap_or(u32::MAX));
        body.push(payload);
    }
    (head, body)
}

fn encode_members(members: &Members) -> Bytes {
    let bytes = options(MAX_MEMBERS_BYTES)
        .serialize(members)
        .expect("a membership names a few nodes, far below the limit");
    Bytes::from(bytes)
}

/// The request and its stream. Payloads are slices of the received bytes.
pub(crate) fn decode_append(
    payload: &Bytes,
    from: NodeId,
) -> Result<(AppendEntriesRequest<TypeConfig>, u64), CodecError> {
    const WHAT: &str = "an append request";
    let (data, used): (AppendData, usize) = decode_prefix(WHAT, payload)?;
    let vote: Vote = data.vote.into();
    signed_by(&vote, from)?;
    let short = CodecError::Short {
        what: WHAT,
        bytes: payload.len(),
    };
    let count = usize::try_from(data.entries)
        .ok()
        .filter(|count| *count <= MAX_ENTRIES)
        .ok_or(CodecError::TooManyEntries(data.entries))?;
    let table_end = used + count * ENTRY_HEADER_BYTES;
    let Some(table) = payload.get(used..table_end) else {
        return Err(short);
    };
    let mut entries = Vec::with_capacity(count);
    let mut previous = data.previous;
    let mut at = table_end;
    for header in table.chunks_exact(ENTRY_HEADER_BYTES) {
        let (id, kind, length) = entry_header(header);
        let expected = previous.map_or(Some(0), |previous| previous.index.checked_add(1));
        if Some(id.index) != expected || previous.is_some_and(|previous| id.term < previous.term) {
            return Err(CodecError::NotConsecutive { id, previous });
        }
        let end = at + length;
        if end > payload.len() {
            return Err(short);
        }
        entries.push(LogEntry {
            id: raft_log_id(id),
            content: entry_content(id, kind, payload.slice(at..end))?,
            position: 0,
        });
        previous = Some(id);
        at = end;
    }
    if at != payload.len() {
        return Err(CodecError::Trailing {
            what: WHAT,
            count: payload.len() - at,
        });
    }
    let request = AppendEntriesRequest {
        vote,
        prev_log_id: data.previous.map(raft_log_id),
        entries,
        leader_commit: data.committed.map(raft_log_id),
    };
    Ok((request, data.stream))
}

fn entry_header(bytes: &[u8]) -> (EntryId, u8, usize) {
    let u64_at = |at: usize| {
        let mut number = [0; 8];
        number.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(number)
    };
    let length = u32::from_le_bytes([bytes[17], bytes[18], bytes[19], bytes[20]]);
    let id = EntryId {
        term: u64_at(0),
        index: u64_at(8),
    };
    (id, bytes[16], length as usize)
}

fn entry_content(
    id: EntryId,
    kind: u8,
    payload: Bytes,
) -> Result<crate::storage::entry::EntryContent, CodecError> {
    match kind {
        BLANK if payload.is_empty() => Ok(EntryPayload::Blank),
        BLANK => Err(CodecError::Trailing {
            what: "a blank entry",
            count: payload.len(),
        }),
        NORMAL => Ok(EntryPayload::Normal(Payload(payload))),
        MEMBERSHIP => {
            let wrong = |what: String| CodecError::Membership { id, what };
            let data: Members = options(MAX_MEMBERS_BYTES)
                .deserialize(&payload)
                .map_err(|error| wrong(error.to_string()))?;
            membership(&data)
                .map(EntryPayload::Membership)
                .map_err(|error| wrong(error.to_string()))
        }
        kind => Err(CodecError::EntryKind { id, kind }),
    }
}

pub(crate) fn encode_append_answer(answer: &StreamAppendResult<TypeConfig>) -> Vec<u8> {
    encode(&match answer {
        Ok(matched) => AppendAnswerData::Matched(ids(matched)),
        Err(StreamAppendError::Conflict(id)) => AppendAnswerData::Conflict(entry_id(id)),
        Err(StreamAppendError::HigherVote(vote)) => AppendAnswerData::HigherVote(vote.into()),
    })
}

pub(crate) fn decode_append_answer(
    payload: &[u8],
) -> Result<StreamAppendResult<TypeConfig>, CodecError> {
    Ok(match decode("an append answer", payload)? {
        AppendAnswerData::Matched(id) => Ok(id.map(raft_log_id)),
        AppendAnswerData::Conflict(id) => Err(StreamAppendError::Conflict(raft_log_id(id))),
        AppendAnswerData::HigherVote(vote) => Err(StreamAppendError::HigherVote(vote.into())),
    })
}

pub(crate) fn encode_transfer(request: &TransferLeaderRequest<TypeConfig>) -> Vec<u8> {
    encode(&TransferData {
        from: request.from_leader().into(),
        to: *request.to_node_id(),
        last: request.last_log_id().map(entry_id),
    })
}

pub(crate) fn decode_transfer(
    payload: &[u8],
    from: NodeId,
) -> Result<TransferLeaderRequest<TypeConfig>, CodecError> {
    let data: TransferData = decode("a transfer request", payload)?;
    let vote = data.from.into();
    signed_by(&vote, from)?;
    Ok(TransferLeaderRequest::new(
        vote,
        data.to,
        data.last.map(raft_log_id),
    ))
}

pub(crate) fn encode_transfer_answer(answer: &TransferLeaderResponse<TypeConfig>) -> Vec<u8> {
    encode(&match answer {
        Ok(()) => TransferAnswerData::Accepted,
        Err(TransferLeaderError::VoteChanged { expected, actual }) => {
            TransferAnswerData::VoteChanged {
                expected: expected.into(),
                actual: actual.into(),
            }
        }
        Err(TransferLeaderError::LogNotFlushed { expected, actual }) => {
            TransferAnswerData::LogNotFlushed {
                expected: ids(expected),
                actual: ids(actual),
            }
        }
    })
}

pub(crate) fn decode_transfer_answer(
    payload: &[u8],
) -> Result<TransferLeaderResponse<TypeConfig>, CodecError> {
    Ok(match decode("a transfer answer", payload)? {
        TransferAnswerData::Accepted => Ok(()),
        TransferAnswerData::VoteChanged { expected, actual } => {
            Err(TransferLeaderError::VoteChanged {
                expected: expected.into(),
                actual: actual.into(),
            })
        }
        TransferAnswerData::LogNotFlushed { expected, actual } => {
            Err(TransferLeaderError::LogNotFlushed {
                expected: expected.map(raft_log_id),
                actual: actual.map(raft_log_id),
            })
        }
    })
}

pub(crate) fn encode_standing(standing: &Standing) -> Vec<u8> {
    encode(standing)
}

pub(crate) fn decode_standing(payload: &[u8]) -> Result<Standing, CodecError> {
    decode("a standing", payload)
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
