//! Values as clients write them: numbers as texts, enums as names or numbers, null for what is absent.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// A value that may come in another JSON type than the one that it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Scalar {
    #[default]
    Null,
    Number(i64),
    Text(String),
}

impl Scalar {
    /// Empty for null.
    pub(super) fn into_text(self) -> String {
        match self {
            Scalar::Null => String::new(),
            Scalar::Number(number) => number.to_string(),
            Scalar::Text(text) => text,
        }
    }

    /// 0 for null and for an empty text.
    ///
    /// # Errors
    /// The text that is no number.
    pub(super) fn into_number(self) -> Result<i64, String> {
        match self {
            Scalar::Null => Ok(0),
            Scalar::Number(number) => Ok(number),
            Scalar::Text(text) if text.is_empty() => Ok(0),
            Scalar::Text(text) => text
                .parse()
                .map_err(|_| format!("not a number: {}", quoted(&text))),
        }
    }

    /// The place in `names` of an enum's name, or its number where that is one of their places.
    pub(super) fn into_place(self, names: &[&str]) -> Option<usize> {
        let place = match self {
            Scalar::Null => None,
            Scalar::Number(number) => usize::try_from(number).ok(),
            Scalar::Text(text) => names
                .iter()
                .position(|name| *name == text)
                .or_else(|| text.parse().ok()),
        };
        place.filter(|place| *place < names.len())
    }
}

/// The beginning of a text, for an error.
fn quoted(text: &str) -> String {
    text.chars().take(64).collect()
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a number")
    }

    fn visit_unit<E: Error>(self) -> Result<Scalar, E> {
        Ok(Scalar::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar::Text(value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Scalar, E> {
        Ok(Scalar::Number(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Scalar, E> {
        Ok(Scalar::Number(i64::try_from(value).unwrap_or(i64::MAX)))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Scalar, E> {
        Ok(Scalar::Text(value.to_string()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(value.to_owned()))
    }
}

/// A list whose null is an empty one, as are its null elements absent ones.
#[derive(Clone, Debug)]
pub(super) struct List<T>(pub Vec<T>);

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<List<T>, D::Error> {
        deserializer.deserialize_any(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E: Error>(self) -> Result<List<T>, E> {
        Ok(List::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<List<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element::<Option<T>>()? {
            list.extend(element);
        }
        Ok(List(list))
    }
}
