//! Tests: JSON bodies as the clients write and read them.

use std::collections::BTreeMap;

use super::*;

fn subscription(topic: &str, expression: &str, version: i64) -> Subscription {
    Subscription {
        topic: topic.into(),
        expression: expression.into(),
        expression_type: "TAG".into(),
        version,
    }
}

#[test]
fn a_java_heartbeat_is_read() {
    let body = br#"{"clientID":"10.0.0.9@1234#5","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"cg","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[65],"expressionType":"TAG","subString":"A || B","subVersion":1700000000000,"tagsSet":["A"],"topic":"T"}],"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"pg"}],"withoutSub":false}"#;
    assert_eq!(
        Heartbeat::parse(body).unwrap(),
        Heartbeat {
            client_id: "10.0.0.9@1234#5".into(),
            producer_groups: vec!["pg".into()],
            consumers: vec![ConsumerData {
                group: "cg".into(),
                consume_type: ConsumeType::Passively,
                message_model: MessageModel::Clustering,
                consume_from_where: 0,
                subscriptions: vec![subscription("T", "A || B", 1_700_000_000_000)],
            }],
        }
    );
}

#[test]
fn a_cpp_heartbeat_with_numbers_for_enums_and_texts_for_numbers_is_read() {
    let body = br#"{"clientID":"903-127.0.0.1@DEFAULT","consumerDataSet":[{"consumeFromWhere":4,"consumeType":0,"groupName":"CG","messageModel":0,"subscriptionDataSet":[{"subString":"*","subVersion":"1795980212541","topic":"%RETRY%CG"},{"codeSet":[0],"subString":"A","subVersion":"1795980212541","tagsSet":["A"],"topic":"T1"}]}],"producerDataSet":[{"groupName":"PG"}]}
"#;
    let heartbeat = Heartbeat::parse(body).unwrap();
    assert_eq!(heartbeat.producer_groups, ["PG"]);
    assert_eq!(
        heartbeat.consumers,
        [ConsumerData {
            group: "CG".into(),
            consume_type: ConsumeType::Actively,
            message_model: MessageModel::Broadcasting,
            consume_from_where: 4,
            subscriptions: vec![
                subscription("%RETRY%CG", "*", 1_795_980_212_541),
                subscription("T1", "A", 1_795_980_212_541),
            ],
        }]
    );
}

#[test]
fn absent_and_null_members_of_a_heartbeat_are_empty() {
    assert_eq!(Heartbeat::parse(b"{}"), Ok(Heartbeat::default()));
    let body = br#"{"clientID":null,"consumerDataSet":null,"producerDataSet":[null,{}]}"#;
    let heartbeat = Heartbeat::parse(body).unwrap();
    assert_eq!(heartbeat.producer_groups, [""]);
    let body = br#"{"consumerDataSet":[{"subscriptionDataSet":[{"expressionType":null}]}]}"#;
    let heartbeat = Heartbeat::parse(body).unwrap();
    assert_eq!(
        heartbeat.consumers[0].subscriptions,
        [subscription("", "", 0)]
    );
}

#[test]
fn what_is_no_heartbeat_is_an_error_that_says_where() {
    for body in [
        &b""[..],
        b"no json",
        b"{\"clientID\":{}}",
        b"{\"clientID\":\"\xff\"}",
    ] {
        let error = Heartbeat::parse(body).unwrap_err();
        assert!(error.to_string().contains("line 1 column"), "{error}");
    }
    assert!(Heartbeat::parse(b" []").is_err());
    let nested = [b"{\"x\":".as_slice(), &[b'['; 100_000]].concat();
    assert!(Heartbeat::parse(&nested).is_err());
    let version = br#"{"consumerDataSet":[{"subscriptionDataSet":[{"subVersion":"x"}]}]}"#;
    assert!(Heartbeat::parse(version).is_err());
    let long = vec![b' '; JSON_BYTES_MAX + 1];
    let error = Heartbeat::parse(&long).unwrap_err();
    assert!(error.why.contains("4194304"), "{error}");
}

