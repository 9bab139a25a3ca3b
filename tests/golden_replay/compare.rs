//! What differs between a recorded reply and ours, in words, and what is learnt from the pair to rewrite later
//! requests. Knows nothing of connections.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use quorumlog_chaos::wire::{Frame, Record, decode_records};
use serde_json::Value;

use crate::transcript::{Recorded, Request};

/// Fields whose values are the same on every broker that is fed the same requests. The others are times,
/// positions, ids and counters of the broker's own.
const SAME: [&str; 10] = [
    "forbiddenType",
    "groupSysFlag",
    "maxOffset",
    "minOffset",
    "nextBeginOffset",
    "offset",
    "queueId",
    "queueOffset",
    "suggestWhichBrokerId",
    "topicSysFlag",
];
/// JSON objects that are maps: their keys are addresses and names, not part of the shape.
const MAPS: [&str; 3] = ["brokerAddrs", "brokerAddrTable", "clusterAddrTable"];

/// What the recording's values are here, as far as replies have told.
#[derive(Default)]
pub struct Learnt {
    /// Positions in the log.
    pub positions: BTreeMap<i64, i64>,
    /// Message ids, by position.
    pub ids: BTreeMap<String, String>,
    /// A send went otherwise than recorded: queue offsets cannot be compared from then on.
    shifted: bool,
}

impl Learnt {
    fn message_ids(&mut self, recorded: &str, ours: &str) {
        for (recorded, ours) in recorded.split(',').zip(ours.split(',')) {
            self.ids.insert(recorded.to_owned(), ours.to_owned());
            // The last eight bytes are the position.
            let position = |id: &str| i64::from_str_radix(id.get(16..)?, 16).ok();
            if let (Some(recorded), Some(ours)) = (position(recorded), position(ours)) {
                self.positions.insert(recorded, ours);
            }
        }
    }
}

/// Everything in which `ours` differs from what was recorded.
pub fn reply(
    request: &Request,
    recorded: &Recorded,
    ours: &Frame,
    learnt: &mut Learnt,
) -> Vec<String> {
    let is_send = matches!(request.code, 10 | 310 | 320);
    if recorded.code != i64::from(ours.code) {
        learnt.shifted |= is_send;
        return vec![format!("code {}, here {}", recorded.code, ours.code)];
    }
    let mut differences = Vec::new();
    for name in recorded.ext.keys() {
        if !ours.ext.contains_key(name) {
            differences.push(format!("field {name} is missing"));
        }
    }
    for (name, value) in &ours.ext {
        match recorded.ext.get(name) {
            None => differences.push(format!("field {name} is new")),
            Some(was) if was == value => {}
            // The broker's choice.
            Some(_) if is_send && request.leaves_queue() && name.starts_with("queue") => {
                learnt.shifted = true;
            }
            Some(_) if name == "queueOffset" && learnt.shifted => {}
            Some(was) if SAME.contains(&name.as_str()) => {
                differences.push(format!("field {name} is {was}, here {value}"));
            }
            Some(was) if name == "msgId" => {
                if was.split(',').count() != value.split(',').count() {
                    differences.push(format!("field msgId is {was}, here {value}"));
                    learnt.shifted = true;
                }
                learnt.message_ids(was, value);
            }
            Some(_) => {}
        }
    }
    if request.code == 11 && recorded.code == 0 {
        records(&recorded.body, &ours.body, learnt, &mut differences);
    } else {
        body(request.code, &recorded.body, &ours.body, &mut differences);
    }
    differences
}

fn records(recorded: &Bytes, ours: &Bytes, learnt: &mut Learnt, differences: &mut Vec<String>) {
    let recorded = decode_records(recorded.clone()).expect("recorded messages");
    let ours = match decode_records(ours.clone()) {
        Ok(ours) => ours,
        Err(error) => return differences.push(format!("body: {error}")),
    };
    if recorded.len() != ours.len() {
        let (was, is) = (recorded.len(), ours.len());
        differences.push(format!("body: {was} messages, here {is}"));
    }
    for (recorded, ours) in recorded.iter().zip(&ours) {
        learnt.positions.insert(recorded.position, ours.position);
        record(recorded, ours, learnt, differences);
    }
}

