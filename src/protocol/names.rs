//! Names of topics and groups: what is allowed, what is reserved, and which retry and dead-letter topics
//! belong to a group.

/// Longest topic name, characters.
pub const TOPIC_CHARS_MAX: usize = 127;
/// Longest name of a retry or dead-letter topic, characters.
pub const RETRY_TOPIC_CHARS_MAX: usize = 255;
/// Longest group name, characters: with its retry prefix it is just a topic name.
pub const GROUP_CHARS_MAX: usize = 120;

const RETRY_PREFIX: &str = "%RETRY%";
const DLQ_PREFIX: &str = "%DLQ%";

/// The topic whose settings an automatically created topic takes over.
pub const AUTO_CREATE_TOPIC: &str = "TBW102";
pub const BENCHMARK_TOPIC: &str = "BenchmarkTest";
pub const SELF_TEST_TOPIC: &str = "SELF_TEST_TOPIC";
pub const OFFSET_MOVED_TOPIC: &str = "OFFSET_MOVED_EVENT";
/// Where delayed messages wait, one queue for each level: queue n is level n + 1.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
pub const TRACE_TOPIC: &str = "RMQ_SYS_TRACE_TOPIC";
pub const TRANSACTION_HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
pub const TRANSACTION_OP_TOPIC: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
pub const TRANSACTION_GIVEN_UP_TOPIC: &str = "TRANS_CHECK_MAX_TIME_TOPIC";

/// Topics that no client may send to. Code 16.
const NOT_SENDABLE: [&str; 6] = [
    SCHEDULE_TOPIC,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_TOPIC,
    TRANSACTION_GIVEN_UP_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_TOPIC,
];

/// Topics of the system's own that exist under the same name everywhere.
const SYSTEM: [&str; 9] = [
    AUTO_CREATE_TOPIC,
    SCHEDULE_TOPIC,
    BENCHMARK_TOPIC,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_TOPIC,
    TRANSACTION_GIVEN_UP_TOPIC,
    TRACE_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_TOPIC,
];
const SYSTEM_PREFIX: &str = "rmq_sys_";

/// Groups that exist without having been created.
const SYSTEM_GROUPS: [&str; 8] = [
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
];

/// Longest part of a refused name that a remark quotes, characters.
const QUOTED_CHARS_MAX: usize = 512;

/// Why a name is refused, in RocketMQ's words. Code 29.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("The specified {kind} is blank.")]
    Blank { kind: &'static str },
    #[error(
        "The specified {kind}: {name}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    )]
    Characters { kind: &'static str, name: String },
    #[error("The specified {kind}: {name}, is longer than {kind} max length: {chars_max}")]
    TooLong {
        kind: &'static str,
        name: String,
        chars_max: usize,
    },
}

/// Checks a topic name.
pub fn check_topic(topic: &str) -> Result<(), NameError> {
    let chars_max = if is_retry_topic(topic) || is_dlq_topic(topic) {
        RETRY_TOPIC_CHARS_MAX
    } else {
        TOPIC_CHARS_MAX
    };
    check("topic", topic, chars_max)
}

/// Checks a consumer or producer group's name.
pub fn check_group(group: &str) -> Result<(), NameError> {
    check("group", group, GROUP_CHARS_MAX)
}

fn check(kind: &'static str, name: &str, chars_max: usize) -> Result<(), NameError> {
    if name.trim().is_empty() {
        return Err(NameError::Blank { kind });
    }
    let quoted = || name.chars().take(QUOTED_CHARS_MAX).collect();
    let allowed =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'%' | b'|' | b'_' | b'-');
    if !name.bytes().all(allowed) {
        return Err(NameError::Characters {
            kind,
            name: quoted(),
        });
    }
    if name.len() > chars_max {
        return Err(NameError::TooLong {
            kind,
            name: quoted(),
            chars_max,
        });
    }
    Ok(())
}

/// The topic of messages that a group will get once more.
pub fn retry_topic(group: &str) -> String {
    format!("{RETRY_PREFIX}{group}")
}

/// The topic of messages that a group has given up.
pub fn dlq_topic(group: &str) -> String {
    format!("{DLQ_PREFIX}{group}")
}

pub fn is_retry_topic(topic: &str) -> bool {
    topic.starts_with(RETRY_PREFIX)
}

