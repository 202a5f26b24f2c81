use crate::{Namespace, TestbedError, Veth};

/// Hosts in a line, each forwarding IP and each with the two ends of a mesh interface.
///
/// Host `i` reaches host `i + 1` by its interface `right`, whose other end is that host's `left`.
/// By IP forwarding, the first host is 10.97.0.1 and the last one 10.97.N.2 on cable N, counted from
/// 0. `mesh0` of host `i` is 10.99.0.I and fd99::I with I = `i + 1`, and knows the link-layer
/// addresses of all others; what it sends arrives at its other end `mesh0p`, where nobody receives.
#[derive(Clone, Debug)]
pub struct NodeLine {
    /// The hosts.
    pub nodes: Vec<Namespace>,
    /// The cables between them: `a` is the left host's `right`.
    pub cables: Vec<Veth>,
    /// The mesh interface of each host: `a` is `mesh0`, `b` is `mesh0p`.
    pub mesh: Vec<Veth>,
}

impl NodeLine {
    /// Makes `count` hosts, 2 to 200.
    ///
    /// # Errors
    ///
    /// [`TestbedError`] if the system refuses.
    pub fn new(count: u8) -> Result<Self, TestbedError> {
        let nodes: Vec<_> = (0..count).map(|_| Namespace::new()).collect::<Result<_, _>>()?;
        let mesh = nodes.iter().map(|node| Veth::with_queues(node, "mesh0", node, "mesh0p", 1));
        let mesh: Vec<_> = mesh.collect::<Result<_, _>>()?;
        let cables = nodes.iter().zip(nodes.iter().skip(1));
        let cables = cables.map(|(left, right)| Veth::with_queues(left, "right", right, "left", 1));
        let cables: Vec<_> = cables.collect::<Result<_, _>>()?;
        let line = Self { nodes, cables, mesh };
        line.forward()?;
        line.join()?;
        Ok(line)
    }

    /// IP forwarding from end to end.
    fn forward(&self) -> Result<(), TestbedError> {
        for node in &self.nodes {
            node.ip(&["link", "set", "lo", "up"])?;
            node.sysctl("net.ipv4.ip_forward", "1")?;
            for of in ["all", "default", "left", "right", "mesh0"] {
                // An interface that a host at an end does not have is nobody's.
                let set = node.sysctl(&format!("net.ipv4.conf.{of}.rp_filter"), "0");
                if matches!(of, "all" | "default") {
                    set?;
                }
            }
        }
        for (number, cable) in self.cables.iter().enumerate() {
            cable.a.disable_ipv6()?;
            cable.b.disable_ipv6()?;
            cable.a.add_address(&format!("10.97.{number}.1/24"))?;
            cable.b.add_address(&format!("10.97.{number}.2/24"))?;
            cable.up()?;
        }
        for (host, node) in self.nodes.iter().enumerate() {
            for number in 0..self.cables.len() {
                let net = format!("10.97.{number}.0/24");
                if number > host {
                    node.add_route(&net, &format!("10.97.{host}.2"))?;
                } else if number + 1 < host {
                    node.add_route(&net, &format!("10.97.{}.1", host - 1))?;
                }
            }
        }
        Ok(())
    }

    /// The mesh interfaces, each of which knows all others.
    fn join(&self) -> Result<(), TestbedError> {
        let macs = self.mesh.iter().map(|pair| pair.a.mac()).collect::<Result<Vec<_>, _>>()?;
        for (number, pair) in (1..).zip(&self.mesh) {
            pair.b.disable_ipv6()?;
            let node = pair.a.namespace();
            node.ip(&["link", "set", "mesh0p", "arp", "off"])?;
            node.ip(&["address", "add", &format!("10.99.0.{number}/24"), "dev", "mesh0"])?;
            node.ip(&["address", "add", &format!("fd99::{number}/64"), "dev", "mesh0", "nodad"])?;
            pair.up()?;
            for (other, mac) in (1..).zip(&macs).filter(|(other, _)| *other != number) {
                for address in [format!("10.99.0.{other}"), format!("fd99::{other}")] {
                    let known = ["neigh", "replace", &address, "lladdr", mac, "dev", "mesh0"];
                    node.ip(&[&known[..], &["nud", "permanent"]].concat())?;
                }
            }
        }
        Ok(())
    }
}
