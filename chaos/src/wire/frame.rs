//! One frame of the remoting protocol: length, header kind and length, header, body. Writes both header
//! kinds (JSON and binary) and reads both. Never reserves memory by an announced length.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde_json::{Map, Value, json};

/// Largest frame, length word included.
pub const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;
pub const FLAG_RESPONSE: i32 = 1;
pub const FLAG_ONE_WAY: i32 = 2;

/// Version told to servers: 5.5-like, so that standard JSON is answered.
const VERSION: i32 = 513;

/// How a header is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderKind {
    Json,
    Binary,
}

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("length word {0} is out of bounds")]
    Length(u32),
    #[error("header of {header} bytes in a frame of {frame}")]
    Header { header: usize, frame: usize },
    #[error("header kind {0}")]
    Kind(u8),
    #[error("header text: {0}")]
    Json(String),
    #[error("binary header ends early at its {0}")]
    Short(&'static str),
}

/// A request or a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub code: i32,
    pub flag: i32,
    pub opaque: i32,
    pub version: i32,
    pub remark: Option<String>,
    pub ext: BTreeMap<String, String>,
    pub body: Bytes,
}

impl Frame {
    /// A request without fields or body; the connection gives it its opaque.
    pub fn request(code: i32) -> Frame {
        Frame {
            code,
            flag: 0,
            opaque: 0,
            version: VERSION,
            remark: None,
            ext: BTreeMap::new(),
            body: Bytes::new(),
        }
    }

    /// Adds a header field.
    pub fn with(mut self, name: &str, value: impl ToString) -> Frame {
        self.ext.insert(name.to_owned(), value.to_string());
        self
    }

    pub fn with_body(mut self, body: impl Into<Bytes>) -> Frame {
        self.body = body.into();
        self
    }

    pub fn is_response(&self) -> bool {
        self.flag & FLAG_RESPONSE != 0
    }

    /// A header field as a number, if it is there and is one.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.ext.get(name)?.parse().ok()
    }

    pub fn remark_text(&self) -> &str {
        self.remark.as_deref().unwrap_or_default()
    }

    /// The whole frame as bytes.
    pub fn encode(&self, kind: HeaderKind) -> Bytes {
        let (header, kind_byte) = match kind {
            HeaderKind::Json => (self.json_header(), 0u32),
            HeaderKind::Binary => (self.binary_header(), 1),
        };
        let mut out = BytesMut::with_capacity(8 + header.len() + self.body.len());
        out.put_u32((4 + header.len() + self.body.len()) as u32);
        out.put_u32(kind_byte << 24 | header.len() as u32);
        out.put_slice(&header);
        out.put_slice(&self.body);
        out.freeze()
    }

    fn json_header(&self) -> Vec<u8> {
        let ext: Map<String, Value> = self
            .ext
            .iter()
            .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
            .collect();
        let mut header = json!({
            "code": self.code, "flag": self.flag, "language": "JAVA", "opaque": self.opaque,
            "version": self.version, "extFields": ext, "serializeTypeCurrentRPC": "JSON",
        });
        if let Some(remark) = &self.remark {
            header["remark"] = Value::from(remark.as_str());
        }
        header.to_string().into_bytes()
    }

    fn binary_header(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_i16(self.code as i16);
        out.put_u8(0);
        out.put_i16(self.version as i16);
        out.put_i32(self.opaque);
        out.put_i32(self.flag);
        let remark = self.remark_text();
        out.put_u32(remark.len() as u32);
        out.put_slice(remark.as_bytes());
        let mut ext = Vec::new();
        for (name, value) in &self.ext {
            ext.put_u16(name.len() as u16);
            ext.put_slice(name.as_bytes());
            ext.put_u32(value.len() as u32);
            ext.put_slice(value.as_bytes());
        }
        out.put_u32(ext.len() as u32);
        out.put_slice(&ext);
        out
    }
}

/// Takes one frame off the front of `input`; `None` while it is incomplete.
pub fn split(input: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
    let Some(word) = input.get(..4) else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
    if length < 4 || length as usize + 4 > FRAME_BYTES_MAX {
        return Err(FrameError::Length(length));
    }
    if input.len() < 4 + length as usize {
        return Ok(None);
    }
    let mut frame = input.split_to(4 + length as usize).freeze();
    frame.advance(4);
    let word = frame.get_u32();
    let header_len = (word & 0x00ff_ffff) as usize;
    if header_len > frame.len() {
        return Err(FrameError::Header {
            header: header_len,
            frame: length as usize,
        });
    }
    let header = frame.split_to(header_len);
    match (word >> 24) as u8 {
        0 => from_json(&header, frame).map(Some),
        1 => from_binary(header, frame).map(Some),
        kind => Err(FrameError::Kind(kind)),
    }
}

