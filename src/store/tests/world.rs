//! A node over a log and files in memory that can be restarted and damaged, and messages for it.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use quorumlog_raft::StateMachine;
use quorumlog_raft::env::{Env, WriterMode};

use super::fake_log::FakeLog;
use super::mem_files::MemFiles;
use crate::protocol::message::{NewRecord, push_property};
use crate::store::*;

pub const HOST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 10911);

/// A node: its log, its files, and the store over them.
pub struct Node {
    pub log: FakeLog,
    pub files: Arc<MemFiles>,
    pub store: Store,
    pub machine: Machine,
}

impl Node {
    pub fn new(segment_bytes: u64) -> Node {
        Node::open(FakeLog::new(segment_bytes), Arc::default())
    }

    /// Opens the store and replays the log from where it was restored.
    pub fn open(log: FakeLog, files: Arc<MemFiles>) -> Node {
        let options = StoreOptions {
            dir: PathBuf::from("/node"),
            env: Env {
                files: files.clone(),
                writer: WriterMode::Task,
                ..Env::real()
            },
        };
        let (store, mut machine) = Store::open_over(options, Arc::new(log.clone())).unwrap();
        let from = machine.restored().map_or(0, |mark| mark.id.index + 1);
        for number in from as usize..log.entries() {
            machine.apply(&log.committed(number));
        }
        Node {
            log,
            files,
            store,
            machine,
        }
    }

    pub fn restart(self) -> Node {
        let Node { log, files, .. } = self;
        Node::open(log, files)
    }

    pub fn commit(&mut self, build: impl FnOnce(&mut EntryBuilder)) -> Vec<UnitOutcome> {
        let mut builder = EntryBuilder::new();
        build(&mut builder);
        let entry = self.log.append(builder.take());
        entry::decode_outcomes(&self.machine.apply(&entry)).unwrap()
    }

    pub fn command(&mut self, command: Command) -> CommandOutcome {
        let outcomes = self.commit(|builder| builder.push_command(&command));
        match outcomes.as_slice() {
            [UnitOutcome::Command(outcome)] => outcome.clone(),
            other => panic!("{other:?}"),
        }
    }

    pub fn send(&mut self, message: &Message) -> UnitOutcome {
        let mut outcomes = self.commit(|builder| message.push(builder));
        assert_eq!(outcomes.len(), 1);
        outcomes.remove(0)
    }

    pub fn read(&self, topic: &str, queue: i32, from: i64) -> ReadOutcome {
        let limits = ReadLimits {
            messages_max: 32,
            bytes_max: 256 * 1024,
        };
        self.read_limited(topic, queue, from, limits, &|_| true)
    }

    pub fn read_limited(
        &self,
        topic: &str,
        queue: i32,
        from: i64,
        limits: ReadLimits,
        matches: &dyn Fn(i64) -> bool,
    ) -> ReadOutcome {
        self.store
            .read(topic, queue, from, limits, matches, HOST, Wait::Yes)
            .unwrap()
    }

    /// All records of a queue, read in many steps.
    pub fn read_all(&self, topic: &str, queue: i32) -> Vec<Bytes> {
        let mut all = Vec::new();
        let mut from = 0;
        loop {
            match self.read(topic, queue, from) {
                ReadOutcome::Found { records, next, .. } => {
                    let mut rest = records;
                    while !rest.is_empty() {
                        let size = u32::from_be_bytes(*rest.first_chunk().unwrap());
                        all.push(rest.split_to(size as usize));
                    }
                    from = next;
                }
                ReadOutcome::AtEnd { .. } | ReadOutcome::Empty => return all,
                other => panic!("{topic}/{queue} at {from}: {other:?}"),
            }
        }
    }

    /// Everything the small state holds, as a checkpoint would.
    pub fn state_bytes(&self) -> Vec<u8> {
        let state = self.store.shared.read();
        checkpoint::Capture::of(&state).map_or(Vec::new(), |capture| capture.bytes())
    }
}

/// A send unit as a test says it.
#[derive(Clone, Debug)]
pub struct Message {
    pub topic: String,
    pub queue: i32,
    pub key: Option<String>,
    pub tag: Option<String>,
    pub body: Vec<u8>,
    pub store_ms: i64,
    /// Records in the unit, all alike but for a number behind the body.
    pub records: usize,
    pub deduplicate: bool,
}

impl Message {
    pub fn new(topic: &str, queue: i32, body: &str) -> Message {
        Message {
            topic: topic.to_string(),
            queue,
            key: None,
            tag: None,
            body: body.as_bytes().to_vec(),
            store_ms: 1_000,
            records: 1,
            deduplicate: true,
        }
    }

    pub fn key(mut self, key: &str) -> Message {
        self.key = Some(key.to_string());
        self
    }

    pub fn tag(mut self, tag: &str) -> Message {
        self.tag = Some(tag.to_string());
        self
    }

    pub fn at(mut self, store_ms: i64) -> Message {
        self.store_ms = store_ms;
        self
    }

    pub fn batch(mut self, records: usize) -> Message {
        self.records = records;
        self
    }

    /// The body of a record of the unit.
    pub fn body_of(&self, record: usize) -> Vec<u8> {
        let mut body = self.body.clone();
        if record > 0 {
            body.extend_from_slice(format!("#{record}").as_bytes());
        }
        body
    }

    pub fn push(&self, builder: &mut EntryBuilder) {
        self.with_records(|records| builder.push_send(records, self.deduplicate));
    }

    pub fn push_delivery(&self, builder: &mut EntryBuilder, level: u32, offset: i64) {
        self.with_records(|records| builder.push_delivery(level, offset, &records[0]));
    }

    fn with_records(&self, use_them: impl FnOnce(&[NewRecord<'_>])) {
        let mut properties = Vec::new();
        if let Some(key) = &self.key {
            push_property(&mut properties, "UNIQ_KEY", key);
        }
        if let Some(tag) = &self.tag {
            push_property(&mut properties, "TAGS", tag);
        }
        let bodies: Vec<Vec<u8>> = (0..self.records)
            .map(|number| self.body_of(number))
            .collect();
        let records: Vec<NewRecord<'_>> = bodies
            .iter()
            .map(|body| NewRecord {
                topic: &self.topic,
                queue_id: self.queue,
                flag: 0,
                sys_flag: 0,
                born_ms: 1,
                born_host: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 9), 4000),
                store_ms: self.store_ms,
                store_host: HOST,
                reconsume_times: 0,
                prepared_transaction_offset: 0,
                body,
                properties: &properties,
            })
            .collect();
        use_them(&records);
    }
}

pub fn topic(name: &str, queues: u32) -> TopicConfig {
    TopicConfig {
        name: name.to_string(),
        read_queues: queues,
        write_queues: queues,
        perm: 6,
        sys_flag: 0,
        order: false,
        attributes: String::new(),
    }
}

/// Places of a message that must have been stored.
pub fn stored(outcome: UnitOutcome) -> (i64, u64, bool) {
    match outcome {
        UnitOutcome::Stored {
            queue_offset,
            position,
            duplicate,
        } => (queue_offset, position, duplicate),
        other => panic!("not stored: {other:?}"),
    }
}
