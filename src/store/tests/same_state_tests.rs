//! Random entries: replicas agree, whatever their restarts and damages; and a plain model agrees with them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::world::{Message, Node, topic};
use crate::protocol::message::Record;
use crate::store::command::QueueId;
use crate::store::*;

const TOPICS: [&str; 4] = ["orders", "bills", "%RETRY%g", "SCHEDULE_TOPIC_XXXX"];
const QUEUES: i32 = 3;

#[derive(Clone, Debug)]
enum Unit {
    Send(Message),
    Deliver(Message, u32, i64),
    Command(Command),
}

fn message() -> impl Strategy<Value = Message> {
    let key = prop::option::of(0..6u8);
    (
        0..TOPICS.len(),
        0..QUEUES + 1,
        key,
        0..3u8,
        0..200_000i64,
        1..4usize,
    )
        .prop_map(|(topic, queue, key, body, store_ms, records)| Message {
            topic: TOPICS[topic].to_string(),
            queue,
            key: key.map(|key| format!("key {key}")),
            tag: (body == 1).then(|| "tag".to_string()),
            body: vec![b'a' + body; 40],
            store_ms,
            records,
            deduplicate: true,
        })
}

fn command() -> impl Strategy<Value = Command> {
    let name = prop::sample::select(&TOPICS[..]).prop_map(str::to_string);
    let client = prop::sample::select(vec!["a".to_string(), "b".to_string()]);
    let queue = 0..QUEUES;
    let ids = |topic: &String, queue: i32| {
        vec![QueueId {
            topic: topic.clone(),
            queue,
        }]
    };
    prop_oneof![
        4 => name.clone().prop_map(|name| Command::EnsureTopic(topic(&name, QUEUES as u32))),
        1 => name.clone().prop_map(|name| Command::DeleteTopic { name }),
        1 => Just(Command::EnsureGroup(GroupConfig::new("g"))),
        2 => (name.clone(), queue.clone(), 0..9i64).prop_map(|(topic, queue, offset)| {
            let group = "g".to_string();
            Command::CommitOffset { group, topic, queue, offset }
        }),
        2 => (name.clone(), client.clone(), queue.clone(), 0..200_000i64).prop_map(
            move |(topic, client, queue, now_ms)| Command::Lock {
                group: "g".to_string(),
                client,
                queues: ids(&topic, queue),
                now_ms,
            }
        ),
        1 => (name, client, queue).prop_map(move |(topic, client, queue)| Command::Unlock {
            group: "g".to_string(),
            client,
            queues: ids(&topic, queue),
        }),
    ]
}

fn unit() -> impl Strategy<Value = Unit> {
    prop_oneof![
        8 => message().prop_map(Unit::Send),
        1 => (message(), 1..3u32, 0..4i64).prop_map(|(m, level, at)| Unit::Deliver(m, level, at)),
        3 => command().prop_map(Unit::Command),
    ]
}

/// What happens between two entries: restart, after some damage to the files.
#[derive(Clone, Debug)]
struct Restart {
    newest_checkpoint: bool,
    /// Index files to remove or flip a byte of.
    indexes: Vec<(prop::sample::Index, Option<prop::sample::Index>)>,
}

fn restart() -> impl Strategy<Value = Restart> {
    let index = (
        any::<prop::sample::Index>(),
        prop::option::of(any::<prop::sample::Index>()),
    );
    (any::<bool>(), prop::collection::vec(index, 0..3)).prop_map(|(newest_checkpoint, indexes)| {
        Restart {
            newest_checkpoint,
            indexes,
        }
    })
}

/// An entry's units, and maybe a restart after it.
type Step = (Vec<Unit>, Option<Restart>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let entry = prop::collection::vec(unit(), 1..5);
    let step = (entry, prop::option::weighted(0.15, restart()));
    prop::collection::vec(step, 1..60)
}

fn push(units: &[Unit], builder: &mut EntryBuilder) {
    for unit in units {
        match unit {
            Unit::Send(message) => message.push(builder),
            Unit::Deliver(message, level, offset) => {
                message.push_delivery(builder, *level, *offset);
            }
            Unit::Command(command) => builder.push_command(command),
        }
    }
}

fn damage_and_restart(node: Node, restart: &Restart) -> Node {
    if let (true, Some(newest)) = (restart.newest_checkpoint, node.files.names(".ckpt").pop()) {
        node.files.flip(&newest, 40);
    }
    for (which, byte) in &restart.indexes {
        let names = node.files.names(".index");
        if names.is_empty() {
            break;
        }
        let path = which.get(&names);
        match byte {
            Some(byte) => {
                let length = node.files.bytes(path).len();
                node.files.flip(path, byte.index(length));
            }
            None => quorumlog_raft::env::Files::remove(&*node.files, path).unwrap(),
        }
    }
    node.restart()
}

/// The bodies that each queue must hold, kept in the plainest way.
#[derive(Default)]
struct Model(BTreeMap<(String, i32), Vec<Vec<u8>>>);

impl Model {
    fn apply(&mut self, units: &[Unit], outcomes: &[UnitOutcome]) {
        assert_eq!(units.len(), outcomes.len());
        for (unit, outcome) in units.iter().zip(outcomes) {
            let (message, records) = match unit {
                Unit::Send(message) => (message, message.records),
                Unit::Deliver(message, ..) => (message, 1),
                Unit::Command(Command::DeleteTopic { name }) => {
                    self.0.retain(|(topic, _), _| topic != name);
                    continue;
                }
                Unit::Command(_) => continue,
            };
            let &UnitOutcome::Stored {
                queue_offset,
                duplicate: false,
                ..
            } = outcome
            else {
                continue;
            };
            let place = (message.topic.clone(), message.queue);
            let queue = self.0.entry(place).or_default();
            assert_eq!(queue_offset, queue.len() as i64);
            queue.extend((0..records).map(|record| message.body_of(record)));
        }
    }

    fn check(&self, node: &Node) {
        for topic in TOPICS {
            for queue in 0..QUEUES {
                let records = node.read_all(topic, queue);
                let place = (topic.to_string(), queue);
                let expected = self.0.get(&place).map_or(&[][..], Vec::as_slice);
                assert_eq!(records.len(), expected.len(), "{topic}/{queue}");
                for (offset, (record, body)) in records.iter().zip(expected).enumerate() {
                    let record = Record::parse(record).unwrap();
                    assert_eq!(record.queue_offset(), offset as i64);
                    assert_eq!(record.body(), body);
                    let position = record.physical_offset() as u64;
                    let found = node.store.message_at(position, super::world::HOST).unwrap();
                    assert_eq!(found.as_deref(), Some(record.bytes()));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn replicas_agree_with_one_another_and_with_a_plain_model(steps in steps()) {
        let mut steady = Node::new(1_500);
        let mut restarted = Node::new(900);
        let mut model = Model::default();
        for (units, restart) in &steps {
            let outcomes = steady.commit(|builder| push(units, builder));
            let others = restarted.commit(|builder| push(units, builder));
            prop_assert_eq!(&outcomes, &others);
            model.apply(units, &outcomes);
            if let Some(restart) = restart {
                restarted = damage_and_restart(restarted, restart);
            }
            prop_assert!(steady.state_bytes() == restarted.state_bytes());
        }
        model.check(&steady);
        model.check(&restarted);
        model.check(&restarted.restart());
    }
}
