//! The scenarios that take seconds, run as `chaos` runs them.

use std::path::Path;

use quorumlog_chaos::scenario::{self, Runner, Skips, Tier, Verdict};

#[test]
fn the_scenarios_of_the_smoke_tier_are_valid() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Path::new(env!("CARGO_BIN_EXE_quorumlog")).to_owned();
    let mut runner = Runner::new(server, dir.path().to_owned(), Skips::default());
    let all = scenario::all().into_iter();
    let smoke: Vec<_> = all.filter(|each| each.tier == Tier::Smoke).collect();
    assert!(!smoke.is_empty());
    for scenario in smoke {
        let record = runner.run(scenario, 1).expect("a recorded run");
        assert_eq!(record.verdict, Verdict::Valid, "{record:#?}");
    }
}
