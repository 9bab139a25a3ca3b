//! Who is a member when: heartbeats, several connections of one client, leaving, silence.

use std::cell::Cell;
use std::rc::Rc;

use super::*;

/// A connection that can be closed.
#[derive(Clone, Debug)]
struct Line {
    id: u64,
    closed: Rc<Cell<bool>>,
}

impl Channel for Line {
    fn id(&self) -> u64 {
        self.id
    }

    fn is_closed(&self) -> bool {
        self.closed.get()
    }
}

fn line(id: u64) -> Line {
    Line {
        id,
        closed: Rc::default(),
    }
}

fn subscription(topic: &str, expression: &str, version: i64) -> Subscription {
    Subscription {
        topic: topic.into(),
        expression: expression.into(),
        expression_type: "TAG".into(),
        version,
    }
}

fn consumer(group: &str, subscriptions: Vec<Subscription>) -> ConsumerData {
    ConsumerData {
        group: group.into(),
        subscriptions,
        ..ConsumerData::default()
    }
}

fn heartbeat(client: &str, consumers: Vec<ConsumerData>) -> Heartbeat {
    Heartbeat {
        client_id: client.into(),
        producer_groups: vec!["pg".into()],
        consumers,
    }
}

const JAVA: Speaker = Speaker {
    language: 0,
    version: 479,
};

/// One heartbeat of `client` for group `g`; the groups that changed.
fn beat(
    clients: &Clients<Line>,
    line: &Line,
    client: &str,
    subscriptions: Vec<Subscription>,
) -> Vec<String> {
    let heartbeat = heartbeat(client, vec![consumer("g", subscriptions)]);
    clients.heartbeat(line, JAVA, &heartbeat).unwrap()
}

fn any(topic: &str) -> Vec<Subscription> {
    vec![subscription(topic, "*", 1)]
}

#[test]
fn only_members_and_topics_are_changes() {
    let clients = Clients::default();
    let (a, b) = (line(1), line(2));
    assert_eq!(beat(&clients, &a, "a", any("t")), ["g"], "first member");
    assert_eq!(beat(&clients, &b, "b", any("t")), ["g"], "second member");
    assert_eq!(clients.members("g"), ["a", "b"]);
    let nothing: [&str; 0] = [];
    assert_eq!(beat(&clients, &b, "b", any("t")), nothing, "the same again");
    let newer = vec![subscription("t", "*", 9)];
    assert_eq!(beat(&clients, &b, "b", newer), nothing, "a newer version");
    let tags = vec![subscription("t", "A", 11)];
    assert_eq!(beat(&clients, &b, "b", tags), nothing, "other tags");
    assert_eq!(clients.subscription("g", "t").unwrap().expression, "A");
    let two = vec![subscription("t", "A", 11), subscription("u", "*", 1)];
    assert_eq!(beat(&clients, &b, "b", two), ["g"], "one more topic");
    let one = vec![subscription("u", "*", 1)];
    assert_eq!(
        beat(&clients, &b, "b", one),
        nothing,
        "the other member still wants it"
    );
    assert!(clients.subscription("g", "t").is_some());
    assert_eq!(
        beat(&clients, &a, "a", any("u")),
        ["g"],
        "nobody wants it now"
    );
    assert_eq!(clients.subscription("g", "t"), None);
}

#[test]
fn a_subscription_is_replaced_by_a_newer_one_only() {
    let clients = Clients::default();
    let a = line(1);
    beat(&clients, &a, "a", vec![subscription("t", "A", 5)]);
    beat(&clients, &a, "a", vec![subscription("t", "B", 5)]);
    assert_eq!(clients.subscription("g", "t").unwrap().expression, "A");
    beat(&clients, &a, "a", vec![subscription("t", "C", 4)]);
    assert_eq!(clients.subscription("g", "t").unwrap().expression, "A");
    beat(&clients, &a, "a", vec![subscription("t", "D", 6)]);
    assert_eq!(clients.subscription("g", "t").unwrap().expression, "D");
}

#[test]
fn members_with_different_topics_do_not_undo_each_other() {
    let clients = Clients::default();
    let (a, b) = (line(1), line(2));
    beat(&clients, &a, "a", any("t"));
    assert_eq!(beat(&clients, &b, "b", any("u")), ["g"]);
    for _ in 0..3 {
        assert!(beat(&clients, &a, "a", any("t")).is_empty());
        assert!(beat(&clients, &b, "b", any("u")).is_empty());
    }
    assert_eq!(clients.consumer("g").unwrap().subscriptions.len(), 2);
    assert_eq!(clients.closed(2), ["g"]);
    assert_eq!(
        clients.subscription("g", "u"),
        None,
        "its topic went with it"
    );
}

