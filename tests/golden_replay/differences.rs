//! The one list of what differs from the recordings, with the reasons. `docs/protocol.md` gives each reason too.

use std::collections::BTreeSet;
use std::path::Path;

use crate::player::Difference;

/// An expected difference. It must occur in each scenario named; what is not listed must not occur.
struct Expected {
    /// Names; `*` for any.
    scenarios: &'static [&'static str],
    request: i64,
    /// What `compare` says; with `*` at its end, the beginning of it.
    what: &'static [&'static str],
    /// The same words as in `docs/protocol.md`.
    why: &'static str,
}

const fn expected(
    scenarios: &'static [&'static str],
    request: i64,
    what: &'static [&'static str],
    why: &'static str,
) -> Expected {
    Expected {
        scenarios,
        request,
        what,
        why,
    }
}

const EXPECTED: [Expected; 24] = [
    expected(
        &["*"],
        34,
        &[
            "field IS_SUPPORT_HEART_BEAT_V2 is missing",
            "field IS_SUB_CHANGE is missing",
        ],
        "heartbeats without subscriptions (v2) are not asked for",
    ),
    expected(
        &[
            "cpp_push",
            "go_push",
            "j49_rebalance",
            "j55_push",
            "j55_retry",
            "j55_sql",
        ],
        105,
        &["code 17, here 0"],
        "a retry topic has a route before its group's first heartbeat: clients that find none look again 30 s later",
    ),
    expected(
        &["j49_broadcast", "j49_lite", "j49_rebalance", "j49_send"],
        105,
        &["body says *"],
        "the recorded name server had lost the inherit bit of TBW102 to a 327 before",
    ),
    expected(
        &["go_admin"],
        105,
        &["code 0, here 17"],
        "a deleted topic has no route from then on; RocketMQ's name server keeps it until 216",
    ),
    expected(
        &["cpp_push"],
        11,
        &["code 20, here 19"],
        "a held pull moves on over messages that do not match, and when its time is up there is nothing new",
    ),
    expected(
        &["j49_broadcast", "j49_rebalance"],
        11,
        &["code 25, here 19"],
        "a heartbeat counts for the pull that follows it on its connection",
    ),
    expected(
        &["raw_pull_errors"],
        11,
        &["code 25, here 0"],
        "a pull that is newer than the heartbeat and carries its subscription is served by it",
    ),
    expected(
        &["raw_pull_errors"],
        11,
        &["field nextBeginOffset is 2, here 3"],
        "messages behind the last one found that do not match are passed over at once",
    ),
    expected(
        &["raw_pull_errors"],
        11,
        &["code 16, here 0"],
        "the group could not be disabled: 200 is not supported",
    ),
    expected(
        &["go_retry", "j55_retry"],
        11,
        &[
            "message property DELAY is missing",
            "message property REAL_TOPIC is missing",
            "message property REAL_QID is missing",
        ],
        "a delivered message does not say how it was delayed, which would delay it again if it were sent on",
    ),
    expected(
        &["j55_retry"],
        11,
        &[
            "message property DLQ_ORIGIN_TOPIC is new",
            "message property DLQ_ORIGIN_MESSAGE_ID is new",
        ],
        "a dead letter says where it came from, whichever way it got there",
    ),
    expected(
        &["cpp_send"],
        10,
        &["field transactionId is missing", "field msgId is *"],
        "the C++ client's batch is stored as its messages; RocketMQ stores one that nobody can read",
    ),
    expected(
        &["dl_follower"],
        310,
        &["code 2, here 0"],
        "a follower passes a send to the leader",
    ),
    expected(
        &["dl_follower"],
        11,
        &["code 2, here 0"],
        "a follower serves pulls",
    ),
    expected(
        &["dl_follower"],
        15,
        &["code 26, here 0"],
        "the pull before has made the group, while the recorded follower refused it",
    ),
    expected(
        &["raw_admin"],
        17,
        &["code 0, here 29"],
        "permissions above 7 mean nothing",
    ),
    expected(
        &["raw_admin", "raw_frames"],
        28,
        &["body .table.*"],
        "the table shows what there is to tell of a Raft node",
    ),
    expected(
        &["raw_send_errors"],
        310,
        &["field MSG_REGION is new", "field TRACE_ON is new"],
        "every reply to a send carries both, whatever its code",
    ),
    expected(
        &["raw_send_errors"],
        310,
        &["code 1, here 13"],
        "an empty body and a DELAY that is no number are the message's fault",
    ),
    expected(
        &["raw_send_errors"],
        320,
        &["code 1, here 13"],
        "an empty or garbled batch is the message's fault",
    ),
    expected(
        &["raw_send_errors"],
        310,
        &["code 0, here 13"],
        "`m` of `1` is true, and the body is no batch",
    ),
    expected(
        &["raw_send_errors"],
        310,
        &["code 1, here 0"],
        "whole names are read under 310 too",
    ),
    expected(
        &["raw_send_errors"],
        10,
        &["code 1, here 0"],
        "letters are read under 10 too",
    ),
    expected(
        &["raw_send_errors"],
        310,
        &["code 0, here 16"],
        "transactions are not supported: stored as an ordinary message, a half message would be seen too early",
    ),
];

impl Expected {
    fn names(&self, scenario: &str) -> Option<&'static str> {
        let mut names = self.scenarios.iter().copied();
        names.find(|name| *name == "*" || *name == scenario)
    }

    /// The scenario and the words of this entry that a difference is found under.
    fn matching(&self, found: &Difference) -> Option<(&'static str, &'static str)> {
        let scenario = self.names(&found.scenario)?;
        let mut what = self.what.iter().copied();
        let what = what.find(|what| match what.strip_suffix('*') {
            Some(start) => found.what.starts_with(start),
            None => found.what == *what,
        })?;
        (self.request == found.request).then_some((scenario, what))
    }
}

/// Requires that the differences found are those expected, each at least once, and that the page of the
/// protocol gives every reason.
pub fn check(found: &[Difference]) {
    let mut seen = BTreeSet::new();
    let mut problems = Vec::new();
    for difference in found {
        let entry = (0..EXPECTED.len()).find_map(|at| {
            let (scenario, what) = EXPECTED[at].matching(difference)?;
            Some((at, scenario, what))
        });
        if !entry.is_some_and(|entry| {
            seen.insert(entry);
            true
        }) {
            let Difference {
                scenario,
                line,
                request,
                what,
            } = difference;
            problems.push(format!("{scenario}.jsonl:{line}: {request}: {what}"));
        }
    }
    for (at, expected) in EXPECTED.iter().enumerate() {
        for scenario in expected.scenarios {
            for what in expected.what {
                if !seen.contains(&(at, scenario, what)) {
                    let request = expected.request;
                    problems.push(format!("{scenario}: {request}: no longer: {what}"));
                }
            }
        }
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/protocol.md");
    let page = one_line(&std::fs::read_to_string(page).expect("docs/protocol.md"));
    for expected in &EXPECTED {
        if !page.contains(&one_line(expected.why)) {
            problems.push(format!("not in docs/protocol.md: {}", expected.why));
        }
    }
    problems.sort();
    problems.dedup();
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
