//! The nodes' monotonic clocks, each at a rate of its own: everything that a node measures and waits for, in
//! openraft and in the broker alike, goes by the clock of its host's runtime, which is put forward here.
//!
//! The network goes by the simulation's own time. A clock never runs slower than that, and never more than
//! twice as fast, so no node's clock runs more than twice as fast as another's.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use crate::host::Seat;
use crate::plan::Node;

/// As fast as simulated time.
pub const EVEN: u32 = 1000;
/// The fastest clock, in thousandths of simulated time.
pub const FASTEST: u32 = 2 * EVEN;

/// Rates are in thousandths, steps of the simulation 1 ms.
pub struct Clocks {
    rates: Vec<u32>,
    /// What each clock is still to be put forward, µs.
    owed: Vec<u32>,
}

impl Clocks {
    /// One clock for each node, from node 1 on.
    pub fn new(rates: &[u32]) -> Clocks {
        let in_bounds = |rate: &u32| (EVEN..=FASTEST).contains(rate);
        assert!(
            rates.iter().all(in_bounds),
            "rates beyond the bound: {rates:?}"
        );
        Clocks {
            rates: rates.to_vec(),
            owed: vec![0; rates.len()],
        }
    }

    /// From now on this node has the slowest of the clocks, and another one its.
    pub fn slow_down(&mut self, node: Node) {
        let slowest = (0..self.rates.len()).min_by_key(|at| self.rates[*at]);
        if let Some(slowest) = slowest {
            self.rates.swap(slowest, node as usize - 1);
        }
    }

    pub fn rates(&self) -> &[u32] {
        &self.rates
    }

    /// Before a step: puts each clock forward by what it gains in one. Timers count whole milliseconds, so
    /// that a gain is saved up until it is one.
    pub fn step(&mut self, seats: &[Arc<Seat>]) {
        for (at, seat) in seats.iter().enumerate() {
            self.owed[at] += self.rates[at] - EVEN;
            let due = self.owed[at] / 1000;
            self.owed[at] %= 1000;
            if due > 0 {
                put_forward(seat, Duration::from_millis(u64::from(due)));
            }
        }
    }
}

fn put_forward(seat: &Seat, by: Duration) {
    let Some(runtime) = seat.seen().runtime.clone() else {
        return;
    };
    let _here = runtime.enter();
    // Done when it is first polled; the rest of it lets tasks run, which the next step does.
    let _waits = tokio::time::advance(by).now_or_never();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_clock_goes_to_the_node_and_none_is_lost() {
        let mut clocks = Clocks::new(&[1700, 1000, 2000]);
        clocks.slow_down(3);
        assert_eq!(clocks.rates(), [1700, 2000, 1000]);
        clocks.slow_down(3);
        assert_eq!(clocks.rates(), [1700, 2000, 1000]);
    }

    #[test]
    #[should_panic(expected = "rates")]
    fn no_clock_is_beyond_the_bound() {
        Clocks::new(&[1000, 2001]);
    }

    /// What a host sees of its clock while the simulation's own goes on by 100 ms, in timers and in instants.
    #[test]
    fn timers_and_instants_of_a_host_go_by_its_own_clock() {
        let ticks = Arc::new(std::sync::Mutex::new((0, Duration::ZERO)));
        let mut sim = turmoil::Builder::new()
            .tick_duration(crate::world::TICK)
            .build();
        let handle = Arc::new(std::sync::Mutex::new(None));
        let (seen, runtime) = (ticks.clone(), handle.clone());
        sim.host("n1", move || {
            let (seen, runtime) = (seen.clone(), runtime.clone());
            async move {
                *runtime.lock().unwrap() = Some(tokio::runtime::Handle::current());
                let begun = tokio::time::Instant::now();
                loop {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    let mut seen = seen.lock().unwrap();
                    *seen = (seen.0 + 1, begun.elapsed());
                }
            }
        });
        for _ in 0..100 {
            if let Some(runtime) = handle.lock().unwrap().clone() {
                let _here = runtime.enter();
                let _waits = tokio::time::advance(Duration::from_millis(1)).now_or_never();
            }
            sim.step().unwrap();
        }
        let (count, elapsed) = *ticks.lock().unwrap();
        assert!((19..=20).contains(&count), "{count} timers of 10 ms");
        assert!(elapsed >= Duration::from_millis(190), "{elapsed:?}");
    }
}
