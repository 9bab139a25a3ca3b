//! Resources and clients (R1 to R10): clients that take too much, send nonsense, or come all at once, and what
//! well-behaved ones see meanwhile.

mod admin;
mod descriptors;
mod fragments;
mod idle;
mod malformed;
mod nonsense;
mod offsets;
mod peer_port;
mod pipelined;
mod probe;
mod reconnect;
mod retries;
mod sizes;

use super::{Floor, Scenario, Tier};
use crate::rig::Placement;

/// The family, in the order of the catalogue.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "few-descriptors",
        rows: &["R1"],
        about: "A leader whose descriptors clients take keeps its files and its peers, does not spin, and recovers",
        run: |run| Box::pin(descriptors::few_descriptors(run)),
        floor: Floor::of(50, 2),
        tier: Tier::Nightly,
        ..USUAL
    },
    Scenario {
        name: "idle-clients",
        rows: &["R2"],
        about: "Idle, trickling and silent connections cost little, slow nobody down and are closed in time",
        run: |run| Box::pin(idle::idle_clients(run)),
        tier: Tier::Nightly,
        ..USUAL
    },
    Scenario {
        name: "malformed-frames",
        rows: &["R3"],
        about: "Every malformed frame is answered or ends its connection, and takes no memory",
        run: |run| Box::pin(nonsense::malformed_frames(run)),
        ..USUAL
    },
    Scenario {
        name: "size-limits",
        rows: &["R4"],
        about: "The largest message is taken and one byte more refused, alike in every form and on every node",
        run: |run| Box::pin(sizes::size_limits(run)),
        tier: Tier::Nightly,
        ..USUAL
    },
    Scenario {
        name: "unread-replies",
        rows: &["R5"],
        about: "Ten thousand requests whose replies nobody reads take bounded memory, and all are answered later",
        run: |run| Box::pin(pipelined::unread_replies(run)),
        tier: Tier::Nightly,
        ..USUAL
    },
    Scenario {
        name: "one-byte-fragments",
        rows: &["R6"],
        about: "Requests that arrive byte by byte between those of others are stored as their own producers sent them",
        run: |run| Box::pin(fragments::one_byte_fragments(run)),
        tier: Tier::Nightly,
        ..USUAL
    },
    Scenario {
        name: "thundering-reconnect",
        rows: &["R7"],
        about: "When the leader of 1,000 clients dies all of them write again soon, and nothing is lost",
        run: |run| Box::pin(reconnect::thundering_reconnect(run)),
        tier: Tier::Nightly,
        floor: Floor::of(2000, 1).with_leader_changes(1),
        ..USUAL
    },
    Scenario {
        name: "malicious-commands",
        rows: &["R8"],
        about: "Administration that is not offered and calls of non-members are refused and touch no file",
        run: |run| Box::pin(admin::malicious_commands(run)),
        ..USUAL
    },
    Scenario {
        name: "retry-after-unknown",
        rows: &["R9"],
        about: "A message that is sent again under its key after an unknown result is there exactly once",
        run: |run| Box::pin(retries::retry_after_unknown(run)),
        floor: Floor::of(100, 2),
        ..USUAL
    },
    Scenario {
        name: "first-commits",
        rows: &["R10"],
        about: "First consumer offsets committed at once are all kept, and an acknowledged one outlives the leader",
        run: |run| Box::pin(offsets::first_commits(run)),
        floor: Floor::of(50, 2).with_leader_changes(1),
        ..USUAL
    },
];

/// What most of them have in common.
const USUAL: Scenario = Scenario {
    name: "",
    rows: &[],
    about: "",
    needs: &[],
    placement: Placement::Loopback,
    nodes: 3,
    tier: Tier::Ci,
    floor: Floor::of(50, 1),
    run: |_| Box::pin(std::future::ready(Ok(()))),
};
