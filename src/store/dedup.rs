//! The window of recent message keys, which turns a producer's retry into the first one's places.
//!
//! Part of the replicated state: what it holds depends on the entries alone (their order and their own
//! store times), so every replica gives the same answer.

use hashbrown::HashTable;

use super::hash::StableHasher;

/// Keys held at most.
pub(super) const WINDOW_KEYS: usize = 131_072;
/// A key is forgotten when messages this much younger have been stored.
pub(super) const WINDOW_MS: i64 = 60_000;

/// Most that the window's clock moves from one message to the next. Store times are leaders' wall clocks: one
/// that jumps, or a new leader whose clock is ahead, must not make the window forget what clients still retry.
const STEP_MS: i64 = 15_000;

/// What a message is known by: 128 bits of topic, its incarnation, UNIQ_KEY and body CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key([u64; 2]);

impl Key {
    /// `incarnation` tells a topic from one of the same name that was deleted before.
    pub(super) fn new(topic: &str, incarnation: u64, unique_key: &str, body_crc: u32) -> Key {
        let mut hasher = StableHasher::new();
        hasher.write(unique_key.as_bytes());
        hasher.write(topic.as_bytes());
        hasher.write_u64(incarnation);
        hasher.write_u64(u64::from(body_crc));
        Key(hasher.finish())
    }
}

/// Where the first message of a key went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub queue_offset: i64,
    pub position: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    key: Key,
    /// The window's clock when the key was added.
    at_ms: i64,
    place: Place,
}

/// Bytes of one slot in a checkpoint, little endian.
const SLOT_BYTES: usize = 40;

/// At most 131,072 slots of 40 bytes and a table of 262,144 slot numbers with a control byte each:
/// 6.6 MiB when full, nearly nothing when new.
pub(super) struct Window {
    /// A ring: the slot of sequence number n is n modulo [`WINDOW_KEYS`].
    slots: Vec<Slot>,
    oldest: u64,
    next: u64,
    /// Time in the window. Never runs backwards, and moves by at most [`STEP_MS`] at a time.
    clock_ms: i64,
    /// The store time that the clock goes by.
    seen_ms: i64,
    by_key: HashTable<u32>,
}

impl Default for Window {
    fn default() -> Window {
        Window::new()
    }
}

impl Window {
    pub(super) fn new() -> Window {
        Window {
            slots: Vec::new(),
            oldest: 0,
            next: 0,
            clock_ms: 0,
            seen_ms: 0,
            by_key: HashTable::new(),
        }
    }

    pub(super) fn find(&self, key: &Key) -> Option<Place> {
        let slot = self
            .by_key
            .find(key.0[0], |&slot| self.slots[slot as usize].key == *key)?;
        Some(self.slots[*slot as usize].place)
    }

    /// Moves the window's clock to the store time of a message and forgets what is too old.
    pub(super) fn advance(&mut self, store_ms: i64) {
        let step = store_ms.saturating_sub(self.seen_ms);
        // A little earlier than the message before: they came side by side. Much: the clock was set back, or
        // another one leads.
        if !(-STEP_MS..=0).contains(&step) {
            self.seen_ms = store_ms;
        }
        self.clock_ms += step.clamp(0, STEP_MS);
        while self.oldest < self.next {
            let slot = &self.slots[Self::slot(self.oldest)];
            if self.clock_ms - slot.at_ms <= WINDOW_MS {
                break;
            }
            self.forget_oldest();
        }
    }

    /// Adds a key that [`Window::find`] did not find.
    pub(super) fn insert(&mut self, key: Key, place: Place) {
        if self.next - self.oldest == WINDOW_KEYS as u64 {
            self.forget_oldest();
        }
        let index = Self::slot(self.next);
        let slot = Slot {
            key,
            at_ms: self.clock_ms,
            place,
        };
        if index == self.slots.len() {
            self.slots.push(slot);
        } else {
            self.slots[index] = slot;
        }
        self.next += 1;
        let slots = &self.slots;
        self.by_key.insert_unique(key.0[0], index as u32, |&slot| {
            slots[slot as usize].key.0[0]
        });
    }

    fn forget_oldest(&mut self) {
        let index = Self::slot(self.oldest) as u32;
        let hash = self.slots[index as usize].key.0[0];
        if let Ok(found) = self.by_key.find_entry(hash, |&slot| slot == index) {
            found.remove();
        }
        self.oldest += 1;
    }

    fn slot(sequence: u64) -> usize {
        (sequence % WINDOW_KEYS as u64) as usize
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        (self.next - self.oldest) as usize
    }

