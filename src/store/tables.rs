//! The small state of the running node in sled, for answers before the log has been replayed.
//!
//! Never read into the state. Whatever goes wrong here is said once and costs nothing but those answers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use super::changes::{Changes, OffsetKey, Rows};
use super::codec;
use super::command::{GroupConfig, NodeInfo, TopicConfig};
use super::state::State;

const CACHE_BYTES: u64 = 8 * 1024 * 1024;

/// Rows of one table to write: `None` removes one. `all`: the table has no other rows.
struct TableRows {
    all: bool,
    rows: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// What changed since the tables were last written.
pub(super) struct ChangedRows {
    /// Last applied entry (term, index) and the position after it.
    applied: (u64, u64, u64),
    topics: TableRows,
    groups: TableRows,
    nodes: TableRows,
    offsets: TableRows,
}

impl State {
    /// Copies the changed rows and remembers that they were taken.
    pub(super) fn take_changed_rows(&mut self) -> ChangedRows {
        let changes = std::mem::take(&mut self.changes);
        let mark = self.mark.as_ref();
        ChangedRows {
            applied: mark.map_or((0, 0, 0), |mark| (mark.id.term, mark.id.index, mark.end)),
            topics: self.topic_rows(&changes),
            groups: self.group_rows(&changes),
            nodes: self.node_rows(&changes),
            offsets: self.offset_rows(&changes),
        }
    }

    fn topic_rows(&self, changes: &Changes) -> TableRows {
        let value = |topic: &TopicConfig| codec::encode(topic);
        match &changes.topics {
            Rows::All => TableRows::all(
                self.topics
                    .sorted()
                    .into_iter()
                    .map(|topic| (topic.name.as_bytes().to_vec(), value(&topic.config))),
            ),
            Rows::Some(names) => TableRows::some(names.iter().map(|name| {
                let topic = self.topics.by_name(name);
                (
                    name.as_bytes().to_vec(),
                    topic.map(|topic| value(&topic.config)),
                )
            })),
        }
    }

    fn group_rows(&self, changes: &Changes) -> TableRows {
        let value = |group: &GroupConfig| codec::encode(group);
        let groups = &self.small.groups;
        match &changes.groups {
            Rows::All => TableRows::all(
                groups
                    .iter()
                    .map(|(name, group)| (name.as_bytes().to_vec(), value(group))),
            ),
            Rows::Some(names) => TableRows::some(
                names
                    .iter()
                    .map(|name| (name.as_bytes().to_vec(), groups.get(name).map(value))),
            ),
        }
    }

    fn node_rows(&self, changes: &Changes) -> TableRows {
        let value = |node: &NodeInfo| codec::encode(node);
        let nodes = &self.small.nodes;
        match &changes.nodes {
            Rows::All => TableRows::all(
                nodes
                    .iter()
                    .map(|(id, node)| (id.to_be_bytes().to_vec(), value(node))),
            ),
            Rows::Some(ids) => TableRows::some(
                ids.iter()
                    .map(|id| (id.to_be_bytes().to_vec(), nodes.get(id).map(value))),
            ),
        }
    }

