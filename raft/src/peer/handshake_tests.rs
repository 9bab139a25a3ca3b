use super::*;

fn us() -> Identity {
    Identity {
        group: "g".into(),
        node: 2,
        incarnation: 7,
        peers: [1, 2, 3].map(|id| (id, format!("host{id}:1"))).into(),
    }
}

fn hello() -> Hello {
    Hello {
        group: "g".into(),
        from: 1,
        to: 2,
        incarnation: 5,
    }
}

#[test]
fn only_a_known_node_of_the_group_that_means_this_node_is_admitted() {
    assert_eq!(admit(&Greeting::Hello(hello()), &us()), Ok(()));
    let with = |change: fn(&mut Hello)| {
        let mut hello = hello();
        change(&mut hello);
        Greeting::Hello(hello)
    };
    let table = [
        (with(|hello| hello.group = "h".into()), "dLegerGroup"),
        (with(|hello| hello.to = 3), "not node 3"),
        (with(|hello| hello.from = 4), "does not know node 4"),
        (with(|hello| hello.from = 2), "same dLegerSelfId"),
        (Greeting::OtherVersion(9), "version 9"),
    ];
    for (greeting, says) in table {
        let refused = admit(&greeting, &us());
        let text = refused.expect_err("refused");
        assert!(text.contains(says), "{greeting:?}: {text}");
    }
}

/// Both sides of a handshake; what the caller and what the accepting side got.
async fn shake(hello: Hello) -> (Result<u64, HandshakeError>, Result<Hello, HandshakeError>) {
    let (near, far) = tokio::io::duplex(MAX_HANDSHAKE_BYTES);
    let (near_reader, mut near_writer) = tokio::io::split(near);
    let (far_reader, mut far_writer) = tokio::io::split(far);
    let (mut near_reader, mut far_reader) = (reader(near_reader), reader(far_reader));
    let us = us();
    tokio::join!(
        greet(&mut near_reader, &mut near_writer, &hello),
        welcome(&mut far_reader, &mut far_writer, &us)
    )
}

#[tokio::test]
async fn a_handshake_tells_each_side_who_the_other_is() {
    let (caller, accepting) = shake(hello()).await;
    assert_eq!(caller.unwrap(), 7);
    assert_eq!(accepting.unwrap(), hello());
}

#[tokio::test]
async fn the_caller_learns_why_it_is_refused() {
    let mut stranger = hello();
    stranger.group = "another".into();
    let (caller, accepting) = shake(stranger).await;
    let reason = match caller {
        Err(HandshakeError::Rejected(reason)) => reason,
        other => panic!("{other:?}"),
    };
    assert!(reason.contains("another"), "{reason}");
    assert!(matches!(accepting, Err(HandshakeError::Refused(_))));
}

/// What the accepting side says to these bytes, and what it sends back.
async fn welcome_bytes(bytes: &[u8]) -> (HandshakeError, Vec<u8>) {
    let mut reader = reader(bytes);
    let mut answer = Vec::new();
    let error = welcome(&mut reader, &mut answer, &us()).await.unwrap_err();
    (error, answer)
}

fn flat(frame: &OutFrame) -> Vec<u8> {
    frame.pieces.concat()
}

#[tokio::test]
async fn another_format_version_is_refused_with_a_reason_whatever_follows_it() {
    let mut payload = MAGIC.to_vec();
    payload.put_u16_le(FORMAT_VERSION + 1);
    payload.extend(b"something a later version says");
    let frame = OutFrame::new(Kind::Hello, 0, &payload, &[]).unwrap();
    let (error, answer) = welcome_bytes(&flat(&frame)).await;
    assert!(matches!(error, HandshakeError::Refused(_)), "{error}");
    let mut back = reader(&answer[..]);
    let answer = back.next().await.unwrap().unwrap();
    assert_eq!(answer.kind, Kind::Reject);
    let text = String::from_utf8(answer.payload.to_vec()).unwrap();
    assert!(text.contains("same version"), "{text}");
}

#[tokio::test]
async fn what_is_not_a_greeting_gets_no_answer() {
    let http = b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n".to_vec();
    let no_magic = flat(&OutFrame::new(Kind::Hello, 0, &[0; 40], &[]).unwrap());
    let other_kind = flat(&OutFrame::new(Kind::Vote, 0, &MAGIC, &[]).unwrap());
    let mut cut_body = MAGIC.to_vec();
    cut_body.put_u16_le(FORMAT_VERSION);
    cut_body.extend([200, 200]);
    let cut_body = flat(&OutFrame::new(Kind::Hello, 0, &cut_body, &[]).unwrap());
    for bytes in [http, no_magic, other_kind, cut_body] {
        let (error, answer) = welcome_bytes(&bytes).await;
        assert!(error.is_malformed(), "{error}");
        assert_eq!(answer, b"");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_caller_is_dropped_within_the_bound() {
    let (near, _far) = tokio::io::duplex(100);
    let (near_reader, mut near_writer) = tokio::io::split(near);
    let before = tokio::time::Instant::now();
    let error = welcome(&mut reader(near_reader), &mut near_writer, &us())
        .await
        .unwrap_err();
    assert!(!error.is_malformed(), "{error}");
    assert!(before.elapsed() <= HANDSHAKE_BOUND + Duration::from_millis(10));
}