fn record(recorded: &Record, ours: &Record, learnt: &Learnt, differences: &mut Vec<String>) {
    let fixed = |record: &Record| {
        [
            ("topic", record.topic.clone()),
            ("queue", record.queue.to_string()),
            ("offset", record.offset.to_string()),
            ("flag", record.flag.to_string()),
            ("sysFlag", record.sys_flag.to_string()),
            ("reconsumeTimes", record.reconsume_times.to_string()),
            ("body", format!("{:?}", record.body)),
        ]
    };
    for ((name, was), (_, is)) in fixed(recorded).into_iter().zip(fixed(ours)) {
        if was != is {
            differences.push(format!("message {name} {was}, here {is}"));
        }
    }
    let names: BTreeSet<&String> = recorded
        .properties
        .keys()
        .chain(ours.properties.keys())
        .collect();
    for name in names {
        match (recorded.properties.get(name), ours.properties.get(name)) {
            (Some(_), None) => differences.push(format!("message property {name} is missing")),
            (None, _) => differences.push(format!("message property {name} is new")),
            (Some(was), Some(is)) => {
                let was = learnt.ids.get(was).unwrap_or(was);
                if was != is {
                    differences.push(format!("message property {name} is {was}, here {is}"));
                }
            }
        }
    }
}

fn body(code: i64, recorded: &Bytes, ours: &Bytes, differences: &mut Vec<String>) {
    if recorded.is_empty() || ours.is_empty() {
        if recorded.is_empty() != ours.is_empty() {
            let size = |body: &Bytes| if body.is_empty() { "none" } else { "some" };
            differences.push(format!("body {}, here {}", size(recorded), size(ours)));
        }
        return;
    }
    let recorded: Value = serde_json::from_str(&quoted(recorded)).expect("recorded JSON");
    let ours: Value = match serde_json::from_slice(ours) {
        Ok(ours) => ours,
        Err(error) => return differences.push(format!("body is no JSON: {error}")),
    };
    let (was, is) = (shape(&recorded), shape(&ours));
    for path in was.difference(&is) {
        differences.push(format!("body {path} is missing"));
    }
    for path in is.difference(&was) {
        differences.push(format!("body {path} is new"));
    }
    let (was, is) = (told(code, &recorded), told(code, &ours));
    if was != is {
        differences.push(format!("body says {was:?}, here {is:?}"));
    }
}

/// Quotes the keys that RocketMQ leaves unquoted: whole numbers.
fn quoted(json: &Bytes) -> String {
    let mut out = String::new();
    let mut open = Vec::new();
    let (mut in_text, mut escaped, mut in_key) = (false, false, false);
    let mut before = ' ';
    for c in String::from_utf8_lossy(json).chars() {
        let at_member = before == '{' || (before == ',' && open.last() == Some(&'{'));
        let starts = !in_text && at_member && c.is_ascii_digit();
        if starts || (in_key && c == ':') {
            out.push('"');
            in_key = starts;
        }
        match c {
            '"' if !escaped => in_text = !in_text,
            '{' | '[' if !in_text => open.push(c),
            '}' | ']' if !in_text => drop(open.pop()),
            _ => {}
        }
        escaped = in_text && c == '\\' && !escaped;
        before = if in_text { ' ' } else { c };
        out.push(c);
    }
    out
}

/// The paths of all members, with `[]` for the elements of arrays and `*` for the keys of maps.
fn shape(value: &Value) -> BTreeSet<String> {
    fn walk(value: &Value, path: &str, is_map: bool, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    let shown = if is_map { "*" } else { name.as_str() };
                    let path = format!("{path}.{shown}");
                    into.insert(path.clone());
                    walk(member, &path, MAPS.contains(&name.as_str()), into);
                }
            }
            Value::Array(elements) => {
                for element in elements {
                    walk(element, &format!("{path}[]"), false, into);
                }
            }
            _ => {}
        }
    }
    let mut paths = BTreeSet::new();
    walk(value, "", false, &mut paths);
    paths
}

/// What a body must say literally: members of a group, granted queues, the queues of the broker.
fn told(code: i64, body: &Value) -> BTreeSet<String> {
    let elements = match code {
        38 => &body["consumerIdList"],
        41 => &body["lockOKMQSet"],
        105 => &body["queueDatas"],
        _ => return BTreeSet::new(),
    };
    let mut elements = elements.as_array().cloned().unwrap_or_default();
    if code == 105 {
        // Write fronts are broker names of their own, and a recorded group had another name.
        let name = |element: &Value| element["brokerName"].to_string();
        elements.retain(|element| !name(element).contains("-front-"));
        for element in &mut elements {
            element["brokerName"] = Value::Null;
        }
    }
    elements.iter().map(Value::to_string).collect()
}
