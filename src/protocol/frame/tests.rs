//! Tests: cutting streams and writing frames, against RocketMQ's bytes and by properties.

use proptest::prelude::*;

use super::*;

/// The same request 105 by RocketMQ's JSON and binary encoders.
const JSON: &str = r#"{"code":105,"extFields":{"topic":"TBW102"},"flag":0,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":477}"#;
const BINARY: &[u8] = b"\x00\x69\x00\x01\xdd\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x11\x00\x05topic\x00\x00\x00\x06TBW102";

fn framed(serialize_type: u8, header: &[u8], body: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_u32((4 + header.len() + body.len()) as u32);
    out.put_u32(u32::from(serialize_type) << 24 | header.len() as u32);
    out.put_slice(header);
    out.put_slice(body);
    out
}

fn decoded(mut bytes: BytesMut) -> Frame {
    let frame = Frame::decode(&mut bytes).unwrap().unwrap();
    assert!(bytes.is_empty());
    frame
}

#[test]
fn both_header_forms_of_rocketmq_say_the_same() {
    for (serialize_type, header) in [(0, JSON.as_bytes()), (1, BINARY)] {
        let frame = decoded(framed(serialize_type, header, b"x"));
        assert_eq!(frame.header.code, 105);
        assert_eq!(frame.header.opaque, 7);
        assert_eq!(frame.header.version, 477);
        assert_eq!(frame.header.language, 0);
        assert!(!frame.header.is_response() && !frame.header.is_oneway());
        assert_eq!(frame.header.remark, None);
        let fields: Vec<_> = frame.header.ext.iter().collect();
        assert_eq!(fields, [("topic", "TBW102")]);
        assert_eq!(&frame.body[..], b"x");
    }
}

#[test]
fn a_reply_is_rocketmqs_with_our_version_and_ext_fields() {
    let mut out = BytesMut::new();
    Reply::new(0, 7).with_body(&b"x"[..]).encode(&mut out);
    let header = r#"{"code":0,"extFields":{},"flag":1,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":479}"#;
    assert_eq!(out, framed(0, header.as_bytes(), b"x"));
}

#[test]
fn every_ext_field_of_a_reply_is_a_text() {
    let mut out = BytesMut::new();
    Reply::new(19, -1)
        .with("offset", 5u64)
        .with("TRACE_ON", true)
        .with("x", "a\"b\u{1}")
        .with_remark("no\nmore")
        .encode(&mut out);
    let header = r#"{"code":19,"extFields":{"offset":"5","TRACE_ON":"true","x":"a\"b\u0001"},"flag":1,"language":"JAVA","opaque":-1,"remark":"no\nmore","serializeTypeCurrentRPC":"JSON","version":479}"#;
    assert_eq!(out, framed(0, header.as_bytes(), b""));
}

#[test]
fn the_head_of_a_reply_counts_the_body_that_follows_it() {
    let reply = Reply::new(0, 7).with_body(vec![1; 1000]);
    let mut head = BytesMut::new();
    reply.encode_head(&mut head);
    let mut whole = BytesMut::new();
    reply.encode(&mut whole);
    assert_eq!(head, whole[..whole.len() - 1000]);
    assert_eq!(decoded(whole).body.len(), 1000);
}

#[test]
fn a_long_remark_is_cut_between_characters() {
    let mut out = BytesMut::new();
    let remark = format!("a{}", "ü".repeat(5000));
    Reply::new(1, 1).with_remark(remark).encode(&mut out);
    let remark = decoded(out).header.remark.unwrap();
    assert_eq!(remark.as_str().len(), 4095);
}

#[test]
fn a_header_above_its_24_bits_is_replaced_by_an_error() {
    let mut out = BytesMut::from(&b"before"[..]);
    Reply::new(0, 7)
        .with("msgId", "x".repeat(1 << 24))
        .encode(&mut out);
    let frame = decoded(out.split_off(6));
    assert_eq!(&out[..], b"before");
    assert_eq!((frame.header.code, frame.header.opaque), (1, 7));
    assert!(frame.header.remark.unwrap().as_str().contains("too long"));
}

