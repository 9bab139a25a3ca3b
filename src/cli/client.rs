//! A small blocking client of the protocol, for the tools: one connection, one request at a time.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use bytes::BytesMut;

use crate::protocol::codes::response;
use crate::protocol::frame::{Frame, FrameError, encode_request};
use crate::protocol::header::Ext;

/// Why a request of a tool has no usable answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// Nobody is there now; may help later.
    #[error("{address} cannot be reached: {source}")]
    Connect {
        address: String,
        source: std::io::Error,
    },
    /// The connection broke or nothing came in time; the request may have been carried out.
    #[error("{address} gave no answer: {why}")]
    NoAnswer { address: String, why: String },
    /// The server said no.
    #[error("{address} answered code {code}: {remark}")]
    Code {
        address: String,
        code: i32,
        remark: String,
    },
}

impl ClientError {
    /// The server's code, if it answered.
    pub fn code(&self) -> Option<i32> {
        match self {
            ClientError::Code { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// One connection to a broker or a name server.
pub(crate) struct Client {
    address: String,
    stream: TcpStream,
    buffer: BytesMut,
    opaque: i32,
    timeout: Duration,
}

/// Resolves `host:port`; the first address wins, IPv4 before IPv6.
pub(crate) fn resolve(address: &str) -> Result<SocketAddr, ClientError> {
    let fail = |source| ClientError::Connect {
        address: address.to_string(),
        source,
    };
    let mut found: Vec<SocketAddr> = address.to_socket_addrs().map_err(fail)?.collect();
    found.sort_by_key(SocketAddr::is_ipv6);
    found.first().copied().ok_or_else(|| {
        fail(std::io::Error::new(
            ErrorKind::NotFound,
            "no address for this name",
        ))
    })
}

impl Client {
    /// Connects; `timeout` bounds the connecting and every request.
    pub fn connect(address: &str, timeout: Duration) -> Result<Client, ClientError> {
        let target = resolve(address)?;
        let stream = TcpStream::connect_timeout(&target, timeout)
            .and_then(|stream| {
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(timeout))?;
                Ok(stream)
            })
            .map_err(|source| ClientError::Connect {
                address: address.to_string(),
                source,
            })?;
        Ok(Client {
            address: address.to_string(),
            stream,
            buffer: BytesMut::with_capacity(64 * 1024),
            opaque: 0,
            timeout,
        })
    }

    /// Sends a request and waits for its answer, whatever the code.
    pub fn ask(
        &mut self,
        code: i32,
        ext: &[(&'static str, String)],
        body: &[u8],
    ) -> Result<Frame, ClientError> {
        self.opaque = self.opaque.wrapping_add(1);
        let mut fields = Ext::new();
        for (name, value) in ext {
            fields.push(name, value.clone());
        }
        let mut out = BytesMut::new();
        encode_request(code, self.opaque, 0, &fields, body, &mut out);
        self.stream
            .write_all(&out)
            .map_err(|e| self.no_answer(&e))?;
        let deadline = Instant::now() + self.timeout;
        loop {
            let frame = self.next_frame(deadline)?;
            if frame.header.is_response() && frame.header.opaque == self.opaque {
                return Ok(frame);
            }
        }
    }

    /// As [`Client::ask`]; any code but SUCCESS is an error.
    pub fn call(
        &mut self,
        code: i32,
        ext: &[(&'static str, String)],
        body: &[u8],
    ) -> Result<Frame, ClientError> {
        let frame = self.ask(code, ext, body)?;
        if frame.header.code == response::SUCCESS {
            return Ok(frame);
        }
        Err(ClientError::Code {
            address: self.address.clone(),
            code: frame.header.code,
            remark: frame
                .header
                .remark
                .as_ref()
                .map_or_else(String::new, |r| r.as_str().to_string()),
        })
    }

    fn next_frame(&mut self, deadline: Instant) -> Result<Frame, ClientError> {
        let mut chunk = [0u8; 32 * 1024];
        loop {
            match Frame::decode(&mut self.buffer) {
                Ok(Some(frame)) => return Ok(frame),
                Ok(None) => {}
                Err(error) => return Err(self.bad_frame(&error)),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.no_answer(&format!("nothing came in {:?}", self.timeout)));
            }
            let read = self
                .stream
                .set_read_timeout(Some(left.max(Duration::from_millis(1))))
                .and_then(|()| self.stream.read(&mut chunk));
            match read {
                Ok(0) => return Err(self.no_answer(&"the connection was closed")),
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(self.no_answer(&error)),
            }
        }
    }

    fn no_answer(&self, why: &dyn std::fmt::Display) -> ClientError {
        ClientError::NoAnswer {
            address: self.address.clone(),
            why: why.to_string(),
        }
    }

    fn bad_frame(&self, error: &FrameError) -> ClientError {
        self.no_answer(&format!("what came is no frame: {error}"))
    }
}

/// The fields of a pull with a subscription to everything that returns at once.
pub(crate) fn pull_fields(
    group: &str,
    topic: &str,
    queue: i32,
    offset: i64,
    count: usize,
) -> Vec<(&'static str, String)> {
    vec![
        ("consumerGroup", group.to_string()),
        ("topic", topic.to_string()),
        ("queueId", queue.to_string()),
        ("queueOffset", offset.to_string()),
        ("maxMsgNums", count.to_string()),
        // The subscription is in this request; nothing is committed, nothing waits.
        ("sysFlag", "4".to_string()),
        ("commitOffset", "0".to_string()),
        ("suspendTimeoutMillis", "0".to_string()),
        ("subscription", "*".to_string()),
        ("subVersion", "0".to_string()),
        ("expressionType", "TAG".to_string()),
    ]
}

/// The fields of a request that creates a topic.
pub(crate) fn topic_fields(topic: &str, queues: u32) -> Vec<(&'static str, String)> {
    vec![
        ("topic", topic.to_string()),
        ("defaultTopic", "TBW102".to_string()),
        ("readQueueNums", queues.to_string()),
        ("writeQueueNums", queues.to_string()),
        ("perm", "6".to_string()),
        ("topicFilterType", "SINGLE_TAG".to_string()),
        ("topicSysFlag", "0".to_string()),
        ("order", "false".to_string()),
    ]
}