fn from_json(header: &[u8], body: Bytes) -> Result<Frame, FrameError> {
    let value: Value =
        serde_json::from_slice(header).map_err(|error| FrameError::Json(error.to_string()))?;
    let number = |name: &str| value.get(name).and_then(Value::as_i64).unwrap_or(0) as i32;
    let code = value
        .get("code")
        .and_then(Value::as_i64)
        .ok_or_else(|| FrameError::Json("no code".to_owned()))?;
    let mut ext = BTreeMap::new();
    if let Some(fields) = value.get("extFields").and_then(Value::as_object) {
        for (name, field) in fields {
            // Clients of other languages decode into string maps: a number here breaks them.
            let text = field
                .as_str()
                .ok_or_else(|| FrameError::Json(format!("field {name} is not a string")))?;
            ext.insert(name.clone(), text.to_owned());
        }
    }
    Ok(Frame {
        code: code as i32,
        flag: number("flag"),
        opaque: number("opaque"),
        version: number("version"),
        remark: value
            .get("remark")
            .and_then(Value::as_str)
            .map(str::to_owned),
        ext,
        body,
    })
}

fn from_binary(mut header: Bytes, body: Bytes) -> Result<Frame, FrameError> {
    if header.len() < 21 {
        return Err(FrameError::Short("fixed part"));
    }
    let code = i32::from(header.get_i16());
    header.advance(1);
    let version = i32::from(header.get_i16());
    let opaque = header.get_i32();
    let flag = header.get_i32();
    let remark_len = header.get_u32() as usize;
    let remark = take(&mut header, remark_len, "remark")?;
    if header.len() < 4 {
        return Err(FrameError::Short("field length"));
    }
    let ext_len = header.get_u32() as usize;
    let mut fields = take(&mut header, ext_len, "fields")?;
    let mut ext = BTreeMap::new();
    while !fields.is_empty() {
        if fields.len() < 2 {
            return Err(FrameError::Short("field name length"));
        }
        let len = fields.get_u16() as usize;
        let name = take(&mut fields, len, "field name")?;
        if fields.len() < 4 {
            return Err(FrameError::Short("field value length"));
        }
        let len = fields.get_u32() as usize;
        let value = take(&mut fields, len, "field value")?;
        ext.insert(text(&name), text(&value));
    }
    Ok(Frame {
        code,
        flag,
        opaque,
        version,
        remark: (!remark.is_empty()).then(|| text(&remark)),
        ext,
        body,
    })
}

fn take(from: &mut Bytes, len: usize, what: &'static str) -> Result<Bytes, FrameError> {
    if len > from.len() {
        return Err(FrameError::Short(what));
    }
    Ok(from.split_to(len))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(hex: &str) -> Vec<u8> {
        let hex: String = hex.split_whitespace().collect();
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn a_frame_survives_both_header_kinds_and_arrives_in_pieces() {
        let mut frame = Frame::request(310)
            .with("b", "topic")
            .with("i", "TAGS\u{1}A\u{2}")
            .with_body("body");
        frame.opaque = -7;
        frame.remark = Some("why".to_owned());
        for kind in [HeaderKind::Json, HeaderKind::Binary] {
            let bytes = frame.encode(kind);
            let mut input = BytesMut::new();
            for (at, byte) in bytes.iter().enumerate() {
                input.put_u8(*byte);
                let got = split(&mut input).unwrap();
                if at + 1 < bytes.len() {
                    assert_eq!(got, None, "complete after {} bytes", at + 1);
                } else {
                    assert_eq!(got.as_ref(), Some(&frame));
                }
            }
        }
    }

    #[test]
    fn the_vectors_printed_by_the_original_decode() {
        let binary = bytes_of(
            "0000002a 01000026 0069 00 01dd 00000007 00000000 00000000 00000011 \
             0005 746f706963 00000006 544257313032",
        );
        let got = split(&mut BytesMut::from(&binary[..])).unwrap().unwrap();
        assert_eq!((got.code, got.version, got.opaque), (105, 477, 7));
        assert_eq!(got.ext["topic"], "TBW102");
        let json = br#"{"code":0,"flag":1,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":477}"#;
        let mut input = BytesMut::new();
        input.put_u32(0x64);
        input.put_u32(0x5f);
        input.put_slice(json);
        input.put_slice(b"x");
        let got = split(&mut input).unwrap().unwrap();
        assert!(got.is_response());
        assert_eq!((got.code, got.body.as_ref()), (0, &b"x"[..]));
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        for (bytes, error) in [
            (vec![0, 0, 0, 3], FrameError::Length(3)),
            (vec![0xff; 4], FrameError::Length(u32::MAX)),
            (
                vec![0, 0, 0, 4, 0, 0, 0, 1],
                FrameError::Header {
                    header: 1,
                    frame: 4,
                },
            ),
            (vec![0, 0, 0, 4, 7, 0, 0, 0], FrameError::Kind(7)),
        ] {
            assert_eq!(split(&mut BytesMut::from(&bytes[..])), Err(error));
        }
    }
}
