//! One connection with many requests in flight: a reader task hands replies to whoever waits for their
//! opaque, a writer task keeps frames whole when a waiting caller gives up. Knows no request code.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::frame::{FLAG_ONE_WAY, Frame, HeaderKind, split};

/// Frames that may wait for the socket, and server requests that may wait for the caller.
const QUEUED_FRAMES_MAX: usize = 1024;

/// Why a request has no successful answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Nothing was sent.
    #[error("cannot connect to {to}: {why}")]
    Connect { to: SocketAddr, why: String },
    /// The request may have been carried out.
    #[error("connection closed: {0}")]
    Closed(String),
    /// The request may have been carried out, or may still be.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The server answered with another code than success.
    #[error("code {code}: {remark}")]
    Code { code: i32, remark: String },
    /// The answer breaks the protocol.
    #[error("answer breaks the protocol: {0}")]
    Malformed(String),
}

/// An open connection to one server. Closes when dropped.
pub struct Connection {
    to: SocketAddr,
    local: SocketAddr,
    shared: Arc<Shared>,
    outgoing: mpsc::Sender<Bytes>,
    incoming: tokio::sync::Mutex<mpsc::Receiver<Frame>>,
    closed: watch::Receiver<Option<String>>,
    tasks: [JoinHandle<()>; 2],
    timeout: Duration,
    kind: HeaderKind,
}

#[derive(Default)]
struct Shared {
    next_opaque: AtomicI32,
    /// `None` once the connection is closed: nobody may begin to wait then. In the order of the requests, so
    /// that those who wait are told in it, too.
    waiting: Mutex<Waiting>,
}

struct Waiting(Option<BTreeMap<i32, oneshot::Sender<Frame>>>);

