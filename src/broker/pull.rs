//! Pulls: reading a queue for a consumer. Leaves waiting for messages to `hold`, and whose subscription
//! counts to `subscription`; the decisions are `pull_rules`.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use quorumlog_raft::{Refusal, Role};
use tokio::time::Instant;

use super::cold::Customer;
use super::hold::{self, Examine, HeldPull, Standing, Verdict, Why};
use super::place::{Access, Place};
use super::pull_rules::{PullRefusal, answer, check, hold_time, limits};
use super::subscription::filter_of;
use super::{Broker, Origin, Request};
use crate::net::connection::ReplyTo;
use crate::protocol::codes::response;
use crate::protocol::filter::TagFilter;
use crate::protocol::frame::Reply;
use crate::protocol::request::{PULL_COMMIT_OFFSET, Pull};
use crate::store::{ReadLimits, ReadOutcome, StoreError, Wait};

/// Time beyond its suspension that a pull passed to the leader may take.
const PASSED_PULL_SLACK: Duration = Duration::from_secs(5);

/// How long a pull waits for its follower to catch up with what it has shown.
const LEVEL_WITHIN: Duration = Duration::from_millis(500);

/// Who serves a pull that is served here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serving {
    Leader,
    /// By `slaveReadEnable`: what is applied here, which may be less than what is committed.
    Follower,
}

/// A pull that passed its checks.
struct Plan {
    topic: Arc<str>,
    queue: i32,
    from: i64,
    limits: ReadLimits,
    filter: TagFilter,
    topic_sys_flag: i32,
    /// How long it may be held.
    hold: Option<Duration>,
}

impl Broker {
    pub(super) fn on_pull(self: &Arc<Self>, request: Request) {
        if let Some((request, serving)) = self.claim_pull(request) {
            self.pull(request, serving);
        }
    }

    /// Gives the pull back if it is served here and now; otherwise it has been taken care of.
    fn claim_pull(self: &Arc<Self>, request: Request) -> Option<(Request, Serving)> {
        match self.place(&request.origin, Access::Read) {
            Place::Here => return Some((request, Serving::Leader)),
            _ if self.follower_serves() && self.is_level_with_shown() => {
                return Some((request, Serving::Follower));
            }
            _ if self.follower_serves() => self.pull_when_level(request),
            Place::HandBack => request.hand_back(),
            Place::Wait(_) => self.wait_for_lease(request),
            Place::Refuse(refusal) => {
                let opaque = request.frame.header.opaque;
                request.reply.send(busy(opaque, &refusal.to_string()));
            }
            Place::Pass(_) | Place::Hold => self.pass_pull(request),
        }
        None
    }

    /// A follower that is behind what the leader showed through it: the pull waits until it has caught up, or
    /// goes to the leader, too. Passing it at once would show still more, and never let a follower serve again.
    fn pull_when_level(self: &Arc<Self>, request: Request) {
        let limit =
            (request.origin.arrived + LEVEL_WITHIN).saturating_duration_since(Instant::now());
        let broker = self.clone();
        tokio::spawn(async move {
            match broker.group.wait_applied(broker.shown(), limit).await {
                true => broker.on_pull(request),
                false if request.origin.forwarded_by.is_some() => request.hand_back(),
                false => broker.pass_pull(request),
            }
        });
    }

    fn follower_serves(&self) -> bool {
        if !self.config.slave_read {
            return false;
        }
        let view = self.group.view();
        let view = view.borrow();
        view.ready && matches!(view.role, Role::Follower | Role::Learner | Role::Candidate)
    }

    fn pass_pull(self: &Arc<Self>, request: Request) {
        let suspend = Pull::read(&request.frame.header.ext)
            .ok()
            .and_then(|pull| hold_time(&pull))
            .unwrap_or_default();
        self.pass_to_leader(request, suspend + PASSED_PULL_SLACK);
    }

    fn pull(self: &Arc<Self>, request: Request, serving: Serving) {
        let opaque = request.frame.header.opaque;
        let pull = match Pull::read(&request.frame.header.ext) {
            Ok(pull) => pull,
            Err(error) => {
                let reply = Reply::new(response::SYSTEM_ERROR, opaque);
                return request.reply.send(reply.with_remark(error.to_string()));
            }
        };
        if self.group_to_create(pull.consumer_group) {
            return self.create_group_and_pull(request, serving);
        }
        match self.plan(&pull, &request, serving) {
            Ok(plan) => self.first_read(request, plan, serving),
            Err(refusal) => request.reply.send(refusal.reply(opaque)),
        }
    }

