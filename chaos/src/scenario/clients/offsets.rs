//! R10: the first consumer offsets of new groups, committed for many queues at once over all nodes, and
//! commits that were acknowledged just before the leader died.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::history::{Call, Recorder, Reply, What};
use crate::scenario::context::PATIENCE;
use crate::scenario::{Run, Stop};
use crate::wire::{Connection, Consumer, WireError};
use crate::workload::Node;

const TOPIC: &str = "progress";
const QUEUES: i32 = 16;
const ROUNDS: usize = 40;
const KILLS: usize = 2;
/// Acknowledged commits of each queue before the leader dies.
const COMMITS: i64 = 20;
const WITHIN: Duration = Duration::from_secs(5);

pub async fn first_commits(run: &mut Run) -> Result<(), Stop> {
    run.start(run.setup()).await?;
    run.rig()?.create_topic(TOPIC, QUEUES).await?;
    let mut kept = 0;
    run.fault("concurrent-first-commits", &[]);
    for round in 0..ROUNDS {
        kept += at_once(run, &format!("first{round}")).await?;
    }
    run.fault_over("concurrent-first-commits");
    run.figure("first commits kept", kept as f64);
    for round in 0..KILLS {
        outlives_the_leader(run, &format!("outlives{round}")).await?;
    }
    Ok(())
}

/// A committer of one queue's offset, recorded.
#[derive(Clone)]
struct Register {
    group: String,
    queue: i32,
    node: Node,
    recorder: Arc<Recorder>,
}

impl Register {
    async fn commit(&self, connection: &Connection, offset: i64) -> Result<(), WireError> {
        let actor = format!("{}q{}", self.group, self.queue);
        let call = Call::CommitOffset {
            group: self.group.clone(),
            topic: TOPIC.to_owned(),
            q: self.queue,
            off: offset,
            node: self.node.name.clone(),
        };
        let op = self.recorder.invoke(&actor, call);
        let committed = connection
            .commit_offset(&self.group, TOPIC, self.queue, offset)
            .await;
        let end = match &committed {
            Ok(()) => What::Ok(Reply::Offset { off: Some(offset) }),
            // Refused or not, it is treated as one that may have happened.
            Err(error) => What::Info {
                code: None,
                why: error.to_string(),
            },
        };
        self.recorder.complete(&actor, op, end);
        committed
    }

    /// What the node says; `linear` when it leads.
    async fn query(&self, connection: &Connection, linear: bool) -> Result<Option<i64>, WireError> {
        let actor = format!("{}r{}{}", self.group, self.queue, self.node.name);
        let call = Call::QueryOffset {
            group: self.group.clone(),
            topic: TOPIC.to_owned(),
            q: self.queue,
            node: self.node.name.clone(),
            linear,
        };
        let op = self.recorder.invoke(&actor, call);
        let asked = connection
            .consumer_offset(&self.group, TOPIC, self.queue)
            .await;
        let end = match &asked {
            Ok(off) => What::Ok(Reply::Offset { off: *off }),
            Err(error) => What::Info {
                code: None,
                why: error.to_string(),
            },
        };
        self.recorder.complete(&actor, op, end);
        asked
    }
}

