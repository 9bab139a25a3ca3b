//! Puts what an offline reader found into a history, so that the checker judges it like everything else.

use super::NodeFiles;
use crate::history::{Call, LogDump, Recorder, Reply, What};

/// A node's log in short. `committed`: the last index known to be committed; keys of messages behind it
/// are told apart.
pub fn dump(files: &NodeFiles, committed: Option<u64>) -> LogDump {
    let mut terms: Vec<(u64, u64)> = Vec::new();
    for entry in &files.entries {
        if terms.last().is_none_or(|(term, _)| *term != entry.term) {
            terms.push((entry.term, entry.index));
        }
    }
    let keys = files.replayed.iter().flat_map(|replayed| &replayed.keys);
    LogDump {
        vote_term: files.vote.map_or(0, |vote| vote.term),
        // The vote of term 0 is that of the first membership, and nobody's.
        voted_for: files
            .vote
            .filter(|vote| vote.term > 0)
            .map(|vote| vote.voted_for),
        elected: files.vote.is_some_and(|vote| vote.elected),
        committed: files
            .mark
            .and_then(|mark| mark.committed)
            .map(|(_, index)| index),
        first: files.first(),
        terms,
        hashes: files.entries.iter().map(|entry| entry.hash).collect(),
        unsure: keys
            .filter(|(index, _)| Some(*index) > committed)
            .map(|(_, key)| key.clone())
            .collect(),
        torn: files.torn,
    }
}

/// Records the dump of a node that stands still, and its queues up to `committed` as a drain of the files
/// under the node's name with `:files`. It is a last drain (in which nothing acknowledged may be missing)
/// when the files reach that far.
pub fn record(
    recorder: &Recorder,
    node: &str,
    files: &NodeFiles,
    topics: &[(&str, i32)],
    committed: Option<u64>,
) {
    recorder.dump(node, dump(files, committed));
    let Some(upto) = committed else { return };
    let name = format!("{node}:files");
    for (topic, queues) in topics {
        for q in 0..*queues {
            let Some(got) = files.queue(topic, q, upto) else {
                continue;
            };
            let call = Call::Drain {
                topic: (*topic).to_owned(),
                q,
                node: name.clone(),
                last: files.last() >= Some(upto),
            };
            let op = recorder.invoke(&name, call);
            let max = got.last().map_or(0, |last| last.off + 1);
            recorder.complete(&name, op, What::Ok(Reply::Drain { got, min: 0, max }));
        }
    }
}