/// What is found out from the first bytes of a frame, whatever may follow.
fn verdict(start: &[u8]) -> Result<bool, FrameError> {
    Frame::decode(&mut BytesMut::from(start)).map(|frame| frame.is_some())
}

#[test]
fn a_bad_prefix_is_refused_at_its_first_bad_byte() {
    const MAX: u32 = FRAME_BYTES_MAX as u32;
    for length in [0u32, 1, 2, 3] {
        let frame = u64::from(length) + 4;
        let refused = Err(FrameError::TooShort(frame));
        assert_eq!(verdict(&length.to_be_bytes()), refused);
    }
    for length in [MAX - 3, MAX, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
        let frame = u64::from(length) + 4;
        let refused = Err(FrameError::TooLong(frame));
        assert_eq!(verdict(&length.to_be_bytes()), refused);
        assert_eq!(verdict(&length.to_be_bytes()[..3]), Ok(false));
    }
    assert_eq!(verdict(&(MAX - 4).to_be_bytes()), Ok(false));
    for serialize_type in 2..=255 {
        let refused = Err(FrameError::SerializeType(serialize_type));
        assert_eq!(verdict(&[0, 0, 1, 0, serialize_type]), refused);
    }
    let refused = Err(FrameError::HeaderTooLong {
        header: 13,
        frame: 20,
    });
    assert_eq!(verdict(&[0, 0, 0, 16, 0, 0, 0, 13]), refused);
    assert_eq!(verdict(&[0, 0, 0, 16, 0, 0, 0]), Ok(false));
    assert_eq!(verdict(&[0, 0, 0, 16, 0, 0, 0, 12]), Ok(false));
}

#[test]
fn other_protocols_are_refused_at_once() {
    assert!(matches!(
        verdict(b"GET / HTTP/1.1\r\n\r\n"),
        Err(FrameError::TooLong(_))
    ));
    let tls_hello = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00];
    assert!(matches!(verdict(&tls_hello), Err(FrameError::TooLong(_))));
}

#[test]
fn nothing_is_reserved_for_an_announced_length() {
    let mut buffer = BytesMut::with_capacity(64);
    buffer.put_u32(FRAME_BYTES_MAX as u32 - 4);
    buffer.put_u32(1 << 20);
    let capacity = buffer.capacity();
    assert!(Frame::decode(&mut buffer).unwrap().is_none());
    assert_eq!((buffer.len(), buffer.capacity()), (8, capacity));
}

#[test]
fn the_longest_frame_is_accepted() {
    let header = JSON.as_bytes();
    let body = vec![0; FRAME_BYTES_MAX - 8 - header.len()];
    let frame = decoded(framed(0, header, &body));
    assert_eq!(frame.raw.len(), FRAME_BYTES_MAX);
}

#[test]
fn a_whole_frame_has_no_bytes_behind_it_and_lacks_none() {
    let frame = framed(0, JSON.as_bytes(), b"x").freeze();
    assert!(Frame::decode_whole(frame.clone()).is_ok());
    let cut = frame.slice(..frame.len() - 1);
    assert!(matches!(
        Frame::decode_whole(cut),
        Err(FrameError::NotWhole { .. })
    ));
    let more = [&frame[..], b"y"].concat();
    assert!(matches!(
        Frame::decode_whole(more.into()),
        Err(FrameError::NotWhole { .. })
    ));
    assert!(Frame::decode_whole(Bytes::new()).is_err());
}

/// A reply of any content, and a one-way request with the same fields.
fn any_frames() -> impl Strategy<Value = (Reply, Vec<u8>)> {
    let names = prop::sample::select(vec!["a", "topic", "queueId", "msgId"]);
    (
        any::<(i32, i32)>(),
        prop::option::of(any::<String>()),
        prop::collection::vec((names, any::<String>()), 0..20),
        prop::collection::vec(any::<u8>(), 0..300),
    )
        .prop_map(|((code, opaque), remark, fields, body)| {
            let mut reply = Reply::new(code, opaque).with_body(body.clone());
            reply.remark = remark;
            for (name, value) in fields {
                reply.ext.push(name, value);
            }
            (reply, body)
        })
}

