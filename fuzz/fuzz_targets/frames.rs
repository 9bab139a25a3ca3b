//! A stream of bytes, in pieces of a size that the input chooses, cut into frames.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use quorumlog::protocol::frame::{Frame, FrameError};

/// Frames of a stream, and how it ended; `piece` bytes arrive at a time.
fn decode(stream: &[u8], piece: usize) -> (Vec<Frame>, Option<FrameError>) {
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    for piece in stream.chunks(piece) {
        buffer.extend_from_slice(piece);
        loop {
            match Frame::decode(&mut buffer) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

fuzz_target!(|data: &[u8]| {
    let Some((piece, stream)) = data.split_first() else {
        return;
    };
    let (whole, error) = decode(stream, stream.len().max(1));
    let (pieces, error_in_pieces) = decode(stream, usize::from(*piece) + 1);
    assert_eq!(error, error_in_pieces);
    assert_eq!(whole.len(), pieces.len());
    let mut end = 0;
    for (frame, same) in whole.iter().zip(&pieces) {
        assert_eq!(frame.header.ext, same.header.ext);
        assert_eq!(frame.body, same.body);
        assert_eq!(frame.raw, stream[end..end + frame.raw.len()]);
        end += frame.raw.len();
        let again = Frame::decode_whole(frame.raw.clone()).expect("it was a frame");
        assert_eq!(again.header.ext, frame.header.ext);
    }
});
