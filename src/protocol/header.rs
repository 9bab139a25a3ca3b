//! Frame headers, JSON ([`json`]) and ROCKETMQ ([`binary`]), and their ext fields ([`Ext`]).

mod binary;
mod ext;
mod json;
mod scan;

use bytes::Bytes;

pub(super) use ext::FieldValue;
pub use ext::{Ext, FieldError};

pub(super) use binary::read as read_binary;
pub(super) use json::{read as read_json, write_string};

/// Bit of `flag`: this frame is a response.
pub const FLAG_RESPONSE: i32 = 1;
/// Bit of `flag`: no response is wanted.
pub const FLAG_ONEWAY: i32 = 2;
/// `language` of Java, which a header without one is taken for.
pub const LANGUAGE_JAVA: u8 = 0;
/// `language` that the header's C++ sender uses; some bodies differ for it.
pub const LANGUAGE_CPP: u8 = 1;
/// `language` of a name or number that RocketMQ does not list.
pub const LANGUAGE_OTHER: u8 = 7;

/// RocketMQ's names of languages, by their numbers.
const LANGUAGES: [&str; 14] = [
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP",
    "OMS", "RUST", "NODE_JS",
];

/// A language's number; [`LANGUAGE_OTHER`] for an unknown name.
pub fn language_number(name: &str) -> u8 {
    let known = LANGUAGES.iter().position(|known| *known == name);
    known.map_or(LANGUAGE_OTHER, |number| number as u8)
}

/// A language's name; `OTHER` for an unknown number.
pub fn language_name(number: u8) -> &'static str {
    LANGUAGES.get(usize::from(number)).unwrap_or(&"OTHER")
}

/// A text inside the receive buffer, or an owned one where unescaping was needed. Always valid UTF-8.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Text(Bytes);

impl Text {
    /// The text. Checks the UTF-8 each time (some ns for the lengths that occur): the crate has no unsafe.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a Text is made from UTF-8 only")
    }

    pub fn from_string(text: String) -> Text {
        Text(Bytes::from(text.into_bytes()))
    }

    pub const fn from_static(text: &'static str) -> Text {
        Text(Bytes::from_static(text.as_bytes()))
    }

    /// A part of a buffer; the replacement character stands in for what is not UTF-8.
    fn from_bytes(bytes: Bytes) -> Text {
        if std::str::from_utf8(&bytes).is_ok() {
            Text(bytes)
        } else {
            Text::from_string(String::from_utf8_lossy(&bytes).into_owned())
        }
    }
}

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.as_str(), f)
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

#[cfg(test)]
mod tests;
