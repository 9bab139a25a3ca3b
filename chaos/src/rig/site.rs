//! The place where a group runs: loopback, which needs no rights, or network namespaces, in which the network
//! itself can be hurt.
//!
//! A socket belongs to the namespace of the thread that opens it. So the clients of a group in namespaces run
//! on a runtime whose every thread has entered the clients' namespace ([`Site::block_on`]); no program has to
//! be started again inside.

use std::net::{IpAddr, Ipv4Addr};

use super::RigError;
use super::netns::{Namespace, Network};
use super::ports;

/// Which kind of place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// 127.0.0.1 with free ports.
    Loopback,
    /// A network namespace for each node, with a bridge between them. Needs root.
    Namespaces,
}

/// A place for one group.
pub struct Site {
    network: Option<Network>,
    /// First port of each node.
    ports: Vec<u16>,
}

/// First port of every node that has an address of its own.
const FIRST_PORT: u16 = 10_911;
/// Threads that run clients.
const CLIENT_THREADS: usize = 2;

impl Site {
    /// Makes the place for `nodes` nodes.
    pub fn create(placement: Placement, nodes: usize) -> Result<Site, RigError> {
        match placement {
            Placement::Loopback => Ok(Site {
                network: None,
                ports: (0..nodes)
                    .map(|_| ports::block())
                    .collect::<Result<_, _>>()?,
            }),
            Placement::Namespaces => Ok(Site {
                network: Some(Network::create(nodes)?),
                ports: vec![FIRST_PORT; nodes],
            }),
        }
    }

    pub fn placement(&self) -> Placement {
        match self.network {
            None => Placement::Loopback,
            Some(_) => Placement::Namespaces,
        }
    }

    /// Nodes that it has room for.
    pub fn nodes(&self) -> usize {
        self.ports.len()
    }

    /// Address of a node.
    pub fn address(&self, at: usize) -> IpAddr {
        match self.network {
            None => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Some(_) => IpAddr::V4(Network::address(at)),
        }
    }

    /// The first of eight ports of a node.
    pub fn first_port(&self, at: usize) -> u16 {
        self.ports[at]
    }

    /// The namespaces, when there are some.
    pub fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// Runs `work` on a runtime whose threads are where the clients are, and ends the runtime. Not to be
    /// called from within another runtime.
    pub fn block_on<T: Send>(&self, work: impl AsyncFnOnce() -> T + Send) -> Result<T, RigError> {
        let Some(network) = &self.network else {
            return Ok(runtime(None)?.block_on(work()));
        };
        let clients = &network.clients;
        clients.run(|| Ok(runtime(Some(clients))?.block_on(work())))
    }

    /// Starts `work`, which starts a process, in a node's namespace.
    pub(super) fn at_node<T: Send>(
        &self,
        at: usize,
        work: impl FnOnce() -> Result<T, RigError> + Send,
    ) -> Result<T, RigError> {
        match &self.network {
            None => work(),
            Some(network) => network.nodes[at].run(work),
        }
    }
}

fn runtime(inside: Option<&Namespace>) -> Result<tokio::runtime::Runtime, RigError> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(CLIENT_THREADS)
        .thread_name("clients")
        .enable_all();
    if let Some(namespace) = inside {
        let handle = namespace.handle()?;
        builder.on_thread_start(move || {
            if let Err(error) = handle.enter() {
                // A client outside would measure another network.
                panic!("a client thread cannot enter its namespace: {error}");
            }
        });
    }
    builder
        .build()
        .map_err(RigError::io("the clients' runtime cannot be started"))
}