/// Frames of a stream that arrives in pieces of the given sizes.
fn decode_in_pieces(stream: &[u8], sizes: &[usize]) -> Result<Vec<Frame>, FrameError> {
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    let mut rest = stream;
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let size = (*sizes.next().unwrap()).min(rest.len());
        buffer.extend_from_slice(&rest[..size]);
        rest = &rest[size..];
        while let Some(frame) = Frame::decode(&mut buffer)? {
            frames.push(frame);
        }
    }
    Ok(frames)
}

proptest! {
    #[test]
    fn what_is_written_is_read_back((reply, body) in any_frames()) {
        let mut out = BytesMut::new();
        reply.encode(&mut out);
        encode_request(reply.code, reply.opaque, 2, &reply.ext, &body, &mut out);
        let frames = decode_in_pieces(&out, &[out.len()]).unwrap();
        prop_assert_eq!(frames.len(), 2);
        for frame in &frames {
            prop_assert_eq!(frame.header.code, reply.code);
            prop_assert_eq!(frame.header.opaque, reply.opaque);
            prop_assert_eq!(frame.header.version, VERSION);
            prop_assert_eq!(&frame.header.ext, &reply.ext);
            prop_assert_eq!(&frame.body[..], &body[..]);
        }
        prop_assert!(frames[0].header.is_response() && frames[1].header.is_oneway());
        let remark = frames[0].header.remark.as_ref().map(|remark| remark.as_str());
        prop_assert_eq!(remark, reply.remark.as_deref());
        prop_assert_eq!([&frames[0].raw[..], &frames[1].raw[..]].concat(), out.to_vec());
    }

    #[test]
    fn any_split_of_a_stream_gives_the_same_frames(
        replies in prop::collection::vec(any_frames(), 1..5),
        sizes in prop::collection::vec(1usize..70, 1..8),
    ) {
        let mut stream = BytesMut::new();
        for (reply, _) in &replies {
            reply.encode(&mut stream);
        }
        let frames = decode_in_pieces(&stream, &sizes).unwrap();
        prop_assert_eq!(frames.len(), replies.len());
        for (frame, (reply, _)) in frames.iter().zip(&replies) {
            prop_assert_eq!(&frame.header.ext, &reply.ext);
            prop_assert_eq!(&frame.body, &reply.body);
        }
    }

    #[test]
    fn a_changed_byte_never_panics(
        (reply, _) in any_frames(),
        at in any::<prop::sample::Index>(),
        byte: u8,
    ) {
        let mut out = BytesMut::new();
        reply.encode(&mut out);
        let at = at.index(out.len());
        out[at] = byte;
        let stream = out.freeze();
        let frames = decode_in_pieces(&stream, &[stream.len()]);
        for frame in frames.into_iter().flatten() {
            prop_assert_eq!(frame.header.ext.iter().count(), frame.header.ext.len());
            prop_assert!(frame.raw.len() <= stream.len());
        }
        let _ = Frame::decode_whole(stream);
    }

    #[test]
    fn a_cut_frame_waits_for_its_rest((reply, _) in any_frames(), cut in any::<prop::sample::Index>()) {
        let mut out = BytesMut::new();
        reply.encode(&mut out);
        out.truncate(cut.index(out.len()));
        let len = out.len();
        prop_assert!(matches!(Frame::decode(&mut out), Ok(None)));
        prop_assert_eq!(out.len(), len);
    }

    #[test]
    fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), length in 0u8..200) {
        // With a plausible prefix, so that more than the length is looked at.
        let mut stream = vec![0, 0, 0, length, bytes.first().copied().unwrap_or(0) & 1, 0, 0];
        stream.extend(&bytes);
        let _ = decode_in_pieces(&stream, &[7]);
        let _ = decode_in_pieces(&bytes, &[7]);
    }
}
