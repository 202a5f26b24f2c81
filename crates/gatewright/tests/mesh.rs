//! Gateways of the binary that are nodes of a mesh in a line of namespaces: daemons that are not ours
//! use it as one network, a relay is killed, and the verbs show it.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod running;
mod trials;

use gatewright_testbed::{Namespace, Needs, Veth, wait_until};
use running::{Daemon, WITHIN, ping};
use std::process::Stdio;

fn main() {
    let needs =
        Needs::new().namespaces().program("ping").program("dnsmasq").program("udhcpc").linux(6, 6);
    let tests: [(&str, fn()); 4] = [
        ("a_lease_crosses_four_hops", a_lease_crosses_four_hops),
        ("a_killed_relay_is_replaced", a_killed_relay_is_replaced),
        ("the_verbs_show_the_mesh", the_verbs_show_the_mesh),
        ("a_reload_keeps_the_addresses", a_reload_keeps_the_addresses),
    ];
    trials::run(&needs, tests)
}

/// Nodes in a line.
struct Line {
    daemons: Vec<Daemon>,
    nodes: Vec<Namespace>,
    _cables: Vec<Veth>,
}

fn description(number: usize, count: usize) -> String {
    let left = (number > 0).then_some("\"left\"");
    let right = (number + 1 < count).then_some("\"right\"");
    let links: Vec<_> = left.into_iter().chain(right).collect();
    format!("[mesh]\nlinks = [{}]\n", links.join(", "))
}

impl Line {
    fn new(name: &str, count: usize) -> Self {
        let nodes: Vec<_> = (0..count).map(|_| Namespace::new().unwrap()).collect();
        let cables = nodes.windows(2).map(|pair| {
            let cable = Veth::with_queues(&pair[0], "right", &pair[1], "left", 1).unwrap();
            cable.up().unwrap();
            cable
        });
        let cables = cables.collect();
        let daemon = |(number, node): (usize, &Namespace)| {
            Daemon::start(&format!("{name}-{number}"), node, &description(number, count))
        };
        let daemons: Vec<_> = nodes.iter().enumerate().map(daemon).collect();
        let heard = |daemon: &Daemon| {
            let state = daemon.ask(&["mesh", "--json"]).json();
            let (near, links) = (&state["neighbours"], &state["links"]);
            near.as_array().unwrap().len() + 1 == links.as_array().unwrap().len()
        };
        assert!(wait_until(WITHIN, || daemons.iter().all(heard)));
        Self { daemons, nodes, _cables: cables }
    }

    /// Gives the nodes addresses: 10.99.0.1 and so on.
    fn addressed(name: &str, count: usize) -> Self {
        let line = Self::new(name, count);
        for (number, node) in (1..).zip(&line.nodes) {
            let address = format!("10.99.0.{number}/24");
            node.ip(&["address", "add", &address, "dev", "mesh0"]).unwrap();
        }
        line
    }

    /// The first node has an answer from another one.
    #[track_caller]
    fn reaches(&self, to: &str) {
        let passes = || ping(&self.nodes[0], &["-c1", "-W1", to]);
        let events = || self.daemons[0].ask(&["mesh", "events"]).text();
        assert!(wait_until(WITHIN, passes), "{to}: {}", events());
    }
}

/// dnsmasq at one end, busybox's client at the other: discovery by broadcast, the rest by label.
fn a_lease_crosses_four_hops() {
    let line = Line::new("mesh-lease", 5);
    let (client, server) = (&line.nodes[0], &line.nodes[4]);
    server.ip(&["address", "add", "10.99.0.1/24", "dev", "mesh0"]).unwrap();
    let folder = &line.daemons[4].folder;
    let files = ["leasefile", "pid-file"].map(|file| {
        format!("--dhcp-{file}={}", folder.join(file).display()).replace("--dhcp-pid", "--pid")
    });
    let options = [
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--port=0",
        "--interface=mesh0",
        "--bind-interfaces",
        "--dhcp-range=10.99.0.50,10.99.0.50,255.255.255.0,120",
    ];
    let _server = server.command("dnsmasq").args(options).args(files).spawn().unwrap();
    let script = line.daemons[0].folder.join("lease.sh");
    let text = "#!/bin/sh\n[ \"$1\" = bound ] && ip address add $ip/24 dev $interface\nexit 0\n";
    std::fs::write(&script, text).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).unwrap();
    let lease = || {
        let udhcpc = client.command("udhcpc").args(["-i", "mesh0", "-n", "-q", "-f", "-t5", "-T1"]);
        let udhcpc = udhcpc.arg("-s").arg(&script).stdout(Stdio::null()).stderr(Stdio::null());
        udhcpc.output().unwrap().status.success()
    };
    assert!(wait_until(WITHIN, lease), "no lease");
    let own = client.ip(&["-4", "-br", "address", "show", "mesh0"]).unwrap();
    assert!(own.contains("10.99.0.50/24"), "{own}");
    line.reaches("10.99.0.1");
}

