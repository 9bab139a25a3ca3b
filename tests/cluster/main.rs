//! Groups of real processes under load, faults and bad input, one binary so that there is one link. Each
//! test has its own group; at most two run at a time.

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod drill;
mod emptied;
mod failover;
mod followers;
mod groups;
mod kill_all;
mod limits;
mod majority_loss;
mod output;
mod retry;
mod semantics;
mod smoke;
