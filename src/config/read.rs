//! Typed access to the properties of one file, with errors that name file, line, key, value and fix.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ConfigError;
use super::properties::{self, Property};

/// The properties of one file, the last of each name.
pub(super) struct Source<'a> {
    file: &'a str,
    values: BTreeMap<String, Property>,
}

impl<'a> Source<'a> {
    /// Parses a file's text. A name that is set twice counts as set last, and is warned about.
    pub fn parse(
        text: &str,
        file: &'a str,
        warnings: &mut Vec<String>,
    ) -> Result<Source<'a>, ConfigError> {
        let properties = properties::parse(text).map_err(|line| ConfigError {
            file: file.to_string(),
            line: Some(line),
            problem: "the escape behind \\u is not four hexadecimal digits".to_string(),
            fix: "Write the character itself (the file is UTF-8), or \\\\ for a backslash"
                .to_string(),
        })?;
        let mut values: BTreeMap<String, Property> = BTreeMap::new();
        for property in properties {
            let (line, key) = (property.line, property.key.clone());
            if property.value.is_empty() {
                warnings.push(format!(
                    "{file}:{line}: {key} has no value: it counts as not set"
                ));
            }
            if let Some(earlier) = values.insert(key.clone(), property) {
                warnings.push(format!(
                    "{file}:{line}: {key} is set a second time; the value of line {} is dropped",
                    earlier.line
                ));
            }
        }
        Ok(Source { file, values })
    }

    pub fn properties(&self) -> impl Iterator<Item = &Property> {
        self.values.values()
    }

    /// The value as written; an empty one counts as absent.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.values
            .get(key)
            .map(|p| p.value.as_str())
            .filter(|v| !v.is_empty())
    }

    pub fn error(&self, key: &str, problem: &str, fix: &str) -> ConfigError {
        ConfigError {
            file: self.file.to_string(),
            line: self.values.get(key).map(|p| p.line),
            problem: problem.to_string(),
            fix: fix.to_string(),
        }
    }

    /// A warning about a key that is in the file.
    pub fn warn(&self, key: &str, text: &str) -> String {
        match self.values.get(key) {
            Some(p) => format!("{}:{}: {key}={} {text}", self.file, p.line, p.value),
            None => format!("{}: {key} {text}", self.file),
        }
    }

    /// A whole number within bounds; `None` when absent.
    pub fn number(&self, key: &str, min: u64, max: u64) -> Result<Option<u64>, ConfigError> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        match value.parse::<u64>() {
            Ok(number) if (min..=max).contains(&number) => Ok(Some(number)),
            _ => Err(self.error(
                key,
                &format!("{key}={value} is not a whole number from {min} to {max}"),
                &format!("Give {key} a number in these bounds, or remove it for the default"),
            )),
        }
    }

    pub fn millis(
        &self,
        key: &str,
        min: u64,
        max: u64,
        default: u64,
    ) -> Result<Duration, ConfigError> {
        let millis = self.number(key, min, max)?.unwrap_or(default);
        Ok(Duration::from_millis(millis))
    }

    /// A port; `min` is 0 where 0 turns something off.
    pub fn port(&self, key: &str, min: u16) -> Result<Option<u16>, ConfigError> {
        let number = self.number(key, u64::from(min), u64::from(u16::MAX))?;
        Ok(number.and_then(|n| u16::try_from(n).ok()))
    }

    pub fn boolean(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        match value.to_ascii_lowercase().as_str() {
            "true" => Ok(Some(true)),
            "false" => Ok(Some(false)),
            _ => Err(self.error(
                key,
                &format!("{key}={value} is neither true nor false"),
                "Write true or false",
            )),
        }
    }

    pub fn flag(&self, key: &str, default: bool) -> Result<bool, ConfigError> {
        Ok(self.boolean(key)?.unwrap_or(default))
    }

    /// A name that may stand in routes, file names and log lines.
    pub fn name(&self, key: &str) -> Result<Option<String>, ConfigError> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let fits = value.len() <= 127
            && value
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        if fits {
            return Ok(Some(value.to_string()));
        }
        Err(self.error(
            key,
            &format!("{key}={value} is no usable name"),
            "Use at most 127 letters, digits, '-', '_' and '.'",
        ))
    }
}