    /// A group that nobody knew yet: made first, then the pull goes on.
    fn create_group_and_pull(self: &Arc<Self>, request: Request, serving: Serving) {
        if serving == Serving::Follower {
            return match request.origin.forwarded_by {
                Some(_) => request.hand_back(),
                None => self.pass_pull(request),
            };
        }
        let broker = self.clone();
        tokio::spawn(async move {
            let ext = &request.frame.header.ext;
            let group = Pull::read(ext).map(|pull| pull.consumer_group.to_string());
            let group = group.unwrap_or_default();
            let deadline = request.origin.deadline();
            match broker.create_groups(&[group], deadline).await {
                Ok(()) => broker.on_pull(request),
                Err(error) => {
                    let (_, remark) = error.code_and_remark();
                    let opaque = request.frame.header.opaque;
                    let reply = Reply::new(response::SYSTEM_BUSY, opaque);
                    request.reply.send(reply.with_remark(remark));
                }
            }
        });
    }

    /// All checks in RocketMQ's order, then the filter; stores the offset that the pull commits.
    fn plan(
        self: &Arc<Self>,
        pull: &Pull<'_>,
        request: &Request,
        serving: Serving,
    ) -> Result<Plan, PullRefusal> {
        let group = self.store.group(pull.consumer_group);
        let topic = self.store.topic(pull.topic);
        let peer: &dyn Display = match &request.origin.connection {
            Some(connection) => &connection.peer,
            None => &request.origin.client,
        };
        let (group, topic) = check(pull, group, topic, peer)?;
        let registered = self.clients.registered(pull.consumer_group, pull.topic);
        let filter = filter_of(pull, &registered, group.broadcast_enable).map_err(|refusal| {
            PullRefusal {
                code: refusal.code,
                remark: refusal.remark,
                forbidden: (refusal.code == response::NO_PERMISSION).then_some(4),
            }
        })?;
        if pull.sys_flag & PULL_COMMIT_OFFSET != 0 && serving == Serving::Leader {
            self.commit_by_pull(pull);
        }
        Ok(Plan {
            topic: Arc::from(pull.topic),
            queue: pull.queue_id,
            from: pull.queue_offset,
            limits: limits(pull),
            filter,
            topic_sys_flag: topic.sys_flag,
            hold: hold_time(pull),
        })
    }

    /// Reads what is in memory on this task, and what is not on a thread that may wait for the disk.
    fn first_read(self: &Arc<Self>, request: Request, plan: Plan, serving: Serving) {
        let outcome = self.read(
            &plan.topic,
            plan.queue,
            plan.from,
            plan.limits,
            &plan.filter,
            Wait::No,
        );
        if !matches!(outcome, Ok(ReadOutcome::WouldBlock)) {
            return self.after_first_read(request, plan, serving, outcome);
        }
        if let Err(error) = self.holds.cold.check() {
            let opaque = request.frame.header.opaque;
            return request.reply.send(busy(opaque, &error.to_string()));
        }
        let broker = self.clone();
        let mode = self.group.env().writer;
        self.holds
            .cold
            .run(mode, customer(&request.origin), move || {
                let outcome = broker.read(
                    &plan.topic,
                    plan.queue,
                    plan.from,
                    plan.limits,
                    &plan.filter,
                    Wait::Yes,
                );
                broker.after_first_read(request, plan, serving, outcome);
            });
    }

    fn after_first_read(
        self: &Arc<Self>,
        request: Request,
        plan: Plan,
        serving: Serving,
        outcome: Result<ReadOutcome, StoreError>,
    ) {
        let opaque = request.frame.header.opaque;
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return request.reply.send(unreadable(opaque, &error)),
        };
        let answer = answer(outcome, plan.from);
        if serving == Serving::Follower && answer.code == response::PULL_OFFSET_MOVED {
            // A follower may lag: only the leader can say that an offset is not there (yet).
            return match request.origin.forwarded_by {
                Some(_) => request.hand_back(),
                None => self.pass_pull(request),
            };
        }
        let Some(hold) = plan
            .hold
            .filter(|_| answer.code == response::PULL_NOT_FOUND)
        else {
            let reply = answer.reply(opaque, plan.topic_sys_flag);
            return request.reply.send(reply);
        };
        let held = HeldPull {
            from: answer.next,
            topic: plan.topic,
            queue: plan.queue,
            limits: plan.limits,
            filter: plan.filter,
            topic_sys_flag: plan.topic_sys_flag,
            opaque,
            customer: customer(&request.origin),
            deadline: request.origin.arrived + hold,
            reply: request.reply,
        };
        if let ReplyTo::Connection(connection) = &held.reply
            && connection.is_closed()
        {
            return;
        }
        if let Err(held) = hold::hold(&self.holds, self, held) {
            let reply = answer.reply(opaque, held.topic_sys_flag);
            held.reply.send(reply);
        }
    }

    fn read(
        &self,
        topic: &str,
        queue: i32,
        from: i64,
        limits: ReadLimits,
        filter: &TagFilter,
        wait: Wait,
    ) -> Result<ReadOutcome, StoreError> {
        let matches = |code| filter.matches(code);
        let host = self.address();
        self.store
            .read(topic, queue, from, limits, &matches, host, wait)
    }

    fn read_held(&self, held: &HeldPull, wait: Wait) -> Result<ReadOutcome, StoreError> {
        self.read(
            &held.topic,
            held.queue,
            held.from,
            held.limits,
            &held.filter,
            wait,
        )
    }
}

