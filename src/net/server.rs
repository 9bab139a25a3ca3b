//! Listeners: accept loops and the task of each connection.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::broker::Broker;

/// Which door a listener is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// `listenPort`.
    Broker,
    /// `writeFrontPort`.
    WriteFront,
    /// `namesrvListenPort`.
    NameServer,
}

/// Accepts connections until the process ends. Returns only when the listener is beyond repair.
#[allow(clippy::todo, unused_variables)]
pub async fn serve(listener: TcpListener, door: Door, broker: Arc<Broker>) {
    todo!()
}

/// Binds a door's port, with an error that names the key to change.
#[allow(clippy::todo, unused_variables)]
pub async fn bind(address: SocketAddr, key: &str) -> Result<TcpListener, String> {
    todo!()
}
