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
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn main() {
    let needs =
        Needs::new().namespaces().program("ping").program("dnsmasq").program("udhcpc").linux(6, 6);
    let tests: [(&str, fn()); 8] = [
        ("a_lease_crosses_four_hops", a_lease_crosses_four_hops),
        ("a_killed_relay_is_replaced", a_killed_relay_is_replaced),
        ("the_verbs_show_the_mesh", the_verbs_show_the_mesh),
        ("a_reload_keeps_the_addresses", a_reload_keeps_the_addresses),
        ("a_refused_reload_leaves_the_node", a_refused_reload_leaves_the_node),
        ("a_gateway_is_ready_while_its_mesh_runs", a_gateway_is_ready_while_its_mesh_runs),
        ("doctor_lists_the_tunnels", doctor_lists_the_tunnels),
        ("members_change_at_run_time", members_change_at_run_time),
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

/// A folder with the keys of the members of a mesh, as `gatewright mesh key` makes them.
struct Members(PathBuf);

impl Members {
    /// An empty folder with an authority's key.
    fn new(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _absent = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let this = Self(folder);
        this.key(&["new", "authority.key"]);
        this
    }

    fn key(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
        let command = command.current_dir(&self.0).args(["mesh", "key"]).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The public key of a file.
    fn public(&self, file: &str) -> String {
        let shown: serde_json::Value =
            serde_json::from_str(&self.key(&["show", file, "--json"])).unwrap();
        shown["key"].as_str().unwrap().to_owned()
    }

    /// A new key of a node in a file, which the authority admits.
    fn admit(&self, file: &str) {
        let _former = fs::remove_file(self.0.join(file));
        self.key(&["new", file]);
        let certificate = self.key(&["admit", "authority.key", &self.public(file)]);
        let text = fs::read_to_string(self.0.join(file)).unwrap();
        fs::write(self.0.join(file), text + &certificate).unwrap();
    }

    /// Writes a node's list: the authority, and the keys that are revoked there.
    fn list(&self, node: usize, revoked: &[&str]) {
        let mut text = format!("authority {}\n", self.public("authority.key"));
        for key in revoked {
            text += &["revoked ", key, "\n"].concat();
        }
        fs::write(self.0.join(format!("members.{node}")), text).unwrap();
    }

    /// What makes a node of a description a member.
    fn trust(&self, node: usize) -> String {
        let folder = self.0.display();
        format!(
            "trust = \"pki\"\nkey_file = \"{folder}/node.{node}\"\n\
             members_file = \"{folder}/members.{node}\"\n"
        )
    }
}

impl Line {
    fn new(name: &str, count: usize) -> Self {
        Self::described(name, count, |_| String::new())
    }

    /// A line whose nodes have more in their descriptions.
    fn described(name: &str, count: usize, more: impl Fn(usize) -> String) -> Self {
        let nodes: Vec<_> = (0..count).map(|_| Namespace::new().unwrap()).collect();
        let cables = nodes.windows(2).map(|pair| {
            let cable = Veth::with_queues(&pair[0], "right", &pair[1], "left", 1).unwrap();
            cable.up().unwrap();
            cable
        });
        let cables = cables.collect();
        let daemon = |(number, node): (usize, &Namespace)| {
            let text = description(number, count) + &more(number);
            Daemon::start(&format!("{name}-{number}"), node, &text)
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
        for number in 0..count {
            line.address(number);
        }
        line
    }

    fn address(&self, number: usize) {
        let address = format!("10.99.0.{}/24", number + 1);
        self.nodes[number].ip(&["address", "add", &address, "dev", "mesh0"]).unwrap();
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
    fs::write(&script, text).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, mode).unwrap();
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
    // What is refused late, when the interface has been taken over already, leaves it, too.
    let tunnel = "[mesh.tunnel.site]\nlocal = \"192.0.2.9:6087\"\nremote = \"192.0.2.8:6087\"\n";
    own.describe(&format!("[mesh]\nlinks = [\"right\"]\n{tunnel}"));
    let said = own.ask(&["reload"]);
    assert!(said.code != Some(0) && said.err.contains("[mesh.tunnel.site]"), "{}", said.err);
    let kept = node.ip(&["-br", "address", "show", "mesh0"]).unwrap();
    assert!(kept.contains("10.99.0.1/24"), "{kept}");
    line.reaches("10.99.0.2");
    own.describe("[mesh]\nlinks = [\"right\"]\n");

    // Whoever has the event finds no living mesh in the status.
    let mut events =
        own.command(&["events", "--follow", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut followed = BufReader::new(events.stdout.take().unwrap()).lines();
    node.ip(&["link", "delete", "mesh0"]).unwrap();
    let is_end = |line: &std::io::Result<String>| line.as_ref().unwrap().contains("mesh-ended");
    assert!(followed.any(|line| is_end(&line)));
    assert!(status().contains("mesh: ended"), "{}", status());
    events.kill().unwrap();
    events.wait().unwrap();
    let said = own.ask(&["reload"]).text();
    assert!(said.contains("started again"), "{said}");
    node.ip(&["address", "add", "10.99.0.1/24", "dev", "mesh0"]).unwrap();
    line.reaches("10.99.0.2");
    assert!(!status().contains("mesh: ended"), "{}", status());
}

/// A reload that is refused leaves the node with its paths, whoever refuses it, and with a link whose
/// device is gone. What is refused when the node has ended already leaves the one that was before. One
/// that has ended comes back by the next reload that can start it.
fn a_refused_reload_leaves_the_node() {
    const BOTH: &str = "links = [\"right\", \"more\"]";
    let line = Line::addressed("mesh-refused", 2);
    let (own, node) = (&line.daemons[0], &line.nodes[0]);
    let add = || node.ip(&["link", "add", "more", "type", "veth", "peer", "name", "most"]).unwrap();
    let reload = |text: &str| {
        own.describe(&format!("[mesh]\n{text}\n"));
        own.ask(&["reload"])
    };
    let refused = |text: &str, why: &str| {
        let said = reload(text);
        assert!(said.code == Some(1) && said.err.contains(why), "{text}: {}", said.err);
    };
    add();
    reload(BOTH).text();
    line.reaches("10.99.0.2");
    // Another node would have other paths.
    let paths = || own.ask(&["mesh", "--json"]).json()["destinations"].clone();
    let before = paths();
    assert!(before[0]["paths"][0]["path"].is_string(), "{before}");
    let is_as_before = || {
        assert_eq!(paths(), before);
        assert!(ping(node, &["-c1", "-W1", "10.99.0.2"]));
    };

    let typo = "links = [\"right\", \"more\", \"typo\"]";
    let elsewhere = "links = [\"right\"]\n[control]\nmetrics = \"192.0.2.9:9\"";
    let tunnel = "links = [\"right\"]\n[mesh.tunnel.site]\nlocal = \"192.0.2.9:6087\"\n\
                  remote = \"192.0.2.8:6087\"";
    let interface = "interface = \"most\"\nlinks = [\"right\"]";
    let all = [(typo, "typo"), (elsewhere, "metrics"), (tunnel, "site"), (interface, "most")];
    for (text, why) in all {
        refused(text, why);
        is_as_before();
    }
    node.ip(&["link", "delete", "more"]).unwrap();
    refused(typo, "more");
    is_as_before();
    let said = reload(BOTH).text();
    assert!(said.contains("nothing is changed"), "{said}");
    is_as_before();

    // That an interface is no TAP is seen when it is to be one.
    node.ip(&["link", "add", "busy", "type", "veth", "peer", "name", "idle"]).unwrap();
    let busy = "links = [\"right\"]\n[mesh.tunnel.busy]\nlocal = \"127.0.0.1:6087\"\n\
                remote = \"127.0.0.2:6087\"";
    refused(busy, "busy");
    line.reaches("10.99.0.2");
    let links = own.ask(&["mesh", "--json"]).json()["links"].clone();
    assert!(links[1]["link"] == "more" && links[1]["state"] == "absent", "{links}");

    node.ip(&["link", "delete", "mesh0"]).unwrap();
    let status = || own.ask(&["status"]).text();
    assert!(wait_until(WITHIN, || status().contains("mesh: ended")), "{}", status());
    refused(BOTH, "more");
    assert!(status().contains("mesh: ended"), "{}", status());
    add();
    let said = reload(BOTH).text();
    assert!(said.contains("started again"), "{said}");
    line.address(0);
    line.reaches("10.99.0.2");
}

/// Readiness says when the mesh has ended, and when it runs again.
fn a_gateway_is_ready_while_its_mesh_runs() {
    let node = Namespace::new().unwrap();
    node.ip(&["link", "add", "one", "type", "veth", "peer", "name", "two"]).unwrap();
    let socket = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("mesh-ready-web");
    let web = format!("[web]\nlisten = \"unix:{}\"\n", socket.display());
    let text = format!("[planes]\nmode = \"process\"\n[mesh]\nlinks = [\"one\"]\n{web}");
    let own = Daemon::start("mesh-ready", &node, &text);
    let readiness = || {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        let request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let state: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(head.starts_with("HTTP/1.1 200"), state["ready"] == true, "{answer}");
        state
    };
    assert_eq!(readiness()["ready"], true);
    node.ip(&["link", "delete", "mesh0"]).unwrap();
    assert!(wait_until(WITHIN, || readiness()["ready"] == false), "{}", readiness());
    let cause = &readiness()["causes"][0];
    assert_eq!((&cause["part"], &cause["level"]), (&"mesh".into(), &"error".into()));
    assert!(cause["text"].as_str().unwrap().contains("gatewright reload"), "{cause}");
    own.ask(&["reload"]).text();
    assert_eq!(readiness()["causes"], serde_json::json!([]));
    // Without links it has no data plane, whatever its description says of the planes.
    let refused = own.ask(&["upgrade", env!("CARGO_BIN_EXE_gatewright")]);
    assert!(refused.code == Some(1) && refused.err.contains("has no links"), "{}", refused.err);
}

/// A tunnel whose peer does not run yet, and then runs.
fn doctor_lists_the_tunnels() {
    let nodes = [0, 1].map(|_| Namespace::new().unwrap());
    let cable = Veth::pair(&nodes[0], "wan", &nodes[1], "wan").unwrap();
    cable.up().unwrap();
    let address = |node: usize| format!("192.0.2.{}", node + 1);
    for (node, end) in [&cable.a, &cable.b].into_iter().enumerate() {
        end.add_address(&format!("{}/24", address(node))).unwrap();
    }
    let start = |node: usize| {
        let (local, remote) = (address(node), address(1 - node));
        let text = format!(
            "[mesh]\nlinks = []\n[mesh.tunnel.site]\nlocal = \"{local}:6087\"\n\
             remote = \"{remote}:6087\"\n"
        );
        Daemon::start(&format!("mesh-doctor-{node}"), &nodes[node], &text)
    };
    let own = start(0);
    let found = || {
        let said = own.ask(&["doctor", "--json"]).json();
        let checks = said["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|check| check["name"] == "tunnel site").unwrap()
    };
    let check = found();
    assert_eq!((&check["subject"], &check["state"]), (&"mesh".into(), &"limited".into()));
    assert_eq!(check["found"], "192.0.2.1:6087 to 192.0.2.2:6087, never heard");
    let _other = start(1);
    assert!(wait_until(WITHIN, || found()["state"] == "good"), "{}", found());
    let text = own.ask(&["mesh"]).text();
    assert!(text.contains("tunnel site: 192.0.2.1:6087 to 192.0.2.2:6087, heard "), "{text}");
}

/// A mesh of members whose keys are exchanged while it runs: one node gets another key, another one's
/// key is revoked, and comes back with a new one.
fn members_change_at_run_time() {
    let members = Members::new("mesh-members-keys");
    for node in 0..3 {
        members.admit(&format!("node.{node}"));
        members.list(node, &[]);
    }
    let line = Line::described("mesh-members", 3, |node| members.trust(node));
    for node in 0..3 {
        line.address(node);
    }
    line.reaches("10.99.0.3");
    let reload = |node: usize, addressed: bool| {
        let said = line.daemons[node].ask(&["reload"]).text();
        assert!(said.contains("its files of keys have changed"), "{said}");
        // Another key is another interface, so that the host's address went with the former one.
        if !addressed {
            line.address(node);
        }
        // The hosts ask anew who has an address.
        for node in &line.nodes {
            node.ip(&["neighbour", "flush", "dev", "mesh0"]).unwrap();
        }
    };
    let near = |node: usize| line.daemons[node].ask(&["mesh", "--json"]).json();

    // The relay's key is exchanged: its address is the new key's.
    let before = near(1)["node"].clone();
    members.admit("node.1");
    reload(1, false);
    assert_ne!(near(1)["node"], before);
    line.reaches("10.99.0.3");

    // The last node's key is revoked at the other two, which do not hear it any more.
    let stolen = members.public("node.2");
    for node in [0, 1] {
        members.list(node, &[&stolen]);
        reload(node, true);
    }
    line.reaches("10.99.0.2");
    let refused = || {
        let state = near(1);
        let mut counters = state["counters"].as_array().unwrap().iter();
        counters.find(|counter| counter[0] == "forged").unwrap()[1].as_u64().unwrap() > 0
    };
    assert!(wait_until(WITHIN, refused), "{}", near(1));
    assert_eq!(near(1)["neighbours"].as_array().unwrap().len(), 1, "{}", near(1));
    assert!(!ping(&line.nodes[0], &["-c1", "-W1", "10.99.0.3"]));

    // With a new key it is a member again.
    members.admit("node.2");
    reload(2, false);
    line.reaches("10.99.0.3");
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