pub fn is_dlq_topic(topic: &str) -> bool {
    topic.starts_with(DLQ_PREFIX)
}

/// The group that a retry or dead-letter topic belongs to.
pub fn group_of(topic: &str) -> Option<&str> {
    topic
        .strip_prefix(RETRY_PREFIX)
        .or_else(|| topic.strip_prefix(DLQ_PREFIX))
}

/// Whether clients may not send to this topic (code 16, [`forbidden_remark`]).
pub fn is_not_sendable(topic: &str) -> bool {
    NOT_SENDABLE.contains(&topic)
}

/// RocketMQ's remark on a send to such a topic.
pub fn forbidden_remark(topic: &str) -> String {
    format!("Sending message to topic[{topic}] is forbidden.")
}

/// Whether a topic is the system's own by its name alone. The topics named after the cluster and the
/// broker, and the cluster's reply topic, are system topics too; only the broker knows their names.
pub fn is_system_topic(topic: &str) -> bool {
    topic.starts_with(SYSTEM_PREFIX) || SYSTEM.contains(&topic)
}

/// RocketMQ's remark on creating or deleting a system topic (code 29).
pub fn system_topic_remark(topic: &str) -> String {
    format!("The topic[{topic}] is conflict with system topic.")
}

/// Whether a group exists without having been created.
pub fn is_system_group(group: &str) -> bool {
    SYSTEM_GROUPS.contains(&group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remark(topic: &str) -> String {
        check_topic(topic).unwrap_err().to_string()
    }

    #[test]
    fn refusals_have_rocketmqs_words() {
        assert_eq!(remark(""), "The specified topic is blank.");
        assert_eq!(remark(" \t"), "The specified topic is blank.");
        assert_eq!(
            remark("bad topic!"),
            "The specified topic: bad topic!, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        );
        let long = "t".repeat(128);
        assert_eq!(
            remark(&long),
            format!("The specified topic: {long}, is longer than topic max length: 127")
        );
        assert_eq!(
            check_group("bad group!").unwrap_err().to_string(),
            "The specified group: bad group!, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        );
        let long = "g".repeat(121);
        assert_eq!(
            check_group(&long).unwrap_err().to_string(),
            format!("The specified group: {long}, is longer than group max length: 120")
        );
    }

    #[test]
    fn the_longest_names_are_allowed() {
        assert_eq!(check_topic(&"t".repeat(127)), Ok(()));
        assert_eq!(check_group(&"g".repeat(120)), Ok(()));
        assert_eq!(check_topic(&retry_topic(&"g".repeat(248))), Ok(()));
        assert!(check_topic(&retry_topic(&"g".repeat(249))).is_err());
        assert_eq!(check_topic("%RETRY%a|b_c-D9"), Ok(()));
    }

    #[test]
    fn a_refused_name_is_quoted_in_part() {
        let text = remark(&"ü".repeat(100_000));
        assert!(text.len() < 2000, "{}", text.len());
    }

    #[test]
    fn retry_and_dead_letter_topics_lead_back_to_their_group() {
        assert_eq!(retry_topic("g"), "%RETRY%g");
        assert_eq!(dlq_topic("g"), "%DLQ%g");
        assert_eq!(group_of("%RETRY%g"), Some("g"));
        assert_eq!(group_of("%DLQ%g"), Some("g"));
        assert_eq!(group_of("g"), None);
        assert!(is_retry_topic("%RETRY%g") && !is_retry_topic("%DLQ%g"));
        assert!(is_dlq_topic("%DLQ%g") && !is_dlq_topic("%RETRY%g"));
    }

    #[test]
    fn reserved_topics_are_known() {
        // Recorded: TBW102 is a system topic that can be sent to.
        assert!(is_system_topic("TBW102") && !is_not_sendable("TBW102"));
        for topic in NOT_SENDABLE {
            assert!(is_system_topic(topic), "{topic}");
        }
        assert!(is_system_topic("rmq_sys_anything"));
        assert!(!is_system_topic("orders") && !is_not_sendable("orders"));
        assert_eq!(
            forbidden_remark("SELF_TEST_TOPIC"),
            "Sending message to topic[SELF_TEST_TOPIC] is forbidden."
        );
    }
}
