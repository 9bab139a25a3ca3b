//! The accepting side: who may connect, and how many at a time.
//!
//! What an accepted connection asks for is handled by `session`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};

use super::handshake::{self, Hello, Identity};
use super::inbound::Inbound;
use super::session;
use crate::env::{PeerListener, PeerStream};
use crate::types::NodeId;

/// Connections whose handshake is not over. One more ends the oldest: a node of ours needs milliseconds.
const IN_HANDSHAKE: usize = 64;
/// Connections of one node. It uses one; others are leftovers that have not been noticed to be dead.
const PER_NODE: usize = 4;
/// Pause after a failed accept (out of file descriptors, for one), which would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepted connections by node, oldest first.
#[derive(Default)]
struct Accepted {
    next: u64,
    by_node: BTreeMap<NodeId, VecDeque<Open>>,
}

struct Open {
    number: u64,
    incarnation: u64,
    task: AbortHandle,
}

/// Shared by all connections of a listener.
pub(crate) struct Door {
    us: Identity,
    inbound: Arc<dyn Inbound>,
    accepted: Mutex<Accepted>,
    /// Texts of refusals already logged, by reason: a refused node asks again and again.
    said: Mutex<VecDeque<String>>,
}

/// Accepts connections until the future is dropped; that ends all of them.
pub(crate) async fn serve(
    listener: Box<dyn PeerListener>,
    us: Identity,
    inbound: Arc<dyn Inbound>,
) {
    let door = Arc::new(Door {
        us,
        inbound,
        accepted: Mutex::new(Accepted::default()),
        said: Mutex::new(VecDeque::new()),
    });
    let mut tasks = JoinSet::new();
    let mut handshakes: VecDeque<(AbortHandle, Arc<()>)> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) => {
                door.say_once(format!("cannot accept a peer connection: {error}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        while tasks.try_join_next().is_some() {}
        // The token is given back when the handshake is over.
        handshakes.retain(|(_, token)| Arc::strong_count(token) > 1);
        while handshakes.len() >= IN_HANDSHAKE {
            if let Some((oldest, _)) = handshakes.pop_front() {
                oldest.abort();
            }
        }
        let token = Arc::new(());
        let task = tasks.spawn(connection(door.clone(), stream, token.clone()));
        handshakes.push_back((task, token));
    }
}

async fn connection(door: Arc<Door>, stream: Box<dyn PeerStream>, token: Arc<()>) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = handshake::reader(reader);
    let hello = match handshake::welcome(&mut reader, &mut writer, &door.us).await {
        Ok(hello) => hello,
        Err(error) if error.is_malformed() => {
            tracing::warn!(reason = %error, "peer port: not a node of a group");
            return;
        }
        Err(error) => {
            door.say_once(format!("peer connection not accepted: {error}"));
            return;
        }
    };
    drop(token);
    let from = hello.from;
    let session = session::run(reader, writer, from, door.inbound.clone());
    // A task of its own, so that it can be ended from outside; it also ends with this one.
    let mut task = JoinSet::new();
    let handle = task.spawn(session);
    let number = door.admit(&hello, handle);
    let reason = match task.join_next().await {
        Some(Ok(reason)) => reason,
        _ => "replaced by a newer connection".into(),
    };
    let last = door.leave(from, number);
    tracing::debug!(node = from, %reason, last, "peer connection ended");
    if last {
        door.inbound.lost(from);
    }
}

impl Door {
    /// Registers a connection and ends those it replaces: all of an older run of the node, and the oldest
    /// beyond the bound.
    fn admit(&self, hello: &Hello, task: AbortHandle) -> u64 {
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        accepted.next += 1;
        let number = accepted.next;
        let open = accepted.by_node.entry(hello.from).or_default();
        while open
            .front()
            .is_some_and(|oldest| open.len() >= PER_NODE || oldest.incarnation != hello.incarnation)
        {
            if let Some(oldest) = open.pop_front() {
                oldest.task.abort();
            }
        }
        open.push_back(Open {
            number,
            incarnation: hello.incarnation,
            task,
        });
        number
    }

    /// Forgets a connection. True when it was registered and the node has no other.
    fn leave(&self, from: NodeId, number: u64) -> bool {
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = accepted.by_node.get_mut(&from) else {
            return false;
        };
        let before = open.len();
        open.retain(|open| open.number != number);
        before > 0 && open.is_empty()
    }

    /// Logs a text unless it is among the last ones logged.
    fn say_once(&self, text: String) {
        const REMEMBERED: usize = 16;
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.contains(&text) {
            return;
        }
        tracing::warn!("{text}");
        if said.len() >= REMEMBERED {
            said.pop_front();
        }
        said.push_back(text);
    }
}