    /// Clocks and slots, oldest first: the same bytes for the same contents, wherever the ring stands.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(16 + (self.next - self.oldest) as usize * SLOT_BYTES);
        out.extend_from_slice(&self.clock_ms.to_le_bytes());
        out.extend_from_slice(&self.seen_ms.to_le_bytes());
        for sequence in self.oldest..self.next {
            let slot = &self.slots[Self::slot(sequence)];
            out.extend_from_slice(&slot.key.0[0].to_le_bytes());
            out.extend_from_slice(&slot.key.0[1].to_le_bytes());
            out.extend_from_slice(&slot.at_ms.to_le_bytes());
            out.extend_from_slice(&slot.place.queue_offset.to_le_bytes());
            out.extend_from_slice(&slot.place.position.to_le_bytes());
        }
    }

    /// Reads what [`Window::encode`] wrote; `None` when it is not that.
    pub(super) fn decode(bytes: &[u8]) -> Option<Window> {
        let (clocks, slots) = bytes.split_at_checked(16)?;
        if slots.len() % SLOT_BYTES != 0 || slots.len() / SLOT_BYTES > WINDOW_KEYS {
            return None;
        }
        let word = |bytes: &[u8], index: usize| {
            let mut array = [0; 8];
            array.copy_from_slice(&bytes[index * 8..index * 8 + 8]);
            u64::from_le_bytes(array)
        };
        let mut window = Window::new();
        for slot in slots.chunks_exact(SLOT_BYTES) {
            window.clock_ms = word(slot, 2) as i64;
            let place = Place {
                queue_offset: word(slot, 3) as i64,
                position: word(slot, 4),
            };
            window.insert(Key([word(slot, 0), word(slot, 1)]), place);
        }
        window.clock_ms = word(clocks, 0) as i64;
        window.seen_ms = word(clocks, 1) as i64;
        Some(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        Key::new("orders", 1, &format!("{number:032X}"), 7)
    }

    fn place(number: u64) -> Place {
        Place {
            queue_offset: number as i64,
            position: number * 100,
        }
    }

    #[test]
    fn a_key_is_found_until_it_is_a_minute_old() {
        let mut window = Window::new();
        window.advance(1_000);
        window.insert(key(1), place(1));
        pass(&mut window, 1_000, 61_000);
        assert_eq!(window.find(&key(1)), Some(place(1)));
        window.advance(61_001);
        assert_eq!(window.find(&key(1)), None);
        assert_eq!(window.len(), 0);
    }

    /// Messages of one clock, as often as the clock may step.
    fn pass(window: &mut Window, from: i64, to: i64) {
        let mut now = from;
        while now < to {
            now = to.min(now + STEP_MS);
            window.advance(now);
        }
    }

    #[test]
    fn time_does_not_run_backwards() {
        let mut window = Window::new();
        window.advance(100_000);
        window.insert(key(1), place(1));
        // Side by side, stored in another order.
        for _ in 0..100 {
            window.advance(99_990);
            window.advance(100_000);
        }
        window.insert(key(2), place(2));
        pass(&mut window, 100_000, 160_000);
        assert_eq!(window.find(&key(2)), Some(place(2)));
        window.advance(160_001);
        assert_eq!(window.find(&key(2)), None);
    }

    #[test]
    fn a_jump_of_the_wall_clock_forgets_nothing_that_is_retried() {
        const DAY_MS: i64 = 86_400_000;
        for jump in [DAY_MS, -DAY_MS] {
            let mut window = Window::new();
            window.advance(10 * DAY_MS);
            window.insert(key(1), place(1));
            // A new leader's clock is far away; its clients retry for a while.
            let there = 10 * DAY_MS + jump;
            pass(&mut window, there, there + 40_000);
            assert_eq!(window.find(&key(1)), Some(place(1)), "{jump}");
            // The window still ends.
            pass(&mut window, there + 40_000, there + 80_000);
            assert_eq!(window.find(&key(1)), None, "{jump}");
        }
    }

    #[test]
    fn the_oldest_key_goes_when_the_window_is_full() {
        let mut window = Window::new();
        for number in 0..WINDOW_KEYS as u64 + 10 {
            window.insert(key(number), place(number));
        }
        assert_eq!(window.len(), WINDOW_KEYS);
        assert_eq!(window.find(&key(9)), None);
        for number in [10, 11, 77_777, WINDOW_KEYS as u64 + 9] {
            assert_eq!(window.find(&key(number)), Some(place(number)));
        }
    }

    #[test]
    fn a_window_comes_back_from_its_bytes_wherever_the_ring_stood() {
        let mut window = Window::new();
        for number in 0..WINDOW_KEYS as u64 + 1_000 {
            window.advance(number as i64 / 4);
            window.insert(key(number), place(number));
        }
        let mut bytes = Vec::new();
        window.encode(&mut bytes);
        let mut back = Window::decode(&bytes).unwrap();
        let mut again = Vec::new();
        back.encode(&mut again);
        assert!(bytes == again);
        for window in [&mut window, &mut back] {
            pass(window, 33_017, 60_300);
            assert_eq!(window.find(&key(1_199)), None);
            assert_eq!(window.find(&key(1_200)), Some(place(1_200)));
            window.insert(key(5), place(6));
            assert_eq!(window.find(&key(5)), Some(place(6)));
        }
        assert!(Window::decode(&bytes[..bytes.len() - 1]).is_none());
    }

    #[test]
    fn topic_incarnation_key_and_body_all_count() {
        let base = Key::new("orders", 1, "K", 7);
        assert_ne!(base, Key::new("order", 1, "K", 7));
        assert_ne!(base, Key::new("orders", 2, "K", 7));
        assert_ne!(base, Key::new("orders", 1, "L", 7));
        assert_ne!(base, Key::new("orders", 1, "K", 8));
    }
}
