//! Random numbers: election timeouts and what tells one run of a node from the next. From the operating
//! system, unless a simulation seeds its one thread.

use std::convert::Infallible;

use rand::{Rng, TryRng};

/// A source of random numbers for the thread that made it.
#[derive(Debug)]
pub(crate) struct NodeRng(Source);

#[derive(Debug)]
enum Source {
    System(rand::rngs::ThreadRng),
    #[cfg(any(test, feature = "testing"))]
    Seeded,
}

/// This thread's source.
pub(crate) fn thread_rng() -> NodeRng {
    #[cfg(any(test, feature = "testing"))]
    if seeded::is_on() {
        return NodeRng(Source::Seeded);
    }
    NodeRng(Source::System(rand::rng()))
}

impl TryRng for NodeRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.try_next_u64()? >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(match &mut self.0 {
            Source::System(system) => system.next_u64(),
            #[cfg(any(test, feature = "testing"))]
            Source::Seeded => seeded::next(),
        })
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            let word = self.try_next_u64()?.to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(any(test, feature = "testing"))]
pub use seeded::seed_this_thread;

#[cfg(any(test, feature = "testing"))]
mod seeded {
    use std::cell::Cell;

    thread_local! {
        static STATE: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// Makes all random numbers that nodes on this thread take from here on a function of `seed`. For
    /// simulations, which run everything on one thread; others are not affected.
    pub fn seed_this_thread(seed: u64) {
        STATE.set(Some(seed));
    }

    pub(super) fn is_on() -> bool {
        STATE.get().is_some()
    }

    /// SplitMix64.
    pub(super) fn next() -> u64 {
        let state = STATE
            .get()
            .unwrap_or_default()
            .wrapping_add(0x9e37_79b9_7f4a_7c15);
        STATE.set(Some(state));
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(count: usize) -> Vec<u64> {
        let mut rng = thread_rng();
        (0..count).map(|_| rng.next_u64()).collect()
    }

    #[test]
    fn a_seeded_thread_repeats_itself_and_others_do_not() {
        let system = some(4);
        assert_ne!(system, some(4));
        seed_this_thread(1_234_567);
        let seeded = some(4);
        // The sequence published with the generator.
        assert_eq!(seeded[0], 6_457_827_717_110_365_317);
        seed_this_thread(1_234_567);
        assert_eq!(seeded, some(4));
        let elsewhere = std::thread::spawn(|| some(4)).join();
        assert_ne!(elsewhere.ok(), Some(seeded));
    }
}