#[test]
fn a_client_with_two_connections_is_one_member_until_the_last_is_gone() {
    let clients = Clients::default();
    let (door, front) = (line(1), line(2));
    assert_eq!(beat(&clients, &door, "a", any("t")), ["g"]);
    assert!(beat(&clients, &front, "a", any("t")).is_empty());
    assert_eq!(clients.members("g"), ["a"]);
    assert_eq!(clients.connections("g").len(), 1);
    assert!(clients.closed(1).is_empty());
    assert_eq!(clients.members("g"), ["a"]);
    assert_eq!(clients.connections("g")[0].id, 2);
    assert_eq!(clients.closed(2), ["g"]);
    assert!(clients.members("g").is_empty());
    assert!(!clients.registered("g", "t").group);
}

#[test]
fn leaving_takes_the_place_on_that_connection_only() {
    let clients = Clients::default();
    let (door, front) = (line(1), line(2));
    beat(&clients, &door, "a", any("t"));
    beat(&clients, &front, "a", any("t"));
    assert!(!clients.unregister(1, "a", "g", true));
    assert_eq!(clients.members("g"), ["a"]);
    assert!(clients.unregister(2, "a", "g", true));
    assert!(clients.members("g").is_empty());
    assert!(!clients.unregister(2, "a", "g", true), "already gone");
    assert!(!clients.unregister(2, "never-seen", "no-group", true));
    assert!(
        !clients.unregister(1, "a", "pg", false),
        "producers change no consumer group"
    );
}

#[test]
fn a_member_is_told_on_its_newest_open_connection() {
    let clients = Clients::default();
    let (door, front) = (line(1), line(2));
    beat(&clients, &door, "a", any("t"));
    beat(&clients, &front, "a", any("t"));
    front.closed.set(true);
    let told: Vec<u64> = clients
        .connections("g")
        .iter()
        .map(|line| line.id)
        .collect();
    assert_eq!(told, [1]);
    door.closed.set(true);
    assert!(clients.connections("g").is_empty());
}

#[tokio::test(start_paused = true)]
async fn silent_clients_are_forgotten_after_two_minutes() {
    let clients = Clients::default();
    let (a, b) = (line(1), line(2));
    beat(&clients, &a, "a", any("t"));
    tokio::time::advance(Duration::from_secs(60)).await;
    beat(&clients, &b, "b", any("t"));
    tokio::time::advance(Duration::from_secs(59)).await;
    assert!(clients.forget_silent(Instant::now()).is_empty());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(clients.forget_silent(Instant::now()), ["g"]);
    assert_eq!(clients.members("g"), ["b"]);
    assert!(clients.client("pg", "a").is_none(), "the producer went too");
    assert!(clients.client("pg", "b").is_some());
    assert!(clients.closed(1).is_empty(), "nothing is left of it");
}

#[test]
fn what_is_beyond_the_bounds_is_not_registered() {
    let clients = Clients::default();
    let a = line(1);
    let refused = |heartbeat: &Heartbeat| clients.heartbeat(&a, JAVA, heartbeat).unwrap_err();
    let mut many = heartbeat("a", Vec::new());
    many.producer_groups = vec!["p".into(); GROUPS_PER_CLIENT_MAX + 1];
    assert_eq!(refused(&many), ClientsError::Groups);
    let long = heartbeat(&"a".repeat(NAME_BYTES_MAX + 1), Vec::new());
    assert_eq!(refused(&long), ClientsError::Name);
    let topics = (0..=TOPICS_PER_GROUP_MAX).map(|n| subscription(&format!("t{n}"), "*", 1));
    let wide = heartbeat("a", vec![consumer("g", topics.collect())]);
    assert_eq!(refused(&wide), ClientsError::Topics);
    assert!(clients.closed(1).is_empty());
    assert!(clients.members("g").is_empty());
}

#[test]
fn a_full_node_refuses_new_clients_and_takes_them_again_when_others_left() {
    let clients = Clients::default();
    let groups: Vec<String> = (0..GROUPS_PER_CLIENT_MAX)
        .map(|n| format!("p{n}"))
        .collect();
    let heartbeat = |client: usize| Heartbeat {
        client_id: format!("c{client}"),
        producer_groups: groups.clone(),
        consumers: Vec::new(),
    };
    let full = PLACES_MAX / GROUPS_PER_CLIENT_MAX;
    for client in 0..full {
        let line = line(client as u64);
        clients.heartbeat(&line, JAVA, &heartbeat(client)).unwrap();
    }
    let late = line(9_999);
    let refused = clients.heartbeat(&late, JAVA, &heartbeat(full));
    assert_eq!(refused, Err(ClientsError::Full));
    let again = clients.heartbeat(&line(0), JAVA, &heartbeat(0));
    assert_eq!(again, Ok(Vec::new()), "those that are in stay in");
    clients.closed(0);
    clients.heartbeat(&late, JAVA, &heartbeat(full)).unwrap();
}
