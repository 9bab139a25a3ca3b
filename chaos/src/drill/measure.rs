//! What the samples of a probe say: recovery times, windows without service, refusals, percentiles. Pure
//! functions; where the samples come from is the tape's.

use super::tape::{Class, Sample};

#[cfg(test)]
mod tests;

/// Time from the start of a fault to the completion of the first acknowledged attempt that began when the
/// fault had taken effect; `None` when there is none. Nanoseconds, as everything here.
pub fn recovery(samples: &[Sample], start: u64, effective: u64) -> Option<u64> {
    acknowledged(samples)
        .filter(|sample| sample.invoke >= effective)
        .map(|sample| sample.done)
        .min()
        .map(|done| done.saturating_sub(start))
}

/// OpenChaos' recovery time: from the invocation of the first attempt from `start` on that was not acknowledged to
/// the completion of the first acknowledged one that began later. `None` when nothing failed, or nothing
/// succeeded after it.
pub fn first_failure_to_success(samples: &[Sample], start: u64, until: u64) -> Option<u64> {
    let failed = samples
        .iter()
        .filter(|sample| sample.class != Class::Ok && (start..until).contains(&sample.invoke))
        .map(|sample| sample.invoke)
        .min()?;
    recovery(samples, failed, failed)
}

/// A span of time without an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub start: u64,
    pub end: u64,
}

impl Window {
    pub fn length(&self) -> u64 {
        self.end - self.start
    }
}

/// All spans of at least `least` within `from..to` in which no acknowledgement arrived.
pub fn windows(samples: &[Sample], from: u64, to: u64, least: u64) -> Vec<Window> {
    let mut times: Vec<u64> = acknowledged(samples)
        .map(|sample| sample.done)
        .filter(|done| (from..to).contains(done))
        .collect();
    times.sort_unstable();
    times.push(to.max(from));
    let mut start = from;
    let mut windows = Vec::new();
    for end in times {
        if end - start >= least.max(1) {
            windows.push(Window { start, end });
        }
        start = end;
    }
    windows
}

/// The longest span within `from..to` without an acknowledgement.
pub fn longest_window(samples: &[Sample], from: u64, to: u64) -> Option<Window> {
    windows(samples, from, to, 1)
        .into_iter()
        .max_by_key(Window::length)
}

/// Its length.
pub fn longest_gap(samples: &[Sample], from: u64, to: u64) -> u64 {
    longest_window(samples, from, to).map_or(0, |window| window.length())
}

/// Time from the start of a fault to the completion of the first refusal of an attempt begun when the fault had
/// taken effect.
pub fn time_to_refusal(samples: &[Sample], start: u64, effective: u64) -> Option<u64> {
    samples
        .iter()
        .filter(|sample| sample.class == Class::Refused && sample.invoke >= effective)
        .map(|sample| sample.done)
        .min()
        .map(|done| done.saturating_sub(start))
}

/// How attempts ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub acknowledged: u64,
    pub refused: u64,
    /// Of the refused: code 1 with the contract's words.
    pub refused_by_contract: u64,
    pub unreachable: u64,
    pub unknown: u64,
}

/// How the attempts ended that began within `from..to`.
pub fn counts(samples: &[Sample], from: u64, to: u64) -> Counts {
    let mut counts = Counts::default();
    for sample in samples.iter().filter(|s| (from..to).contains(&s.invoke)) {
        match sample.class {
            Class::Ok => counts.acknowledged += 1,
            Class::Refused => {
                counts.refused += 1;
                counts.refused_by_contract += u64::from(by_contract(sample));
            }
            Class::Unreachable => counts.unreachable += 1,
            Class::Unknown => counts.unknown += 1,
        }
    }
    counts
}

/// A refusal as the contract spells it: code 1 and its words.
fn by_contract(sample: &Sample) -> bool {
    sample.code == crate::wire::code::SYSTEM_ERROR && sample.words
}

/// The value below or at which `percent` of the values lie (nearest rank); `None` of nothing.
pub fn percentile(values: &[u64], percent: f64) -> Option<u64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

fn acknowledged(samples: &[Sample]) -> impl Iterator<Item = &Sample> {
    samples.iter().filter(|sample| sample.class == Class::Ok)
}
