//! I-11: what a group without a majority answers. Nothing is acknowledged once the lease has run out,
//! every send is answered in time, and a system error says whether the message was refused or is unknown.

use super::index::{End, Index, Op};
use super::report::Findings;
use super::{Invariant, Options};
use crate::history::Call;
use crate::wire::code;

/// Allowed beyond the client's own time limit.
const GRACE_NS: u64 = 1_000_000_000;
const WORDS: &str = "in-sync replicas not enough";

pub fn check(index: &Index<'_>, options: &Options, findings: &mut Findings) {
    let lease = u64::try_from(options.lease.as_nanos()).unwrap_or(u64::MAX);
    for send in index.sends() {
        let Call::Send {
            key, timeout_ms, ..
        } = send.call
        else {
            continue;
        };
        answered_in_time(index, send, key, *timeout_ms, findings);
        says_why(send, key, findings);
        if !matches!(send.end, End::Ok(_)) {
            continue;
        }
        for loss in &index.losses {
            if send.done > loss.start.saturating_add(lease) && send.done < loss.end {
                findings.add(Invariant::Refusal, || {
                    format!(
                        "{key} (op {}) was acknowledged {} ms after the majority was lost",
                        send.id,
                        (send.done - loss.start) / 1_000_000
                    )
                });
            }
        }
    }
}

fn answered_in_time(
    index: &Index<'_>,
    send: &Op<'_>,
    key: &str,
    timeout_ms: u64,
    findings: &mut Findings,
) {
    let deadline = send
        .invoke
        .saturating_add(timeout_ms.saturating_mul(1_000_000))
        .saturating_add(GRACE_NS);
    // An open send whose deadline the history did not live to see proves nothing.
    let late = match send.end {
        End::Open => deadline < index.end,
        _ => send.done > deadline,
    };
    if late {
        findings.add(Invariant::Refusal, || {
            format!(
                "{key} (op {}) had no end within {timeout_ms} ms and the grace of 1 s",
                send.id
            )
        });
    }
}

fn says_why(send: &Op<'_>, key: &str, findings: &mut Findings) {
    let (reply, text) = match send.end {
        End::Fail { code, remark } => (code, remark),
        End::Info {
            code: Some(code),
            why,
        } => (code, why),
        End::Ok(_) | End::Info { code: None, .. } | End::Open => return,
    };
    let says = ["[REFUSED] ", "[UNKNOWN] "]
        .iter()
        .filter_map(|prefix| text.strip_prefix(prefix))
        .any(|rest| rest.starts_with(WORDS));
    if reply == code::SYSTEM_ERROR && !says {
        findings.add(Invariant::Refusal, || {
            format!(
                "{key} (op {}) got a system error that does not say what became of it: {text:?}",
                send.id
            )
        });
    }
}
