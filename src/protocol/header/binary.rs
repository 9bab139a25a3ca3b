//! The ROCKETMQ (binary) header: reading it. We never write it: every client reads JSON, one reads nothing
//! else.

use bytes::Bytes;

use super::ext::Span;
use super::{Ext, Header, Text};

/// Most ext fields that a header may have, as in the JSON form.
const FIELDS_MAX: usize = 1024;

/// Reads a ROCKETMQ header. `code` is a signed short there: the POP codes arrive truncated. Texts of
/// length zero are absent ones. Bytes behind the ext fields are ignored.
///
/// # Errors
/// A sentence that says what is broken and where.
pub(in crate::protocol) fn read(bytes: Bytes) -> Result<Header, String> {
    let mut cursor = Cursor {
        bytes: &bytes,
        at: 0,
    };
    let code = i32::from(i16::from_be_bytes(cursor.array("the code")?));
    let [language] = cursor.array("the language")?;
    let version = i32::from(i16::from_be_bytes(cursor.array("the version")?));
    let opaque = i32::from_be_bytes(cursor.array("opaque")?);
    let flag = i32::from_be_bytes(cursor.array("the flag")?);
    let remark = cursor.long_text("the remark")?;
    let remark = (remark.0 < remark.1).then(|| Text::from_bytes(bytes.slice(remark.0..remark.1)));
    let (start, end) = cursor.long_text("the ext fields")?;
    let mut fields = Cursor {
        bytes: &bytes[..end],
        at: start,
    };
    let mut ext = Ext::within(bytes.clone());
    while fields.at < end {
        let name = fields.short_text("an ext field's name")?;
        let value = fields.long_text("an ext field's value")?;
        if ext.len() == FIELDS_MAX {
            return Err(format!("more than {FIELDS_MAX} ext fields"));
        }
        if name.0 < name.1 && value.0 < value.1 {
            let name = span(&mut ext, &bytes, name);
            let value = span(&mut ext, &bytes, value);
            ext.push_spans(name, value);
        }
    }
    Ok(Header {
        code,
        language,
        version,
        opaque,
        flag,
        remark,
        ext,
    })
}

/// The place of a text; one that is not UTF-8 is taken over with replacement characters.
fn span(ext: &mut Ext, bytes: &[u8], (start, end): (usize, usize)) -> Span {
    if std::str::from_utf8(&bytes[start..end]).is_ok() {
        return Span::Source {
            start: start as u32,
            end: end as u32,
        };
    }
    let text = String::from_utf8_lossy(&bytes[start..end]);
    ext.own(|owned| owned.push_str(&text))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], String> {
        let (start, end) = self.range(Some(N), what)?;
        let mut field = [0; N];
        field.copy_from_slice(&self.bytes[start..end]);
        Ok(field)
    }

    /// A text behind a length of 32 bits.
    fn long_text(&mut self, what: &str) -> Result<(usize, usize), String> {
        let len = i32::from_be_bytes(self.array(what)?);
        self.range(usize::try_from(len).ok(), what)
    }

    /// A text behind a length of 16 bits.
    fn short_text(&mut self, what: &str) -> Result<(usize, usize), String> {
        let len = i16::from_be_bytes(self.array(what)?);
        self.range(usize::try_from(len).ok(), what)
    }

    /// The next `len` bytes; `None` is a negative length.
    fn range(&mut self, len: Option<usize>, what: &str) -> Result<(usize, usize), String> {
        let start = self.at;
        let end = len.and_then(|len| start.checked_add(len));
        match end.filter(|end| *end <= self.bytes.len()) {
            Some(end) => {
                self.at = end;
                Ok((start, end))
            }
            None => Err(format!("at byte {start}: {what} does not fit")),
        }
    }
}
