//! Events of a node for the gateway's log.

use crate::bridge::StationPort;
use crate::port::Port;
use crate::state::{link_name, node_text};
use gatewright_mesh::{MeshEvent, Reason};
use gatewright_part::{LogEvent, LogLevel};

/// The part that reports.
pub(crate) const PART: &str = "mesh";

/// An event of the machine as operators read it; `None` for one that this version does not know.
pub(crate) fn event(event: &MeshEvent, ports: &[Port]) -> Option<LogEvent> {
    Some(match *event {
        MeshEvent::NeighbourUp(adjacency) => {
            let (node, link) = (node_text(adjacency.node), link_name(ports, adjacency));
            about(LogLevel::Info, "neighbour-up", format!("{node} is heard on {link}"))
                .with("node", node)
                .with("link", link)
        }
        MeshEvent::NeighbourDown(adjacency, reason) => {
            let (node, link) = (node_text(adjacency.node), link_name(ports, adjacency));
            let text = format!("{node} is lost on {link}: {reason}");
            about(LogLevel::Warning, "neighbour-down", text)
                .with("node", node)
                .with("link", link)
                .with("cause", reason)
        }
        MeshEvent::PathFound { destination, path, hops } => {
            let node = node_text(destination);
            let text = format!("a path of {hops} links to {node} is there: {path}");
            about(LogLevel::Info, "path-found", text)
                .with("node", node)
                .with("path", path)
                .with("hops", hops)
        }
        MeshEvent::PathLost { destination, path, reason } => {
            let node = node_text(destination);
            let level = if reason == Reason::UNUSED { LogLevel::Info } else { LogLevel::Warning };
            about(level, "path-lost", format!("path {path} to {node} is lost: {reason}"))
                .with("node", node)
                .with("path", path)
                .with("cause", reason)
        }
        MeshEvent::LinkBypassed { adjacency, paths } => {
            let (node, link) = (node_text(adjacency.node), link_name(ports, adjacency));
            let text = format!("paths over {link} to {node} go around that link: {paths}");
            about(LogLevel::Info, "link-bypassed", text)
                .with("node", node)
                .with("link", link)
                .with("paths", paths)
        }
        MeshEvent::PathBypassed { destination, path, relay } => {
            let (node, relay) = (node_text(destination), node_text(relay));
            let text = format!("path {path} to {node} goes around a link that {relay} has lost");
            about(LogLevel::Warning, "path-bypassed", text)
                .with("node", node)
                .with("path", path)
                .with("relay", relay)
        }
        MeshEvent::Switched { destination, class, path } => {
            let (node, class) = (node_text(destination), class.number());
            let text = format!("packets of class {class} to {node} take another path: {path}");
            about(LogLevel::Info, "path-switched", text)
                .with("node", node)
                .with("class", class)
                .with("path", path)
        }
        MeshEvent::Unreachable { destination, dropped } => {
            let node = node_text(destination);
            let text = format!("{node} is not found; packets that waited for it: {dropped}");
            about(LogLevel::Warning, "unreachable", text)
                .with("node", node)
                .with("dropped", dropped)
        }
        _ => return None,
    })
}

/// A link can carry frames, or not any more.
pub(crate) fn link(port: &Port) -> LogEvent {
    let (name, word) = (&port.name, port.word());
    let (level, kind) = match word {
        "up" => (LogLevel::Info, "mesh-link-up"),
        _ => (LogLevel::Warning, "mesh-link-down"),
    };
    about(level, kind, format!("link {name} is {word}")).with("link", name).with("state", word)
}

/// A bridge port forwards or stands by, or can carry frames no more, or again (`is_new`).
pub(crate) fn port(port: &StationPort, is_new: bool) -> LogEvent {
    let (name, word) = (&port.name, port.word());
    let (level, kind) = match word {
        "forwards" => (LogLevel::Info, "mesh-port-forwards"),
        "stands by" => (LogLevel::Info, "mesh-port-standby"),
        _ => (LogLevel::Warning, "mesh-port-down"),
    };
    about(level, kind, port_text(name, word, is_new)).with("port", name).with("state", word)
}

/// A new port listens before it forwards; one that stands by later has heard another one that does.
fn port_text(name: &str, word: &str, is_new: bool) -> String {
    match word {
        "forwards" => format!("port {name} forwards: its stations are in the mesh by this node"),
        "stands by" if is_new => {
            format!(
                "port {name} is up: it listens, and forwards if no other port of its segment does"
            )
        }
        "stands by" => format!("port {name} stands by: another port of its segment forwards"),
        _ => format!("port {name} is {word}"),
    }
}

pub(crate) fn about(level: LogLevel, kind: &'static str, text: String) -> LogEvent {
    LogEvent::new(level, PART, kind, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where no other port is, none is said to forward.
    #[test]
    fn a_new_port_listens_and_one_that_gives_way_stands_by() {
        assert!(!port_text("lan0", "stands by", true).contains("another port"));
        let gives_way = "port lan0 stands by: another port of its segment forwards";
        assert_eq!(port_text("lan0", "stands by", false), gives_way);
    }
}
