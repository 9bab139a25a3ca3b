//! What a run saw, counted.

use serde::{Deserialize, Serialize};

/// What happened in a run. Shows whether it means anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub crashes: u64,
    pub power_losses: u64,
    pub stops: u64,
    pub partitions: u64,
    pub holds: u64,
    pub disk_faults: u64,
    pub ended_by_disk: u64,
    pub clock_jumps: u64,
    /// Leaders cut off from all others while clocks ran at different rates.
    pub stranded: u64,
    pub leader_changes: u64,
    pub truncations: u64,
    pub entries: u64,
    pub acknowledged: u64,
    pub refused: u64,
    pub unknown: u64,
    pub unknown_found: u64,
    pub pulled: u64,
    pub drained: u64,
    pub simulated_ms: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.crashes += other.crashes;
        self.power_losses += other.power_losses;
        self.stops += other.stops;
        self.partitions += other.partitions;
        self.holds += other.holds;
        self.disk_faults += other.disk_faults;
        self.ended_by_disk += other.ended_by_disk;
        self.clock_jumps += other.clock_jumps;
        self.stranded += other.stranded;
        self.leader_changes += other.leader_changes;
        self.truncations += other.truncations;
        self.entries += other.entries;
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.unknown += other.unknown;
        self.unknown_found += other.unknown_found;
        self.pulled += other.pulled;
        self.drained += other.drained;
        self.simulated_ms += other.simulated_ms;
    }
}
