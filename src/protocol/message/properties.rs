//! A message's properties text, and the hash of its tag.

/// Between a property's name and its value.
const NAME_END: u8 = 1;
/// Between two properties.
const PROPERTY_END: u8 = 2;

/// A properties text: `name 0x01 value 0x02` repeated; fragments without separator, name or value are
/// skipped; the last one wins. Fragments that are not UTF-8 are skipped too.
#[derive(Clone, Copy, Debug)]
pub struct Properties<'a>(pub &'a [u8]);

/// What [`Properties::hot`] finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotProperties<'a> {
    pub tags: Option<&'a str>,
    pub unique_key: Option<&'a str>,
    pub delay: Option<&'a str>,
}

impl<'a> Properties<'a> {
    /// The value of the last property of that name.
    pub fn value(&self, name: &str) -> Option<&'a str> {
        Fragments(self.0)
            .filter(|(found, _)| *found == name.as_bytes())
            .filter_map(|(_, value)| std::str::from_utf8(value).ok())
            .last()
    }

    /// Names and values in the order of the text, repeated names included.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        Fragments(self.0).filter_map(|(name, value)| {
            Some((
                std::str::from_utf8(name).ok()?,
                std::str::from_utf8(value).ok()?,
            ))
        })
    }

    /// One pass for the three that the hot path needs: TAGS, UNIQ_KEY, DELAY.
    pub fn hot(&self) -> HotProperties<'a> {
        let mut hot = HotProperties::default();
        for (name, value) in Fragments(self.0) {
            let place = match name {
                b"TAGS" => &mut hot.tags,
                b"UNIQ_KEY" => &mut hot.unique_key,
                b"DELAY" => &mut hot.delay,
                _ => continue,
            };
            if let Ok(value) = std::str::from_utf8(value) {
                *place = Some(value);
            }
        }
        hot
    }
}

/// The well-formed fragments of a properties text.
struct Fragments<'a>(&'a [u8]);

impl<'a> Iterator for Fragments<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.0.is_empty() {
            let end = memchr::memchr(PROPERTY_END, self.0).unwrap_or(self.0.len());
            let fragment = &self.0[..end];
            self.0 = self.0.get(end + 1..).unwrap_or_default();
            // Names are short: a plain loop finds their end before a vectorised one has started.
            let Some(name_end) = fragment.iter().position(|byte| *byte == NAME_END) else {
                continue;
            };
            let (name, value) = (&fragment[..name_end], &fragment[name_end + 1..]);
            if !name.is_empty() && !value.is_empty() {
                return Some((name, value));
            }
        }
        None
    }
}

/// Appends one property. A separator is put in front where the text so far lacks one (older clients leave
/// the last one out). `name` and `value` must not contain 0x01 or 0x02; RocketMQ has no escape for them,
/// so such bytes are left out of what is written.
pub fn push_property(out: &mut Vec<u8>, name: &str, value: &str) {
    if out.last().is_some_and(|last| *last != PROPERTY_END) {
        out.push(PROPERTY_END);
    }
    push_clean(out, name);
    out.push(NAME_END);
    push_clean(out, value);
    out.push(PROPERTY_END);
}

fn push_clean(out: &mut Vec<u8>, text: &str) {
    let clean = |byte: &u8| *byte != NAME_END && *byte != PROPERTY_END;
    if text.as_bytes().iter().all(clean) {
        out.extend_from_slice(text.as_bytes());
    } else {
        out.extend(text.bytes().filter(clean));
    }
}

/// Java's `String.hashCode` of a tag (over its UTF-16 units, wrapping), sign-extended; 0 for no tag.
pub fn tags_code(tags: Option<&str>) -> i64 {
    let hash = tags.unwrap_or("").encode_utf16().fold(0i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    });
    i64::from(hash)
}
