use super::*;

const GROUP: u32 = 7;

fn record(payload: &'static [u8]) -> Record {
    Record {
        kind: Kind::Normal,
        id: EntryId { term: 3, index: 9 },
        prev_term: 2,
        position: 4711,
        payload: Bytes::from_static(payload),
    }
}

fn encode(record: &Record) -> Vec<u8> {
    let mut bytes = encode_frame(record, GROUP).to_vec();
    bytes.extend_from_slice(&record.payload);
    bytes
}

/// Decodes as a scan does.
fn scan(bytes: Vec<u8>) -> Result<Record, FrameError> {
    let bytes = Bytes::from(bytes);
    let head = decode_head(&bytes, bytes.len() as u64)?;
    let whole = bytes.slice(..usize::try_from(head.framed()).expect("fits"));
    decode(&whole, GROUP)
}

#[test]
fn an_entry_is_decoded_as_it_was_encoded() {
    for kind in [Kind::Normal, Kind::Blank, Kind::Membership] {
        let record = Record {
            kind,
            ..record(b"payload")
        };
        assert_eq!(scan(encode(&record)), Ok(record));
    }
    let empty = record(b"");
    assert_eq!(scan(encode(&empty)), Ok(empty));
}

#[test]
fn any_flipped_bit_is_detected() {
    let bytes = encode(&record(b"payload"));
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(scan(flipped).is_err(), "bit {bit}");
    }
}

#[test]
fn a_frame_cut_at_any_byte_is_not_an_entry() {
    let bytes = encode(&record(b"payload"));
    for len in 0..bytes.len() {
        assert!(scan(bytes[..len].to_vec()).is_err(), "{len} bytes");
    }
}

#[test]
fn zeros_are_told_from_damage() {
    assert_eq!(scan(vec![0; 100]).err(), Some(FrameError::Zero));
    assert_eq!(scan(vec![0; 3]).err(), Some(FrameError::Zero));
    assert_eq!(scan(vec![1; 100]).err(), Some(FrameError::Magic));
}

#[test]
fn a_length_that_cannot_be_is_refused_before_it_is_used() {
    let mut bytes = encode(&record(b"payload"));
    bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(scan(bytes).err(), Some(FrameError::Length(u32::MAX)));
}

#[test]
fn an_entry_of_another_group_or_place_is_refused() {
    let written = record(b"payload");
    let bytes = Bytes::from(encode(&written));
    assert_eq!(decode(&bytes, GROUP + 1), Err(FrameError::Group));
    let here = Expected {
        position: 4711,
        index: Some(9),
        prev_term: Some(2),
    };
    assert_eq!(here.check(&written), Ok(()));
    let elsewhere = [
        Expected {
            position: 4712,
            ..here
        },
        Expected {
            index: Some(8),
            ..here
        },
        Expected {
            prev_term: Some(1),
            ..here
        },
    ];
    for expected in elsewhere {
        assert!(expected.check(&written).is_err(), "{expected:?}");
    }
}

#[test]
fn members_are_decoded_as_they_were_encoded() {
    let peer = |address: &str| Peer {
        address: address.to_string(),
    };
    let members = Members {
        voters: vec![vec![1, 2], vec![2, 3]],
        nodes: BTreeMap::from([(1, peer("a:1")), (2, peer("b:2")), (3, peer("c:3"))]),
    };
    let bytes = encode_members(&members);
    assert_eq!(decode_members(&bytes), Some(members));
    for len in 0..bytes.len() {
        assert_eq!(decode_members(&bytes[..len]), None, "{len} bytes");
    }
    // A length of 2^64-1 must not be believed.
    assert_eq!(
        decode_members(&[1, 253, 255, 255, 255, 255, 255, 255, 255, 255]),
        None
    );
}
