//! Message ids: the server's (store host and position) and the client's (unique key). Both are 32
//! upper-case hex characters, so nothing but the content tells them apart.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

const ID_BYTES: usize = 16;

/// The message id that the server gives: upper-case hex of store host and position, 32 characters.
pub fn offset_message_id(store_host: SocketAddrV4, position: u64) -> String {
    let mut id = [0; ID_BYTES];
    id[..4].copy_from_slice(&store_host.ip().octets());
    id[4..8].copy_from_slice(&u32::from(store_host.port()).to_be_bytes());
    id[8..].copy_from_slice(&position.to_be_bytes());
    hex(&id)
}

/// Address and position in an offset message id; `None` when it is not one: another length, not hex, a
/// port above 65535 (a unique key, most often), a position above `i64::MAX`.
pub fn parse_offset_message_id(id: &str) -> Option<(SocketAddrV4, u64)> {
    let digits = id.as_bytes();
    if digits.len() != 2 * ID_BYTES {
        return None;
    }
    let mut bytes = [0u8; ID_BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
    }
    let [a, b, c, d, p0, p1, p2, p3, position @ ..] = bytes;
    let port = u16::try_from(u32::from_be_bytes([p0, p1, p2, p3])).ok()?;
    let position = u64::from_be_bytes(position);
    i64::try_from(position).ok()?;
    Some((SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port), position))
}

/// Asked for once: it is a system call.
static PROCESS_ID: LazyLock<u16> = LazyLock::new(|| std::process::id() as u16);

/// Unique keys made by this process so far.
static UNIQUE_KEYS: AtomicU64 = AtomicU64::new(0);

/// A client-style unique id (UNIQ_KEY) made by the server for a message that came without one.
///
/// RocketMQ's layout: address, process id (16 bits), a hash of the process's own (32), ms since the start
/// of the month (32; tools read it as the message's time), counter (16). Here the hash is the port and the
/// counter's next 16 bits, so that keys of one process differ even when more than 65536 are made in a ms.
pub fn new_unique_key(host: SocketAddrV4, wall_ms: i64) -> String {
    let count = UNIQUE_KEYS.fetch_add(1, Ordering::Relaxed);
    let mut id = [0; ID_BYTES];
    id[..4].copy_from_slice(&host.ip().octets());
    id[4..6].copy_from_slice(&PROCESS_ID.to_be_bytes());
    id[6..8].copy_from_slice(&host.port().to_be_bytes());
    id[8..10].copy_from_slice(&((count >> 16) as u16).to_be_bytes());
    id[10..14].copy_from_slice(&ms_of_month(wall_ms).to_be_bytes());
    id[14..].copy_from_slice(&(count as u16).to_be_bytes());
    hex(&id)
}

/// Milliseconds since the first day of the month (UTC), below 2^32.
pub(super) fn ms_of_month(wall_ms: i64) -> u32 {
    const DAY_MS: i64 = 24 * 60 * 60 * 1000;
    let day = wall_ms.div_euclid(DAY_MS);
    // Years that begin in March put the leap day last: the day of the month then follows from the day of
    // the year by the 153 days that each five months from March on have.
    let day_of_era = (day + 719_468).rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5;
    let ms = day_of_month * DAY_MS + wall_ms.rem_euclid(DAY_MS);
    u32::try_from(ms).expect("31 days have fewer than 2^32 ms")
}

fn hex(bytes: &[u8; ID_BYTES]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut text = [0; 2 * ID_BYTES];
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    str::from_utf8(&text)
        .expect("hex digits are ASCII")
        .to_owned()
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}
