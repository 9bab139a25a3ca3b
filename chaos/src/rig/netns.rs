//! Network namespaces: one for each node, one for the clients, and one with the bridge between them. Nothing
//! of the host's network is touched. Names carry the process id, so that what a killed run left behind is
//! found and removed by the next one.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::RigError;
use super::leftover::is_of_a_dead_run;
use super::tool::tool;

/// Where `ip netns` keeps its handles.
const HANDLES: &str = "/run/netns";
const PREFIX: &str = "qlog";
/// Which network of this process.
static NETWORKS: AtomicU32 = AtomicU32::new(0);

/// Port of the bridge that leads to the clients.
pub const CLIENT_PORT: &str = "pc";

/// One namespace; removed when dropped.
pub struct Namespace {
    name: String,
    handle: File,
}

impl Namespace {
    fn create(name: String) -> Result<Namespace, RigError> {
        tool("ip", "netns add").arg(&name).run()?;
        let path = Path::new(HANDLES).join(&name);
        let handle = File::open(&path).map_err(RigError::io(path.display().to_string()))?;
        let namespace = Namespace { name, handle };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// One that is connected to nothing, for a trial.
    pub fn scratch() -> Result<Namespace, RigError> {
        Namespace::create(unique("trial"))
    }

    /// As `ip netns` names it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Another handle of the same namespace; it removes nothing.
    pub fn handle(&self) -> Result<Handle, RigError> {
        let file = self.handle.try_clone();
        Ok(Handle {
            name: self.name.clone(),
            file: file.map_err(RigError::io(self.name.clone()))?,
        })
    }

    /// Moves the calling thread into the namespace, for good. Sockets that it opens and processes that it
    /// starts from then on are inside.
    pub fn enter(&self) -> Result<(), RigError> {
        enter(&self.handle, &self.name)
    }

    /// Runs `work` on a thread of its own inside the namespace.
    pub fn run<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, RigError> + Send,
    ) -> Result<T, RigError> {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.enter()?;
                work()
            });
            match inside.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// `ip` with these words, inside.
    pub fn ip(&self, words: &str) -> Result<String, RigError> {
        tool("ip", "-n").arg(&self.name).words(words).run()
    }

    /// Sets a variable below `/proc/sys/net`, which is the namespace's own.
    pub fn set(&self, variable: &str, value: &str) -> Result<(), RigError> {
        let path = format!("/proc/sys/net/{variable}");
        self.run(|| std::fs::write(&path, value).map_err(RigError::io(path.clone())))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Its processes are gone by now; one that is not keeps only itself alive.
        let _removed = tool("ip", "netns del").arg(&self.name).run();
    }
}

/// A way into a namespace, for threads that live on their own.
pub struct Handle {
    name: String,
    file: File,
}

impl Handle {
    /// As [`Namespace::enter`].
    pub fn enter(&self) -> Result<(), RigError> {
        enter(&self.file, &self.name)
    }
}

fn enter(namespace: &File, name: &str) -> Result<(), RigError> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|error| RigError::io(format!("entering {name}"))(error.into()))
}

/// All namespaces of one group. Node `at` has the address [`Network::address`] and sits behind port `p{at}`
/// of the bridge `br` in `switch`.
pub struct Network {
    pub nodes: Vec<Namespace>,
    pub clients: Namespace,
    pub switch: Namespace,
}

impl Network {
    pub fn create(nodes: usize) -> Result<Network, RigError> {
        let prefix = unique("");
        let name = |what: &str| format!("{prefix}{what}");
        let switch = Namespace::create(name("sw"))?;
        switch.ip("link add name br type bridge stp_state 0 forward_delay 0")?;
        switch.ip("link set dev br up")?;
        let clients = Namespace::create(name("clients"))?;
        attach(&switch, &clients, CLIENT_PORT, Network::CLIENTS)?;
        let mut network = Network {
            nodes: Vec::new(),
            clients,
            switch,
        };
        for at in 0..nodes {
            let node = Namespace::create(name(&format!("n{at}")))?;
            attach(
                &network.switch,
                &node,
                &format!("p{at}"),
                Network::address(at),
            )?;
            network.nodes.push(node);
        }
        Ok(network)
    }

    /// Address of the clients.
    pub const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 200);

    /// Address of a node. Every network has the same ones: they end at its own bridge.
    pub fn address(at: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, 0, u8::try_from(at + 1).unwrap_or(u8::MAX))
    }
}

fn unique(what: &str) -> String {
    let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
    format!("{PREFIX}{}-{number}-{what}", std::process::id())
}

/// A cable from the namespace's `eth0` to a port of the bridge.
fn attach(
    switch: &Namespace,
    node: &Namespace,
    port: &str,
    address: Ipv4Addr,
) -> Result<(), RigError> {
    switch.ip(&format!(
        "link add name {port} type veth peer name eth0 netns {}",
        node.name
    ))?;
    switch.ip(&format!("link set dev {port} master br up"))?;
    node.ip(&format!("addr add {address}/24 dev eth0"))?;
    node.ip("link set eth0 up")?;
    Ok(())
}

/// Removes the namespaces of runs that are no longer alive; returns their names. Their nodes were ended before.
pub(super) fn remove_leftovers() -> Result<Vec<String>, RigError> {
    let mut removed = Vec::new();
    for name in namespaces()? {
        if !is_of_a_dead_run(&name, PREFIX) {
            continue;
        }
        tool("ip", "netns del").arg(&name).run()?;
        removed.push(name);
    }
    Ok(removed)
}

fn namespaces() -> Result<Vec<String>, RigError> {
    let entries = match std::fs::read_dir(HANDLES) {
        Ok(entries) => entries,
        // Nobody ever made a namespace here.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(RigError::io(HANDLES)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(RigError::io(HANDLES))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}