impl Default for Waiting {
    fn default() -> Self {
        Waiting(Some(BTreeMap::new()))
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Connects within `timeout`, which is also what each request waits for its answer.
    pub async fn open(to: SocketAddr, timeout: Duration) -> Result<Connection, WireError> {
        let failed = |why: String| WireError::Connect { to, why };
        let stream = tokio::time::timeout(timeout, TcpStream::connect(to))
            .await
            .map_err(|_| failed(format!("no answer within {timeout:?}")))?
            .map_err(|error| failed(error.to_string()))?;
        stream
            .set_nodelay(true)
            .map_err(|error| failed(error.to_string()))?;
        let local = stream
            .local_addr()
            .map_err(|error| failed(error.to_string()))?;
        let (read, write) = stream.into_split();
        Ok(Connection::over(read, write, (local, to), timeout))
    }

    /// A connection over halves that are open already, between the addresses `(local, to)`. Each request
    /// waits for its answer for `timeout`.
    pub fn over(
        read: impl AsyncRead + Send + Unpin + 'static,
        write: impl AsyncWrite + Send + Unpin + 'static,
        (local, to): (SocketAddr, SocketAddr),
        timeout: Duration,
    ) -> Connection {
        let shared = Arc::new(Shared::default());
        let (outgoing, frames) = mpsc::channel(QUEUED_FRAMES_MAX);
        let (pushed, incoming) = mpsc::channel(QUEUED_FRAMES_MAX);
        let (closing, closed) = watch::channel(None);
        let tasks = [
            tokio::spawn(read_all(read, Arc::clone(&shared), pushed, closing)),
            tokio::spawn(write_all(write, frames)),
        ];
        Connection {
            to,
            local,
            shared,
            outgoing,
            incoming: tokio::sync::Mutex::new(incoming),
            closed,
            tasks,
            timeout,
            kind: HeaderKind::Json,
        }
    }

    /// Writes headers in `kind` from now on.
    pub fn with_headers(mut self, kind: HeaderKind) -> Connection {
        self.kind = kind;
        self
    }

    /// Waits this long for each answer from now on.
    pub fn with_timeout(mut self, timeout: Duration) -> Connection {
        self.timeout = timeout;
        self
    }

    pub fn peer(&self) -> SocketAddr {
        self.to
    }

    pub fn local(&self) -> SocketAddr {
        self.local
    }

    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Why the connection ended, once it has.
    pub fn closed(&self) -> Option<String> {
        self.closed.borrow().clone()
    }

    /// Waits until the server closes the connection; false when it has not within `timeout`.
    pub async fn wait_closed(&self, timeout: Duration) -> bool {
        let mut closed = self.closed.clone();
        // An error means that the reader is gone, which is closed, too.
        tokio::time::timeout(timeout, closed.wait_for(Option::is_some))
            .await
            .is_ok()
    }

    /// Sends a request and waits for its answer, whatever its code.
    pub async fn request(&self, frame: Frame) -> Result<Frame, WireError> {
        self.request_within(frame, self.timeout).await
    }

    /// As [`Connection::request`], with its own time limit.
    pub async fn request_within(
        &self,
        mut frame: Frame,
        timeout: Duration,
    ) -> Result<Frame, WireError> {
        let opaque = self.shared.next_opaque.fetch_add(1, Ordering::Relaxed);
        frame.opaque = opaque;
        let (answer, answered) = oneshot::channel();
        match &mut self.shared.waiting().0 {
            Some(waiting) => waiting.insert(opaque, answer),
            None => return Err(self.closed_error()),
        };
        let exchange = async {
            self.send_bytes(frame.encode(self.kind)).await?;
            answered.await.map_err(|_| self.closed_error())
        };
        let result = tokio::time::timeout(timeout, exchange).await;
        if let Some(waiting) = &mut self.shared.waiting().0 {
            waiting.remove(&opaque);
        }
        result.unwrap_or(Err(WireError::Timeout(timeout)))
    }

    /// As [`Connection::request`]; any code but 0 is an error.
    pub async fn call(&self, frame: Frame) -> Result<Frame, WireError> {
        success(self.request(frame).await?)
    }

    /// Sends a request that has no answer.
    pub async fn one_way(&self, mut frame: Frame) -> Result<(), WireError> {
        frame.flag |= FLAG_ONE_WAY;
        frame.opaque = self.shared.next_opaque.fetch_add(1, Ordering::Relaxed);
        self.send_bytes(frame.encode(self.kind)).await
    }

    /// Sends bytes as they are, frame or not.
    pub async fn send_bytes(&self, bytes: Bytes) -> Result<(), WireError> {
        self.outgoing
            .send(bytes)
            .await
            .map_err(|_| self.closed_error())
    }

    /// The next request that the server sent on its own, or `None` within `timeout`.
    pub async fn server_request(&self, timeout: Duration) -> Option<Frame> {
        let mut incoming = self.incoming.lock().await;
        tokio::time::timeout(timeout, incoming.recv())
            .await
            .ok()
            .flatten()
    }

    fn closed_error(&self) -> WireError {
        WireError::Closed(self.closed().unwrap_or_else(|| "by this side".to_owned()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// An answer with code 0, or its code as an error.
pub(super) fn success(frame: Frame) -> Result<Frame, WireError> {
    if frame.code == super::code::SUCCESS {
        return Ok(frame);
    }
    Err(WireError::Code {
        code: frame.code,
        remark: frame.remark.unwrap_or_default(),
    })
}

async fn read_all(
    mut from: impl AsyncRead + Unpin,
    shared: Arc<Shared>,
    pushed: mpsc::Sender<Frame>,
    closing: watch::Sender<Option<String>>,
) {
    let mut input = BytesMut::with_capacity(16 * 1024);
    let why = loop {
        match split(&mut input) {
            Ok(Some(frame)) if frame.is_response() => {
                let waiter = shared
                    .waiting()
                    .0
                    .as_mut()
                    .and_then(|waiting| waiting.remove(&frame.opaque));
                if let Some(waiter) = waiter {
                    // The caller may have given up in this moment.
                    let _gone = waiter.send(frame);
                }
                continue;
            }
            Ok(Some(frame)) => {
                // A caller that does not listen must not stop the replies behind this.
                let _full = pushed.try_send(frame);
                continue;
            }
            Ok(None) => {}
            Err(error) => break format!("server sent {error}"),
        }
        match from.read_buf(&mut input).await {
            Ok(0) => break "by the server".to_owned(),
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    closing.send_replace(Some(why));
    // Dropping the senders tells those who wait.
    shared.waiting().0 = None;
}

async fn write_all(mut to: impl AsyncWrite + Unpin, mut frames: mpsc::Receiver<Bytes>) {
    while let Some(frame) = frames.recv().await {
        if to.write_all(&frame).await.is_err() {
            return;
        }
    }
}
