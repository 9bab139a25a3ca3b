//! A drill under way: the group, what is measured, and the stretch of it that one history covers. A stretch ends with
//! everything read back from every node and judged; so memory stays bounded however often a drill is repeated.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::group::{Group, GroupError};
use super::judge::{Judged, judge};
use super::load::{Load, Loading, query_offset};
use super::probe::{Probe, Probing};
use super::roles::{Watching, watch_roles};
use super::tape::Tape;
use crate::history::{HistoryError, Recorder};
use crate::wire::{Connection, Topic, WireError};
use crate::workload::{DrainError, Drainer, Node};

/// How a drill is run.
#[derive(Clone, Debug)]
pub struct Settings {
    pub repeat: u32,
    /// Sends of the probe in a second, over all nodes.
    pub rate: u32,
    pub seed: u64,
    /// Where histories and the report go.
    pub out: PathBuf,
    /// Histories of stretches without a violation are kept, too.
    pub keep_histories: bool,
}

/// What an attempt of the probe waits.
pub const PROBE_TIMEOUT: Duration = Duration::from_millis(50);
pub const QUEUES: i32 = 4;
/// Repetitions of one stretch: some ten thousand messages.
const RUNS_PER_STRETCH: u32 = 15;
const TOPIC_WITHIN: Duration = Duration::from_secs(30);
const REQUEST_WITHIN: Duration = Duration::from_secs(5);
/// For all nodes to be whole and level.
pub const WHOLE_WITHIN: Duration = Duration::from_secs(60);

