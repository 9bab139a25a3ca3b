//! A recorded transcript as steps to replay, in the order that they were seen on the wire.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, Bytes, BytesMut};
use quorumlog_chaos::wire::{Frame, HeaderKind};
use serde_json::{Map, Value, json};

use crate::recorded::{base64, dir};

/// Connection and opaque: what a reply is matched by.
pub type Call = (String, i64);

pub enum Step {
    Open,
    /// The client closes.
    Close,
    /// The server closes.
    Closed,
    /// Bytes that are no frame.
    Noise(Bytes),
    Request(Request),
    /// The server's reply to the request of this opaque.
    Reply(Recorded),
    /// A request of the server.
    Push(Recorded),
}

pub struct Line {
    /// Line of the file, from 1.
    pub number: usize,
    pub conn: String,
    pub step: Step,
}

/// What a client asked.
pub struct Request {
    pub code: i64,
    pub one_way: bool,
    /// The whole line, to be written again.
    pub header: Map<String, Value>,
    pub body: Bytes,
    pub wall_ms: i64,
    /// A pull that ended without a message when it was recorded.
    pub ran_out: bool,
}

/// What the server said.
pub struct Recorded {
    pub opaque: i64,
    pub code: i64,
    pub ext: BTreeMap<String, String>,
    pub body: Bytes,
}

pub struct Transcript {
    pub scenario: String,
    pub lines: Vec<Line>,
}

/// All transcripts, by name.
pub fn load() -> Vec<Transcript> {
    let mut transcripts = Vec::new();
    for entry in std::fs::read_dir(dir()).expect("the recorded frames") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|name| name.to_str());
        let name = name.expect("a name").to_owned();
        if path.extension().is_none_or(|ext| ext != "jsonl") || name == "others" {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a transcript");
        let values: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        transcripts.push(Transcript {
            lines: lines(&values),
            scenario: name,
        });
    }
    transcripts.sort_by(|a, b| a.scenario.cmp(&b.scenario));
    transcripts
}

fn lines(values: &[Value]) -> Vec<Line> {
    let started_ms = values[0]["started_ms"].as_f64().expect("started_ms");
    let without_message = without_message(values);
    let mut lines = Vec::new();
    for (at, value) in values.iter().enumerate().skip(1) {
        let conn = text(value, "conn");
        let client = value["from"] == "client";
        let step = match (text(value, "dir").as_str(), client) {
            ("event", _) => event(value),
            ("req", true) => Some(Step::Request(Request {
                code: number(&value["code"]),
                one_way: flag(value) & 2 != 0,
                header: header(value),
                body: body(value),
                wall_ms: (started_ms + at_ms(value)) as i64,
                ran_out: without_message.contains(&(conn.clone(), number(&value["opaque"]))),
            })),
            ("req", false) => Some(Step::Push(recorded(value))),
            ("resp", false) => Some(Step::Reply(recorded(value))),
            // A client's answer, to a request of the server or to nothing, needs no answer.
            _ => Some(Step::Request(Request {
                code: number(&value["code"]),
                one_way: true,
                header: header(value),
                body: body(value),
                wall_ms: 0,
                ran_out: false,
            })),
        };
        if let Some(step) = step {
            lines.push(Line {
                number: at + 1,
                conn,
                step,
            });
        }
    }
    lines
}

fn event(value: &Value) -> Option<Step> {
    let by_client = value["by"] == "client";
    match value["event"].as_str()? {
        "open" => Some(Step::Open),
        "close" if by_client => Some(Step::Close),
        "close" => Some(Step::Closed),
        "malformed" => Some(Step::Noise(base64(&text(value, "raw_b64")).into())),
        other => panic!("an event {other}"),
    }
}

/// The pulls that were answered without a message.
fn without_message(values: &[Value]) -> BTreeSet<Call> {
    let replies = values.iter().filter(|value| value["dir"] == "resp");
    replies
        .filter(|value| value["to"] == 11 && value["code"] != 0)
        .map(|value| (text(value, "conn"), number(&value["opaque"])))
        .collect()
}

