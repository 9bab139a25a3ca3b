//! Send requests that are encoded once; for each message only the opaque and the unique keys are patched.

use bytes::BytesMut;

use crate::protocol::codes::request;
use crate::protocol::frame::encode_request;
use crate::protocol::header::Ext;
use crate::protocol::message::{property, push_property};

/// Smallest opaque of a template: all have ten digits, so patching never moves a byte.
pub(super) const OPAQUE_BASE: i32 = 1_000_000_000;
/// Opaques stay below this distance from the base.
pub(super) const OPAQUE_RANGE: i32 = 1_000_000_000;
/// Stands where a unique key (32 hexadecimal digits) goes.
const KEY_PLACE: &str = "~key~~key~~key~~key~~key~~key~~k";

/// What the messages of a run look like.
#[derive(Clone, Debug)]
pub(super) struct Shape<'a> {
    pub topic: &'a str,
    pub queue: u32,
    pub size: usize,
    /// Messages of a request; a batch (code 320) when more than one.
    pub batch: usize,
}

/// One encoded request and the places that are patched in every copy.
pub(super) struct Template {
    frame: Vec<u8>,
    opaque_at: usize,
    keys_at: Vec<usize>,
}

impl Template {
    pub fn new(shape: &Shape<'_>, born_ms: i64) -> Template {
        let batch = shape.batch > 1;
        let mut properties = Vec::new();
        push_property(&mut properties, property::UNIQ_KEY, KEY_PLACE);
        push_property(&mut properties, property::WAIT, "true");
        let content = vec![b'q'; shape.size];
        let body = if batch {
            batch_body(shape.batch, &content, &properties)
        } else {
            content
        };
        let mut ext = Ext::new();
        for (name, value) in [
            ("a", "BenchProducer".to_string()),
            ("b", shape.topic.to_string()),
            ("c", "TBW102".to_string()),
            ("d", "4".to_string()),
            ("e", shape.queue.to_string()),
            ("f", "0".to_string()),
            ("g", born_ms.to_string()),
            ("h", "0".to_string()),
            ("i", String::from_utf8_lossy(&properties).into_owned()),
            ("j", "0".to_string()),
            ("k", "false".to_string()),
            ("l", "0".to_string()),
            ("m", batch.to_string()),
        ] {
            ext.push(name, value);
        }
        let code = if batch {
            request::SEND_BATCH_MESSAGE
        } else {
            request::SEND_MESSAGE_V2
        };
        let mut frame = BytesMut::new();
        encode_request(code, OPAQUE_BASE, 0, &ext, &body, &mut frame);
        let frame = frame.to_vec();
        let mark = format!("\"opaque\":{OPAQUE_BASE}");
        let opaque_at = memchr::memmem::find(&frame, mark.as_bytes())
            .expect("the encoder writes the opaque it was given")
            + mark.len()
            - 10;
        let keys_at = memchr::memmem::find_iter(&frame, KEY_PLACE.as_bytes()).collect();
        Template {
            frame,
            opaque_at,
            keys_at,
        }
    }

    /// Bytes of one request.
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// Appends a copy with this opaque (from [`OPAQUE_BASE`] on) and fresh keys.
    pub fn append(&self, opaque: i32, keys: &mut Keys, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.frame);
        let copy = &mut out[start..];
        let mut digits = itoa::Buffer::new();
        copy[self.opaque_at..self.opaque_at + 10].copy_from_slice(digits.format(opaque).as_bytes());
        for &at in &self.keys_at {
            keys.write(&mut copy[at..at + 32]);
        }
    }
}

/// The body of a batch send (remoting-protocol 2.4).
fn batch_body(count: usize, content: &[u8], properties: &[u8]) -> Vec<u8> {
    let total = 4 * 5 + content.len() + 2 + properties.len();
    let mut body = Vec::with_capacity(count * total);
    for _ in 0..count {
        // Magic, CRC and flag are zero; the broker makes the first two itself.
        body.extend_from_slice(&(total as u32).to_be_bytes());
        body.extend_from_slice(&[0; 12]);
        body.extend_from_slice(&(content.len() as u32).to_be_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(&(properties.len() as u16).to_be_bytes());
        body.extend_from_slice(properties);
    }
    body
}

/// Unique keys: 16 hexadecimal digits of the run, 16 of a counter.
pub(super) struct Keys {
    run: [u8; 16],
    next: u64,
}

impl Keys {
    /// `run` tells runs apart, `lane` the threads or connections of a run (at most 65,535).
    pub fn new(run: u64, lane: u16) -> Keys {
        let mut text = [0; 16];
        hex(run, &mut text);
        Keys {
            run: text,
            next: u64::from(lane) << 48,
        }
    }

    fn write(&mut self, place: &mut [u8]) {
        place[..16].copy_from_slice(&self.run);
        hex(self.next, &mut place[16..32]);
        self.next += 1;
    }
}

fn hex(number: u64, place: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for (byte, pair) in number
        .to_be_bytes()
        .into_iter()
        .zip(place.chunks_exact_mut(2))
    {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::frame::Frame;
    use crate::protocol::message::{Properties, split_batch};
    use crate::protocol::request::Send;
    use bytes::Bytes;

    fn shape(batch: usize) -> Shape<'static> {
        Shape {
            topic: "T",
            queue: 3,
            size: 100,
            batch,
        }
    }

    fn copies(batch: usize, count: i32) -> Vec<Frame> {
        let template = Template::new(&shape(batch), 1_700_000_000_000);
        let mut keys = Keys::new(0xabc, 7);
        (0..count)
            .map(|n| {
                let mut out = Vec::new();
                template.append(OPAQUE_BASE + n, &mut keys, &mut out);
                assert_eq!(out.len(), template.len());
                Frame::decode_whole(Bytes::from(out)).unwrap()
            })
            .collect()
    }

    #[test]
    fn a_copy_is_a_send_request_with_its_own_opaque_and_key() {
        for (n, frame) in copies(1, 3).iter().enumerate() {
            assert_eq!(frame.header.code, request::SEND_MESSAGE_V2);
            assert_eq!(frame.header.opaque, OPAQUE_BASE + n as i32);
            assert_eq!(frame.body.len(), 100);
            let send = Send::read(&frame.header).unwrap();
            assert_eq!((send.topic, send.queue_id, send.batch), ("T", 3, false));
            assert_eq!(send.born_ms, 1_700_000_000_000);
            assert_eq!(
                Properties(send.properties.as_bytes()).value("UNIQ_KEY"),
                Some(format!("0000000000000ABC{:016X}", (7u64 << 48) + n as u64).as_str())
            );
        }
    }

    #[test]
    fn a_batch_has_a_key_for_every_message() {
        let frames = copies(3, 2);
        let mut seen = std::collections::BTreeSet::new();
        for frame in &frames {
            assert_eq!(frame.header.code, request::SEND_BATCH_MESSAGE);
            assert!(Send::read(&frame.header).unwrap().batch);
            let items = split_batch(&frame.body).unwrap();
            assert_eq!(items.len(), 3);
            for item in items {
                assert_eq!(item.body.len(), 100);
                let key = Properties(item.properties).value("UNIQ_KEY").unwrap();
                assert!(seen.insert(key.to_string()), "{key} came twice");
            }
        }
        assert_eq!(seen.len(), 6);
    }
}
