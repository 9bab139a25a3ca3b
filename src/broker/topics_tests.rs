use super::*;

fn config() -> Config {
    Config::parse("brokerName=broker-a\nbrokerClusterName=Here\n", "test").unwrap()
}

fn asked<'a>(topic: &'a str) -> CreateTopic<'a> {
    CreateTopic {
        topic,
        read_queue_nums: 2,
        write_queue_nums: 2,
        perm: 6,
        topic_sys_flag: 0,
        order: false,
        multi_tag: false,
        attributes: "",
    }
}

fn code<T>(result: Result<T, Refused>) -> i32 {
    result.map_or_else(|(code, _)| code, |_| 0)
}

#[test]
fn a_topic_is_made_as_asked() {
    let mut ask = asked("t");
    ask.read_queue_nums = 0;
    ask.order = true;
    ask.attributes = "+message.type=FIFO";
    let topic = topic_asked_for(&ask, &config()).unwrap();
    assert_eq!((topic.read_queues, topic.write_queues), (0, 2));
    assert!(topic.order);
    assert_eq!(topic.attributes, "+message.type=FIFO");
}

#[test]
fn names_counts_permissions_and_attributes_are_checked() {
    let config = config();
    for (topic, wanted) in [
        ("t", 0),
        ("", 29),
        ("bad topic", 29),
        ("TBW102", 29),
        ("SELF_TEST_TOPIC", 29),
        ("rmq_sys_x", 29),
        ("broker-a", 29),
        ("Here", 29),
        ("%RETRY%g", 0),
    ] {
        assert_eq!(
            code(topic_asked_for(&asked(topic), &config)),
            wanted,
            "{topic}"
        );
    }
    for (queues, wanted) in [(0, 0), (QUEUES_MAX, 0), (QUEUES_MAX + 1, 29), (-1, 29)] {
        let mut ask = asked("t");
        ask.write_queue_nums = queues;
        assert_eq!(code(topic_asked_for(&ask, &config)), wanted, "{queues}");
    }
    for (perm, wanted) in [(0, 0), (2, 0), (7, 0), (8, 29), (99, 29), (-1, 29)] {
        let mut ask = asked("t");
        ask.perm = perm;
        assert_eq!(code(topic_asked_for(&ask, &config)), wanted, "{perm}");
    }
    for (attributes, wanted) in [
        ("", 0),
        ("+message.type=FIFO,+cleanup.policy=DELETE", 0),
        ("-message.type", 0),
        ("+no.such=1", 1),
        ("+message.type", 1),
        ("message.type=FIFO", 1),
        ("é", 1),
    ] {
        let mut ask = asked("t");
        ask.attributes = attributes;
        assert_eq!(code(topic_asked_for(&ask, &config)), wanted, "{attributes}");
    }
}

#[test]
fn system_topics_are_not_deleted() {
    let config = config();
    assert_eq!(deletable("t", &config), Ok(()));
    assert_eq!(
        deletable("TBW102", &config).unwrap_err().1,
        "The topic[TBW102] is conflict with system topic."
    );
    assert_eq!(code(deletable("Here", &config)), 29);
    assert_eq!(
        deletable(" ", &config).unwrap_err().1,
        "The specified topic is blank."
    );
}
