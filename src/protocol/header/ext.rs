//! The ext fields of a header: names and values as texts.

use std::fmt::{self, Display, Write};

use bytes::Bytes;
use smallvec::SmallVec;

/// The ext fields of a header, in wire order. Numbers and booleans of a JSON header are kept as their
/// literal text.
///
/// Texts lie in the receive buffer where they need no unescaping, and one behind the other in one string
/// where they do, so that a header costs one reference to the buffer and at most one allocation.
#[derive(Clone, Default)]
pub struct Ext {
    /// What spans into the buffer refer to.
    source: Bytes,
    /// What owned spans refer to.
    owned: String,
    fields: SmallVec<[Field; 16]>,
}

/// Place of a text.
#[derive(Clone, Copy)]
pub(super) enum Span {
    /// In the receive buffer. Checked to be UTF-8 when it was made.
    Source { start: u32, end: u32 },
    /// In the owned string.
    Owned { start: u32, end: u32 },
}

impl Span {
    fn len(self) -> usize {
        let (Span::Source { start, end } | Span::Owned { start, end }) = self;
        (end - start) as usize
    }
}

#[derive(Clone, Copy)]
struct Field {
    name: Span,
    value: Span,
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

/// Longest part of an unreadable value that an error quotes, characters.
const QUOTED_CHARS_MAX: usize = 64;

impl FieldError {
    pub(in crate::protocol) fn unreadable(
        field: &'static str,
        wanted: &'static str,
        found: &str,
    ) -> FieldError {
        FieldError::Unreadable {
            field,
            wanted,
            found: found.chars().take(QUOTED_CHARS_MAX).collect(),
        }
    }
}

impl Ext {
    pub fn new() -> Ext {
        Ext::default()
    }

    /// An empty one whose spans will point into `source`.
    pub(super) fn within(source: Bytes) -> Ext {
        Ext {
            source,
            ..Ext::default()
        }
    }

    /// Adds a field of our own. Values are sent as JSON strings, always.
    pub fn push(&mut self, name: &str, value: impl Display) {
        let name = self.own(|owned| owned.push_str(name));
        let value = self.own(|owned| {
            write!(owned, "{value}").expect("writing into a String does not fail");
        });
        self.fields.push(Field { name, value });
    }

    /// As [`Ext::push`] for a text, without the detour over a formatter.
    pub fn push_text(&mut self, name: &str, value: &str) {
        let name = self.own(|owned| owned.push_str(name));
        let value = self.own(|owned| owned.push_str(value));
        self.fields.push(Field { name, value });
    }

    /// As [`Ext::push`] for a number, without the detour over a formatter.
    pub fn push_number(&mut self, name: &str, value: i64) {
        self.push_text(name, itoa::Buffer::new().format(value));
    }

    /// The text that `write` appends to the owned string.
    pub(super) fn own(&mut self, write: impl FnOnce(&mut String)) -> Span {
        let offset = |len: usize| u32::try_from(len).expect("ext fields together below 4 GiB");
        let start = offset(self.owned.len());
        write(&mut self.owned);
        let end = offset(self.owned.len());
        Span::Owned { start, end }
    }

    pub(super) fn push_spans(&mut self, name: Span, value: Span) {
        self.fields.push(Field { name, value });
    }

    /// Number of fields, repeated names included.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields
            .iter()
            .map(|field| (self.str_of(field.name), self.str_of(field.value)))
    }

    /// As [`Ext::iter`], with the names as bytes: comparing them needs no check of their UTF-8. The
    /// values are checked when they are asked for.
    pub(in crate::protocol) fn raw_fields(&self) -> impl Iterator<Item = (&[u8], FieldValue<'_>)> {
        self.fields.iter().map(|field| {
            let value = FieldValue {
                ext: self,
                span: field.value,
            };
            (self.bytes_of(field.name), value)
        })
    }

