//! What the broker does not take, the code it says so with, and the last size that it still takes.

use quorumlog_chaos::wire::{
    Connection, Frame, Message, Pull, SendForm, SendOptions, SendOutcome, WireError, code,
};

use super::semantics::send;
use crate::common::{Cluster, Setup};

const TOPIC: &str = "limits";
const BODY_MAX: usize = 4 * 1024 * 1024;
const PROPERTIES_MAX: usize = 32767;

async fn refused(connection: &Connection, message: &Message, expected: i32, names: &str) {
    for form in [SendForm::V1, SendForm::V2] {
        let options = SendOptions {
            form,
            ..SendOptions::default()
        };
        match connection.send(message, &options).await {
            SendOutcome::Fail { code, remark } => {
                assert_eq!(code, expected, "{remark}");
                assert!(remark.contains(names), "{remark:?} does not name {names}");
            }
            outcome => panic!("instead of code {expected}: {outcome:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_answered_with_their_code_and_name() {
    let cluster =
        Cluster::start_with(Setup::default().with("autoCreateTopicEnable", "false")).await;
    cluster.create_topic(TOPIC, 2).await;
    let leader = cluster.connect_leader().await;
    let message = |topic: &str, queue| Message::new(topic, queue, "k", &b"x"[..]);

    let exact = Message::new(TOPIC, 0, "exact", vec![7; BODY_MAX]);
    assert_eq!(send(&leader, &exact).await.offset, 0);
    let pulled = leader.pull(&Pull::new("readers", TOPIC, 0, 0)).await;
    assert_eq!(pulled.expect("the message").records[0].body, exact.body);
    let larger = Message::new(TOPIC, 0, "larger", vec![7; BODY_MAX + 1]);
    refused(&leader, &larger, code::MESSAGE_ILLEGAL, "4194304").await;
    let long = "p".repeat(PROPERTIES_MAX + 1);
    let larger = message(TOPIC, 0).with_property("long", &long);
    refused(&leader, &larger, code::MESSAGE_ILLEGAL, "32767").await;

    let illegal = code::INVALID_PARAMETER;
    refused(&leader, &message("bad topic!", 0), illegal, "bad topic!").await;
    refused(&leader, &message("", 0), illegal, "").await;
    refused(&leader, &message(&"t".repeat(128), 0), illegal, "127").await;
    refused(&leader, &message(TOPIC, 2), illegal, "2").await;
    refused(&leader, &message(TOPIC, i32::MAX), illegal, "").await;
    let system = "SCHEDULE_TOPIC_XXXX";
    refused(&leader, &message(system, 0), code::NO_PERMISSION, system).await;
    let unknown = "no_such_topic";
    refused(
        &leader,
        &message(unknown, 0),
        code::TOPIC_NOT_EXIST,
        unknown,
    )
    .await;
    assert_eq!(
        leader.max_offset(TOPIC, 0).await,
        Ok(1),
        "nothing else stored"
    );

    let any = send(&leader, &message(TOPIC, -1)).await;
    assert!((0..2).contains(&any.queue), "{any:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_cannot_be_served_get_their_code() {
    let cluster = Cluster::start().await;
    cluster.create_topic(TOPIC, 2).await;
    let leader = cluster.connect_leader().await;
    for unknown in [-1, 9999, 32_000] {
        let reply = leader.request(Frame::request(unknown)).await;
        assert_eq!(reply.expect("an answer").code, code::NOT_SUPPORTED);
    }
    for (topic, queue, expected) in [
        ("no_such_topic", 0, code::TOPIC_NOT_EXIST),
        (TOPIC, 2, code::INVALID_PARAMETER),
        (TOPIC, -1, code::INVALID_PARAMETER),
    ] {
        let answer = leader.pull(&Pull::new("readers", topic, queue, 0)).await;
        match answer {
            Err(WireError::Code { code, .. }) => assert_eq!(code, expected, "{topic} {queue}"),
            other => panic!("pull of {topic} {queue}: {other:?}"),
        }
    }
    let name_server = cluster.connect_name_server(0).await;
    let absent = name_server.route("no_such_topic").await;
    assert!(
        matches!(
            absent,
            Err(WireError::Code {
                code: code::TOPIC_NOT_EXIST,
                ..
            })
        ),
        "{absent:?}"
    );

    leader.delete_topic(TOPIC).await.expect("an answer");
    let gone = leader.pull(&Pull::new("readers", TOPIC, 0, 0)).await;
    assert!(
        matches!(
            gone,
            Err(WireError::Code {
                code: code::TOPIC_NOT_EXIST,
                ..
            })
        ),
        "{gone:?}"
    );
    leader.delete_topic(TOPIC).await.expect("absent already");
}
