use futures_util::FutureExt;

use super::*;

fn connection() -> Connection {
    Connection::new(1, "127.0.0.1:4000".parse().unwrap())
}

fn taken(connection: &Connection) -> Vec<Bytes> {
    match connection.take() {
        Taken::Chunks(chunks) => chunks.into(),
        Taken::Nothing | Taken::Closed => Vec::new(),
    }
}

#[test]
fn replies_leave_in_order_and_a_large_body_is_not_copied() {
    let connection = connection();
    let large = Bytes::from(vec![7_u8; COPIED_BODY_BYTES_MAX + 1]);
    let small = Bytes::from_static(b"small");
    for body in [&small, &large, &small] {
        connection.asked();
        connection.send(Reply::new(0, 5).with_body(body.clone()));
    }
    let chunks = taken(&connection);
    assert_eq!(
        chunks.len(),
        3,
        "small pieces are gathered around the large one"
    );
    assert_eq!(chunks[1].as_ptr(), large.as_ptr());
    let mut wanted = BytesMut::new();
    for body in [&small, &large, &small] {
        Reply::new(0, 5).with_body(body.clone()).encode(&mut wanted);
    }
    assert_eq!(chunks.concat(), wanted);
    assert!(matches!(connection.take(), Taken::Nothing));
}

#[test]
fn reading_pauses_while_replies_pile_up_and_goes_on_when_they_are_written() {
    let connection = connection();
    assert!(connection.may_read().now_or_never().is_some());
    let frame = Bytes::from(vec![0_u8; QUEUED_BYTES_PAUSE + 1]);
    connection.send_frame(frame.clone());
    let mut paused = Box::pin(connection.may_read());
    assert!((&mut paused).now_or_never().is_none());
    let bytes: usize = taken(&connection).iter().map(Bytes::len).sum();
    assert!(
        (&mut paused).now_or_never().is_none(),
        "taken is not written yet"
    );
    connection.written(bytes);
    assert!(paused.now_or_never().is_some());
}

#[test]
fn reading_pauses_while_too_many_requests_wait_for_their_reply() {
    let connection = connection();
    for _ in 0..IN_FLIGHT_MAX {
        connection.asked();
    }
    let mut paused = Box::pin(connection.may_read());
    assert!((&mut paused).now_or_never().is_none());
    connection.send_frame(Bytes::from_static(b"a push answers nothing"));
    assert!((&mut paused).now_or_never().is_none());
    connection.send_reply_frame(Bytes::from_static(b"a reply"));
    assert!(paused.now_or_never().is_some());
}

#[test]
fn one_way_requests_count_as_in_flight_until_they_are_done() {
    let connection = Arc::new(connection());
    let mut under_way: Vec<ReplyTo> = (0..IN_FLIGHT_MAX)
        .map(|_| ReplyTo::Nobody(OneWay::read(&connection)))
        .collect();
    let mut paused = Box::pin(connection.may_read());
    assert!((&mut paused).now_or_never().is_none());
    under_way.pop().unwrap().send(Reply::new(0, 1));
    assert!(paused.now_or_never().is_some());
    assert!(taken(&connection).is_empty(), "nothing is sent");
}

#[test]
fn a_client_that_never_reads_is_cut_off_at_the_bound() {
    let connection = connection();
    let frame = Bytes::from(vec![0_u8; QUEUED_BYTES_MAX / 4]);
    for _ in 0..4 {
        connection.send_frame(frame.clone());
        assert!(!connection.is_closed());
    }
    connection.send_frame(Bytes::from_static(b"one more"));
    assert!(connection.is_closed());
    assert!(matches!(connection.take(), Taken::Closed));
    assert!(connection.closing().now_or_never().is_some());
    connection.send_frame(frame);
    assert!(
        connection.lock().chunks.is_empty(),
        "nothing is kept for it"
    );
}

#[test]
fn a_writer_is_woken_once_for_many_replies() {
    let connection = connection();
    assert!(matches!(connection.take(), Taken::Nothing));
    let mut woken = Box::pin(connection.something_queued());
    assert!((&mut woken).now_or_never().is_none());
    for _ in 0..3 {
        connection.send_frame(Bytes::from_static(b"x"));
    }
    assert!(woken.now_or_never().is_some());
    assert_eq!(taken(&connection).len(), 1);
    assert!(
        connection.something_queued().now_or_never().is_none(),
        "no wake-up is left over"
    );
}

#[test]
fn a_reply_for_a_peer_is_a_whole_frame() {
    let (back, mut answered) = oneshot::channel();
    ReplyTo::Peer(back).send(Reply::new(17, 9).with_body("body"));
    let mut wanted = BytesMut::new();
    Reply::new(17, 9).with_body("body").encode(&mut wanted);
    assert_eq!(answered.try_recv().unwrap(), wanted);
}