/// Why a drill came to no end. It proves nothing then.
#[derive(Debug, thiserror::Error)]
pub enum DrillError {
    #[error(transparent)]
    Group(#[from] GroupError),
    #[error("the history: {0}")]
    History(#[from] HistoryError),
    #[error("reading everything back: {0}")]
    Drain(#[from] DrainError),
    #[error("topic {topic} cannot be made: {source}")]
    Topic { topic: String, source: WireError },
    #[error("consumer offsets cannot be asked for: {0}")]
    Offsets(WireError),
}

/// A drill under way.
pub struct Scene {
    pub group: Group,
    pub tape: Arc<Tape>,
    pub settings: Settings,
    pub judged: Judged,
    name: String,
    stretch: Option<Stretch>,
    stretches: u32,
    /// Number of the probe's next attempt.
    seq: u64,
}

struct Stretch {
    topic: String,
    path: PathBuf,
    recorder: Arc<Recorder>,
    probing: Probing,
    loading: Loading,
    watching: Watching,
    runs: u32,
}

impl Scene {
    pub fn new(group: Group, name: &str, settings: &Settings) -> Scene {
        Scene {
            group,
            tape: Arc::new(Tape::new()),
            settings: settings.clone(),
            judged: Judged::default(),
            name: name.to_owned(),
            stretch: None,
            stretches: 0,
            seq: 0,
        }
    }

    /// The history being written.
    pub fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.stretch.as_ref().map(|stretch| &stretch.recorder)
    }

    /// Makes sure that load and probe run, with room for one more repetition.
    pub async fn ready(&mut self) -> Result<(), DrillError> {
        if self
            .stretch
            .as_ref()
            .is_some_and(|s| s.runs >= RUNS_PER_STRETCH)
        {
            self.finish().await?;
        }
        if self.stretch.is_none() {
            self.begin().await?;
        }
        if let Some(stretch) = &mut self.stretch {
            stretch.runs += 1;
        }
        Ok(())
    }

    async fn begin(&mut self) -> Result<(), DrillError> {
        self.group.wait_whole(WHOLE_WITHIN).await?;
        self.stretches += 1;
        let number = self.stretches;
        let topic = format!("drill_{}_{number}_{}", self.name, std::process::id());
        let nodes = self.group.nodes().to_vec();
        create_topic(&nodes, &topic, QUEUES).await?;
        let path = history_path(&self.settings.out, &self.name, number);
        let recorder = Arc::new(Recorder::create(&path)?);
        let watching = watch_roles(&nodes, &self.tape, &recorder);
        let load = Load {
            nodes: nodes.clone(),
            topic: topic.clone(),
            queues: QUEUES,
            seed: self.settings.seed.wrapping_add(u64::from(number)),
            prefix: "c".to_owned(),
            linear_offsets: true,
            master: None,
        };
        let probe = Probe {
            nodes,
            topic: topic.clone(),
            queues: QUEUES,
            rate: self.settings.rate,
            timeout: PROBE_TIMEOUT,
            prefix: "probe".to_owned(),
            linear_reads: true,
        };
        self.stretch = Some(Stretch {
            loading: load.start(&recorder),
            probing: probe.start(self.seq, &self.tape, &recorder),
            topic,
            path,
            recorder,
            watching,
            runs: 0,
        });
        Ok(())
    }

    /// Ends the stretch: reads everything back from every node and judges it. The group must be whole.
    pub async fn finish(&mut self) -> Result<(), DrillError> {
        let Some(stretch) = self.stretch.take() else {
            return Ok(());
        };
        self.seq = stretch.probing.stop().await;
        stretch.loading.stop().await;
        drop(stretch.watching);
        let nodes = self.group.nodes().to_vec();
        let drainer = Drainer::new(nodes.clone(), &stretch.topic, QUEUES);
        drainer.drain_all(&stretch.recorder).await?;
        final_offsets(&stretch.recorder, &nodes, &stretch.topic).await?;
        let events = stretch.recorder.events()?;
        let green = judge(&events, true, &mut self.judged);
        if green && !self.settings.keep_histories {
            // It stays when it cannot be removed; that hurts nobody.
            let _removed = std::fs::remove_file(&stretch.path);
        }
        Ok(())
    }
}

fn history_path(out: &Path, name: &str, number: u32) -> PathBuf {
    out.join(format!("history-{name}-{number}.jsonl"))
}

/// Makes a topic by whichever node takes the request, and waits until every node serves it.
pub(super) async fn create_topic(
    nodes: &[Node],
    topic: &str,
    queues: i32,
) -> Result<(), DrillError> {
    let begun = std::time::Instant::now();
    let mut last = WireError::Closed("there is no node".to_owned());
    let mut made = false;
    while begun.elapsed() < TOPIC_WITHIN {
        for node in nodes {
            let tried = async {
                let connection = Connection::open(node.address, REQUEST_WITHIN).await?;
                if !made {
                    connection.create_topic(&Topic::new(topic, queues)).await?;
                }
                connection.max_offset(topic, queues - 1).await.map(drop)
            };
            match tried.await {
                Ok(()) => made = true,
                Err(error) => last = error,
            }
        }
        if made && all_serve(nodes, topic, queues).await {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(DrillError::Topic {
        topic: topic.to_owned(),
        source: last,
    })
}

async fn all_serve(nodes: &[Node], topic: &str, queues: i32) -> bool {
    for node in nodes {
        let Ok(connection) = Connection::open(node.address, REQUEST_WITHIN).await else {
            return false;
        };
        if connection.max_offset(topic, queues - 1).await.is_err() {
            return false;
        }
    }
    true
}

/// Asks every node once more for the offsets that the consumers committed: none may be behind.
async fn final_offsets(recorder: &Recorder, nodes: &[Node], topic: &str) -> Result<(), DrillError> {
    for node in nodes {
        let connection = Connection::open(node.address, REQUEST_WITHIN)
            .await
            .map_err(DrillError::Offsets)?;
        for queue in 0..QUEUES {
            query_offset(
                recorder,
                "last-offsets",
                node,
                &connection,
                topic,
                queue,
                true,
            )
            .await
            .map_err(DrillError::Offsets)?;
        }
    }
    Ok(())
}
