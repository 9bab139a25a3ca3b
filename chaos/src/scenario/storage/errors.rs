//! Single calls that fail (D19, D20, D23, D24): a failed write or sync ends the node at once and nothing of it is
//! acknowledged; a failed read fails one request; an interrupted or short one is done again.

use std::time::{Duration, Instant};

use super::readback::read_back;
use super::{Disks, durable, ends_by_itself, kill_one, small_segments, some_follower, wipe};
use crate::rig::disk::{DiskHome, Kind};
use crate::rig::doctor::Facility;
use crate::rig::inject::{Effect, Fault};
use crate::rig::liar::LyingDisk;
use crate::rig::{Placement, RigError, damage, tool};
use crate::scenario::context::{PATIENCE, Run};
use crate::scenario::{Floor, Scenario, Stop, Tier};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "write-or-sync-error",
        rows: &["D19"],
        about: "One failed write or sync of the log ends the node at once; it comes back with what is on its disk",
        needs: &[Facility::Root, Facility::Strace],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Ci,
        floor: Floor::of(500, 4),
        run: |run| Box::pin(write_or_sync(run)),
    },
    Scenario {
        name: "fsyncgate",
        rows: &["D19"],
        about: "After a sync that failed and lost pages, what is still in the page cache never counts as durable",
        needs: &[Facility::Root, Facility::LoopXfs, Facility::SmallTmpfs],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Ci,
        floor: Floor::of(400, 2),
        run: |run| Box::pin(fsyncgate(run)),
    },
    Scenario {
        name: "read-error",
        rows: &["D20"],
        about: "A segment that cannot be read fails the requests for it, leaves no gap on others, and no crash loop",
        needs: &[Facility::Root, Facility::Strace],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(800, 2),
        run: |run| Box::pin(read_error(run)),
    },
    Scenario {
        name: "read-only",
        rows: &["D23"],
        about: "A file system that goes read-only ends its node at once; nothing that was acknowledged is lost",
        needs: &[Facility::Root, Facility::LoopXfs],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(300, 2),
        run: |run| Box::pin(read_only(run)),
    },
    Scenario {
        name: "interrupted-and-short",
        rows: &["D24"],
        about: "Interrupted calls, reads that would wait, and short writes are completed",
        needs: &[Facility::Root, Facility::Strace],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(500, 4),
        run: |run| Box::pin(interrupted(run)),
    },
];

/// The calls that write the log.
const WRITES: &str = "pwritev,pwrite64,pwritev2";
/// The calls that read it.
const READS: &str = "pread64,preadv,preadv2";
/// A node that cannot write ends within this time of the failed call.
const GIVES_UP_WITHIN: Duration = Duration::from_secs(10);

async fn start(run: &mut Run) -> Result<(), Stop> {
    run.start(small_segments(run)).await?;
    let load = run.producers()?;
    run.begin(&load);
    run.progress(200, PATIENCE).await
}

async fn write_or_sync(run: &mut Run) -> Result<(), Stop> {
    start(run).await?;
    for (leads, calls) in [
        (true, "fdatasync"),
        (false, "fdatasync"),
        (true, WRITES),
        (false, WRITES),
    ] {
        let at = match leads {
            true => run.rig()?.leader().await?,
            false => some_follower(run).await?,
        };
        let segment = damage::last_segment(run.rig()?.store(at))?;
        let before = run.rig()?.log_text(at)?.len();
        let pid = run.rig()?.pid(at)?;
        run.fault("io-error", &[("node", &format!("n{at}")), ("calls", calls)]);
        let fault = Fault::new(calls, Effect::Error("EIO"))
            .when("1")
            .on(&segment.path);
        let injected = fault.inject(pid)?;
        let begun = Instant::now();
        let said = ends_by_itself(run, at, before).await?;
        let took = begun.elapsed();
        drop(injected);
        run.require(took < GIVES_UP_WITHIN, || {
            format!("n{at} lived on for {took:?}")
        });
        run.require(said.contains("Input/output error"), || {
            format!("n{at} does not say why it ends: {said}")
        });
        run.progress(50, PATIENCE).await?;
        run.rig()?.restart_dead().await?;
        run.fault_over("io-error");
        run.progress(50, PATIENCE).await?;
    }
    Ok(())
}

