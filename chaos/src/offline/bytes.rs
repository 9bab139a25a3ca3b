//! Reading numbers and texts out of bytes: fixed widths, and bincode's variable ones. Nothing is believed
//! that the bytes cannot hold.

/// A place in bytes. Every read is `None` where they end early or make no sense.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    /// A variable number: below 251 one byte; 251, 252 and 253 announce two, four and eight.
    pub fn varint(&mut self) -> Option<u64> {
        match self.u8()? {
            251 => self.u16().map(u64::from),
            252 => self.u32().map(u64::from),
            253 => self.u64(),
            254.. => None,
            small => Some(u64::from(small)),
        }
    }

    /// A signed variable number: zigzag.
    pub fn signed(&mut self) -> Option<i64> {
        let folded = self.varint()?;
        Some((folded >> 1) as i64 ^ -((folded & 1) as i64))
    }

    pub fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub fn text(&mut self) -> Option<&'a str> {
        let len = usize::try_from(self.varint()?).ok()?;
        std::str::from_utf8(self.take(len)?).ok()
    }

    /// As many of something as the bytes announce.
    pub fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.varint()?;
        let mut items = Vec::new();
        for _ in 0..count {
            // Each takes a byte at least: a count too large ends here.
            items.push(item(self)?);
        }
        Some(items)
    }
}

/// Number at `at`; 0 behind the end, which no check takes for right.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(|rest| Fields(rest).u32())
        .unwrap_or(0)
}

/// Number at `at`; 0 behind the end, which no check takes for right.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(|rest| Fields(rest).u64())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_numbers_have_the_published_bytes() {
        let varint = |bytes: &[u8]| Fields(bytes).varint();
        assert_eq!(varint(&[250]), Some(250));
        assert_eq!(varint(&[251, 251, 0]), Some(251));
        assert_eq!(varint(&[252, 0, 0, 1, 0]), Some(65_536));
        assert_eq!(varint(&[253, 1, 0, 0, 0, 0, 0, 0, 128]), Some(1 << 63 | 1));
        assert_eq!(varint(&[254, 0]), None);
        assert_eq!(varint(&[252, 0]), None);
        let signed = |bytes: &[u8]| Fields(bytes).signed();
        assert_eq!(
            (signed(&[0]), signed(&[1]), signed(&[2])),
            (Some(0), Some(-1), Some(1))
        );
        assert_eq!(Fields(&[3, b'a', b'b', b'c']).text(), Some("abc"));
        assert_eq!(
            Fields(&[253, 255, 255, 255, 255, 255, 255, 255, 255]).list(Fields::u8),
            None
        );
    }
}