    fn offset_rows(&self, changes: &Changes) -> TableRows {
        let key = |group: &str, topic: &str, queue: i32| {
            let key: OffsetKey = (group.to_string(), topic.to_string(), queue);
            codec::encode(&key)
        };
        let offsets = &self.small.offsets;
        match &changes.offsets {
            Rows::All => TableRows::all(offsets.iter().flat_map(|(group, topics)| {
                topics.iter().flat_map(move |(topic, queues)| {
                    queues.iter().map(move |(&queue, offset)| {
                        (key(group, topic, queue), codec::encode(offset))
                    })
                })
            })),
            Rows::Some(keys) => TableRows::some(keys.iter().map(|(group, topic, queue)| {
                let offset = offsets
                    .get(group)
                    .and_then(|topics| topics.get(topic)?.get(queue));
                (key(group, topic, *queue), offset.map(codec::encode))
            })),
        }
    }
}

impl TableRows {
    fn all(rows: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> TableRows {
        TableRows {
            all: true,
            rows: rows.map(|(key, value)| (key, Some(value))).collect(),
        }
    }

    fn some(rows: impl Iterator<Item = (Vec<u8>, Option<Vec<u8>>)>) -> TableRows {
        TableRows {
            all: false,
            rows: rows.collect(),
        }
    }
}

/// What the tables said when they were opened.
#[derive(Clone, Debug, Default)]
pub(super) struct Warm {
    pub topics: Vec<TopicConfig>,
    pub nodes: Vec<NodeInfo>,
}

pub(super) struct Tables {
    db: sled::Db,
    topics: sled::Tree,
    groups: sled::Tree,
    nodes: sled::Tree,
    offsets: sled::Tree,
}

impl Tables {
    /// Opens `<dir>/tables` and reads what is warm. Tables that cannot be opened are removed and begun
    /// anew; where that fails too there are none.
    pub(super) fn open(dir: &Path) -> (Option<Tables>, Warm) {
        let path = dir.join("tables");
        // A panic may end the process (release builds abort): the mark tells the next start of it.
        let mark = dir.join("tables.opening");
        let first = if mark.exists() {
            Err("the last start ended while they were opened".to_string())
        } else {
            Tables::try_open(&path, &mark)
        };
        let error = match first {
            Ok((tables, warm)) => return (Some(tables), warm),
            Err(error) => error,
        };
        tracing::warn!("{}: the tables are begun anew: {error}", path.display());
        if let Err(error) = remove(&path) {
            tracing::warn!("{}: {error}: there are no tables", path.display());
            return (None, Warm::default());
        }
        match Tables::try_open(&path, &mark) {
            Ok((tables, warm)) => (Some(tables), warm),
            Err(error) => {
                tracing::warn!("{}: {error}: there are no tables", path.display());
                (None, Warm::default())
            }
        }
    }

    fn try_open(path: &PathBuf, mark: &Path) -> Result<(Tables, Warm), String> {
        std::fs::write(mark, b"").map_err(|error| error.to_string())?;
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let tables = Tables::open_at(path)?;
            let warm = Warm {
                topics: values(&tables.topics)?,
                nodes: values(&tables.nodes)?,
            };
            Ok((tables, warm))
        }));
        std::fs::remove_file(mark).map_err(|error| error.to_string())?;
        match opened {
            Ok(opened) => opened.map_err(|error: sled::Error| error.to_string()),
            Err(_) => Err("a panic while they were opened".to_string()),
        }
    }

    fn open_at(path: &PathBuf) -> Result<Tables, sled::Error> {
        let db = sled::Config::new()
            .path(path)
            .cache_capacity(CACHE_BYTES)
            .flush_every_ms(None)
            .open()?;
        Ok(Tables {
            topics: db.open_tree("topics")?,
            groups: db.open_tree("groups")?,
            nodes: db.open_tree("nodes")?,
            offsets: db.open_tree("offsets")?,
            db,
        })
    }

    /// Writes the rows, then the mark of how new they are. After an error the tables are of no more use.
    pub(super) fn write(&self, rows: &ChangedRows) -> Result<(), String> {
        match catch_unwind(AssertUnwindSafe(|| self.try_write(rows))) {
            Ok(written) => written.map_err(|error| error.to_string()),
            Err(_) => Err("a panic while they were written".to_string()),
        }
    }

    fn try_write(&self, rows: &ChangedRows) -> Result<(), sled::Error> {
        write_table(&self.topics, &rows.topics)?;
        write_table(&self.groups, &rows.groups)?;
        write_table(&self.nodes, &rows.nodes)?;
        write_table(&self.offsets, &rows.offsets)?;
        self.db.insert("applied", codec::encode(&rows.applied))?;
        self.db.flush()?;
        Ok(())
    }
}

fn write_table(tree: &sled::Tree, rows: &TableRows) -> Result<(), sled::Error> {
    if rows.all {
        tree.clear()?;
    }
    let mut batch = sled::Batch::default();
    for (key, value) in &rows.rows {
        match value {
            Some(value) => batch.insert(key.as_slice(), value.as_slice()),
            None => batch.remove(key.as_slice()),
        }
    }
    tree.apply_batch(batch)
}

/// All values of a table; those that cannot be read are left out.
fn values<T: serde::de::DeserializeOwned>(tree: &sled::Tree) -> Result<Vec<T>, sled::Error> {
    let mut values = Vec::new();
    for row in tree.iter() {
        values.extend(codec::decode(&row?.1).ok());
    }
    Ok(values)
}

fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
