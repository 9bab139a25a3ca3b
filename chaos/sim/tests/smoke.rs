//! A few short seeds in whatever way the tests are built: everything holds. Without `--cfg tokio_unstable` the
//! order of events is not the seed's, so a failure here is real but may not come again; `quorumlog-sim`
//! built with the flag repeats a seed.

use std::sync::Arc;

use quorumlog_sim::plan::Plan;
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