/// Bytes that the lying disk can really store.
const REAL_BYTES: u64 = 64 << 20;

async fn fsyncgate(run: &mut Run) -> Result<(), Stop> {
    let home = DiskHome::create()?;
    let lying = std::sync::Arc::new(LyingDisk::create(home.path(), "n0", REAL_BYTES)?);
    run.keep(std::sync::Arc::clone(&lying));
    run.keep(home);
    let mut setup = small_segments(run);
    setup.stores = vec![
        super::store(lying.path()),
        run.dir.join("n1"),
        run.dir.join("n2"),
    ];
    run.start(setup).await?;
    let load = run.producers()?;
    run.begin(&load);
    run.progress(200, PATIENCE).await?;
    let before = run.rig()?.log_text(0)?.len();
    run.fault("fsyncgate", &[]);
    lying.exhaust()?;
    ends_by_itself(run, 0, before).await?;
    lying.replenish()?;
    run.progress(50, PATIENCE).await?;
    // The pages that were lost are still in the cache, marked as written.
    run.rig()?.restart_dead().await?;
    run.fault_over("fsyncgate");
    run.progress(100, PATIENCE).await?;
    let promised = durable(run, 0).await?;
    run.fault("cache-gone", &[]);
    run.rig()?.kill(&[0])?;
    lying.forget_cache()?;
    let has = damage::last_whole_index(&super::store(lying.path()))?;
    run.require(has >= promised, || {
        format!("n0 reported entry {promised:?} durable, on its disk the log ends with {has:?}")
    });
    run.rig()?.restart_dead().await?;
    run.fault_over("cache-gone");
    run.progress(50, PATIENCE).await
}

async fn read_error(run: &mut Run) -> Result<(), Stop> {
    run.start(small_segments(run)).await?;
    let mut load = run.producers()?;
    load.connections = 8;
    load.body = (1024, 4096);
    run.begin(&load);
    while damage::segments(run.rig()?.store(0))?.len() < 3 {
        run.progress(100, PATIENCE).await?;
    }
    // Nothing old is left in anybody's memory.
    run.rig()?.kill(&[0, 1, 2])?;
    run.rig()?.restart_dead().await?;
    let at = some_follower(run).await?;
    let injected = unreadable(run, at)?;
    let back = read_back(run, at).await?;
    run.require(!back.failed.is_empty(), || {
        format!(
            "n{at} served {} messages of a file that cannot be read",
            back.whole
        )
    });
    run.figure("messages that could not be read", back.failed.len() as f64);
    drop(injected);
    run.fault_over("read-error");
    let back = read_back(run, at).await?;
    run.require(back.failed.is_empty(), || {
        format!("readable again, n{at} fails {:?}", back.failed)
    });
    fills_without_gap(run).await
}

/// EIO for every read of a node's oldest segment.
fn unreadable(run: &mut Run, at: usize) -> Result<crate::rig::inject::Injected, Stop> {
    let oldest = damage::segments(run.rig()?.store(at))?.swap_remove(0);
    run.fault("read-error", &[("node", &format!("n{at}"))]);
    let fault = Fault::new(READS, Effect::Error("EIO")).on(&oldest.path);
    Ok(fault.inject(run.rig()?.pid(at)?)?)
}