/// Makes the group known: a member is there.
async fn join(run: &mut Run, group: &str) -> Result<(), Stop> {
    let begun = Instant::now();
    loop {
        let leader = run.rig()?.leader().await?;
        let connection = run.rig()?.connect(leader).await?;
        let consumer = Consumer::new(group, TOPIC, "*", 1);
        let joined = match connection.heartbeat("member", &[], &[consumer]).await {
            // Only a group that was made takes a commit; -1 commits nothing.
            Ok(()) => connection.commit_offset(group, TOPIC, 0, -1).await,
            Err(error) => Err(error),
        };
        match joined {
            Ok(()) => return Ok(()),
            Err(error) if begun.elapsed() > PATIENCE => {
                return Err(Stop::Violated(format!("no heartbeat of {group}: {error}")));
            }
            Err(_) => run.sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Every queue's first commit in one moment, each over a node of its own choice; the leader has all of them.
async fn at_once(run: &mut Run, group: &str) -> Result<usize, Stop> {
    join(run, group).await?;
    let nodes = run.rig()?.nodes();
    let together = Arc::new(Barrier::new(QUEUES as usize));
    let mut tasks = JoinSet::new();
    for queue in 0..QUEUES {
        let at = (queue as usize + run.rng.below(nodes.len())) % nodes.len();
        let connection = run.rig()?.connect(at).await?;
        let register = Register {
            group: group.to_owned(),
            queue,
            node: nodes[at].clone(),
            recorder: Arc::clone(&run.recorder),
        };
        let together = Arc::clone(&together);
        tasks.spawn(async move {
            together.wait().await;
            let begun = Instant::now();
            loop {
                match register.commit(&connection, i64::from(queue) + 7).await {
                    Ok(()) => return Ok(()),
                    Err(error) if begun.elapsed() > PATIENCE => return Err(error),
                    // The node may not know the group yet, or nobody may lead: a heartbeat that could not make
                    // the group is answered with success, too, and the next one tries again.
                    Err(_) => {
                        let consumer = Consumer::new(&register.group, TOPIC, "*", 1);
                        let _again = connection.heartbeat("member", &[], &[consumer]).await;
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
            }
        });
    }
    for committed in tasks.join_all().await {
        committed.map_err(|error| {
            Stop::Violated(format!("{group}: a first commit was not taken: {error}"))
        })?;
    }
    let wanted: Vec<i64> = (0..QUEUES).map(|queue| i64::from(queue) + 7).collect();
    kept(run, group, &wanted).await
}

/// Asks the leader for every queue; each must be at least at its wanted offset. Returns how many are.
async fn kept(run: &mut Run, group: &str, wanted: &[i64]) -> Result<usize, Stop> {
    let begun = Instant::now();
    let mut kept = 0;
    for (queue, wanted) in (0_i32..).zip(wanted) {
        let known = loop {
            let leader = run.rig()?.leader().await?;
            let connection = run.rig()?.connect(leader).await?.with_timeout(WITHIN);
            let register = Register {
                group: group.to_owned(),
                queue,
                node: run.rig()?.node(leader),
                recorder: Arc::clone(&run.recorder),
            };
            match register.query(&connection, true).await {
                Ok(known) => break known,
                Err(error) if begun.elapsed() > PATIENCE => {
                    return Err(Stop::Violated(format!("{group}, queue {queue}: {error}")));
                }
                Err(_) => run.sleep(Duration::from_millis(20)).await,
            }
        };
        let holds = known.is_some_and(|known| known >= *wanted);
        run.require(holds, || {
            format!("{group}, queue {queue}: {wanted} was acknowledged, the leader says {known:?}")
        });
        kept += usize::from(holds);
    }
    Ok(kept)
}

/// Every queue's offset goes up until the leader is killed; the next leader has at least what was acknowledged.
async fn outlives_the_leader(run: &mut Run, group: &str) -> Result<(), Stop> {
    run.rig()?.restart_dead().await?;
    join(run, group).await?;
    let leader = run.rig()?.leader().await?;
    let node = run.rig()?.node(leader);
    let all_ready = Arc::new(Barrier::new(QUEUES as usize + 1));
    let mut tasks = JoinSet::new();
    for queue in 0..QUEUES {
        let connection = run.rig()?.connect(leader).await?.with_timeout(WITHIN);
        let register = Register {
            group: group.to_owned(),
            queue,
            node: node.clone(),
            recorder: Arc::clone(&run.recorder),
        };
        let all_ready = Arc::clone(&all_ready);
        tasks.spawn(async move {
            let mut acknowledged = 0;
            // Nobody may stay away from the barrier: a first failure counts as no commit.
            while acknowledged < COMMITS {
                match register.commit(&connection, acknowledged + 1).await {
                    Ok(()) => acknowledged += 1,
                    Err(_) => break,
                }
            }
            all_ready.wait().await;
            while acknowledged >= COMMITS {
                match register.commit(&connection, acknowledged + 1).await {
                    Ok(()) => acknowledged += 1,
                    Err(_) => break,
                }
            }
            (queue, acknowledged)
        });
    }
    all_ready.wait().await;
    run.sleep(Duration::from_millis(200)).await;
    run.fault("kill-leader", &[("node", &node.name)]);
    run.rig()?.kill(&[leader])?;
    let mut ended = tasks.join_all().await;
    ended.sort_unstable();
    let acknowledged: Vec<i64> = ended
        .into_iter()
        .map(|(_, acknowledged)| acknowledged)
        .collect();
    run.figure(
        "commits acknowledged before the kill",
        acknowledged.iter().sum::<i64>() as f64,
    );
    if acknowledged
        .iter()
        .any(|acknowledged| *acknowledged < COMMITS)
    {
        return Err(Stop::Invalid(format!(
            "the leader took too few commits: {acknowledged:?}"
        )));
    }
    let kept = kept(run, group, &acknowledged).await?;
    run.figure("queues whose offset outlived the leader", kept as f64);
    run.fault_over("kill-leader");
    Ok(())
}