#[test]
fn lock_requests_of_all_clients_are_read() {
    let java = br#"{"clientId":"c","consumerGroup":"g","mqSet":[{"brokerName":"b","queueId":1,"topic":"t"}],"onlyThisBroker":false}"#;
    let go = br#"{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"t","brokerName":"b","queueId":1}]}"#;
    let wanted = LockBatch {
        consumer_group: "g".into(),
        client_id: "c".into(),
        queues: vec![MessageQueue {
            broker_name: "b".into(),
            queue_id: 1,
            topic: "t".into(),
        }],
    };
    assert_eq!(LockBatch::parse(java).as_ref(), Ok(&wanted));
    assert_eq!(LockBatch::parse(go).as_ref(), Ok(&wanted));
    assert_eq!(LockBatch::parse(b"{}"), Ok(LockBatch::default()));
    assert!(LockBatch::parse(b"").is_err());
    assert!(LockBatch::parse(br#"{"mqSet":[{"queueId":4294967296}]}"#).is_err());
}

#[test]
fn a_client_configuration_is_read_with_and_without_subscription() {
    let body = br#"{"clientId":"c","group":"g","subscriptionData":{"expressionType":"SQL92","subString":"a > 1","subVersion":7,"topic":"t"}}"#;
    let check = CheckClientConfig::parse(body).unwrap();
    assert_eq!(check.group, "g");
    assert_eq!(check.subscription.unwrap().expression_type, "SQL92");
    let check = CheckClientConfig::parse(br#"{"clientId":"c","group":"g"}"#).unwrap();
    assert_eq!(check.subscription, None);
}

fn broker(name: &str, addresses: &[(u64, &str)]) -> RouteBroker {
    RouteBroker {
        name: name.into(),
        cluster: "DefaultCluster".into(),
        addresses: (addresses.iter())
            .map(|(id, address)| (*id, address.to_string()))
            .collect(),
        read_queue_nums: 4,
        write_queue_nums: 4,
        perm: 6,
        topic_sys_flag: 0,
    }
}

fn text(body: Vec<u8>) -> String {
    String::from_utf8(body).unwrap()
}

#[test]
fn a_route_is_rocketmqs_in_its_standard_form() {
    let addresses = [(0, "10.0.0.1:10911"), (1, "10.0.0.2:10911")];
    assert_eq!(
        text(topic_route(&[broker("broker-a", &addresses)])),
        r#"{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}"#
    );
}

#[test]
fn routes_do_not_depend_on_the_order_of_brokers() {
    let a = broker("a", &[(0, "h:1")]);
    let b = broker("b", &[(0, "h:2")]);
    assert_eq!(topic_route(&[a.clone(), b.clone()]), topic_route(&[b, a]));
}

#[test]
fn lists_and_tables_are_rocketmqs() {
    let queue = MessageQueue {
        broker_name: "b".into(),
        queue_id: 0,
        topic: "t".into(),
    };
    assert_eq!(
        text(locked_queues(&[queue])),
        r#"{"lockOKMQSet":[{"brokerName":"b","queueId":0,"topic":"t"}]}"#
    );
    assert_eq!(text(locked_queues(&[])), r#"{"lockOKMQSet":[]}"#);
    let names = ["x".to_string(), "y\"".to_string()];
    assert_eq!(
        text(consumer_ids(&names)),
        r#"{"consumerIdList":["x","y\""]}"#
    );
    assert_eq!(text(topic_list(&names)), r#"{"topicList":["x","y\""]}"#);
    let table = BTreeMap::from([("k".to_string(), "1".to_string())]);
    assert_eq!(text(runtime_info(&table)), r#"{"table":{"k":"1"}}"#);
    assert_eq!(
        text(cluster_info(&[
            broker("b", &[(0, "h:2")]),
            broker("a", &[(0, "h:1")])
        ])),
        r#"{"brokerAddrTable":{"a":{"brokerAddrs":{"0":"h:1"},"brokerName":"a","cluster":"DefaultCluster","enableActingMaster":false},"b":{"brokerAddrs":{"0":"h:2"},"brokerName":"b","cluster":"DefaultCluster","enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":["a","b"]}}"#
    );
    assert_eq!(
        text(cluster_info(&[])),
        r#"{"brokerAddrTable":{},"clusterAddrTable":{}}"#
    );
}
