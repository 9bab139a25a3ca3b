//! Batch bodies: several messages under one send request (remoting-protocol 2.4).

use super::PROPERTIES_BYTES_MAX;
use super::record::{RecordError, length, split};

/// One message of a batch body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchItem<'a> {
    pub flag: i32,
    pub body: &'a [u8],
    pub properties: &'a [u8],
}

/// Bytes of an item in front of its body: total size, magic, body CRC, flag, body length.
const ITEM_HEAD_BYTES: usize = 20;

/// Splits the body of a batch send. At least one message: an empty body is an error.
///
/// Total size, magic and CRC of an item are not looked at, as RocketMQ does not: clients write zeros
/// there, and the two inner lengths say all.
pub fn split_batch(body: &[u8]) -> Result<Vec<BatchItem<'_>>, RecordError> {
    let mut items = Vec::new();
    let mut rest = body;
    loop {
        let short = |rest: &[u8]| RecordError::Short(body.len() - rest.len());
        let (head, tail) = split(rest, ITEM_HEAD_BYTES).ok_or(short(rest))?;
        let flag = i32::from_be_bytes([head[12], head[13], head[14], head[15]]);
        let body_len = length([head[16], head[17], head[18], head[19]], "body length")?;
        let (item_body, tail) = split(tail, body_len).ok_or(short(tail))?;
        let (len, tail) = split(tail, 2).ok_or(short(tail))?;
        let properties_len = usize::from(u16::from_be_bytes([len[0], len[1]]));
        if properties_len > PROPERTIES_BYTES_MAX {
            return Err(RecordError::Field("properties length"));
        }
        let (properties, tail) = split(tail, properties_len).ok_or(short(tail))?;
        items.push(BatchItem {
            flag,
            body: item_body,
            properties,
        });
        if tail.is_empty() {
            return Ok(items);
        }
        rest = tail;
    }
}

/// Appends one message to a batch body, as clients do.
///
/// # Panics
/// When the properties are longer than [`PROPERTIES_BYTES_MAX`] or the body than 2 GiB.
pub fn push_batch_item(out: &mut Vec<u8>, item: BatchItem<'_>) {
    assert!(
        item.properties.len() <= PROPERTIES_BYTES_MAX,
        "properties too long"
    );
    let body_len = i32::try_from(item.body.len()).expect("body below 2 GiB");
    let total = ITEM_HEAD_BYTES + item.body.len() + 2 + item.properties.len();
    out.extend_from_slice(&(total as u32).to_be_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&item.flag.to_be_bytes());
    out.extend_from_slice(&body_len.to_be_bytes());
    out.extend_from_slice(item.body);
    out.extend_from_slice(&(item.properties.len() as u16).to_be_bytes());
    out.extend_from_slice(item.properties);
}
