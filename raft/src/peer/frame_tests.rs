use proptest::prelude::*;
use tokio::io::AsyncWriteExt;

use super::*;

const SILENCE: Duration = Duration::from_millis(50);

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(future)
}

fn bytes_of(frame: &OutFrame) -> Vec<u8> {
    frame
        .pieces
        .iter()
        .flat_map(|piece| piece.to_vec())
        .collect()
}

/// Reads everything in `bytes`, as the other side closing the connection at their end.
fn read_all(bytes: &[u8]) -> Result<Vec<Frame>, FrameError> {
    run(async {
        let mut reader = FrameReader::new(bytes, MAX_FRAME_BYTES, SILENCE);
        let mut frames = Vec::new();
        while let Some(frame) = reader.next().await? {
            frames.push(frame);
        }
        Ok(frames)
    })
}

fn kinds() -> impl Strategy<Value = Kind> {
    proptest::sample::select(Kind::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn frames_come_back_as_they_were_sent(
        sent in proptest::collection::vec(
            (kinds(), any::<u64>(), proptest::collection::vec(any::<u8>(), 0..300),
             proptest::collection::vec(0usize..60_000, 0..4)),
            0..6),
    ) {
        let mut wire = Vec::new();
        let mut expected = Vec::new();
        for (kind, id, head, sizes) in sent {
            let body: Vec<Bytes> =
                sizes.iter().map(|size| Bytes::from(vec![*size as u8; *size])).collect();
            let frame = OutFrame::new(kind, id, &head, &body).unwrap();
            prop_assert_eq!(frame.bytes, bytes_of(&frame).len());
            wire.extend(bytes_of(&frame));
            let mut payload = head;
            payload.extend(body.iter().flat_map(|piece| piece.to_vec()));
            expected.push(Frame { kind, id, payload: Bytes::from(payload) });
        }
        prop_assert_eq!(read_all(&wire).unwrap(), expected);
    }

    #[test]
    fn noise_is_never_taken_for_a_frame(noise in proptest::collection::vec(any::<u8>(), 0..2000)) {
        // A frame needs a matching checksum, which 64 cases of noise do not have.
        match read_all(&noise) {
            Ok(frames) => prop_assert!(frames.is_empty()),
            Err(_) => prop_assert!(!noise.is_empty()),
        }
    }
}

#[test]
fn every_single_bit_flip_is_detected() {
    let frame = OutFrame::new(
        Kind::Append,
        77,
        b"head of a request",
        &[Bytes::from_static(&[9; 40])],
    );
    let good = bytes_of(&frame.unwrap());
    assert_eq!(read_all(&good).unwrap().len(), 1);
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let read = read_all(&bad);
        assert!(read.is_err(), "bit {bit} flipped and read as {read:?}");
    }
}

#[test]
fn every_truncation_is_detected() {
    for size in [50, STAGED_BYTES + 100] {
        let body = Bytes::from(vec![7; size]);
        let whole = bytes_of(&OutFrame::new(Kind::Call, 1, b"x", &[body]).unwrap());
        for cut in (1..whole.len()).step_by(1 + whole.len() / 500) {
            let read = read_all(&whole[..cut]);
            assert!(
                matches!(read, Err(FrameError::Cut)),
                "cut at {cut}: {read:?}"
            );
        }
    }
    assert_eq!(read_all(&[]).unwrap(), vec![]);
}

#[test]
fn a_huge_announced_length_is_refused_at_once() {
    for length in [MAX_FRAME_BYTES as u32 + 1, u32::MAX, 13, 0] {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend([0; 100]);
        let read = read_all(&bytes);
        assert!(
            matches!(read, Err(FrameError::Length { .. })),
            "{length}: {read:?}"
        );
    }
}

#[test]
fn memory_grows_with_what_arrived_and_not_with_the_announced_length() {
    run(async {
        let (mut near, far) = tokio::io::duplex(1 << 20);
        let mut reader = FrameReader::new(far, MAX_FRAME_BYTES, SILENCE);
        near.write_all(&(MAX_FRAME_BYTES as u32).to_le_bytes())
            .await
            .unwrap();
        near.write_all(&[1; 100_000]).await.unwrap();
        let read = reader.next().await;
        assert!(matches!(read, Err(FrameError::Silent(_))), "{read:?}");
        let (bytes, whole) = reader.large.as_ref().unwrap();
        assert_eq!(*whole, MAX_FRAME_BYTES + 8);
        assert!(
            bytes.capacity() <= 2 * (100_000 + FIRST_GROWTH_BYTES),
            "{} bytes reserved",
            bytes.capacity()
        );
    });
}

#[test]
fn a_large_frame_holds_no_more_memory_than_itself() {
    let body = Bytes::from(vec![3; 700_000]);
    let wire =
        bytes_of(&OutFrame::new(Kind::StreamAppend, 5, b"", std::slice::from_ref(&body)).unwrap());
    run(async {
        let mut reader = FrameReader::new(&wire[..], MAX_FRAME_BYTES, SILENCE);
        while reader
            .large
            .as_ref()
            .is_none_or(|(bytes, whole)| bytes.len() < *whole)
        {
            assert!(reader.take().unwrap().is_none());
            assert!(reader.fill().await.unwrap() > 0);
        }
        let (bytes, whole) = reader.large.as_ref().unwrap();
        assert_eq!(bytes.capacity(), *whole);
        assert_eq!(reader.next().await.unwrap().unwrap().payload, body);
    });
}

#[test]
fn large_payloads_are_not_copied_on_sending() {
    let body = Bytes::from(vec![3; 100_000]);
    let frame = OutFrame::new(Kind::StreamAppend, 5, b"head", std::slice::from_ref(&body)).unwrap();
    assert_eq!(frame.pieces.len(), 2);
    assert_eq!(frame.pieces[1].as_ptr(), body.as_ptr());
}

#[test]
fn silence_ends_a_read() {
    run(async {
        let (_near, far) = tokio::io::duplex(100);
        let mut reader = FrameReader::new(far, MAX_FRAME_BYTES, SILENCE);
        let read = reader.next().await;
        assert!(matches!(read, Err(FrameError::Silent(_))), "{read:?}");
    });
}

#[test]
fn a_frame_that_could_not_be_received_is_not_built() {
    let body = Bytes::from(vec![0; MAX_FRAME_BYTES]);
    let built = OutFrame::new(Kind::Call, 1, b"", &[body]);
    assert!(
        matches!(built, Err(FrameError::TooLarge { .. })),
        "{built:?}"
    );
}
