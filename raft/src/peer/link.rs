//! The lasting link to one other node: dials, shakes hands, dials again when the connection ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::conn::{Conn, RequestError};
use super::frame::Kind;
use super::handshake::{self, HandshakeError, Hello, Identity};
use super::writer::Ticket;
use crate::env::Net;
use crate::types::NodeId;

/// Bound of one attempt to connect, before the handshake.
const CONNECT_BOUND: Duration = Duration::from_secs(2);
const FIRST_BACKOFF: Duration = Duration::from_millis(20);
const LAST_BACKOFF: Duration = Duration::from_millis(500);
/// A connection that lived this long was a good one: the next is tried at once.
const GOOD_AFTER: Duration = Duration::from_secs(1);
/// Calls without an answer at a time; more wait for their turn.
const CALLS: usize = 1024;
/// How long a call waits for a connection.
const CALL_CONNECT_WAIT: Duration = Duration::from_millis(200);
/// Bytes of requests of such calls.
const CALL_BYTES: usize = 32 << 20;

/// The link from this node to another.
pub(crate) struct Link {
    pub target: NodeId,
    pub address: String,
    conn: watch::Receiver<Option<Arc<Conn>>>,
    calls: Semaphore,
    call_bytes: Semaphore,
    task: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Link {
    /// Starts dialing `target`, whose address is in `us.peers`. Must be called inside the runtime.
    pub(crate) fn start(us: &Identity, target: NodeId, address: String, net: Arc<dyn Net>) -> Link {
        let (conn, receiver) = watch::channel(None);
        let dialer = Dialer {
            hello: Hello {
                group: us.group.clone(),
                from: us.node,
                to: target,
                incarnation: us.incarnation,
            },
            address: address.clone(),
            net,
            conn,
        };
        Link {
            target,
            address,
            conn: receiver,
            calls: Semaphore::new(CALLS),
            call_bytes: Semaphore::new(CALL_BYTES),
            task: tokio::spawn(dialer.run()).abort_handle(),
        }
    }

    /// The connection, if there is one now.
    pub(crate) fn current(&self) -> Option<Arc<Conn>> {
        self.conn
            .borrow()
            .as_ref()
            .filter(|conn| !conn.ended())
            .cloned()
    }

    /// The connection, as soon as there is one.
    pub(crate) async fn connected(&self) -> Option<Arc<Conn>> {
        let mut conn = self.conn.clone();
        let up = conn
            .wait_for(|conn| conn.as_ref().is_some_and(|conn| !conn.ended()))
            .await;
        up.ok()?.clone()
    }

    /// Stops dialing and ends the connection.
    pub(crate) fn stop(&self) {
        self.task.abort();
    }

    /// A small request of Raft's. Fails at once while there is no connection. The caller bounds the wait.
    pub(crate) async fn ask(&self, kind: Kind, head: &[u8]) -> Result<Bytes, RequestError> {
        let conn = self
            .current()
            .ok_or_else(|| RequestError::NotSent(self.down()))?;
        Ok(conn.ask(kind, head).await?.payload)
    }

    /// Text for "there is no connection".
    pub(crate) fn down(&self) -> String {
        format!("no connection to node {} at {}", self.target, self.address)
    }

    /// Calls the other node's service and waits for the answer, at most for `deadline` all in all.
    pub(crate) async fn call(
        &self,
        request: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, RequestError> {
        let ticket = Arc::new(Ticket::default());
        let late = || format!("node {} did not answer within {deadline:?}", self.target);
        let call = async {
            let closed = || RequestError::NotSent("this node is stopping".into());
            let bytes = u32::try_from(request.len().min(CALL_BYTES)).unwrap_or(u32::MAX);
            let _bytes = self
                .call_bytes
                .acquire_many(bytes)
                .await
                .map_err(|_| closed())?;
            let _turn = self.calls.acquire().await.map_err(|_| closed())?;
            // A connection that just broke is replaced within that time; a node that is down is better
            // known at once.
            let conn = tokio::time::timeout(CALL_CONNECT_WAIT, self.connected())
                .await
                .map_err(|_| RequestError::NotSent(self.down()))?
                .ok_or_else(closed)?;
            conn.call(request, &ticket).await
        };
        match tokio::time::timeout(deadline, call).await {
            Ok(answer) => Ok(answer?.payload),
            // Without a connection, or still in our own queue: it never left.
            Err(_) if ticket.withdraw() => Err(RequestError::NotSent(match self.current() {
                Some(_) => late(),
                None => self.down(),
            })),
            Err(_) => Err(RequestError::NoAnswer(late())),
        }
    }
}

/// The task behind a link.
struct Dialer {
    hello: Hello,
    address: String,
    net: Arc<dyn Net>,
    conn: watch::Sender<Option<Arc<Conn>>>,
}

impl Dialer {
    async fn run(self) {
        let mut backoff = Duration::ZERO;
        let mut said = String::new();
        loop {
            tokio::time::sleep(backoff).await;
            let failure = match self.connect().await {
                Ok((conn, work)) => {
                    if !said.is_empty() {
                        tracing::info!(node = self.hello.to, address = %self.address, "peer connected");
                        said.clear();
                    }
                    let since = Instant::now();
                    self.conn.send_replace(Some(conn));
                    let reason = work.await;
                    self.conn.send_replace(None);
                    // A good connection that broke is replaced at once; one that breaks as soon as it
                    // stands is not.
                    if since.elapsed() >= GOOD_AFTER {
                        backoff = Duration::ZERO;
                        said = self.say(said, format!("connection ended: {reason}"));
                        continue;
                    }
                    format!("connection ended: {reason}")
                }
                Err(error) => error.to_string(),
            };
            said = self.say(said, failure);
            backoff = next_backoff(backoff);
        }
    }

    /// The same failure comes with every attempt; it is said once.
    fn say(&self, said: String, failure: String) -> String {
        if failure != said {
            tracing::warn!(
                node = self.hello.to, address = %self.address, reason = %failure,
                "peer not connected"
            );
        }
        failure
    }

    async fn connect(
        &self,
    ) -> Result<(Arc<Conn>, impl Future<Output = String> + Send + use<>), HandshakeError> {
        let connect = self.net.connect(&self.address);
        let stream = tokio::time::timeout(CONNECT_BOUND, connect)
            .await
            .map_err(|_| HandshakeError::Slow)?
            .map_err(super::frame::FrameError::Io)?;
        let (reader, mut writer) = tokio::io::split(stream);
        let mut reader = handshake::reader(reader);
        handshake::greet(&mut reader, &mut writer, &self.hello).await?;
        Ok(Conn::start(reader, writer))
    }
}

/// The first attempt after a good connection is immediate; then 20 ms, doubling up to 500 ms.
fn next_backoff(last: Duration) -> Duration {
    (last * 2).clamp(FIRST_BACKOFF, LAST_BACKOFF)
}