    /// The field's text; the last one wins. `None` when absent. An empty text is present.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.value(name).map(FieldValue::text)
    }

    fn value(&self, name: &str) -> Option<FieldValue<'_>> {
        let mut fields = self.fields.iter().rev();
        let field = fields.find(|field| {
            field.name.len() == name.len() && self.bytes_of(field.name) == name.as_bytes()
        })?;
        let span = field.value;
        Some(FieldValue { ext: self, span })
    }

    /// As [`Ext::text`], as an error when absent.
    pub fn required(&self, name: &'static str) -> Result<&str, FieldError> {
        self.text(name).ok_or(FieldError::Missing(name))
    }

    pub fn i32(&self, name: &'static str) -> Result<Option<i32>, FieldError> {
        self.value(name).map(|value| value.i32(name)).transpose()
    }

    pub fn i64(&self, name: &'static str) -> Result<Option<i64>, FieldError> {
        self.value(name).map(|value| value.i64(name)).transpose()
    }

    /// `true`/`false` in any case, or `1`/`0` (the C++ client).
    pub fn bool(&self, name: &'static str) -> Result<Option<bool>, FieldError> {
        self.value(name).map(|value| value.bool(name)).transpose()
    }

    pub fn required_i32(&self, name: &'static str) -> Result<i32, FieldError> {
        self.i32(name)?.ok_or(FieldError::Missing(name))
    }

    pub fn required_i64(&self, name: &'static str) -> Result<i64, FieldError> {
        self.i64(name)?.ok_or(FieldError::Missing(name))
    }

    fn bytes_of(&self, span: Span) -> &[u8] {
        match span {
            Span::Source { start, end } => &self.source[start as usize..end as usize],
            Span::Owned { start, end } => &self.owned.as_bytes()[start as usize..end as usize],
        }
    }

    fn str_of(&self, span: Span) -> &str {
        match span {
            Span::Source { start, end } => {
                std::str::from_utf8(&self.source[start as usize..end as usize])
                    .expect("spans into the buffer are checked when they are made")
            }
            Span::Owned { start, end } => &self.owned[start as usize..end as usize],
        }
    }
}

/// A value not looked at yet.
#[derive(Clone, Copy)]
pub(in crate::protocol) struct FieldValue<'a> {
    ext: &'a Ext,
    span: Span,
}

impl<'a> FieldValue<'a> {
    pub(in crate::protocol) fn text(self) -> &'a str {
        self.ext.str_of(self.span)
    }

    pub(in crate::protocol) fn i32(self, field: &'static str) -> Result<i32, FieldError> {
        plain_number(self.ext.bytes_of(self.span))
            .and_then(|number| i32::try_from(number).ok())
            .or_else(|| self.text().parse().ok())
            .ok_or_else(|| FieldError::unreadable(field, "number of 32 bits", self.text()))
    }

    pub(in crate::protocol) fn i64(self, field: &'static str) -> Result<i64, FieldError> {
        plain_number(self.ext.bytes_of(self.span))
            .or_else(|| self.text().parse().ok())
            .ok_or_else(|| FieldError::unreadable(field, "number of 64 bits", self.text()))
    }

    pub(in crate::protocol) fn bool(self, field: &'static str) -> Result<bool, FieldError> {
        let text = self.text();
        if text == "1" || text.eq_ignore_ascii_case("true") {
            Ok(true)
        } else if text == "0" || text.eq_ignore_ascii_case("false") {
            Ok(false)
        } else {
            Err(FieldError::unreadable(field, "boolean", text))
        }
    }
}

/// A number of 1 to 18 digits and nothing else: the common case, without a check of its UTF-8.
pub(super) fn plain_number(digits: &[u8]) -> Option<i64> {
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut number = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + i64::from(digit - b'0');
    }
    Some(number)
}

impl PartialEq for Ext {
    fn eq(&self, other: &Ext) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Ext {}

impl fmt::Debug for Ext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
