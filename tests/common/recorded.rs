//! Where the recorded frames are, and the base64 that they are written in.

use std::path::{Path, PathBuf};

/// The directory of the recorded frames.
pub fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

pub fn base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        other => panic!("not base64: {other}"),
    };
    let mut out = Vec::new();
    for four in text.as_bytes().chunks(4) {
        let digits: Vec<u8> = (four.iter().copied())
            .filter(|byte| *byte != b'=')
            .map(digit)
            .collect();
        let word = (digits.iter()).fold(0u32, |word, digit| word << 6 | u32::from(*digit))
            << (6 * (4 - digits.len()));
        out.extend_from_slice(&word.to_be_bytes()[1..digits.len()]);
    }
    out
}
