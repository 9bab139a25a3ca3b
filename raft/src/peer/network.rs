//! openraft's network over the links of this node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use openraft::base::BoxFuture as RaftFuture;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::{SnapshotOf, VoteOf};

use super::append_stream;
use super::codec::{self, CodecError};
use super::frame::Kind;
use super::link::Link;
use crate::storage::SnapshotData;
use crate::storage::entry::TypeConfig;
use crate::types::{NodeId, Peer};

/// The links to all other nodes, by id.
pub(crate) type Links = Arc<BTreeMap<NodeId, Arc<Link>>>;

/// Makes openraft's clients. All clients of a node share its link.
pub(crate) struct Network {
    pub links: Links,
}

/// What a client is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Replication,
    /// Single small requests on the control lane, never behind entries.
    Heartbeat,
}

/// openraft's client of one other node.
pub(crate) struct Client {
    target: NodeId,
    link: Option<Arc<Link>>,
    purpose: Purpose,
}

impl Network {
    fn client(&self, target: NodeId, purpose: Purpose) -> Client {
        Client {
            target,
            link: self.links.get(&target).cloned(),
            purpose,
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Client;

    /// The configured address counts, not the one in the stored membership: a node may move.
    async fn new_client(&mut self, target: NodeId, _node: &Peer) -> Client {
        self.client(target, Purpose::Replication)
    }

    async fn new_heartbeat_client(&mut self, target: NodeId, _node: &Peer) -> Client {
        self.client(target, Purpose::Heartbeat)
    }
}

type RpcResult<T> = Result<T, RPCError<TypeConfig>>;

/// Every failure makes openraft wait a little (its configured back-off) before it tries again.
pub(super) fn unreachable(text: impl ToString) -> RPCError<TypeConfig> {
    RPCError::Unreachable(Unreachable::from_string(text))
}

impl Client {
    fn link(&self) -> RpcResult<Arc<Link>> {
        self.link
            .clone()
            .ok_or_else(|| unreachable(format!("node {} is not in dLegerPeers", self.target)))
    }

    /// One small request and its answer, within the bound that openraft sets.
    async fn ask<T>(
        &self,
        kind: Kind,
        head: Vec<u8>,
        bound: Duration,
        decode: fn(&[u8]) -> Result<T, CodecError>,
    ) -> RpcResult<T> {
        let link = self.link()?;
        let answer = tokio::time::timeout(bound, link.ask(kind, &head))
            .await
            .map_err(|_| unreachable(format!("node {}: no answer in {bound:?}", self.target)))?
            .map_err(unreachable)?;
        decode(&answer).map_err(unreachable)
    }

    async fn append(
        &self,
        request: &AppendEntriesRequest<TypeConfig>,
        bound: Duration,
    ) -> RpcResult<StreamAppendResult<TypeConfig>> {
        let (mut head, body) = codec::encode_append(request, 0);
        body.iter()
            .for_each(|payload: &Bytes| head.extend_from_slice(payload));
        self.ask(Kind::Append, head, bound, codec::decode_append_answer)
            .await
    }
}

impl RaftNetworkV2<TypeConfig> for Client {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<AppendEntriesResponse<TypeConfig>> {
        let result = self.append(&request, option.hard_ttl()).await?;
        Ok(result.into())
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> RaftFuture<'s, RpcResult<BoxStream<'s, RpcResult<StreamAppendResult<TypeConfig>>>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
    {
        Box::pin(async move {
            let link = self.link()?;
            if self.purpose == Purpose::Replication {
                let answers: BoxStream<'s, _> = Box::pin(append_stream::open(link, input));
                return Ok(answers);
            }
            let client: &'s Client = self;
            let bound = option.hard_ttl();
            let answers = futures_util::stream::unfold(Some(input), move |input| async move {
                let mut input = input?;
                let request = input.next().await?;
                let answer = client.append(&request, bound).await;
                let more = matches!(answer, Ok(Ok(_)));
                Some((answer, more.then_some(input)))
            });
            let answers: BoxStream<'s, _> = Box::pin(answers);
            Ok(answers)
        })
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let head = codec::encode_vote(&request);
        self.ask(
            Kind::Vote,
            head,
            option.hard_ttl(),
            codec::decode_vote_answer,
        )
        .await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let head = codec::encode_vote(&request);
        self.ask(
            Kind::PreVote,
            head,
            option.hard_ttl(),
            codec::decode_vote_answer,
        )
        .await
    }

    async fn full_snapshot(
        &mut self,
        _vote: VoteOf<TypeConfig>,
        _snapshot: SnapshotOf<TypeConfig, SnapshotData>,
        _cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        // Every node keeps its whole log, so no node ever needs one.
        Err(StreamingError::Unreachable(Unreachable::from_string(
            "checkpoints are not sent between nodes",
        )))
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<TransferLeaderResponse<TypeConfig>> {
        let head = codec::encode_transfer(&request);
        self.ask(
            Kind::Transfer,
            head,
            option.hard_ttl(),
            codec::decode_transfer_answer,
        )
        .await
    }
}
