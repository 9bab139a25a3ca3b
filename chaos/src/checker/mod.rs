//! Says which promises a history breaks. An append-only log that answers with offsets carries its own
//! witness, so everything is hash joins and sorted sweeps, no search. One file per family of invariants:
//! `index` joins the clients' side once for all of them, `nodes` the nodes' own. 5,000,048 events with three
//! drains of 2,500,000 messages took 4,837 MiB at most, 1,989 of them for the history itself (`scale`).

mod coverage;
mod directory;
mod elections;
mod index;
mod invariant;
mod liveness;
mod logs;
mod nodes;
mod offsets;
mod options;
mod order;
mod progress;
mod queues;
mod quorum;
mod reads;
mod refusals;
mod report;
mod resources;
mod retention;
mod sends;

#[cfg(test)]
mod brute;
#[cfg(test)]
mod brute_logs;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod sample_group;
#[cfg(test)]
mod scale;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_group;
#[cfg(test)]
mod tests_life;

pub use directory::{HISTORY, OPTIONS, RunDirError, run_dir, save_options};
pub use invariant::Invariant;
pub use options::{Floor, Limits, Options};
pub use report::{Coverage, Report, Verdict, Violation};

use crate::history::Event;
use index::Index;
use nodes::Nodes;
use report::Findings;

/// Checks a whole history.
pub fn check(events: &[Event], options: &Options) -> Report {
    let mut findings = Findings::default();
    let index = Index::build(events);
    sends::check(&index, options, &mut findings);
    queues::check(&index, &mut findings);
    order::check(&index, options, &mut findings);
    reads::check(&index, &mut findings);
    offsets::check(&index, &mut findings);
    retention::check(&index, options, &mut findings);
    refusals::check(&index, options, &mut findings);
    let nodes = Nodes::build(events);
    elections::check(events, &nodes, &mut findings);
    progress::check(events, &index, &nodes, options, &mut findings);
    quorum::check(&nodes, &mut findings);
    logs::check(events, &index, &nodes, &mut findings);
    liveness::check(events, &index, &nodes, options, &mut findings);
    resources::check(events, &nodes, options, &mut findings);
    let coverage = coverage::of(events, &index, &nodes);
    coverage::judge(&coverage, &options.floor, &mut findings);
    findings.report(coverage)
}
