//! What a connection from another node asks of this one.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use openraft::raft::{
    AppendEntriesRequest, StreamAppendResult, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};

use super::standing::Standing;
use crate::storage::entry::TypeConfig;
use crate::types::NodeId;

/// The node behind the listener. An `Err` is a text for the other side: there is no result.
pub(crate) trait Inbound: Send + Sync + 'static {
    fn vote(
        &self,
        request: VoteRequest<TypeConfig>,
    ) -> BoxFuture<'static, Result<VoteResponse<TypeConfig>, String>>;

    fn pre_vote(
        &self,
        request: VoteRequest<TypeConfig>,
    ) -> BoxFuture<'static, Result<VoteResponse<TypeConfig>, String>>;

    /// One request outside of a stream: a heartbeat.
    fn append(
        &self,
        request: AppendEntriesRequest<TypeConfig>,
    ) -> BoxFuture<'static, Result<StreamAppendResult<TypeConfig>, String>>;

    /// A stream of requests; one answer to each, in order, until the first that is not a success.
    fn stream(
        &self,
        requests: BoxStream<'static, AppendEntriesRequest<TypeConfig>>,
    ) -> BoxStream<'static, Result<StreamAppendResult<TypeConfig>, String>>;

    fn transfer(
        &self,
        request: TransferLeaderRequest<TypeConfig>,
    ) -> BoxFuture<'static, Result<TransferLeaderResponse<TypeConfig>, String>>;

    /// How this node stands now.
    fn standing(&self) -> Standing;

    fn call(&self, from: NodeId, request: Bytes) -> BoxFuture<'static, Bytes>;

    /// The last connection from `from` ended.
    fn lost(&self, from: NodeId);
}