impl Examine for Arc<Broker> {
    fn examine(&self, held: &HeldPull, why: Why) -> Verdict {
        let outcome = self.read_held(held, Wait::No);
        verdict(held, outcome, why, || self.standing() == Standing::Sure)
    }

    fn read_cold(&self, held: HeldPull, why: Why) {
        if let Err(error) = self.holds.cold.check() {
            let reply = busy(held.opaque, &error.to_string());
            return held.reply.send(reply);
        }
        let broker = self.clone();
        let mode = self.group.env().writer;
        self.holds.cold.run(mode, held.customer, move || {
            let outcome = broker.read_held(&held, Wait::Yes);
            let sure = || broker.standing() == Standing::Sure;
            match verdict(&held, outcome, why, sure) {
                Verdict::Answer(reply) => held.reply.send(*reply),
                Verdict::Keep { from } => {
                    hold::keep_on(&broker.holds, &broker, HeldPull { from, ..held })
                }
                // A read that may wait never asks to be done again.
                Verdict::ReadCold => {
                    let reply = busy(held.opaque, "the message could not be read");
                    held.reply.send(reply);
                }
            }
        });
    }

    fn end(&self, topic: &str, queue: i32) -> i64 {
        self.store
            .queue_bounds(topic, queue)
            .map_or(0, |(_, end)| end)
    }

    fn standing(&self) -> Standing {
        match self.group.lease_read() {
            Ok(()) => Standing::Sure,
            Err(_) if self.follower_serves() => match self.is_level_with_shown() {
                true => Standing::Sure,
                false => Standing::Unsure,
            },
            Err(Refusal::NoLease { .. } | Refusal::NotReady) => Standing::Unsure,
            Err(_) => Standing::Gone,
        }
    }
}

/// What a held pull gets. Committed messages are right whoever serves them; that there is nothing new can
/// only be said by a node that would know (`sure`).
fn verdict(
    held: &HeldPull,
    outcome: Result<ReadOutcome, StoreError>,
    why: Why,
    sure: impl FnOnce() -> bool,
) -> Verdict {
    let told = |reply| Verdict::Answer(Box::new(reply));
    let outcome = match outcome {
        Ok(ReadOutcome::WouldBlock) => return Verdict::ReadCold,
        Ok(outcome) => outcome,
        Err(error) => return told(unreadable(held.opaque, &error)),
    };
    let answer = answer(outcome, held.from);
    let nothing = matches!(
        answer.code,
        response::PULL_NOT_FOUND | response::PULL_RETRY_IMMEDIATELY
    );
    if answer.code != response::SUCCESS && (why == Why::Ended || (why == Why::Deadline && !sure()))
    {
        return told(busy(held.opaque, "this node may no longer lead the group"));
    }
    if nothing && why == Why::Arrival {
        return Verdict::Keep { from: answer.next };
    }
    told(answer.reply(held.opaque, held.topic_sys_flag))
}

/// Whose turn a read of this request takes.
fn customer(origin: &Origin) -> Customer {
    match &origin.connection {
        Some(connection) => Customer::Connection(connection.id),
        None => Customer::Node(origin.forwarded_by.unwrap_or_default()),
    }
}

/// A read that this node cannot answer now: clients come again after 3 s.
pub(super) fn busy(opaque: i32, why: &str) -> Reply {
    Reply::new(response::SYSTEM_BUSY, opaque).with_remark(format!("[REFUSED] {why}"))
}

/// Bytes that could not be read. An operator must know; the client comes again.
pub(super) fn unreadable(opaque: i32, error: &StoreError) -> Reply {
    tracing::error!(%error, "a queue cannot be read");
    Reply::new(response::SYSTEM_ERROR, opaque).with_remark(error.to_string())
}

#[cfg(test)]
#[path = "pull_tests.rs"]
mod tests;