/// A leader that cannot read its oldest segment while it must fill an empty node.
async fn fills_without_gap(run: &mut Run) -> Result<(), Stop> {
    let leader = run.rig()?.leader().await?;
    let filled = (leader + 1) % 3;
    kill_one(run, filled).await?;
    wipe(run, filled)?;
    let injected = unreadable(run, leader)?;
    run.rig()?.spawn(filled)?;
    match run.rig()?.wait_end(leader, PATIENCE / 6).await {
        // It gives up once; another one, whose file can be read, takes over.
        Ok(status) => {
            run.require(status.code() == Some(70), || {
                format!("n{leader} ended with {status}")
            });
            run.figure("leader gave up", 1.0);
        }
        Err(RigError::Lasting { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    run.progress(50, PATIENCE).await?;
    drop(injected);
    run.fault_over("read-error");
    run.rig()?.restart_dead().await?;
    run.progress(100, PATIENCE).await?;
    let entries = damage::segments(run.rig()?.store(filled))?;
    let mut next = None;
    for segment in &entries {
        for entry in segment.entries()? {
            run.require(next.is_none_or(|next| entry.index == next), || {
                format!("n{filled} has entry {} after {next:?}", entry.index)
            });
            next = Some(entry.index + 1);
        }
    }
    Ok(())
}

async fn read_only(run: &mut Run) -> Result<(), Stop> {
    let disks = Disks::create(run, 3, Kind::Ext4)?;
    run.start(disks.setup(run)).await?;
    let load = run.producers()?;
    run.begin(&load);
    run.progress(200, PATIENCE).await?;
    for leads in [true, false] {
        let at = match leads {
            true => run.rig()?.leader().await?,
            false => some_follower(run).await?,
        };
        let before = run.rig()?.log_text(at)?.len();
        run.fault("read-only", &[("node", &format!("n{at}"))]);
        disks.all[at].fail_read_only()?;
        ends_by_itself(run, at, before).await?;
        run.progress(50, PATIENCE).await?;
        disks.all[at].power_on()?;
        run.rig()?.restart_dead().await?;
        run.fault_over("read-only");
        run.progress(50, PATIENCE).await?;
    }
    Ok(())
}

async fn interrupted(run: &mut Run) -> Result<(), Stop> {
    start(run).await?;
    let leader = run.rig()?.leader().await?;
    for at in [leader, (leader + 1) % 3] {
        let pid = run.rig()?.pid(at)?;
        let node = format!("n{at}");
        run.fault("interrupted", &[("node", &node)]);
        let calls = format!("{WRITES},{READS}");
        let injected = Fault::new(&calls, Effect::Error("EINTR"))
            .when("1+3")
            .inject(pid)?;
        run.progress(50, PATIENCE).await?;
        drop(injected);
        run.fault_over("interrupted");
        run.fault("would-wait", &[("node", &node)]);
        let injected = Fault::new("preadv2", Effect::Error("EAGAIN")).inject(pid)?;
        let back = read_back(run, at).await?;
        run.require(back.failed.is_empty() && back.whole > 0, || {
            format!(
                "{node} serves {} messages and fails {:?}",
                back.whole, back.failed
            )
        });
        drop(injected);
        run.fault_over("would-wait");
        short_write(run, at, pid).await?;
    }
    let ended = run.rig()?.unexpected_ends()?.to_vec();
    run.require(ended.is_empty(), || format!("{ended:?}"));
    run.progress(50, PATIENCE).await
}

/// How long each write takes to come back while one of them is to be short.
const LINGER: Duration = Duration::from_millis(500);

/// A limit of the file size in the middle of the next write makes it a short one; before the rest is tried, the
/// limit is taken away again.
async fn short_write(run: &mut Run, at: usize, pid: u32) -> Result<(), Stop> {
    let segment = damage::last_segment(run.rig()?.store(at))?;
    let fault = Fault::new(WRITES, Effect::Linger(LINGER)).on(&segment.path);
    let injected = fault.inject(pid)?;
    let end = segment
        .entries()?
        .last()
        .map_or(damage::HEADER_BYTES, |last| last.bytes.end);
    let limit = end + 60;
    limit_file_size(pid, &format!("{limit}:unlimited"))?;
    let begun = Instant::now();
    let mut happened = false;
    while !happened && begun.elapsed() < PATIENCE / 6 {
        happened = damage::read(&segment.path, end..limit)?
            .iter()
            .any(|byte| *byte != 0);
    }
    limit_file_size(pid, "unlimited:unlimited")?;
    match happened {
        true => {
            run.fault("short-write", &[("node", &format!("n{at}"))]);
        }
        false => run.fault_skipped("short-write", "no write began where one was expected"),
    }
    run.sleep(2 * LINGER).await;
    drop(injected);
    run.fault_over("short-write");
    run.progress(50, PATIENCE).await
}

fn limit_file_size(pid: u32, limit: &str) -> Result<(), RigError> {
    tool("prlimit", "")
        .arg(format!("--pid={pid}"))
        .arg(format!("--fsize={limit}"))
        .run()
        .map(drop)
}
