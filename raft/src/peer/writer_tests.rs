use bytes::Bytes;
use tokio::io::AsyncReadExt;

use super::*;
use crate::peer::frame::{Frame, FrameReader, Kind, MAX_FRAME_BYTES};

fn frame(kind: Kind, id: u64, bytes: usize) -> Outgoing {
    let body = Bytes::from(vec![id as u8; bytes]);
    OutFrame::new(kind, id, &[], &[body]).unwrap().into()
}

async fn read_ids(from: impl tokio::io::AsyncRead + Unpin, count: usize) -> Vec<u64> {
    let mut reader = FrameReader::new(from, MAX_FRAME_BYTES, Duration::from_secs(5));
    let mut ids = Vec::new();
    while ids.len() < count {
        let Frame { id, .. } = reader.next().await.unwrap().unwrap();
        ids.push(id);
    }
    ids
}

#[tokio::test]
async fn small_control_frames_overtake_bulk_that_waits() {
    let (near, far) = tokio::io::duplex(4096);
    let (lanes, ends) = lanes();
    for id in 1..=5 {
        lanes
            .appends
            .try_send(frame(Kind::StreamAppend, id, 400_000))
            .unwrap_or_else(|_| panic!("room for {id}"));
    }
    let writer = tokio::spawn(write_frames(near, ends, Arc::new(Progress::new())));
    // The first bulk frame is being written when the heartbeat is queued.
    let mut far = far;
    let mut first = [0; 4096];
    far.read_exact(&mut first).await.unwrap();
    lanes
        .control
        .try_send(frame(Kind::Append, 100, 10))
        .unwrap_or_else(|_| panic!("room"));
    let whole = AsyncReadExt::chain(&first[..], far);
    assert_eq!(read_ids(whole, 6).await, [1, 100, 2, 3, 4, 5]);
    writer.abort();
}

#[tokio::test]
async fn a_withdrawn_request_is_never_written_and_a_taken_one_cannot_be_withdrawn() {
    let (near, far) = tokio::io::duplex(1 << 20);
    let (lanes, ends) = lanes();
    let tickets: Vec<Arc<Ticket>> = (0..3).map(|_| Arc::new(Ticket::default())).collect();
    for (id, ticket) in (1..).zip(&tickets) {
        let mut outgoing = frame(Kind::Call, id, 10);
        outgoing.ticket = Some(ticket.clone());
        lanes
            .calls
            .try_send(outgoing)
            .unwrap_or_else(|_| panic!("room"));
    }
    assert!(tickets[1].withdraw());
    assert!(tickets[1].withdraw(), "still withdrawn when asked again");
    let writer = tokio::spawn(write_frames(near, ends, Arc::new(Progress::new())));
    assert_eq!(read_ids(far, 2).await, [1, 3]);
    assert!(!tickets[0].withdraw());
    assert!(!tickets[2].withdraw());
    writer.abort();
}

#[tokio::test]
async fn frames_of_a_stream_that_was_given_up_are_skipped() {
    let (near, far) = tokio::io::duplex(1 << 20);
    let (lanes, ends) = lanes();
    for (id, stream) in [(1, 1), (2, 2), (3, 1), (4, 2)] {
        let mut outgoing = frame(Kind::StreamAppend, id, 10);
        outgoing.stream = stream;
        lanes
            .appends
            .try_send(outgoing)
            .unwrap_or_else(|_| panic!("room"));
    }
    let progress = Progress::new();
    progress.stream.store(2, Ordering::Release);
    let writer = tokio::spawn(write_frames(near, ends, Arc::new(progress)));
    assert_eq!(read_ids(far, 2).await, [2, 4]);
    writer.abort();
}

#[tokio::test]
async fn many_small_frames_arrive_whole_and_in_order_over_short_writes() {
    let (near, far) = tokio::io::duplex(7);
    let (lanes, ends) = lanes();
    for id in 1..=200 {
        lanes
            .control
            .try_send(frame(Kind::Append, id, id as usize))
            .unwrap_or_else(|_| panic!("room"));
    }
    let writer = tokio::spawn(write_frames(near, ends, Arc::new(Progress::new())));
    let expected: Vec<u64> = (1..=200).collect();
    assert_eq!(read_ids(far, 200).await, expected);
    writer.abort();
}

#[tokio::test]
async fn the_writer_ends_when_the_other_side_is_gone() {
    let (near, far) = tokio::io::duplex(64);
    drop(far);
    let (lanes, ends) = lanes();
    lanes
        .control
        .try_send(frame(Kind::Ping, 1, 0))
        .unwrap_or_else(|_| panic!("room"));
    let error = write_frames(near, ends, Arc::new(Progress::new())).await;
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_nobody_takes_ends_the_connection() {
    let (near, _far) = tokio::io::duplex(64);
    let (lanes, ends) = lanes();
    lanes
        .control
        .try_send(frame(Kind::Append, 1, 1000))
        .unwrap_or_else(|_| panic!("room"));
    let error = write_frames(near, ends, Arc::new(Progress::new())).await;
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}
