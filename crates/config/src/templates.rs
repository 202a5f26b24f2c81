//! Template descriptions for `gatewright init`.

/// A commented description that works once its addresses and devices are adapted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Template {
    /// Its name for `gatewright init`.
    pub name: &'static str,
    /// The purpose of the gateway.
    pub purpose: &'static str,
    /// The text.
    pub text: &'static str,
}

/// All templates.
pub const TEMPLATES: &[Template] = &[
    Template {
        name: "gateway",
        purpose: "a router between two networks, IPv4 and IPv6",
        text: include_str!("templates/gateway.toml"),
    },
    Template {
        name: "count",
        purpose: "a router that counts and captures what passes",
        text: include_str!("templates/count.toml"),
    },
    Template {
        name: "filter",
        purpose: "a router that drops and limits what passes",
        text: include_str!("templates/filter.toml"),
    },
    Template {
        name: "shared",
        purpose: "a router beside the kernel, which keeps addresses, routes and neighbours",
        text: include_str!("templates/shared.toml"),
    },
    Template {
        name: "health",
        purpose: "personal health devices in, oneM2M out; needs no privileges",
        text: include_str!("templates/health.toml"),
    },
    Template {
        name: "udp-proxy",
        purpose: "a relay of UDP datagrams that merges small ones on the way",
        text: include_str!("templates/udp-proxy.toml"),
    },
    Template {
        name: "mesh",
        purpose: "a node of a self-healing network: all nodes are one Ethernet",
        text: include_str!("templates/mesh.toml"),
    },
    Template {
        name: "tcp-proxy",
        purpose: "a relay of TCP connections over the kernel's sockets; needs no privileges",
        text: include_str!("templates/tcp-proxy.toml"),
    },
];
