//! The links themselves: bandwidth, packets that come twice, connections that are reset.

use super::RigError;
use super::netns::Network;
use super::switch::End;
use super::tool::tool;

impl Network {
    /// Limits what goes to and comes from a node. `rate` as `tc` writes it (`1mbit`).
    pub fn limit(&self, at: usize, rate: &str) -> Result<(), RigError> {
        let shape = |device: &str| {
            format!("qdisc replace dev {device} root tbf rate {rate} burst 16kb latency 200ms")
        };
        let (into, out) = (shape(&End::Node(at).port()), shape("eth0"));
        self.switch.run(|| tool("tc", &into).run().map(drop))?;
        self.nodes[at].run(|| tool("tc", &out).run().map(drop))
    }

    /// Ends [`Network::limit`].
    pub fn unlimit(&self, at: usize) -> Result<(), RigError> {
        let port = End::Node(at).port();
        self.switch.run(|| {
            tool("tc", &format!("qdisc del dev {port} root"))
                .run()
                .map(drop)
        })?;
        self.nodes[at].run(|| tool("tc", "qdisc del dev eth0 root").run().map(drop))
    }

    /// Has every packet from one node to another come twice.
    pub fn duplicate(&self, from: usize, to: usize) -> Result<(), RigError> {
        let (port, other) = (End::Node(from).port(), End::Node(to).port());
        let address = Network::address(to);
        self.switch.run(|| {
            // There already when another destination was given before.
            let _there = tool("tc", &format!("qdisc add dev {port} ingress")).run();
            tool(
                "tc",
                &format!("filter add dev {port} parent ffff: protocol ip u32 match ip dst {address}/32 action mirred egress mirror dev {other}"),
            )
            .run()
            .map(drop)
        })
    }

    /// Ends [`Network::duplicate`] for everything that a node sends.
    pub fn unduplicate(&self, from: usize) -> Result<(), RigError> {
        let port = End::Node(from).port();
        self.switch.run(|| {
            tool("tc", &format!("qdisc del dev {port} ingress"))
                .run()
                .map(drop)
        })
    }

    /// Resets every connection of a node from or to `port`, at this end. Returns how many there were.
    pub fn reset_connections(&self, at: usize, port: u16) -> Result<usize, RigError> {
        let said = self.nodes[at].run(|| {
            tool("ss", "-H -n -K state established")
                .arg(format!("( sport = :{port} or dport = :{port} )"))
                .run()
        })?;
        Ok(said.lines().count())
    }

    /// How often the kernels of all nodes send a packet again before they give a connection up: 15 unless set,
    /// which is many minutes.
    pub fn set_tcp_retries(&self, retries: u32) -> Result<(), RigError> {
        for node in &self.nodes {
            node.set("ipv4/tcp_retries2", &retries.to_string())?;
        }
        Ok(())
    }
}
