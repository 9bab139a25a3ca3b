//! One header of either form in a well-formed frame: read, compared with serde_json, read as every request,
//! and written again.

#![no_main]

use std::fmt;

use bytes::{BufMut, BytesMut};
use libfuzzer_sys::fuzz_target;
use quorumlog::protocol::frame::{Frame, Reply};
use quorumlog::protocol::request::{CreateTopic, Pull, QueueRequest, Send, SendBack, Unregister};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

/// The members of an object, repeated names included: a bad value is an error even where a later member of
/// the same name is good.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

/// Whether serde_json reads a header with members of the right types.
fn serde_accepts(header: &[u8]) -> bool {
    let Ok(Members(members)) = serde_json::from_slice(header) else {
        return false;
    };
    members.iter().all(|(name, value)| match name.as_str() {
        "code" | "opaque" | "flag" | "version" => value
            .as_i64()
            .is_some_and(|number| i32::try_from(number).is_ok()),
        "extFields" => value.is_null() || value.is_object(),
        _ => true,
    })
}

fn read_as_every_request(frame: &Frame) {
    let ext = &frame.header.ext;
    let _ = Send::read(&frame.header);
    let _ = Pull::read(ext);
    let _ = QueueRequest::read(ext, true);
    let _ = QueueRequest::read(ext, false);
    let _ = CreateTopic::read(ext);
    let _ = SendBack::read(ext);
    let _ = Unregister::read(ext);
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, header)) = data.split_first() else {
        return;
    };
    let serialize_type = kind & 1;
    let mut raw = BytesMut::new();
    raw.put_u32(header.len() as u32 + 4);
    raw.put_u32(u32::from(serialize_type) << 24 | header.len() as u32);
    raw.put_slice(header);
    let frame = match Frame::decode_whole(raw.freeze()) {
        Ok(frame) => frame,
        Err(_) => {
            assert!(serialize_type == 1 || !serde_accepts(header));
            return;
        }
    };
    assert_eq!(frame.header.ext.iter().count(), frame.header.ext.len());
    read_as_every_request(&frame);

    let mut reply = Reply::new(frame.header.code, frame.header.opaque);
    reply.ext = frame.header.ext.clone();
    reply.remark = frame
        .header
        .remark
        .as_ref()
        .map(|remark| remark.as_str().to_owned());
    let mut out = BytesMut::new();
    reply.encode(&mut out);
    let again = Frame::decode_whole(out.freeze()).expect("what we write can be read");
    assert_eq!(again.header.ext, frame.header.ext);
    assert_eq!(again.header.code, frame.header.code);
});
