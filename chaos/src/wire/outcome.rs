//! What became of one attempt to send, judged by the reply alone and exactly as the broker's contract puts it:
//! stored, certainly not stored, or unknown. When in doubt it is unknown.

use super::code;
use super::connection::WireError;
use super::frame::Frame;

/// Where an acknowledged message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub queue: i32,
    /// Queue offset (of the first message of a batch).
    pub offset: i64,
    /// Offset message id; of a batch all, with commas between.
    pub id: String,
    /// Position in the commit log that the (first) id names.
    pub position: Option<i64>,
    /// 0, or a code that says stored but not on as many replicas as asked for.
    pub code: i32,
}

/// What became of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    Ok(Stored),
    /// Not stored, and never will be.
    Fail {
        code: i32,
        remark: String,
    },
    /// May be stored, now or later, at most once. `code` is there when a reply came.
    Info {
        code: Option<i32>,
        why: String,
    },
}

impl SendOutcome {
    pub fn stored(&self) -> Option<&Stored> {
        match self {
            SendOutcome::Ok(stored) => Some(stored),
            SendOutcome::Fail { .. } | SendOutcome::Info { .. } => None,
        }
    }
}

/// Prefixes of `SYSTEM_BUSY` that the protocol gives to requests turned away before they are handled.
const TURNED_AWAY: [&str; 2] = ["[REJECTREQUEST]", "[OVERLOAD]"];

/// Judges the reply, or its absence, to one send.
pub fn classify(reply: Result<Frame, WireError>) -> SendOutcome {
    let frame = match reply {
        Ok(frame) => frame,
        Err(error @ WireError::Connect { .. }) => {
            return SendOutcome::Fail {
                code: -1,
                remark: error.to_string(),
            };
        }
        Err(error) => {
            return SendOutcome::Info {
                code: None,
                why: error.to_string(),
            };
        }
    };
    let remark = frame.remark_text().to_owned();
    match frame.code {
        // 11 and 12: a majority has it, more replicas were asked for. 10 promises nothing.
        code::SUCCESS | code::SLAVE_NOT_AVAILABLE | code::FLUSH_SLAVE_TIMEOUT => {
            match stored(&frame) {
                Some(stored) => SendOutcome::Ok(stored),
                None => SendOutcome::Info {
                    code: Some(frame.code),
                    why: format!(
                        "success without queueId, queueOffset or msgId: {:?}",
                        frame.ext
                    ),
                },
            }
        }
        code if means_not_stored(code, &remark) => SendOutcome::Fail { code, remark },
        code => SendOutcome::Info {
            code: Some(code),
            why: remark,
        },
    }
}

fn means_not_stored(reply: i32, remark: &str) -> bool {
    if remark.starts_with("[UNKNOWN]") {
        return false;
    }
    if remark.starts_with("[REFUSED]") {
        return true;
    }
    match reply {
        code::MESSAGE_ILLEGAL
        | code::SERVICE_NOT_AVAILABLE
        | code::NO_PERMISSION
        | code::TOPIC_NOT_EXIST
        | code::INVALID_PARAMETER => true,
        code::SYSTEM_BUSY => TURNED_AWAY.iter().any(|prefix| remark.starts_with(prefix)),
        _ => false,
    }
}

fn stored(frame: &Frame) -> Option<Stored> {
    let id = frame.ext.get("msgId")?.clone();
    Some(Stored {
        queue: i32::try_from(frame.number("queueId")?).ok()?,
        offset: frame.number("queueOffset")?,
        position: position_of(&id),
        id,
        code: frame.code,
    })
}

/// The last 16 hex digits of an offset message id.
fn position_of(id: &str) -> Option<i64> {
    let first = id.split(',').next()?;
    let at = first.len().checked_sub(16)?;
    i64::from_str_radix(first.get(at..)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(code: i32, remark: &str) -> Result<Frame, WireError> {
        let mut frame = Frame::request(code);
        frame.remark = Some(remark.to_owned());
        Ok(frame)
    }

    #[test]
    fn replies_mean_what_the_contract_says() {
        let words = "in-sync replicas not enough";
        for (code, remark, not_stored) in [
            (1, format!("[REFUSED] {words}: no lease"), true),
            (1, format!("[UNKNOWN] {words}: no commit in time"), false),
            (1, words.to_owned(), false),
            (2, "[REJECTREQUEST]system busy".to_owned(), true),
            (2, "[OVERLOAD]system busy".to_owned(), true),
            (2, "busy".to_owned(), false),
            (3, String::new(), false),
            (10, String::new(), false),
            (13, String::new(), true),
            (14, "disk full".to_owned(), true),
            (14, "[UNKNOWN] disk full".to_owned(), false),
            (16, String::new(), true),
            (17, String::new(), true),
            (29, String::new(), true),
            (1500, String::new(), false),
        ] {
            let outcome = classify(reply(code, &remark));
            assert_eq!(
                matches!(outcome, SendOutcome::Fail { .. }),
                not_stored,
                "{code} {remark:?} became {outcome:?}"
            );
            assert_eq!(outcome.stored(), None);
        }
    }

    #[test]
    fn success_names_queue_offset_and_position() {
        let frame = Frame::request(0)
            .with("msgId", "0A00000100002A9F00000000000003E8")
            .with("queueId", 2)
            .with("queueOffset", 7);
        let outcome = classify(Ok(frame));
        let stored = outcome.stored().unwrap();
        assert_eq!(
            (stored.queue, stored.offset, stored.position),
            (2, 7, Some(1000))
        );
        assert!(matches!(
            classify(Ok(Frame::request(0))),
            SendOutcome::Info { .. }
        ));
    }

    #[test]
    fn only_a_connection_never_made_is_certainly_no_send() {
        let to = "127.0.0.1:1".parse().unwrap();
        let why = String::new();
        assert!(matches!(
            classify(Err(WireError::Connect { to, why })),
            SendOutcome::Fail { .. }
        ));
        for error in [
            WireError::Closed(String::new()),
            WireError::Timeout(std::time::Duration::ZERO),
            WireError::Malformed(String::new()),
        ] {
            assert!(matches!(classify(Err(error)), SendOutcome::Info { .. }));
        }
    }
}
