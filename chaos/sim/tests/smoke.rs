//! A few short seeds in whatever way the tests are built: everything holds. Without `--cfg tokio_unstable` the
//! order of events is not the seed's, so a failure here is real but may not come again; `quorumlog-sim`
//! built with the flag repeats a seed.

use std::sync::Arc;

use quorumlog_sim::clocks::{EVEN, FASTEST};
use quorumlog_sim::plan::{Fault, Kind, Plan};
use quorumlog_sim::trace::Trace;
use quorumlog_sim::world;

#[test]
fn a_few_short_seeds_hold() {
    for seed in [2, 5] {
        let trace = Arc::new(Trace::new(None).unwrap());
        let outcome = world::run(Plan::new(seed, 8), trace);
        assert_eq!(outcome.violation, None, "seed {seed}");
        assert!(outcome.counts.acknowledged > 50, "{:?}", outcome.counts);
        assert!(outcome.counts.simulated_ms >= 8000, "{:?}", outcome.counts);
    }
}

/// A leader whose clock runs half as fast as its followers' is cut off from them again and again, while clients ask
/// it for the ends of queues: once another one may lead it must not answer.
#[test]
fn a_leader_with_a_slow_clock_shows_nothing_old() {
    for seed in [1, 4] {
        let strand = |at_ms| Fault {
            at_ms,
            for_ms: 800,
            kind: Kind::Strand,
        };
        let plan = Plan {
            nodes: 3,
            clock_rates: vec![EVEN, FASTEST, FASTEST],
            faults: (2000..12_000).step_by(1500).map(strand).collect(),
            ..Plan::new(seed, 18)
        };
        let trace = Arc::new(Trace::new(None).unwrap());
        let outcome = world::run(plan, trace);
        assert_eq!(outcome.violation, None, "seed {seed}");
        assert!(outcome.counts.stranded >= 5, "{:?}", outcome.counts);
        assert!(outcome.counts.leader_changes >= 5, "{:?}", outcome.counts);
    }
}
