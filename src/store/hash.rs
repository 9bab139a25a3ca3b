//! A hash of our own whose values never change.
//!
//! Replicas compare dedup keys that other program versions may have hashed (a checkpoint holds them), so
//! the function is part of the state's meaning: a crate that may change its hash between versions, or
//! between kinds of processor, will not do. Not for adversaries: whoever can forge a collision can only
//! do so for keys they know.

/// Two independent 64-bit lanes. Each step is a bijection of a lane, so two inputs of one length that
/// differ in a single word never collide.
pub(super) struct StableHasher {
    lanes: [u64; 2],
}

const MULTIPLIERS: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xC2B2_AE3D_27D4_EB4F];
const SEEDS: [u64; 2] = [0x2545_F491_4F6C_DD1D, 0xD6E8_FEB8_6659_FD93];

impl StableHasher {
    pub(super) fn new() -> StableHasher {
        StableHasher { lanes: SEEDS }
    }

    pub(super) fn write_u64(&mut self, word: u64) {
        let [a, b] = &mut self.lanes;
        *a = (*a ^ word).wrapping_mul(MULTIPLIERS[0]);
        *a ^= *a >> 29;
        *b = (*b ^ word.rotate_left(32)).wrapping_mul(MULTIPLIERS[1]);
        *b ^= *b >> 31;
    }

    /// Hashes length and bytes, so that ("ab", "c") and ("a", "bc") differ.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.write_u64(bytes.len() as u64);
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let mut array = [0; 8];
            array.copy_from_slice(word);
            self.write_u64(u64::from_le_bytes(array));
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            let mut array = [0; 8];
            array[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(array));
        }
    }

    pub(super) fn finish(self) -> [u64; 2] {
        self.lanes.map(|lane| {
            let mut lane = lane ^ (lane >> 32);
            lane = lane.wrapping_mul(MULTIPLIERS[1]);
            lane ^= lane >> 29;
            lane = lane.wrapping_mul(MULTIPLIERS[0]);
            lane ^ (lane >> 32)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(parts: &[&str]) -> [u64; 2] {
        let mut hasher = StableHasher::new();
        for part in parts {
            hasher.write(part.as_bytes());
        }
        hasher.finish()
    }

    #[test]
    fn values_are_the_same_for_ever() {
        assert_eq!(hash(&[]), FIXED_EMPTY);
        assert_eq!(hash(&["topic", "0A000001"]), FIXED_TWO);
    }

    const FIXED_EMPTY: [u64; 2] = [0xF789EB930FAB8B4D, 0x6B52F3ED00081A09];
    const FIXED_TWO: [u64; 2] = [0x392D0C2734CCDFE1, 0xB9AC442BF026707A];

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_ne!(hash(&["a\0"]), hash(&["a"]));
    }

    #[test]
    fn counted_keys_do_not_collide_in_either_lane() {
        let mut lanes = [
            std::collections::BTreeSet::new(),
            std::collections::BTreeSet::new(),
        ];
        for counter in 0..200_000u32 {
            let mut hasher = StableHasher::new();
            hasher.write(b"orders");
            hasher.write(format!("0A00000100002A9F{counter:016X}").as_bytes());
            let [a, b] = hasher.finish();
            assert!(lanes[0].insert(a), "lane 0 at {counter}");
            assert!(lanes[1].insert(b), "lane 1 at {counter}");
        }
    }
}
