//! Which messages of a queue a pull wants: whether the expression comes from the pull or from what the
//! group's consumers announced. Leaves the expressions themselves to `protocol::filter`.

use std::sync::Arc;

use crate::protocol::body::Subscription;
use crate::protocol::codes::response;
use crate::protocol::filter::TagFilter;
use crate::protocol::request::{PULL_SUBSCRIPTION, Pull};

/// Why a pull gets no filter: code and remark as RocketMQ gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterRefusal {
    pub code: i32,
    pub remark: String,
}

impl FilterRefusal {
    fn new(code: i32, remark: impl Into<String>) -> FilterRefusal {
        FilterRefusal {
            code,
            remark: remark.into(),
        }
    }
}

/// What this node knows of a group's subscription to a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registered {
    /// At least one consumer of the group is connected.
    pub group: bool,
    /// The group consumes by broadcasting.
    pub broadcasting: bool,
    pub subscription: Option<Arc<Subscription>>,
}

/// Is this expression type one that is filtered here? Absent and empty are TAG.
pub fn check_expression_type(expression_type: &str) -> Result<(), FilterRefusal> {
    if expression_type.is_empty() || expression_type == "TAG" {
        return Ok(());
    }
    let remark =
        format!("The broker does not support consumer to filter message by {expression_type}");
    Err(FilterRefusal::new(response::SYSTEM_ERROR, remark))
}

/// The filter of a pull. `broadcast_enable` is the group's setting.
///
/// With the subscription bit the pull's own text counts. Without it, what the consumers announced counts,
/// and it must not be older than the pull's version, unless the pull carries the newer text: a Java client
/// raises its version at a rebalance and may skip the heartbeat that would have told us. A text that is
/// empty says nothing (the Go client sends one with every pull).
pub fn filter_of(
    pull: &Pull<'_>,
    registered: &Registered,
    broadcast_enable: bool,
) -> Result<TagFilter, FilterRefusal> {
    let text = pull.subscription.filter(|text| !text.trim().is_empty());
    if pull.sys_flag & PULL_SUBSCRIPTION != 0 {
        return match (text, &registered.subscription) {
            (Some(text), _) => own_filter(pull, text),
            (None, Some(known)) => known_filter(known),
            // RocketMQ reads a missing text as everything: pull consumers are not announced.
            (None, None) => own_filter(pull, "*"),
        };
    }
    if !registered.group {
        return Err(FilterRefusal::new(
            response::SUBSCRIPTION_NOT_EXIST,
            "the consumer's group info not exist",
        ));
    }
    if registered.broadcasting && !broadcast_enable {
        let remark = format!(
            "the consumer group[{}] can not consume by broadcast way",
            pull.consumer_group
        );
        return Err(FilterRefusal::new(response::NO_PERMISSION, remark));
    }
    let Some(known) = &registered.subscription else {
        return Err(FilterRefusal::new(
            response::SUBSCRIPTION_NOT_EXIST,
            "the consumer's subscription not exist",
        ));
    };
    match text {
        _ if known.version >= pull.sub_version => known_filter(known),
        Some(text) => own_filter(pull, text),
        None => Err(FilterRefusal::new(
            response::SUBSCRIPTION_NOT_LATEST,
            "the consumer's subscription not latest",
        )),
    }
}

fn own_filter(pull: &Pull<'_>, text: &str) -> Result<TagFilter, FilterRefusal> {
    check_expression_type(pull.expression_type.unwrap_or_default())?;
    parse(text)
}

fn known_filter(known: &Subscription) -> Result<TagFilter, FilterRefusal> {
    check_expression_type(&known.expression_type)?;
    parse(&known.expression)
}

fn parse(text: &str) -> Result<TagFilter, FilterRefusal> {
    TagFilter::parse(text).map_err(|_| {
        FilterRefusal::new(
            response::SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription failed",
        )
    })
}

#[cfg(test)]
#[path = "subscription_tests.rs"]
mod tests;
