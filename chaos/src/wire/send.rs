//! Sending: one message in either spelling of the header fields, or a batch. What the reply means is
//! `outcome`'s.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{BufMut, Bytes, BytesMut};

use super::connection::{Connection, WireError};
use super::frame::Frame;
use super::record::properties_text;
use super::{SendOutcome, classify, code};

/// CRC-32 (IEEE) as the protocol stores it.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes) & 0x7fff_ffff
}

/// Which request carries the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendForm {
    /// 10, fields with long names.
    V1,
    /// 310, fields with letters.
    V2,
    /// 320, the body is a batch.
    Batch,
}

/// One message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub topic: String,
    /// Negative: any queue.
    pub queue: i32,
    /// UNIQ_KEY; equal for all attempts to send one message.
    pub key: String,
    pub body: Bytes,
    /// More properties (TAGS, KEYS, DELAY, ...).
    pub properties: Vec<(String, String)>,
}

impl Message {
    pub fn new(topic: &str, queue: i32, key: &str, body: impl Into<Bytes>) -> Message {
        Message {
            topic: topic.to_owned(),
            queue,
            key: key.to_owned(),
            body: body.into(),
            properties: Vec::new(),
        }
    }

    pub fn with_property(mut self, name: &str, value: &str) -> Message {
        self.properties.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn with_tag(self, tag: &str) -> Message {
        self.with_property("TAGS", tag)
    }

    fn properties_text(&self) -> String {
        let unique = (!self.key.is_empty()).then_some(("UNIQ_KEY", self.key.as_str()));
        let more = self
            .properties
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        properties_text(unique.into_iter().chain(more))
    }
}

/// Header fields of a send that are not the message's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendOptions {
    pub form: SendForm,
    pub group: String,
    /// Queues of a topic that the send creates.
    pub default_queues: i32,
    pub reconsume_times: i32,
    pub max_reconsume_times: Option<i32>,
    /// Broker name the client means, if it names one (`n`/`bname`).
    pub broker_name: Option<String>,
    /// Instead of the connection's.
    pub timeout: Option<Duration>,
}

impl Default for SendOptions {
    fn default() -> Self {
        SendOptions {
            form: SendForm::V2,
            group: "chaos_producers".to_owned(),
            default_queues: 4,
            reconsume_times: 0,
            max_reconsume_times: None,
            broker_name: None,
            timeout: None,
        }
    }
}

impl SendOptions {
    /// The request for a message (or for the batch body in it).
    pub fn request(&self, message: &Message) -> Frame {
        let names = match self.form {
            SendForm::V1 => LONG,
            SendForm::V2 | SendForm::Batch => LETTERS,
        };
        let request_code = match self.form {
            SendForm::V1 => code::SEND,
            SendForm::V2 => code::SEND_V2,
            SendForm::Batch => code::SEND_BATCH,
        };
        let values: [(usize, String); 12] = [
            (0, self.group.clone()),
            (1, message.topic.clone()),
            (2, "TBW102".to_owned()),
            (3, self.default_queues.to_string()),
            (4, message.queue.to_string()),
            (5, "0".to_owned()),
            (6, now_ms().to_string()),
            (7, "0".to_owned()),
            (8, message.properties_text()),
            (9, self.reconsume_times.to_string()),
            (10, "false".to_owned()),
            (12, (self.form == SendForm::Batch).to_string()),
        ];
        let mut frame = Frame::request(request_code).with_body(message.body.clone());
        for (at, value) in values {
            frame = frame.with(names[at], value);
        }
        if let Some(times) = self.max_reconsume_times {
            frame = frame.with(names[11], times);
        }
        if let Some(name) = &self.broker_name {
            frame = frame.with(names[13], name);
        }
        frame
    }
}

const LETTERS: [&str; 14] = [
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n",
];
const LONG: [&str; 14] = [
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "unitMode",
    "maxReconsumeTimes",
    "batch",
    "bname",
];

/// The body of a batch: short records, each with its own properties and key.
pub fn batch_body(messages: &[Message]) -> Bytes {
    let mut out = BytesMut::new();
    for message in messages {
        let properties = message.properties_text();
        out.put_u32((22 + message.body.len() + properties.len()) as u32);
        out.put_slice(&[0; 12]);
        out.put_u32(message.body.len() as u32);
        out.put_slice(&message.body);
        out.put_u16(properties.len() as u16);
        out.put_slice(properties.as_bytes());
    }
    out.freeze()
}

fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64)
}

impl Connection {
    /// Sends one message (310, or as the options say) and says what became of it.
    pub async fn send(&self, message: &Message, options: &SendOptions) -> SendOutcome {
        classify(self.send_reply(message, options).await)
    }

    /// Sends one message and returns the bare reply.
    pub async fn send_reply(
        &self,
        message: &Message,
        options: &SendOptions,
    ) -> Result<Frame, WireError> {
        let timeout = options.timeout.unwrap_or(self.timeout());
        self.request_within(options.request(message), timeout).await
    }

    /// Sends messages of one topic and queue as one batch (320); the reply's offset is the first one's.
    pub async fn send_batch(&self, messages: &[Message], options: &SendOptions) -> SendOutcome {
        let Some(first) = messages.first() else {
            return classify(Err(WireError::Malformed("an empty batch".to_owned())));
        };
        let outer = Message {
            key: String::new(),
            body: batch_body(messages),
            properties: vec![("WAIT".to_owned(), "true".to_owned())],
            ..first.clone()
        };
        let options = SendOptions {
            form: SendForm::Batch,
            ..options.clone()
        };
        self.send(&outer, &options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_one_is_the_vector_printed_by_the_original() {
        let message = Message::new("T", 0, "", &b"hi"[..])
            .with_property("WAIT", "true")
            .with_tag("A");
        let hex: String = batch_body(&[message])
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(
            hex,
            "00000029000000000000000000000000000000026869\
             0011574149540174727565025441475301\
             4102"
        );
    }

    #[test]
    fn both_spellings_carry_the_same_values() {
        let message = Message::new("T", 3, "K", &b"x"[..]);
        let letters = SendOptions::default().request(&message);
        let long = SendOptions {
            form: SendForm::V1,
            ..SendOptions::default()
        }
        .request(&message);
        assert_eq!((letters.code, long.code), (310, 10));
        assert_eq!(letters.ext["e"], "3");
        assert_eq!(long.ext["queueId"], "3");
        assert_eq!(letters.ext["i"], "UNIQ_KEY\u{1}K\u{2}");
        assert_eq!(letters.ext["i"], long.ext["properties"]);
    }
}
