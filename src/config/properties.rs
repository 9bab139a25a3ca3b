//! Java properties as RocketMQ's files use them: lines of `key=value`, comments, escapes, continuations.
//!
//! Parsing only; what a key means is `keys`' business. Two deliberate differences from
//! `java.util.Properties`: the file is UTF-8, and blanks behind a value are dropped (a number with a blank
//! behind it is never meant).

/// One `key=value`, with the 1-based line it began on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Property {
    pub line: usize,
    pub key: String,
    pub value: String,
}

/// Reads all properties in file order, duplicates included. The error is the line of a bad escape.
pub(super) fn parse(text: &str) -> Result<Vec<Property>, usize> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut properties = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, raw)) = lines.next() {
        let first = raw.trim_start_matches(BLANKS);
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = first.to_string();
        while ends_in_continuation(&logical) {
            logical.pop();
            match lines.next() {
                Some((_, next)) => logical.push_str(next.trim_start_matches(BLANKS)),
                None => break,
            }
        }
        let line = index + 1;
        let (key, value) = split(&logical);
        properties.push(Property {
            line,
            key: unescape(key).ok_or(line)?,
            value: unescape(value.trim_end_matches(BLANKS)).ok_or(line)?,
        });
    }
    Ok(properties)
}

const BLANKS: [char; 3] = [' ', '\t', '\u{c}'];

/// An odd number of backslashes at the end.
fn ends_in_continuation(line: &str) -> bool {
    line.bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1
}

/// Splits at the first unescaped `=`, `:` or blank; one `=` or `:` among blanks belongs to the separator.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line
        .char_indices()
        .find(|(_, c)| {
            let here = !escaped && (matches!(c, '=' | ':') || BLANKS.contains(c));
            escaped = *c == '\\' && !escaped;
            here
        })
        .map_or(line.len(), |(at, _)| at);
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start_matches(BLANKS);
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (key, rest.trim_start_matches(BLANKS))
}

/// Resolves backslash escapes; `None` for a `\u` without four hex digits or with half a surrogate pair.
fn unescape(text: &str) -> Option<String> {
    if !text.contains('\\') {
        return Some(text.to_string());
    }
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut buffer = [0u16; 2];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let plain = match c {
            '\\' => match chars.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\u{c}',
                Some('u') => {
                    let digits: String = chars.by_ref().take(4).collect();
                    if digits.len() != 4 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                        return None;
                    }
                    units.push(u16::from_str_radix(&digits, 16).ok()?);
                    continue;
                }
                Some(other) => other,
                None => continue,
            },
            other => other,
        };
        units.extend_from_slice(plain.encode_utf16(&mut buffer));
    }
    String::from_utf16(&units).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(usize, String, String)> {
        parse(text)
            .unwrap()
            .into_iter()
            .map(|p| (p.line, p.key, p.value))
            .collect()
    }

    fn pair(line: usize, key: &str, value: &str) -> (usize, String, String) {
        (line, key.into(), value.into())
    }

    #[test]
    fn comments_and_blank_lines_are_skipped_and_lines_are_counted() {
        let text = "# a\n! b\n\n  # indented\nlistenPort=1\r\n\tbrokerName = x y \t\n";
        assert_eq!(
            pairs(text),
            [pair(5, "listenPort", "1"), pair(6, "brokerName", "x y")]
        );
    }

    #[test]
    fn every_separator_of_java_is_understood() {
        assert_eq!(
            pairs("a=1\nb:2\nc 3\nd  =  4\ne\nf==5\n"),
            [
                pair(1, "a", "1"),
                pair(2, "b", "2"),
                pair(3, "c", "3"),
                pair(4, "d", "4"),
                pair(5, "e", ""),
                pair(6, "f", "=5"),
            ]
        );
    }

    #[test]
    fn peers_keep_their_colons_and_semicolons() {
        assert_eq!(
            pairs("dLegerPeers=n0-127.0.0.1:40911;n1-127.0.0.1:40912"),
            [pair(
                1,
                "dLegerPeers",
                "n0-127.0.0.1:40911;n1-127.0.0.1:40912"
            )]
        );
    }

    #[test]
    fn a_backslash_at_the_end_continues_the_line() {
        assert_eq!(
            pairs("a=1;\\\n   2\nb=c\\\\\nd=e\\"),
            [pair(1, "a", "1;2"), pair(3, "b", "c\\"), pair(4, "d", "e")]
        );
    }

    #[test]
    fn escapes_are_resolved_and_utf8_is_kept() {
        assert_eq!(
            pairs("a\\=b=\\u00e9\\tx\nname=größe"),
            [pair(1, "a=b", "é\tx"), pair(2, "name", "größe")]
        );
        assert_eq!(parse("x=1\ny=\\u12g4"), Err(2));
        assert_eq!(parse("y=\\u12"), Err(1));
        assert_eq!(parse("y=\\ud800"), Err(1));
    }

    #[test]
    fn a_byte_order_mark_is_not_part_of_the_first_key() {
        assert_eq!(pairs("\u{feff}a=1"), [pair(1, "a", "1")]);
    }
}
