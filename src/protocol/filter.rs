//! Which messages of a topic a subscription wants, by the hash of their tag.

use smallvec::SmallVec;

use super::message::tags_code;

/// Between two tags of an expression.
const SEPARATOR: &str = "||";

/// A TAG expression, compiled: `*` or nothing for all messages, else tags separated by `||`.
///
/// Matching is by hash code, as in RocketMQ: a message whose tag has the hash of another one passes, and
/// the client, which compares the tags, drops it. The codes are computed from the expression; the ones
/// that a client sends along are wrong in one of the clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagFilter {
    All,
    /// Sorted. Empty when the expression has blank tags only: it matches nothing, as in RocketMQ.
    Codes(SmallVec<[i32; 4]>),
}

/// The expression consists of separators alone. Becomes code 23.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tag expression of separators only")]
pub struct TagFilterError;

impl TagFilter {
    /// Splits at `||`, trims each tag, drops blank ones.
    pub fn parse(expression: &str) -> Result<TagFilter, TagFilterError> {
        if expression.is_empty() || expression == "*" {
            return Ok(TagFilter::All);
        }
        let mut parts = expression.split(SEPARATOR);
        if parts.clone().all(str::is_empty) {
            return Err(TagFilterError);
        }
        let mut codes = SmallVec::new();
        for tag in parts.by_ref().map(str::trim).filter(|tag| !tag.is_empty()) {
            codes.push(tags_code(Some(tag)) as i32);
        }
        codes.sort_unstable();
        codes.dedup();
        Ok(TagFilter::Codes(codes))
    }

    /// Whether a message with that tags code (0: without a tag) is wanted.
    pub fn matches(&self, code: i64) -> bool {
        match self {
            TagFilter::All => true,
            TagFilter::Codes(codes) => codes.binary_search(&(code as i32)).is_ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(tag: &str) -> i64 {
        tags_code(Some(tag))
    }

    #[test]
    fn a_star_and_nothing_match_every_message() {
        for expression in ["*", ""] {
            let filter = TagFilter::parse(expression).unwrap();
            assert!(filter.matches(code("A")) && filter.matches(0));
        }
    }

    #[test]
    fn tags_are_trimmed_and_blank_ones_dropped() {
        let filter = TagFilter::parse("TagA ||TagB|| ||").unwrap();
        for (tag, wanted) in [("TagA", true), ("TagB", true), ("TagC", false)] {
            assert_eq!(filter.matches(code(tag)), wanted, "{tag}");
        }
        assert!(!filter.matches(0), "a message without a tag");
    }

    #[test]
    fn separators_alone_are_an_error_and_blank_tags_match_nothing() {
        assert_eq!(TagFilter::parse("||"), Err(TagFilterError));
        assert_eq!(TagFilter::parse("||||"), Err(TagFilterError));
        let blank = TagFilter::parse(" || ").unwrap();
        assert!(!blank.matches(0) && !blank.matches(code("A")));
    }

    #[test]
    fn a_star_among_tags_is_a_tag() {
        let filter = TagFilter::parse("* || A").unwrap();
        assert!(filter.matches(code("*")) && !filter.matches(code("B")));
    }

    #[test]
    fn codes_are_compared_as_32_bits() {
        let filter = TagFilter::parse("polygenelubricants").unwrap();
        assert_eq!(code("polygenelubricants"), i64::from(i32::MIN));
        assert!(filter.matches(0x8000_0000), "not sign-extended");
    }

    #[test]
    fn tags_with_the_same_hash_both_pass() {
        assert_eq!(code("Aa"), code("BB"));
        assert!(TagFilter::parse("Aa").unwrap().matches(code("BB")));
    }
}
