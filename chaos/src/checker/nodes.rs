//! What nodes said of themselves, read once: each observation as numbers, split into the lives of a node's
//! process. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Event, FaultResult, NODE, WIPE, What};

/// One observation. Figures that the node left empty, or that a table lacks, are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub t: u64,
    pub id: Option<u64>,
    pub leads: bool,
    pub learner: bool,
    pub term: Option<u64>,
    pub voted_for: Option<u64>,
    pub leader: Option<u64>,
    pub ready: bool,
    pub appended: Option<u64>,
    pub durable: Option<u64>,
    pub committed: Option<u64>,
    pub applied: Option<u64>,
    /// First position of the log.
    pub begins: Option<u64>,
    /// Position after what was applied.
    pub applied_end: Option<u64>,
    pub rss_bytes: Option<u64>,
    pub fds: Option<u64>,
    pub threads: Option<u64>,
    pub panic_lines: Option<u64>,
}

impl View {
    fn of(t: u64, table: &BTreeMap<String, String>) -> View {
        let number = |name: &str| table.get(name).and_then(|text| text.parse().ok());
        let is = |name: &str, value: &str| table.get(name).is_some_and(|text| text == value);
        View {
            t,
            id: number("raftNode"),
            leads: is("raftRole", "leader"),
            learner: is("raftRole", "learner"),
            term: number("raftTerm"),
            voted_for: number("raftVotedFor"),
            leader: number("raftLeader"),
            ready: is("raftReady", "true"),
            appended: number("raftAppended"),
            durable: number("raftDurable"),
            committed: number("raftCommitted"),
            applied: number("raftApplied"),
            begins: number("commitLogMinOffset"),
            applied_end: number("commitLogMaxOffset"),
            rss_bytes: number("procRssBytes"),
            fds: number("procFds"),
            threads: number("procThreads"),
            panic_lines: number("panicLines"),
        }
    }
}

/// What a node went through, in order.
#[derive(Clone, Debug)]
pub enum Step {
    /// A new process: by [`What::Boot`], or by a `bootTimestamp` that was not seen before.
    Life {
        t: u64,
    },
    View(Box<View>),
    /// Its data directory was emptied or replaced.
    Wiped,
    /// Place of a [`What::Dump`] among the events.
    Dump {
        t: u64,
        at: usize,
    },
}

/// The steps of each node, by its name.
#[derive(Debug, Default)]
pub struct Nodes<'a> {
    pub steps: BTreeMap<&'a str, Vec<Step>>,
}

/// The processes of one node seen so far.
#[derive(Default)]
struct Lives<'a> {
    stamps: BTreeSet<&'a str>,
    last: Option<&'a str>,
    /// A boot was recorded, and no view of the new process was seen yet.
    booted: bool,
}

impl<'a> Nodes<'a> {
    pub fn build(events: &'a [Event]) -> Nodes<'a> {
        let mut nodes = Nodes::default();
        let mut lives: BTreeMap<&str, Lives<'_>> = BTreeMap::new();
        for (at, event) in events.iter().enumerate() {
            let t = event.t;
            match &event.what {
                What::Boot { node } => {
                    lives.entry(node).or_default().booted = true;
                    nodes.push(node, Step::Life { t });
                }
                What::Obs { node, table } => {
                    let lives = lives.entry(node).or_default();
                    nodes.view(node, t, table, lives);
                }
                What::Dump { node, .. } => nodes.push(node, Step::Dump { t, at }),
                What::Start {
                    fault,
                    args,
                    result,
                } if fault == WIPE && *result != FaultResult::Skipped => {
                    if let Some(node) = args.get(NODE) {
                        nodes.push(node, Step::Wiped);
                    }
                }
                _ => {}
            }
        }
        nodes
    }

    fn view(
        &mut self,
        node: &'a str,
        t: u64,
        table: &'a BTreeMap<String, String>,
        lives: &mut Lives<'a>,
    ) {
        if let Some(stamp) = table.get("bootTimestamp") {
            let stamp = stamp.as_str();
            let new = lives.stamps.insert(stamp);
            if !new && (lives.last != Some(stamp) || lives.booted) {
                // An answer of a process that is gone, written down late.
                return;
            }
            let first = lives.last.replace(stamp).is_none();
            if new && !first && !std::mem::take(&mut lives.booted) {
                self.push(node, Step::Life { t });
            }
            lives.booted = false;
        }
        self.push(node, Step::View(Box::new(View::of(t, table))));
    }

    fn push(&mut self, node: &'a str, step: Step) {
        self.steps.entry(node).or_default().push(step);
    }

    /// All observations, of one node after the other.
    pub fn views(&self) -> impl Iterator<Item = (&'a str, &View)> {
        self.steps.iter().flat_map(|(node, steps)| {
            steps.iter().filter_map(|step| match step {
                Step::View(view) => Some((*node, &**view)),
                _ => None,
            })
        })
    }

    /// All observations in the order of time.
    pub fn in_time(&self) -> Vec<(&'a str, &View)> {
        let mut views: Vec<_> = self.views().collect();
        views.sort_by_key(|(_, view)| view.t);
        views
    }

    /// Nodes without a say in elections, as they said of themselves last: before the first membership every
    /// node is a learner.
    pub fn learners(&self) -> BTreeSet<&'a str> {
        let mut learners = BTreeSet::new();
        for (node, view) in self.views().filter(|(_, view)| view.term.is_some()) {
            if view.learner {
                learners.insert(node);
            } else {
                learners.remove(node);
            }
        }
        learners
    }

    /// How many nodes have a say in elections.
    pub fn voters(&self) -> usize {
        self.steps.len() - self.learners().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn obs(t: u64, stamp: &str) -> Event {
        let table = BTreeMap::from([
            ("bootTimestamp".to_owned(), stamp.to_owned()),
            ("raftTerm".to_owned(), "3".to_owned()),
            ("raftCommitted".to_owned(), String::new()),
        ]);
        let node = "n0".to_owned();
        event(t, What::Obs { node, table })
    }

    fn event(t: u64, what: What) -> Event {
        let a = "adm".to_owned();
        Event { t, a, op: t, what }
    }

    fn kinds(events: &[Event]) -> String {
        let nodes = Nodes::build(events);
        let steps = nodes.steps["n0"].iter();
        steps
            .map(|step| match step {
                Step::Life { .. } => 'L',
                Step::View(_) => 'v',
                Step::Wiped => 'w',
                Step::Dump { .. } => 'd',
            })
            .collect()
    }

    #[test]
    fn lives_are_told_apart_by_boots_and_by_stamps() {
        let node = || "n0".to_owned();
        let boot = |t| event(t, What::Boot { node: node() });
        assert_eq!(kinds(&[obs(1, "a"), obs(2, "a"), obs(3, "b")]), "vvLv");
        let recorded = [boot(1), obs(2, "a"), boot(3), obs(4, "b"), obs(5, "b")];
        assert_eq!(kinds(&recorded), "LvLvv");
        let late = [boot(1), obs(2, "a"), boot(3), obs(4, "a"), obs(5, "b")];
        assert_eq!(kinds(&late), "LvLv", "a late answer of the first process");
    }

    #[test]
    fn an_empty_figure_is_not_known() {
        let events = [obs(1, "a")];
        let nodes = Nodes::build(&events);
        let (_, view) = nodes.views().next().unwrap();
        assert_eq!((view.term, view.committed), (Some(3), None));
    }
}
