//! Which rows of the tables have changed since they were last written.
//!
//! Names only, and of a table that changed too much nothing but that: bounded whatever the commands do.

use std::collections::BTreeSet;

/// Names kept of one table; beyond, the whole table is written.
const NAMES_MAX: usize = 10_000;

/// One table's changed rows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rows<K> {
    Some(BTreeSet<K>),
    All,
}

impl<K: Ord> Default for Rows<K> {
    fn default() -> Self {
        Rows::Some(BTreeSet::new())
    }
}

impl<K: Ord> Rows<K> {
    pub(super) fn add(&mut self, key: K) {
        if let Rows::Some(keys) = self {
            keys.insert(key);
            if keys.len() > NAMES_MAX {
                *self = Rows::All;
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Rows::Some(keys) if keys.is_empty())
    }
}

/// Group, topic, queue.
pub(super) type OffsetKey = (String, String, i32);

#[derive(Default)]
pub(super) struct Changes {
    pub topics: Rows<String>,
    pub groups: Rows<String>,
    pub nodes: Rows<u64>,
    pub offsets: Rows<OffsetKey>,
}

impl Changes {
    /// Everything has to be written: the tables may hold anything.
    pub(super) fn all() -> Changes {
        Changes {
            topics: Rows::All,
            groups: Rows::All,
            nodes: Rows::All,
            offsets: Rows::All,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.topics.is_empty()
            && self.groups.is_empty()
            && self.nodes.is_empty()
            && self.offsets.is_empty()
    }
}
