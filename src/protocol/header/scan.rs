//! A scanner over JSON text: strings, scalars, and skipping whole values. It keeps no tree, does not
//! recurse, and allocates for nothing but a string that contains escapes.

/// Deepest nesting that is skipped over. RocketMQ's headers are flat; deeper input is refused.
const DEPTH_MAX: usize = 128;

/// What is wrong with a JSON header: where, and what was wanted there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScanError {
    pub at: usize,
    pub wanted: &'static str,
}

/// A position in a text that is valid UTF-8.
pub(super) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

/// Byte range of a token in the scanned text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub start: usize,
    pub end: usize,
}

/// A value, told apart by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// The text between the quotes; `escaped` when it contains a backslash.
    String {
        token: Token,
        escaped: bool,
    },
    /// A number, `true`, `false`, or a whole object or array.
    Literal(Token),
    Null,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a [u8]) -> Scanner<'a> {
        Scanner { text, at: 0 }
    }

    pub(super) fn error(&self, wanted: &'static str) -> ScanError {
        ScanError {
            at: self.at,
            wanted,
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Takes `wanted` off the front if it is there, white space before it included.
    pub(super) fn take(&mut self, wanted: u8) -> bool {
        self.skip_space();
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, wanted: u8, name: &'static str) -> Result<(), ScanError> {
        if self.take(wanted) {
            Ok(())
        } else {
            Err(self.error(name))
        }
    }

    /// Nothing but white space may follow.
    pub(super) fn end(&mut self) -> Result<(), ScanError> {
        self.skip_space();
        if self.at == self.text.len() {
            Ok(())
        } else {
            Err(self.error("the end"))
        }
    }

    /// A member's name, and the colon behind it.
    pub(super) fn name(&mut self) -> Result<(Token, bool), ScanError> {
        self.expect(b'"', "a name")?;
        let name = self.string_tail()?;
        self.expect(b':', "a colon")?;
        Ok(name)
    }

    /// The rest of a string whose opening quote is taken. Control characters inside are let pass, as
    /// RocketMQ's parser does.
    fn string_tail(&mut self) -> Result<(Token, bool), ScanError> {
        let start = self.at;
        let mut escaped = false;
        loop {
            let Some(found) = find_either(self.text, self.at, b'"', b'\\') else {
                return Err(self.error("the end of a string"));
            };
            self.at = found;
            if self.text[found] == b'"' {
                let token = Token {
                    start,
                    end: self.at,
                };
                self.at += 1;
                return Ok((token, escaped));
            }
            // Whatever is escaped is checked when the string is unescaped; here a quote must not end it.
            escaped = true;
            self.at = (self.at + 2).min(self.text.len());
        }
    }

    /// The next value. Objects and arrays are skipped over as a whole.
    pub(super) fn value(&mut self) -> Result<Value, ScanError> {
        self.skip_space();
        let start = self.at;
        match self.peek() {
            Some(b'"') => {
                self.at += 1;
                let (token, escaped) = self.string_tail()?;
                Ok(Value::String { token, escaped })
            }
            Some(b'{' | b'[') => {
                self.skip_nested()?;
                Ok(Value::Literal(self.token_from(start)))
            }
            Some(b'n') => {
                self.word(b"null")?;
                Ok(Value::Null)
            }
            Some(b't') => {
                self.word(b"true")?;
                Ok(Value::Literal(self.token_from(start)))
            }
            Some(b'f') => {
                self.word(b"false")?;
                Ok(Value::Literal(self.token_from(start)))
            }
            _ => {
                self.number()?;
                Ok(Value::Literal(self.token_from(start)))
            }
        }
    }

    fn token_from(&self, start: usize) -> Token {
        Token {
            start,
            end: self.at,
        }
    }

    fn word(&mut self, word: &'static [u8]) -> Result<(), ScanError> {
        if self.text[self.at..].starts_with(word) {
            self.at += word.len();
            Ok(())
        } else {
            Err(self.error("null, true or false"))
        }
    }

    /// A number by JSON's grammar.
    fn number(&mut self) -> Result<(), ScanError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// One digit or more.
    fn digits(&mut self) -> Result<(), ScanError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.error("a value"));
        }
        Ok(())
    }

    /// Skips an object or array, checking its structure, with the open brackets on a stack of fixed size.
    fn skip_nested(&mut self) -> Result<(), ScanError> {
        let mut open = [0u8; DEPTH_MAX];
        let mut depth = 0;
        loop {
            // A value begins here.
            self.skip_space();
            if let Some(bracket @ (b'{' | b'[')) = self.peek() {
                if depth == DEPTH_MAX {
                    return Err(self.error("less nesting"));
                }
                self.at += 1;
                open[depth] = bracket;
                depth += 1;
                if !self.take(closing(bracket)) {
                    if bracket == b'{' {
                        self.name()?;
                    }
                    continue;
                }
                depth -= 1;
            } else {
                self.scalar()?;
            }
            // A value has ended: close what ends with it.
            loop {
                let Some(innermost) = depth.checked_sub(1) else {
                    return Ok(());
                };
                if self.take(b',') {
                    if open[innermost] == b'{' {
                        self.name()?;
                    }
                    break;
                }
                self.expect(closing(open[innermost]), "a comma or a closing bracket")?;
                depth = innermost;
            }
        }
    }

    fn scalar(&mut self) -> Result<(), ScanError> {
        match self.peek() {
            Some(b'"') => {
                self.at += 1;
                self.string_tail().map(|_| ())
            }
            Some(b'n') => self.word(b"null"),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            _ => self.number(),
        }
    }
}