/// The relay's process is killed at once; its interface and address stay for the next one.
fn a_killed_relay_is_replaced() {
    let mut line = Line::addressed("mesh-kill", 3);
    line.reaches("10.99.0.3");
    for _ in 0..3 {
        let killed = line.daemons.remove(1);
        killed.process.kill();
        let left = line.nodes[1].ip(&["-br", "address", "show", "mesh0"]).unwrap();
        assert!(left.contains("10.99.0.2/24"), "{left}");
        line.daemons.insert(1, Daemon::start("mesh-kill-1", &line.nodes[1], &description(1, 3)));
        assert_eq!(line.daemons[1].ask(&["mesh", "--json"]).json()["taken_over"], true);
        line.reaches("10.99.0.3");
    }
    line.reaches("10.99.0.2");
    let last = line.daemons.remove(1);
    last.process.terminate().unwrap();
    last.process.wait().unwrap();
    let gone = line.nodes[1].ip(&["-br", "link"]).unwrap();
    assert!(!gone.contains("mesh0"), "{gone}");
}

/// A link that comes or goes leaves the host's interface as it is; one that was deleted is said to be
/// gone, and comes back by a reload.
fn a_reload_keeps_the_addresses() {
    let line = Line::addressed("mesh-reload", 2);
    let (own, node) = (&line.daemons[0], &line.nodes[0]);
    line.reaches("10.99.0.2");
    let _third = Veth::pair(node, "more", &line.nodes[1], "other").unwrap();
    let status = || own.ask(&["status"]).text();
    for links in ["\"right\", \"more\"", "\"right\""] {
        own.describe(&format!("[mesh]\nlinks = [{links}]\n"));
        let said = own.ask(&["reload"]).text();
        assert!(said.contains("[mesh] links"), "{said}");
        let kept = node.ip(&["-br", "address", "show", "mesh0"]).unwrap();
        assert!(kept.contains("10.99.0.1/24"), "{kept}");
        line.reaches("10.99.0.2");
    }
    node.ip(&["link", "delete", "mesh0"]).unwrap();
    assert!(wait_until(WITHIN, || status().contains("mesh: ended")), "{}", status());
    let said = own.ask(&["reload"]).text();
    assert!(said.contains("started again"), "{said}");
    node.ip(&["address", "add", "10.99.0.1/24", "dev", "mesh0"]).unwrap();
    line.reaches("10.99.0.2");
    assert!(!status().contains("mesh: ended"), "{}", status());
}

fn the_verbs_show_the_mesh() {
    let line = Line::addressed("mesh-verbs", 3);
    line.reaches("10.99.0.3");
    let own = &line.daemons[0];
    let state = own.ask(&["mesh", "status", "--json"]).json();
    let middle = line.daemons[1].ask(&["mesh", "--json"]).json()["node"].clone();
    let path = &state["destinations"][0]["paths"][0];
    assert_eq!(path["relays"][0], middle);
    assert_eq!(path["carries"], true);
    let text = own.ask(&["mesh"]).text();
    assert!(text.contains("link right: up") && text.contains("1 of 1 heard"), "{text}");
    let text = own.ask(&["mesh", "nodes"]).text();
    assert!(text.contains("neighbour on right") && text.contains("path of 2 links"), "{text}");
    let text = own.ask(&["mesh", "paths"]).text();
    assert!(text.contains(&format!("─▶ {} ─▶", middle.as_str().unwrap())), "{text}");
    let target = state["destinations"][0]["node"].as_str().unwrap();
    assert_eq!(own.ask(&["mesh", "path", target]).text(), text);
    assert_eq!(own.ask(&["mesh", "path", "02:00:00:00:00:99"]).code, Some(1));
    the_path_answers(own, middle.as_str().unwrap(), target);
    let text = own.ask(&["mesh", "events"]).text();
    assert!(text.contains("neighbour-up") && text.contains("path-found"), "{text}");
    // The numbers of a part are written each second.
    let page = || own.ask(&["status", "--metrics"]).text();
    assert!(wait_until(WITHIN, || page().contains("gatewright_mesh_neighbours_up 1")));
    assert_eq!(own.ask(&["mesh", "cut", "eth9"]).code, Some(1));
    own.ask(&["mesh", "cut", "right"]).text();
    assert!(!ping(&line.nodes[0], &["-c1", "-W1", "10.99.0.3"]));
    own.ask(&["mesh", "cut", "right", "--heal"]).text();
    line.reaches("10.99.0.3");
}

/// Both nodes of a path of two links answer, with the label that carries the packets.
fn the_path_answers(own: &Daemon, middle: &str, target: &str) {
    let ping = own.ask(&["mesh", "ping", target, "-c3", "--interval", "10", "--json"]).json();
    assert_eq!((&ping["sent"], &ping["answered"]), (&3.into(), &3.into()), "{ping}");
    assert_eq!(ping["echoes"][0]["hops"], 2);
    let state = own.ask(&["mesh", "--json"]).json();
    let first = &state["destinations"][0]["paths"][0]["label"];
    let trace = own.ask(&["mesh", "trace", target, "--json"]).json();
    assert_eq!(trace["reached"], true, "{trace}");
    let hops = trace["hops"].as_array().unwrap();
    let nodes: Vec<_> = hops.iter().map(|hop| hop["node"].as_str().unwrap()).collect();
    assert_eq!(nodes, [middle, target]);
    assert_eq!(&hops[0]["label"], first);
    let text = own.ask(&["mesh", "trace", target]).text();
    assert!(text.contains(&format!(" 2  {target}  label ")), "{text}");
    let none = own.ask(&["mesh", "ping", "02:00:00:00:00:99", "-c1"]);
    assert_eq!(none.code, Some(1));
    assert!(none.out.contains("1 sent, 0 answered"), "{}", none.out);
}
