//! From request code to handler, and from node to leader.

use std::sync::Arc;

use super::{Broker, Request};
use crate::protocol::codes::{request as code, response};
use crate::protocol::frame::Reply;

impl Broker {
    /// Handles one request that came to a broker port. Does not wait.
    pub fn handle(self: &Arc<Self>, request: Request) {
        match request.frame.header.code {
            code::SEND_MESSAGE | code::SEND_MESSAGE_V2 | code::SEND_BATCH_MESSAGE => {
                self.on_send(request)
            }
            code::PULL_MESSAGE => self.on_pull(request),
            code::QUERY_CONSUMER_OFFSET => self.on_query_offset(request),
            code::UPDATE_CONSUMER_OFFSET => self.on_update_offset(request),
            code::SEARCH_OFFSET_BY_TIMESTAMP => self.on_search_offset(request),
            code::GET_MAX_OFFSET => self.on_max_offset(request),
            code::GET_MIN_OFFSET => self.on_min_offset(request),
            code::GET_EARLIEST_MSG_STORETIME => self.on_earliest_time(request),
            code::HEART_BEAT => self.on_heartbeat(request),
            code::UNREGISTER_CLIENT => self.on_unregister(request),
            code::CHECK_CLIENT_CONFIG => self.on_check_client_config(request),
            code::GET_CONSUMER_LIST_BY_GROUP => self.on_consumer_list(request),
            code::LOCK_BATCH_MQ => self.on_lock(request),
            code::UNLOCK_BATCH_MQ => self.on_unlock(request),
            code::CONSUMER_SEND_MSG_BACK => self.on_send_back(request),
            code::UPDATE_AND_CREATE_TOPIC => self.on_create_topic(request),
            code::DELETE_TOPIC_IN_BROKER => self.on_delete_topic(request),
            code::GET_BROKER_RUNTIME_INFO => self.on_runtime_info(request),
            code::GET_ROUTEINFO_BY_TOPIC
            | code::GET_BROKER_CLUSTER_INFO
            | code::GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            | code::DELETE_TOPIC_IN_NAMESRV => self.on_naming(request),
            unknown => {
                let remark = format!(" request type {unknown} not supported");
                let reply = Reply::new(
                    response::REQUEST_CODE_NOT_SUPPORTED,
                    request.frame.header.opaque,
                );
                request.reply.send(reply.with_remark(remark));
            }
        }
    }
}