fn closing(bracket: u8) -> u8 {
    if bracket == b'{' { b'}' } else { b']' }
}

/// Appends the text that an escaped string stands for. A surrogate without its partner becomes the
/// replacement character. `false` when an escape is broken.
pub(super) fn unescape(escaped: &str, out: &mut String) -> bool {
    let mut rest = escaped;
    while let Some(found) = find_either(rest.as_bytes(), 0, b'\\', b'\\') {
        out.push_str(&rest[..found]);
        let tail = &rest[found + 1..];
        let Some(kind) = tail.bytes().next() else {
            return false;
        };
        let plain = match kind {
            b'"' | b'\\' | b'/' => char::from(kind),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let Some(unit) = hex_unit(&tail.as_bytes()[1..]) else {
                    return false;
                };
                let after = &tail[5..];
                rest = match surrogate_partner(unit, after) {
                    Some((pair, after)) => {
                        out.push(pair);
                        after
                    }
                    None => {
                        let alone = char::from_u32(unit);
                        out.push(alone.unwrap_or(char::REPLACEMENT_CHARACTER));
                        after
                    }
                };
                continue;
            }
            _ => return false,
        };
        out.push(plain);
        rest = &tail[1..];
    }
    out.push_str(rest);
    true
}

/// The character that a high surrogate and the `\uXXXX` right behind it make together.
fn surrogate_partner(unit: u32, after: &str) -> Option<(char, &str)> {
    if !(0xD800..0xDC00).contains(&unit) {
        return None;
    }
    let low = hex_unit(after.strip_prefix("\\u")?.as_bytes())?;
    if !(0xDC00..0xE000).contains(&low) {
        return None;
    }
    let pair = char::from_u32(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00))?;
    Some((pair, &after[6..]))
}

/// Four hex digits.
fn hex_unit(digits: &[u8]) -> Option<u32> {
    let mut unit = 0;
    for digit in digits.first_chunk::<4>()? {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            b'A'..=b'F' => digit - b'A' + 10,
            _ => return None,
        };
        unit = unit << 4 | u32::from(value);
    }
    Some(unit)
}

/// The first place from `at` on of either byte. Eight bytes at a time: the texts of a header are too short
/// for a vectorised search to pay for its start.
fn find_either(text: &[u8], at: usize, a: u8, b: u8) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    // The lowest set bit of this marks the lowest byte that is zero; bits above it may be wrong.
    let zero_bytes = |word: u64| word.wrapping_sub(ONES) & !word & TOPS;
    let (all_a, all_b) = (ONES * u64::from(a), ONES * u64::from(b));
    let mut at = at;
    while let Some(chunk) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        let found = zero_bytes(word ^ all_a) | zero_bytes(word ^ all_b);
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let tail = text.get(at..)?;
    let found = tail.iter().position(|byte| *byte == a || *byte == b)?;
    Some(at + found)
}
