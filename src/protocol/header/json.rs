//! The JSON header: reading it, and writing JSON strings.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};

use super::ext::{Span, plain_number};
use super::scan::{ScanError, Scanner, Token, Value, unescape};
use super::{Ext, Header, LANGUAGE_OTHER, Text, language_number};

/// Most ext fields that a header may have. Requests have some twenty.
const FIELDS_MAX: usize = 1024;

/// Reads a JSON header. What is not UTF-8 is replaced, as RocketMQ's reader does.
///
/// # Errors
/// A sentence that says what is broken and where.
pub(in crate::protocol) fn read(bytes: Bytes) -> Result<Header, String> {
    let source = if std::str::from_utf8(&bytes).is_ok() {
        bytes
    } else {
        Bytes::from(String::from_utf8_lossy(&bytes).into_owned())
    };
    let mut reader = Reader {
        scanner: Scanner::new(&source),
        source: &source,
        header: Header::default(),
    };
    match reader.header() {
        Ok(()) => Ok(reader.header),
        Err(ScanError { at, wanted }) => Err(format!("at byte {at}: {wanted} expected")),
    }
}

struct Reader<'a> {
    scanner: Scanner<'a>,
    source: &'a Bytes,
    header: Header,
}

impl<'a> Reader<'a> {
    fn header(&mut self) -> Result<(), ScanError> {
        self.scanner.expect(b'{', "an object")?;
        self.members(Self::member)?;
        self.scanner.end()
    }

    /// The members of an object whose opening bracket is taken.
    fn members(
        &mut self,
        mut member: impl FnMut(&mut Self, (Token, bool)) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        if self.scanner.take(b'}') {
            return Ok(());
        }
        loop {
            let name = self.scanner.name()?;
            member(self, name)?;
            if !self.scanner.take(b',') {
                return self.scanner.expect(b'}', "a comma or a closing bracket");
            }
        }
    }

    /// One member of the header; a later one of the same name replaces an earlier one.
    fn member(&mut self, name: (Token, bool)) -> Result<(), ScanError> {
        let (token, escaped) = name;
        let source: &'a Bytes = self.source;
        let name = if escaped {
            Cow::Owned(self.unescaped(token)?.into_bytes())
        } else {
            Cow::Borrowed(&source[token.start..token.end])
        };
        match &*name {
            b"code" => self.header.code = self.number()?,
            b"flag" => self.header.flag = self.number()?,
            b"opaque" => self.header.opaque = self.number()?,
            b"version" => self.header.version = self.number()?,
            b"language" => self.header.language = self.language()?,
            b"remark" => self.header.remark = self.remark()?,
            b"extFields" => self.ext()?,
            _ => {
                self.scanner.value()?;
            }
        }
        Ok(())
    }

    /// A number of 32 bits, also as a text; 0 for null.
    fn number(&mut self) -> Result<i32, ScanError> {
        let token = match self.scanner.value()? {
            Value::Null => return Ok(0),
            Value::Literal(token) | Value::String { token, .. } => token,
        };
        plain_number(&self.source[token.start..token.end])
            .and_then(|number| i32::try_from(number).ok())
            .or_else(|| self.str_of(token).trim().parse().ok())
            .ok_or_else(|| self.scanner.error("a number of 32 bits before here"))
    }

    fn language(&mut self) -> Result<u8, ScanError> {
        let token = match self.scanner.value()? {
            Value::Null => return Ok(0),
            Value::Literal(token) | Value::String { token, .. } => token,
        };
        let text = self.str_of(token);
        let first = text.bytes().next();
        if first.is_some_and(|first| first.is_ascii_digit()) {
            return Ok(text.parse().unwrap_or(LANGUAGE_OTHER));
        }
        Ok(language_number(text))
    }

    fn remark(&mut self) -> Result<Option<Text>, ScanError> {
        Ok(match self.scanner.value()? {
            Value::Null => None,
            Value::String {
                token,
                escaped: true,
            } => Some(Text::from_string(self.unescaped(token)?)),
            Value::Literal(token) | Value::String { token, .. } => {
                let part = self.source.slice(token.start..token.end);
                Some(Text::from_bytes(part))
            }
        })
    }

    fn ext(&mut self) -> Result<(), ScanError> {
        self.header.ext = Ext::new();
        if !self.scanner.take(b'{') {
            return match self.scanner.value()? {
                Value::Null => Ok(()),
                _ => Err(self.scanner.error("an object of ext fields before here")),
            };
        }
        self.header.ext = Ext::within(self.source.clone());
        self.members(Self::field)
    }

    fn field(&mut self, (name, name_escaped): (Token, bool)) -> Result<(), ScanError> {
        let (value, value_escaped) = match self.scanner.value()? {
            Value::Null => return Ok(()),
            Value::String { token, escaped } => (token, escaped),
            Value::Literal(token) => (token, false),
        };
        if self.header.ext.len() == FIELDS_MAX {
            return Err(self.scanner.error("fewer ext fields"));
        }
        let name = self.span(name, name_escaped)?;
        let value = self.span(value, value_escaped)?;
        self.header.ext.push_spans(name, value);
        Ok(())
    }

    fn span(&mut self, token: Token, escaped: bool) -> Result<Span, ScanError> {
        if !escaped {
            return Ok(Span::Source {
                start: token.start as u32,
                end: token.end as u32,
            });
        }
        let text = source_str(self.source, token);
        let mut whole = true;
        let span = self.header.ext.own(|owned| {
            owned.reserve(text.len());
            whole = unescape(text, owned);
        });
        if whole {
            Ok(span)
        } else {
            Err(self
                .scanner
                .error("a string without broken escapes before here"))
        }
    }

    fn str_of(&self, token: Token) -> &'a str {
        source_str(self.source, token)
    }

    fn unescaped(&self, token: Token) -> Result<String, ScanError> {
        let mut text = String::new();
        if unescape(self.str_of(token), &mut text) {
            Ok(text)
        } else {
            Err(self
                .scanner
                .error("a string without broken escapes before here"))
        }
    }
}

fn source_str(source: &Bytes, token: Token) -> &str {
    std::str::from_utf8(&source[token.start..token.end])
        .expect("tokens end at ASCII characters of a text that was checked to be UTF-8")
}

/// Appends a JSON string, quotes included.
pub(in crate::protocol) fn write_string(out: &mut BytesMut, text: &str) {
    out.put_u8(b'"');
    let bytes = text.as_bytes();
    let mut clean_from = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte >= 0x20 && *byte != b'"' && *byte != b'\\' {
            continue;
        }
        out.put_slice(&bytes[clean_from..at]);
        clean_from = at + 1;
        match byte {
            b'"' => out.put_slice(b"\\\""),
            b'\\' => out.put_slice(b"\\\\"),
            b'\n' => out.put_slice(b"\\n"),
            control => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                out.put_slice(b"\\u00");
                out.put_u8(DIGITS[usize::from(control >> 4)]);
                out.put_u8(DIGITS[usize::from(control & 15)]);
            }
        }
    }
    out.put_slice(&bytes[clean_from..]);
    out.put_u8(b'"');
}
