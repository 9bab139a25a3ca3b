//! Drills for operators: a fault is done to a group under load, and the report says how long service was away and
//! whether a promise was broken.
//!
//! `kind` names the drills, `scripts` are their steps, `group` is what they are done to, `probe` and `load` are the
//! clients, `tape` keeps what they measure, `measure` computes, `judge` asks the checker, `report` tells people.

mod discover;
mod given;
mod group;
mod isolate;
mod judge;
mod kind;
mod lane;
mod load;
mod measure;
mod probe;
mod record;
pub mod report;
mod roles;
mod run;
mod scene;
mod scripts;
mod tape;
mod watch;

pub use given::{Given, GivenError};
pub use group::{Group, GroupError};
pub use kind::{Kind, NoSuchDrill, Verb};
pub use run::{Drilled, drill, skipped};
pub use scene::{DrillError, PROBE_TIMEOUT, Settings};
pub use watch::{Watch, WatchError, watch};
