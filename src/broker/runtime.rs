//! What this node tells of itself: runtime info (28).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use quorumlog_raft::{ReplicaStatus, Role, Status};

use super::{Broker, Request};
use crate::protocol::body::runtime_info;
use crate::protocol::codes::response;
use crate::protocol::frame::Reply;
use crate::protocol::names::SCHEDULE_TOPIC;

impl Broker {
    /// Every node answers for itself.
    pub(super) fn on_runtime_info(self: &Arc<Self>, request: Request) {
        let broker = self.clone();
        tokio::spawn(async move {
            let status = broker.group.status().await;
            let mut table = raft_table(&status);
            broker.add_own(&mut table);
            let reply = Reply::new(response::SUCCESS, request.frame.header.opaque)
                .with_body(runtime_info(&table));
            request.reply.send(reply);
        });
    }

    fn add_own(&self, table: &mut BTreeMap<String, String>) {
        let mut put = |name: &str, value: String| table.insert(name.to_string(), value);
        put("brokerVersionDesc", "V5_3_3".to_string());
        put("bootTimestamp", self.boot_ms.to_string());
        put("runtime", since(self.wall_ms() - self.boot_ms));
        put("brokerActive", self.leads().to_string());
        put("quorumlogVersion", env!("CARGO_PKG_VERSION").to_string());
        for level in 1..=self.config.delay_levels.len() as u32 {
            let bounds = self.store.queue_bounds(SCHEDULE_TOPIC, level as i32 - 1);
            if let Some((_, end)) = bounds {
                let progress = self.store.delay_progress(level);
                put(
                    &format!("scheduleMessageOffset_{level}"),
                    format!("{progress},{end}"),
                );
            }
        }
    }
}

/// RocketMQ's way to write how long it runs.
fn since(ms: i64) -> String {
    let seconds = ms.max(0) / 1000;
    format!(
        "[ {} days, {} hours, {} minutes, {} seconds ]",
        seconds / 86_400,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// The figures of the log. What is not known is left empty, never made up.
fn raft_table(status: &Status) -> BTreeMap<String, String> {
    let known = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let ms = |span: Duration| span.as_millis().to_string();
    let table = [
        ("raftGroup", status.group.clone()),
        ("raftNode", status.node.to_string()),
        ("raftRole", role_name(status.role).to_string()),
        ("raftTerm", status.term.to_string()),
        ("raftVotedFor", known(status.voted_for)),
        ("raftLeader", known(status.leader)),
        ("raftReady", status.ready.to_string()),
        ("raftAppended", known(status.appended)),
        ("raftDurable", known(status.durable)),
        ("raftCommitted", known(status.committed)),
        ("raftApplied", known(status.applied)),
        ("raftEndPosition", status.end_position.to_string()),
        ("raftLeaseMs", ms(status.lease)),
        (
            "raftSinceQuorumMs",
            status.since_quorum.map(ms).unwrap_or_default(),
        ),
        ("raftReplicas", replicas(&status.replicas)),
        ("commitLogMinOffset", status.first_position.to_string()),
        ("commitLogMaxOffset", status.applied_position.to_string()),
    ];
    table
        .into_iter()
        .map(|(name, value)| (name.to_string(), value))
        .collect()
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        Role::Learner => "learner",
        Role::Stopped => "stopped",
    }
}

/// `id:matched:lastAnswerMs;...`, with nothing in the place of what is not known.
fn replicas(replicas: &[ReplicaStatus]) -> String {
    let mut text = String::new();
    for replica in replicas {
        let matched = replica.matched.map(|index| index.to_string());
        let answer = replica.last_answer.map(|span| span.as_millis().to_string());
        // Writing to a text cannot fail.
        let _ = write!(
            text,
            "{}:{}:{};",
            replica.node,
            matched.unwrap_or_default(),
            answer.unwrap_or_default()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_told_with_what_is_known_of_them() {
        let replica = |node, matched, answer: Option<u64>| ReplicaStatus {
            node,
            address: "ignored".to_string(),
            matched,
            last_answer: answer.map(Duration::from_millis),
        };
        let told = replicas(&[replica(2, Some(17), Some(9)), replica(3, None, None)]);
        assert_eq!(told, "2:17:9;3::;");
    }

    #[test]
    fn running_time_is_written_as_rocketmq_does() {
        let ms = ((2 * 24 + 3) * 60 + 4) * 60_000 + 5_999;
        assert_eq!(since(ms), "[ 2 days, 3 hours, 4 minutes, 5 seconds ]");
        assert_eq!(since(-1), "[ 0 days, 0 hours, 0 minutes, 0 seconds ]");
    }
}