fn recorded(value: &Value) -> Recorded {
    let ext = value["extFields"].as_object();
    Recorded {
        opaque: number(&value["opaque"]),
        code: number(&value["code"]),
        ext: ext
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.clone(), literal(value)))
            .collect(),
        body: body(value),
    }
}

/// The header's members as they were written.
fn header(value: &Value) -> Map<String, Value> {
    let mut header = Map::new();
    let names = [
        "code",
        "flag",
        "opaque",
        "language",
        "version",
        "remark",
        "extFields",
        "serialize",
        "raw_b64",
    ];
    for name in names {
        if !value[name].is_null() {
            header.insert(name.to_owned(), value[name].clone());
        }
    }
    let other = value["header_other"].as_object();
    header.extend(
        other
            .into_iter()
            .flatten()
            .map(|(k, v)| (k.clone(), v.clone())),
    );
    header
}

/// The body; of one that was cut, its beginning, over and over.
fn body(value: &Value) -> Bytes {
    let mut body = value["body_b64"].as_str().map(base64).unwrap_or_default();
    let length = value["body_len"].as_u64().unwrap_or(0) as usize;
    let kept = body.len();
    for at in kept..length {
        body.push(body[at % kept]);
    }
    body.into()
}

fn flag(value: &Value) -> i64 {
    value["flag"].as_i64().unwrap_or(0)
}

fn at_ms(value: &Value) -> f64 {
    value["t_ms"].as_f64().unwrap_or(0.0)
}

fn text(value: &Value, name: &str) -> String {
    let text = value[name].as_str();
    text.unwrap_or_else(|| panic!("no {name}: {value}"))
        .to_owned()
}

fn number(value: &Value) -> i64 {
    let text = || value.as_str().and_then(|text| text.parse().ok());
    value
        .as_i64()
        .or_else(text)
        .unwrap_or_else(|| panic!("no number: {value}"))
}

/// A scalar as it is written.
fn literal(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Request {
    pub fn opaque(&self) -> i64 {
        number(&self.header["opaque"])
    }

    /// A field of the header, as text.
    pub fn field(&self, name: &str) -> Option<String> {
        Some(literal(self.header.get("extFields")?.get(name)?))
    }

    /// A send that leaves the queue to the broker.
    pub fn leaves_queue(&self) -> bool {
        let queue = self.field("e").or_else(|| self.field("queueId"));
        queue.is_some_and(|queue| queue.starts_with('-'))
    }

    /// The frame, with the fields in `changed` replaced: as it was recorded, as far as that is known.
    pub fn encode(&self, changed: &BTreeMap<String, String>) -> Bytes {
        if changed.is_empty()
            && let Some(raw) = self.header.get("raw_b64")
        {
            return base64(raw.as_str().expect("text")).into();
        }
        let mut header = self.header.clone();
        header.remove("raw_b64");
        let kind = header.remove("serialize");
        for (name, value) in changed {
            header["extFields"][name] = json!(value);
        }
        if kind.is_some_and(|kind| kind == "ROCKETMQ") {
            return self.encode_binary(&header);
        }
        let header = Value::from(header).to_string();
        let mut out = BytesMut::new();
        out.put_u32((4 + header.len() + self.body.len()) as u32);
        out.put_u32(header.len() as u32);
        out.put_slice(header.as_bytes());
        out.put_slice(&self.body);
        out.freeze()
    }

    fn encode_binary(&self, header: &Map<String, Value>) -> Bytes {
        let mut frame = Frame::request(self.code as i32).with_body(self.body.clone());
        frame.opaque = self.opaque() as i32;
        let fields = header.get("extFields").and_then(Value::as_object);
        for (name, value) in fields.into_iter().flatten() {
            frame = frame.with(name, literal(value));
        }
        frame.encode(HeaderKind::Binary)
    }
}
