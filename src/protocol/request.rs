//! The fields of each request, read from a header's ext fields.

use super::header::{Ext, FieldError, Header};

/// SEND_MESSAGE 10, SEND_MESSAGE_V2 310, SEND_BATCH_MESSAGE 320: V1 names or one-letter names, whichever
/// are there.
#[derive(Clone, Debug)]
pub struct Send<'a> {
    pub producer_group: &'a str,
    pub topic: &'a str,
    pub default_topic: &'a str,
    pub default_topic_queue_nums: i32,
    pub queue_id: i32,
    pub sys_flag: i32,
    pub born_ms: i64,
    pub flag: i32,
    pub properties: &'a str,
    pub reconsume_times: i32,
    pub max_reconsume_times: Option<i32>,
    pub batch: bool,
    /// The broker name that the client means, where it says so.
    pub broker_name: Option<&'a str>,
}

/// PULL_MESSAGE 11.
#[derive(Clone, Debug)]
pub struct Pull<'a> {
    pub consumer_group: &'a str,
    pub topic: &'a str,
    pub queue_id: i32,
    pub queue_offset: i64,
    pub max_msg_nums: i32,
    pub sys_flag: i32,
    pub commit_offset: i64,
    pub suspend_timeout_ms: i64,
    pub sub_version: i64,
    pub subscription: Option<&'a str>,
    pub expression_type: Option<&'a str>,
    pub max_msg_bytes: Option<i64>,
}

pub const PULL_COMMIT_OFFSET: i32 = 1;
pub const PULL_SUSPEND: i32 = 1 << 1;
pub const PULL_SUBSCRIPTION: i32 = 1 << 2;

/// Requests that name one queue of a topic (14, 15, 29, 30, 31, 32), with the fields that some add.
#[derive(Clone, Debug)]
pub struct QueueRequest<'a> {
    /// Empty where the request has none (29-32).
    pub consumer_group: &'a str,
    pub topic: &'a str,
    pub queue_id: i32,
    pub commit_offset: Option<i64>,
    pub timestamp: Option<i64>,
    pub set_zero_if_not_found: Option<bool>,
    pub boundary_upper: bool,
}

/// UPDATE_AND_CREATE_TOPIC 17.
#[derive(Clone, Debug)]
pub struct CreateTopic<'a> {
    pub topic: &'a str,
    pub read_queue_nums: i32,
    pub write_queue_nums: i32,
    pub perm: i32,
    pub topic_sys_flag: i32,
    pub order: bool,
    pub attributes: &'a str,
}

/// CONSUMER_SEND_MSG_BACK 36.
#[derive(Clone, Debug)]
pub struct SendBack<'a> {
    pub group: &'a str,
    pub offset: i64,
    pub delay_level: i32,
    pub origin_msg_id: Option<&'a str>,
    pub origin_topic: Option<&'a str>,
    pub max_reconsume_times: Option<i32>,
}

/// UNREGISTER_CLIENT 35; empty group names are absent ones (C++).
#[derive(Clone, Debug)]
pub struct Unregister<'a> {
    pub client_id: &'a str,
    pub producer_group: Option<&'a str>,
    pub consumer_group: Option<&'a str>,
}

#[allow(clippy::todo, unused_variables)]
impl<'a> Send<'a> {
    pub fn read(header: &'a Header) -> Result<Send<'a>, FieldError> {
        todo!()
    }
}

#[allow(clippy::todo, unused_variables)]
impl<'a> Pull<'a> {
    pub fn read(ext: &'a Ext) -> Result<Pull<'a>, FieldError> {
        todo!()
    }
}

#[allow(clippy::todo, unused_variables)]
impl<'a> QueueRequest<'a> {
    /// `group`: whether a consumer group is a field of this request.
    pub fn read(ext: &'a Ext, group: bool) -> Result<QueueRequest<'a>, FieldError> {
        todo!()
    }
}

#[allow(clippy::todo, unused_variables)]
impl<'a> CreateTopic<'a> {
    pub fn read(ext: &'a Ext) -> Result<CreateTopic<'a>, FieldError> {
        todo!()
    }
}

#[allow(clippy::todo, unused_variables)]
impl<'a> SendBack<'a> {
    pub fn read(ext: &'a Ext) -> Result<SendBack<'a>, FieldError> {
        todo!()
    }
}

#[allow(clippy::todo, unused_variables)]
impl<'a> Unregister<'a> {
    pub fn read(ext: &'a Ext) -> Result<Unregister<'a>, FieldError> {
        todo!()
    }
}
