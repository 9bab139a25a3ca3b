//! Free ports for nodes: blocks of eight, below the range that outgoing connections take theirs from (a
//! restarted node must find its port free again), never given out twice by one process.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::RigError;

const FIRST: u32 = 12_000;
const BLOCKS: u32 = 2_500;
const BLOCK: u16 = 8;

static GIVEN: AtomicU32 = AtomicU32::new(0);

/// The first port of eight that are all free. Processes begin at different places, so that test runs side
/// by side do not meet.
pub fn block() -> Result<u16, RigError> {
    let start = start();
    for _ in 0..BLOCKS {
        let number = (start + GIVEN.fetch_add(1, Ordering::Relaxed)) % BLOCKS;
        let base = FIRST + number * u32::from(BLOCK);
        let base = u16::try_from(base).unwrap_or(u16::MAX - BLOCK);
        if (base..base + BLOCK).all(is_free) {
            return Ok(base);
        }
    }
    Err(RigError::NoPorts { count: BLOCK })
}

fn start() -> u32 {
    static START: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *START.get_or_init(|| {
        let nanos = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.subsec_nanos());
        std::process::id().wrapping_mul(397).wrapping_add(nanos) % BLOCKS
    })
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
