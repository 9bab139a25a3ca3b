//! Frame headers, JSON and ROCKETMQ (binary), and their ext fields.

use bytes::Bytes;
use smallvec::SmallVec;

/// Bit of `flag`: this frame is a response.
pub const FLAG_RESPONSE: i32 = 1;
/// Bit of `flag`: no response is wanted.
pub const FLAG_ONEWAY: i32 = 2;
/// `language` that the header's C++ sender uses; some bodies differ for it.
pub const LANGUAGE_CPP: u8 = 1;

/// A text inside the receive buffer, or an owned one where unescaping was needed. Always valid UTF-8.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Text(Bytes);

#[allow(clippy::todo, unused_variables)]
impl Text {
    pub fn as_str(&self) -> &str {
        todo!()
    }

    pub fn from_string(text: String) -> Text {
        Text(Bytes::from(text.into_bytes()))
    }

    pub const fn from_static(text: &'static str) -> Text {
        Text(Bytes::from_static(text.as_bytes()))
    }
}

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.as_str(), f)
    }
}

/// The ext fields of a header, in wire order. Numbers and booleans of a JSON header are kept as their
/// literal text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ext {
    fields: SmallVec<[(Text, Text); 16]>,
}

/// A field that is missing or unreadable. Becomes code 1 with this text (RocketMQ answers 1 too, with a
/// Java exception's text).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    #[error("the custom field <{0}> is null")]
    Missing(&'static str),
    #[error("the custom field <{field}> is not a {wanted}: {found}")]
    Unreadable {
        field: &'static str,
        wanted: &'static str,
        found: String,
    },
}

#[allow(clippy::todo, unused_variables)]
impl Ext {
    pub fn new() -> Ext {
        Ext::default()
    }

    pub fn push(&mut self, name: &'static str, value: String) {
        todo!()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The field's text; the last one wins. `None` when absent. An empty text is present.
    pub fn text(&self, name: &str) -> Option<&str> {
        todo!()
    }

    /// As [`Ext::text`], as an error when absent.
    pub fn required(&self, name: &'static str) -> Result<&str, FieldError> {
        todo!()
    }

    pub fn i32(&self, name: &'static str) -> Result<Option<i32>, FieldError> {
        todo!()
    }

    pub fn i64(&self, name: &'static str) -> Result<Option<i64>, FieldError> {
        todo!()
    }

    /// `true`/`false` in any case, or `1`/`0` (the C++ client).
    pub fn bool(&self, name: &'static str) -> Result<Option<bool>, FieldError> {
        todo!()
    }

    pub fn required_i32(&self, name: &'static str) -> Result<i32, FieldError> {
        self.i32(name)?.ok_or(FieldError::Missing(name))
    }

    pub fn required_i64(&self, name: &'static str) -> Result<i64, FieldError> {
        self.i64(name)?.ok_or(FieldError::Missing(name))
    }
}

/// A decoded header. Lenient: unknown keys are skipped, missing ones take 0.
#[derive(Clone, Debug, Default)]
pub struct Header {
    pub code: i32,
    pub language: u8,
    pub version: i32,
    pub opaque: i32,
    pub flag: i32,
    pub remark: Option<Text>,
    pub ext: Ext,
}

impl Header {
    pub fn is_response(&self) -> bool {
        self.flag & FLAG_RESPONSE != 0
    }

    pub fn is_oneway(&self) -> bool {
        self.flag & FLAG_ONEWAY != 0
    }
}
