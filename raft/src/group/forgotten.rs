//! Whether a node has forgotten a vote that it gave. Decision only.

/// What was lost, if the vote is older than the log. Entries of a term become durable after the vote of that
/// term, so a vote of an earlier term, or none, is one that was lost after it had been given: the node might
/// give it a second time. `voted`, `logged`: the terms of the vote and of the last entry.
pub(super) fn forgotten(voted: Option<u64>, logged: Option<u64>) -> Option<String> {
    // The first membership is written in term 0, before any vote.
    let logged = logged.filter(|term| *term > 0)?;
    let voted = match voted {
        Some(term) if term >= logged => return None,
        Some(term) => format!("the vote is of term {term}"),
        None => "there is no vote".to_string(),
    };
    Some(format!(
        "a vote was lost: {voted}, but the log has entries of term {logged}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vote_older_than_the_log_was_lost() {
        let table = [
            (None, None, false),
            (Some(3), None, false),
            (None, Some(0), false),
            (Some(0), Some(0), false),
            (Some(2), Some(2), false),
            (Some(3), Some(2), false),
            (None, Some(1), true),
            (Some(1), Some(2), true),
        ];
        for (voted, logged, lost) in table {
            let found = forgotten(voted, logged);
            assert_eq!(found.is_some(), lost, "{voted:?} {logged:?}: {found:?}");
        }
    }
}
