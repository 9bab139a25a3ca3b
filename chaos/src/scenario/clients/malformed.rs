//! Every kind of bytes that is no request: wrong lengths, header kinds, headers, texts, and other protocols.

use crate::rng::Rng;
use crate::wire::frame_bytes;

/// Bytes and what is wrong with them.
pub struct Malformed {
    pub what: String,
    pub bytes: Vec<u8>,
    /// They cannot become a request whatever follows: the server must not wait for more.
    pub hopeless: bool,
}

/// All of them, in a fixed order; `rng` makes the noise.
pub fn all(rng: &mut Rng) -> Vec<Malformed> {
    let mut cases = Vec::new();
    lengths(&mut cases);
    header_kinds(&mut cases);
    json_headers(&mut cases);
    binary_headers(&mut cases);
    foreign(&mut cases, rng);
    cases
}

fn add(cases: &mut Vec<Malformed>, what: impl Into<String>, bytes: Vec<u8>, hopeless: bool) {
    cases.push(Malformed {
        what: what.into(),
        bytes,
        hopeless,
    });
}

fn lengths(cases: &mut Vec<Malformed>) {
    // The length does not count its own four bytes; 16 MiB is the whole frame's bound.
    let above = [
        (1 << 24) - 3,
        1 << 24,
        (1 << 24) + 1,
        0x7fff_ffff,
        0x8000_0000,
        u32::MAX,
    ];
    for length in [0, 1, 2, 3].into_iter().chain(above) {
        let mut bytes = u32::to_be_bytes(length).to_vec();
        bytes.extend([0; 32]);
        add(cases, format!("length {length:#x}"), bytes, true);
    }
    let mut bytes = u32::to_be_bytes((1 << 24) - 4).to_vec();
    bytes.extend(100_u32.to_be_bytes());
    bytes.resize(200, b'x');
    add(
        cases,
        "the largest length and little behind it",
        bytes,
        false,
    );
    for (length, header) in [(4, 1), (8, 5), (100, 97), (100, 0x00ff_ffff)] {
        let mut bytes = u32::to_be_bytes(length).to_vec();
        bytes.extend(u32::to_be_bytes(header));
        bytes.resize(4 + length as usize, b'{');
        add(
            cases,
            format!("header of {header} in a frame of {length}"),
            bytes,
            true,
        );
    }
}

const VALID: &[u8] =
    br#"{"code":105,"extFields":{"topic":"t"},"flag":0,"language":"JAVA","opaque":1,"version":477}"#;

fn header_kinds(cases: &mut Vec<Malformed>) {
    for kind in 2..=255 {
        add(
            cases,
            format!("header kind {kind}"),
            frame_bytes(kind, VALID, b""),
            true,
        );
    }
    // A JSON header said to be binary.
    add(
        cases,
        "header kind 1 with a JSON header",
        frame_bytes(1, VALID, b""),
        false,
    );
}

fn json_headers(cases: &mut Vec<Malformed>) {
    for header in [
        &b""[..],
        b"{",
        b"null",
        b"[]",
        b"\"code\"",
        b"{}",
        b"{\"code\":}",
        b"{\"code\":{}}",
        b"{\"code\":1e400,\"opaque\":1}",
        b"{\"code\":105,\"opaque\":[],\"flag\":0}",
        b"{\"code\":105,\"extFields\":7,\"opaque\":1}",
        b"\xff\xfe\xfd",
        b"{\"code\":105,\"remark\":\"\xff\xff\",\"opaque\":1}",
        b"{\"code\":105,\"extFields\":{\"topic\":\"\xc0\x80\"},\"opaque\":1}",
    ] {
        let what = format!("JSON header {}", header.escape_ascii());
        add(cases, what, frame_bytes(0, header, b""), false);
    }
    let deep = [b"{\"code\":105,\"x\":".to_vec(), vec![b'['; 200_000]].concat();
    add(
        cases,
        "a JSON header 200,000 levels deep",
        frame_bytes(0, &deep, b""),
        false,
    );
}

/// The fixed part of a binary header: code 105, version, opaque 1, no flag.
const BINARY_FIXED: [u8; 13] = [0, 105, 0, 1, 221, 0, 0, 0, 1, 0, 0, 0, 0];

fn binary_headers(cases: &mut Vec<Malformed>) {
    let with = |parts: &[&[u8]]| [&BINARY_FIXED[..], &parts.concat()].concat();
    let word = |value: u32| value.to_be_bytes();
    // A remark and fields that are longer than the header, negative for who reads signed numbers.
    for length in [5, 0x00ff_ffff, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
        let header = with(&[&word(length), &word(0)]);
        add(
            cases,
            format!("remark of {length:#x}"),
            frame_bytes(1, &header, b""),
            false,
        );
        let header = with(&[&word(0), &word(length), b"abc"]);
        add(
            cases,
            format!("fields of {length:#x}"),
            frame_bytes(1, &header, b""),
            false,
        );
        let field = [&[0, 5][..], b"topic", &word(length), b"t"].concat();
        let header = with(&[&word(0), &word(field.len() as u32), &field]);
        add(
            cases,
            format!("field value of {length:#x}"),
            frame_bytes(1, &header, b""),
            false,
        );
    }
    for length in [6_u16, 0x7fff, 0x8000, u16::MAX] {
        let field = [&length.to_be_bytes()[..], b"topic"].concat();
        let header = with(&[&word(0), &word(field.len() as u32), &field]);
        add(
            cases,
            format!("field name of {length:#x}"),
            frame_bytes(1, &header, b""),
            false,
        );
    }
    let field = [&[0, 5][..], b"topic", &word(2), b"\xff\xfe"].concat();
    let header = with(&[&word(0), &word(field.len() as u32), &field]);
    add(
        cases,
        "a binary field that is no UTF-8",
        frame_bytes(1, &header, b""),
        false,
    );
    add(
        cases,
        "a binary header of ten bytes",
        frame_bytes(1, &BINARY_FIXED[..10], b""),
        false,
    );
}

fn foreign(cases: &mut Vec<Malformed>, rng: &mut Rng) {
    let http = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec();
    add(cases, "HTTP", http, true);
    let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 512]].concat();
    add(cases, "a TLS hello", hello, true);
    for number in 0..4 {
        let mut noise = vec![0; 1 << 20];
        rng.fill(&mut noise);
        add(cases, format!("1 MiB of noise, {number}"), noise, false);
    }
}
