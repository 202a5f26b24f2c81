//! Nodes of the mesh in network namespaces, used by the kernels' own hosts.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod nodes;

use gatewright_link::{FrameSelection, FrameSocket};
use gatewright_lsr::{MeshRouter, MeshSetup, MeshState};
use gatewright_mesh::{MeshKeys, MeshMembers, MeshNodeKey, MeshRouting, MeshTrust, Profile};
use gatewright_part::EventSink;
use gatewright_testbed::{Namespace, Needs, wait_until};
use libtest_mimic::{Arguments, Failed};
use nix::sys::socket::{setsockopt, sockopt};
use nodes::{LIMIT, Mesh, missing, stream, towards, trial};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::ExitCode;
use std::time::Duration;

/// The paper's Figure 6: S is 0, T is 6; three paths of two relays each.
const FIGURE_6: [(usize, usize); 9] =
    [(0, 1), (1, 2), (2, 6), (0, 3), (3, 4), (4, 6), (0, 5), (5, 7), (7, 6)];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let missing = missing(Needs::new());
    let trial = |name, test| trial(name, missing.as_deref(), test);
    let trials = vec![
        trial("unicast_crosses_four_hops", unicast_crosses_four_hops),
        trial("broadcasts_and_groups_reach_all", broadcasts_and_groups_reach_all),
        trial("the_classic_profile_carries_packets", classic),
        trial("routing_by_olsr_carries_packets", routing_by_olsr),
        trial("nothing_is_left_behind", nothing_is_left_behind),
        trial("a_deleted_interface_ends_the_node", a_deleted_interface),
        trial("an_authenticated_mesh_carries_packets", an_authenticated_mesh),
        trial("a_mesh_of_members_carries_packets", a_mesh_of_members),
        trial("a_cut_link_is_left_and_joined_again", a_cut_link),
        trial("a_link_that_is_down_wakes_nobody", a_link_that_is_down),
        trial("a_packet_whose_hops_are_spent_ends", spent_hops),
        trial("flows_are_spread_over_equal_paths", flows_are_spread),
        trial("a_relay_leads_packets_around_a_lost_link", a_bypass),
        trial("connections_are_seen_where_their_server_is", connections_are_seen),
        trial("figure_6_survives_near_and_far_cuts", figure_6),
        trial("what_cannot_start_says_why", what_cannot_start),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// ICMP, TCP and UDP of both families, from the first packet on; the paper's Table 1 network and
/// one node more.
fn unicast_crosses_four_hops() -> Result<(), Failed> {
    let mesh = Mesh::line(5, Profile::Default)?;
    let (first, last) = (&mesh.nodes[0], &mesh.nodes[4]);
    for to in ["10.99.0.5", "fd99::5"] {
        // None is lost: the first waits for its path.
        assert!(mesh.ping(0, &["-c20"], to)?, "{to}");
        let full = if to.contains(':') { "1452" } else { "1472" };
        assert!(mesh.ping(0, &["-c5", "-Mdo", "-s", full], to)?, "{to}: a packet of 1500 octets");
    }
    stream(first, last, "10.99.0.5:5001")?;
    stream(first, last, "[fd99::5]:5001")?;
    let far = last.run(|| UdpSocket::bind("10.99.0.5:7"))??;
    far.set_read_timeout(Some(LIMIT))?;
    let near = first.run(|| UdpSocket::bind("10.99.0.1:0"))??;
    near.send_to(b"datagram", "10.99.0.5:7")?;
    let mut buffer = [0; 16];
    let (len, from) = far.recv_from(&mut buffer)?;
    assert_eq!((&buffer[..len], from.ip().to_string()), (&b"datagram"[..], "10.99.0.1".to_owned()));
    let state = mesh.state(0)?;
    let paths = &state.destinations[0].paths;
    assert!(paths.iter().any(|path| path.carries && path.relays.len() == 3), "{paths:?}");
    Ok(())
}

/// A datagram to all, one to a group, and a ping of all nodes' group by link-local addresses.
fn broadcasts_and_groups_reach_all() -> Result<(), Failed> {
    let mesh = Mesh::line(4, Profile::Default)?;
    let open = |node: &Namespace| -> Result<UdpSocket, Failed> {
        let socket = node.run(|| UdpSocket::bind("0.0.0.0:7001"))??;
        socket.set_read_timeout(Some(LIMIT))?;
        Ok(socket)
    };
    let far: Vec<_> = mesh.nodes[1..].iter().map(open).collect::<Result<_, _>>()?;
    for (socket, host) in far.iter().zip(2..) {
        socket.join_multicast_v4(&"239.1.2.3".parse()?, &format!("10.99.0.{host}").parse()?)?;
    }
    let near = mesh.nodes[0].run(|| UdpSocket::bind("10.99.0.1:0"))??;
    near.set_broadcast(true)?;
    mesh.nodes[0].ip(&["route", "add", "239.0.0.0/8", "dev", "mesh0"])?;
    for (text, to) in [("to all", "10.99.0.255:7001"), ("to some", "239.1.2.3:7001")] {
        near.send_to(text.as_bytes(), to)?;
        for socket in &far {
            let mut buffer = [0; 16];
            let len = socket.recv(&mut buffer)?;
            assert_eq!(&buffer[..len], text.as_bytes());
        }
    }
    // As long as a packet can be, in two messages.
    let long = [0x5a; 1_472];
    near.send_to(&long, "10.99.0.255:7001")?;
    for socket in &far {
        let mut buffer = [0; 2_000];
        let len = socket.recv(&mut buffer)?;
        assert_eq!(buffer[..len], long);
    }
    assert!(wait_until(LIMIT, || mesh.ping(0, &["-c1"], "ff02::1%mesh0").is_ok_and(|ok| ok)));
    Ok(())
}

fn classic() -> Result<(), Failed> {
    let mesh = Mesh::line(3, Profile::Classic)?;
    assert!(mesh.ping(0, &["-c20"], "10.99.0.3")?);
    assert!(mesh.ping(2, &["-c5"], "fd99::1")?);
    assert_eq!(mesh.state(0)?.profile, "classic");
    Ok(())
}

/// Nodes that tell each other of their links.
fn routing_by_olsr() -> Result<(), Failed> {
    let mesh = Mesh::changed(4, &[(0, 1), (1, 2), (2, 3), (3, 0)], |_, setup| {
        setup.routing = MeshRouting::Olsr;
    })?;
    assert!(mesh.ping(0, &["-c20"], "10.99.0.3")?);
    assert!(mesh.ping(3, &["-c5"], "fd99::2")?);
    let state = mesh.state(0)?;
    assert_eq!(state.routing, "olsr");
    assert!(count(&mesh, 0, "olsr_sent")? > 0);
    assert_eq!(count(&mesh, 0, "olsr_ignored")?, 0);
    Ok(())
}

/// A counter of a node.
fn count(mesh: &Mesh, node: usize, name: &str) -> Result<u64, Failed> {
    let counters = mesh.state(node)?.counters;
    Ok(counters.iter().find(|(of, _)| *of == name).map(|(_, count)| *count).unwrap())
}

/// A link that has gone down leaves an error at its sockets: it does not keep the thread awake.
fn a_link_that_is_down() -> Result<(), Failed> {
    let mesh = Mesh::line(2, Profile::Default)?;
    mesh.end(0, 1).down()?;
    let is_down = |state: MeshState| state.links.iter().any(|link| link.state == "down");
    assert!(wait_until(LIMIT, || mesh.state(0).is_ok_and(is_down)));
    let before = count(&mesh, 0, "wake_ups")?;
    std::thread::sleep(Duration::from_secs(2));
    let woken = count(&mesh, 0, "wake_ups")? - before;
    assert!(woken < 200, "woken {woken} times in two seconds");
    Ok(())
}

/// A datagram of UDP in IPv4 (RFC 768, RFC 791) to port 7 of a host behind a label.
fn labelled((to, from): (&str, &str), host: u8, (label, ttl): (u32, u8)) -> Vec<u8> {
    let mac = |text: &str| -> Vec<u8> {
        text.trim().split(':').map(|octet| u8::from_str_radix(octet, 16).unwrap()).collect()
    };
    let mut frame = [mac(to), mac(from), vec![0x88, 0x47]].concat();
    // Bottom of the stack.
    frame.extend((label << 12 | 0x100 | u32::from(ttl)).to_be_bytes());
    let mut header = [0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 99, 0, 1, 10, 99, 0, host];
    let words = header.as_chunks().0.iter().map(|&word| u32::from(u16::from_be_bytes(word)));
    let sum: u32 = words.sum();
    let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(header);
    frame.extend([0, 7, 0, 7, 0, 12, 0, 0]);
    frame.extend(b"spent");
    frame.truncate(frame.len() - 1);
    frame
}

/// A packet with a TTL of 1 ends at the node before the host, and is no early one.
fn spent_hops() -> Result<(), Failed> {
    let mesh = Mesh::line(2, Profile::Default)?;
    assert!(mesh.ping(0, &["-c1"], "10.99.0.2")?);
    let label = mesh.state(0)?.destinations[0].paths[0].label;
    let far = mesh.nodes[1].run(|| UdpSocket::bind("10.99.0.2:7"))??;
    far.set_read_timeout(Some(LIMIT))?;
    let (own, other) = (mesh.end(0, 1), mesh.end(1, 0));
    let (index, ends) = (own.index()?, (other.mac()?, own.mac()?));
    let open = || FrameSocket::open(index, FrameSelection::Nothing, false);
    let socket = mesh.nodes[0].run(open)??;
    let send = |ttl| socket.send(&labelled((&ends.0, &ends.1), 2, (label, ttl)));
    let (ended, early) = (count(&mesh, 1, "not_forwarded")?, count(&mesh, 1, "early")?);
    send(1)?;
    let has_ended = || count(&mesh, 1, "not_forwarded").is_ok_and(|count| count == ended + 1);
    assert!(wait_until(LIMIT, has_ended));
    assert_eq!(count(&mesh, 1, "early")?, early);
    // The next one is the first that arrives.
    send(2)?;
    let mut buffer = [0; 16];
    assert_eq!(far.recv(&mut buffer)?, 4);
    far.set_nonblocking(true)?;
    assert!(far.recv(&mut buffer).is_err(), "the spent one has arrived");
    Ok(())
}

/// A link between two relays is lost: what has the label of the path over it arrives all the same, around the
/// link, and the ends find another path.
fn a_bypass() -> Result<(), Failed> {
    let mesh = Mesh::new(5, &[(0, 1), (1, 2), (2, 3), (1, 4), (4, 2)], Profile::Default)?;
    let passes = || mesh.ping(0, &["-c1", "-W1"], "10.99.0.4").is_ok_and(|ok| ok);
    let protected = || {
        let stands = |node| mesh.state(node).is_ok_and(|state| state.bypasses > 0);
        passes() && stands(1) && stands(2)
    };
    assert!(wait_until(LIMIT, protected), "{:?}", mesh.state(1)?);
    let relays = [state_of(&mesh, 1)?, state_of(&mesh, 2)?];
    let state = mesh.state(0)?;
    let mut paths = state.destinations.iter().flat_map(|to| &to.paths);
    let label = paths.find(|path| path.relays == relays).ok_or("no path over the link")?.label;
    let far = mesh.nodes[3].run(|| UdpSocket::bind("10.99.0.4:7"))??;
    far.set_read_timeout(Some(Duration::from_millis(20)))?;
    let (own, other) = (mesh.end(0, 1), mesh.end(1, 0));
    let (index, ends) = (own.index()?, (other.mac()?, own.mac()?));
    let open = || FrameSocket::open(index, FrameSelection::Nothing, false);
    let socket = mesh.nodes[0].run(open)??;
    let frame = labelled((&ends.0, &ends.1), 4, (label, 64));
    let arrives = || socket.send(&frame).is_ok() && far.recv(&mut [0; 16]).is_ok();
    assert!(arrives(), "over the link");
    mesh.end(1, 2).down()?;
    // The first ones may come before the node knows of the loss; from then on they arrive for seconds.
    assert!(wait_until(LIMIT, arrives), "{:?}", mesh.state(1)?);
    assert!(count(&mesh, 1, "paths_bypassed")? > 0);
    assert!(wait_until(LIMIT, passes));
    let over_it = |state: MeshState| {
        state.destinations.iter().flat_map(|to| &to.paths).any(|path| path.label == label)
    };
    assert!(wait_until(LIMIT, || mesh.state(0).is_ok_and(|state| !over_it(state))), "it stays");
    Ok(())
}

/// With a key as without one; a node without the key is no neighbour.
fn an_authenticated_mesh() -> Result<(), Failed> {
    let trust = MeshTrust::Psk(MeshKeys::parse(&"5a".repeat(32))?);
    let mut mesh = Mesh::trusting(3, &[(0, 1), (1, 2)], Profile::Default, &trust)?;
    assert!(mesh.ping(0, &["-c20"], "10.99.0.3")?);
    assert!(mesh.ping(2, &["-c5"], "fd99::1")?);
    let state = mesh.state(0)?;
    assert_eq!(state.trust, "psk");
    let echo = mesh.routers[0].echo(&mesh.state(2)?.node, 2, 64)?;
    assert_eq!((echo.hops, echo.node), (2, mesh.state(2)?.node));
    mesh.routers.remove(2);
    let setup = MeshSetup {
        interface: "mesh0".into(),
        links: vec![towards(1)],
        ports: Vec::new(),
        tunnels: Vec::new(),
        profile: Profile::Default,
        routing: MeshRouting::OnDemand,
        trust: MeshTrust::Open,
    };
    let open = mesh.nodes[2].run(|| MeshRouter::start(&setup, 9, EventSink::default()))??;
    let forged = || {
        let counters = mesh.routers[1].state().unwrap().counters;
        counters.into_iter().any(|(name, count)| name == "forged" && count > 0)
    };
    assert!(wait_until(LIMIT, forged));
    assert!(
        open.state()?.counters.contains(&("received", 0))
            || !mesh.ping(2, &["-c1"], "10.99.0.1")?
    );
    Ok(())
}

/// Members with keys of their own, which an authority has admitted; a node whose key is revoked is no
/// neighbour any more. The interface has the address of the key.
fn a_mesh_of_members() -> Result<(), Failed> {
    let key = |octet: usize| MeshNodeKey::of_seed([u8::try_from(octet).unwrap(); 32]).unwrap();
    let authority = key(100);
    let admitted = |revoked: &[usize]| {
        let authorities = vec![authority.public()];
        let revoked = revoked.iter().map(|&octet| key(octet).public()).collect();
        MeshMembers { authorities, revoked, ..MeshMembers::default() }
    };
    let trust = |octet: usize, members: MeshMembers| {
        let own = key(octet);
        let certificate = authority.admit(&own.public()).unwrap();
        MeshTrust::Pki(Box::new((own.with_certificate(certificate), members)))
    };
    let own = |number| trust(number + 1, admitted(&[]));
    let mesh = Mesh::with(3, &[(0, 1), (1, 2)], Profile::Default, own)?;
    assert!(mesh.ping(0, &["-c20"], "10.99.0.3")?);
    assert!(mesh.ping(2, &["-c5"], "fd99::1")?);
    let state = mesh.state(0)?;
    let address = key(1).public().node().0.to_be_bytes()[2..].try_into()?;
    assert_eq!((state.trust, state.node), ("pki", gatewright_lsr::mac_text(address)));
    let refused =
        |(name, count): &(&str, u64)| matches!(*name, "forged" | "unsigned") && *count > 0;
    assert!(!state.counters.iter().any(refused), "{:?}", state.counters);

    mesh.routers[1].stop();
    let setup = MeshSetup {
        interface: "mesh0".into(),
        links: vec![towards(0), towards(2)],
        ports: Vec::new(),
        tunnels: Vec::new(),
        profile: Profile::Default,
        routing: MeshRouting::OnDemand,
        trust: trust(2, admitted(&[3])),
    };
    let next = mesh.nodes[1].run(|| MeshRouter::start(&setup, 9, EventSink::default()))??;
    let first = state_of(&mesh, 0)?;
    let only_first = || {
        next.state().is_ok_and(|state| {
            let heard: Vec<_> = state.neighbours.iter().map(|known| &known.node).collect();
            let forged = state.counters.iter().any(refused);
            heard == [&first] && forged
        })
    };
    assert!(wait_until(LIMIT, only_first), "{:?}", next.state());
    Ok(())
}

fn state_of(mesh: &Mesh, node: usize) -> Result<String, Failed> {
    Ok(mesh.state(node)?.node)
}

fn nothing_is_left_behind() -> Result<(), Failed> {
    let mut mesh = Mesh::line(2, Profile::Default)?;
    let setup = MeshSetup {
        interface: "mesh0".into(),
        links: vec![towards(1)],
        ports: Vec::new(),
        tunnels: Vec::new(),
        profile: Profile::Default,
        routing: MeshRouting::OnDemand,
        trust: MeshTrust::Open,
    };
    let before = mesh.nodes[0].ip(&["-br", "link"])?;
    assert!(before.contains("mesh0"));
    mesh.routers.clear();
    let after = mesh.nodes[0].ip(&["-br", "link"])?;
    assert!(!after.contains("mesh0"), "{after}");
    // And it starts again.
    let again = mesh.nodes[0].run(|| MeshRouter::start(&setup, 9, EventSink::default()))??;
    assert!(!again.state()?.taken_over);
    Ok(())
}

/// Somebody deletes the mesh interface: the node ends, and another one can start.
fn a_deleted_interface() -> Result<(), Failed> {
    let mut mesh = Mesh::line(2, Profile::Default)?;
    mesh.nodes[0].ip(&["link", "delete", "mesh0"])?;
    assert!(wait_until(LIMIT, || mesh.routers[0].state().is_err()), "it runs on");
    mesh.routers.remove(0);
    let setup = MeshSetup {
        interface: "mesh0".into(),
        links: vec![towards(1)],
        ports: Vec::new(),
        tunnels: Vec::new(),
        profile: Profile::Default,
        routing: MeshRouting::OnDemand,
        trust: MeshTrust::Open,
    };
    let again = mesh.nodes[0].run(|| MeshRouter::start(&setup, 9, EventSink::default()))??;
    assert!(wait_until(LIMIT, || again.state().is_ok_and(|it| !it.neighbours.is_empty())));
    Ok(())
}

fn a_cut_link() -> Result<(), Failed> {
    let mesh = Mesh::new(3, &[(0, 1), (1, 2), (0, 2)], Profile::Default)?;
    assert!(mesh.ping(0, &["-c3"], "10.99.0.3")?);
    assert!(mesh.routers[0].cut("eth9", true).is_err_and(|why| why.contains("to1, to2")));
    mesh.routers[0].cut(&towards(2), true)?;
    assert!(wait_until(LIMIT, || mesh.ping(0, &["-c1"], "10.99.0.3").is_ok_and(|ok| ok)));
    let state = mesh.state(0)?;
    let cut = state.links.iter().find(|link| link.link == towards(2)).unwrap();
    assert_eq!(cut.state, "cut");
    let carrying = state.destinations.iter().flat_map(|to| &to.paths).filter(|path| path.carries);
    assert!(carrying.clone().all(|path| path.link == towards(1)), "{state:?}");
    mesh.routers[0].cut(&towards(2), false)?;
    let heard = || {
        let state = mesh.state(0).unwrap();
        state.neighbours.iter().any(|near| near.up && near.link == towards(2))
    };
    assert!(wait_until(LIMIT, heard));
    Ok(())
}

/// A square: flows of bulk traffic take both paths, each its own; what is of bounded delay takes one. All
/// take the other path while a link is down.
fn flows_are_spread() -> Result<(), Failed> {
    let mesh = Mesh::new(4, &[(0, 1), (1, 3), (0, 2), (2, 3)], Profile::Default)?;
    let far = mesh.nodes[3].run(|| UdpSocket::bind("10.99.0.4:7004"))??;
    far.set_read_timeout(Some(LIMIT))?;
    let swapped = |relay: usize| -> Result<u64, Failed> {
        let frames = mesh.state(relay)?.links.into_iter().flat_map(|link| link.frames);
        Ok(frames.filter(|(name, _)| *name == "swapped").map(|(_, count)| count).sum())
    };
    // Datagrams of 40 ports, three of each: by both relays.
    let send = |tos: i32| -> Result<[u64; 2], Failed> {
        let before = [swapped(1)?, swapped(2)?];
        for port in 20_000..20_040 {
            let near = mesh.nodes[0].run(|| UdpSocket::bind(("10.99.0.1", port)))??;
            setsockopt(&near, sockopt::Ipv4Tos, &tos)?;
            for number in 0..3 {
                near.send_to(b"datagram", "10.99.0.4:7004")?;
                let arrived = far.recv_from(&mut [0; 16]);
                assert!(arrived.is_ok(), "{number} of {port} is lost: {:?}", mesh.state(0)?);
            }
        }
        Ok([swapped(1)? - before[0], swapped(2)? - before[1]])
    };
    assert!(mesh.ping(0, &["-c3"], "10.99.0.4")?);
    let carry = |count: usize| {
        let paths = mesh.state(0).unwrap().destinations.into_iter().flat_map(|to| to.paths);
        paths.filter(|path| path.carries && path.classes.contains(&2)).count() == count
    };
    assert!(wait_until(LIMIT, || carry(2)), "{:?}", mesh.state(0)?);
    let found = send(0)?;
    assert!(found.iter().all(|&count| count >= 15), "{found:?}");
    let bounded = send(0xa0)?;
    assert!(bounded.iter().any(|&count| count < 15), "{bounded:?}");
    mesh.end(1, 0).down()?;
    // A ping alone may go by the other path, before this one is known to be lost.
    assert!(wait_until(LIMIT, || carry(1)), "{:?}", mesh.state(0)?);
    let passes = || mesh.ping(0, &["-c1", "-W1"], "10.99.0.4").is_ok_and(|ok| ok);
    assert!(wait_until(LIMIT, passes));
    let [first, second] = send(0)?;
    assert!(first == 0 && second >= 120, "{first} {second}");
    Ok(())
}

/// A connection is known from its first segments, which wait for their path, to the first end of one side.
fn connections_are_seen() -> Result<(), Failed> {
    let mesh = Mesh::line(3, Profile::Default)?;
    let seen = |number: usize| {
        let is = |state: MeshState| state.tcp_connections == number;
        wait_until(LIMIT, || mesh.state(2).is_ok_and(is))
    };
    for at in ["10.99.0.3:5001", "[fd99::3]:5001"] {
        let at: SocketAddr = at.parse()?;
        let listener = mesh.nodes[2].run(|| TcpListener::bind(at))??;
        let connect = || -> Result<(TcpStream, TcpStream), Failed> {
            let near = mesh.nodes[0].run(|| TcpStream::connect_timeout(&at, LIMIT))??;
            Ok((near, listener.accept()?.0))
        };
        let (client, kept) = connect()?;
        let (reset, _answered) = connect()?;
        let (client_2, server) = connect()?;
        assert!(seen(3), "{at}: {:?}", mesh.state(2)?);
        assert_eq!(mesh.state(0)?.tcp_connections, 0, "{at}: at the client's node");
        drop(client);
        assert!(seen(2), "{at}: the client has closed");
        drop(server);
        assert!(seen(1), "{at}: the server has closed");
        let aborts = nix::libc::linger { l_onoff: 1, l_linger: 0 };
        setsockopt(&reset, sockopt::Linger, &aborts)?;
        drop(reset);
        assert!(seen(0), "{at}: the client has aborted");
        drop((kept, client_2));
        // Nobody listens: a refused connection is none.
        drop(listener);
        assert!(mesh.nodes[0].run(|| TcpStream::connect_timeout(&at, LIMIT))?.is_err());
        assert_eq!(mesh.state(2)?.tcp_connections, 0, "{at}: refused");
    }
    Ok(())
}

/// Links are cut near and far; S reaches T again each time. The bench measures how soon.
fn figure_6() -> Result<(), Failed> {
    const NAMES: [&str; 2] = ["links_back_followed", "paths_found"];
    let mesh = Mesh::new(8, &FIGURE_6, Profile::Default)?;
    assert!(mesh.ping(0, &["-c3"], "10.99.0.7")?);
    let has_backup = || {
        let state = mesh.state(0).unwrap();
        state.destinations.iter().any(|to| to.paths.iter().any(|path| path.role == "backup"))
    };
    assert!(wait_until(LIMIT, has_backup), "no backup is found");
    for far in [false, true] {
        let state = mesh.state(0)?;
        let path = state.destinations.iter().flat_map(|to| &to.paths).find(|path| path.carries);
        let first: usize = path.unwrap().link.trim_start_matches("to").parse()?;
        let beyond = FIGURE_6.iter().find(|(a, b)| *a == first && *b != 6 && *a != 0).unwrap().1;
        // The near link ends at S; the far one is beyond the first relay.
        let (own, other) = if far { (first, beyond) } else { (0, first) };
        let end = mesh.end(other, own);
        let searches = counted(&mesh, "searches");
        end.down()?;
        let passes = || mesh.ping(0, &["-c1", "-W1"], "10.99.0.7").is_ok_and(|ok| ok);
        assert!(wait_until(LIMIT, passes), "far {far}");
        // The search that follows the loss must not find the link again.
        let repairs = || counted(&mesh, "searches") > searches;
        assert!(wait_until(LIMIT, repairs), "far {far}: nobody searches after the loss");
        let before = NAMES.map(|name| counted(&mesh, name));
        let told = counted(&mesh, "links_back");
        end.up()?;
        let up = || {
            mesh.routers.iter().all(|router| {
                router.state().is_ok_and(|state| state.neighbours.iter().all(|near| near.up))
            })
        };
        assert!(wait_until(LIMIT, up), "the link does not heal");
        assert!(wait_until(LIMIT, has_backup), "no backup is found again");
        // The path's origin, which is T if T's answer to ARP was the first packet, is told that the link
        // is back, and finds a path again.
        let grows = |name, before: u64| wait_until(LIMIT, || counted(&mesh, name) > before);
        for (name, before) in NAMES.into_iter().zip(before) {
            let states = || (mesh.state(0).unwrap(), mesh.state(6).unwrap());
            assert!(grows(name, before), "far {far}, {name}: {:?}", states());
        }
        // Neither S nor T is at the far link.
        assert!(!far || counted(&mesh, "links_back") > told, "no LINK BACK was sent");
    }
    Ok(())
}

/// A counter, of all nodes together.
fn counted(mesh: &Mesh, name: &str) -> u64 {
    let of = |router: &MeshRouter| {
        let counters = router.state().unwrap().counters;
        counters.iter().find(|(counter, _)| *counter == name).map_or(0, |&(_, count)| count)
    };
    mesh.routers.iter().map(of).sum()
}

fn what_cannot_start() -> Result<(), Failed> {
    let node = Namespace::new()?;
    let start = |interface: &str, links: &[&str]| -> Result<String, Failed> {
        let links = links.iter().map(|&link| link.to_owned()).collect();
        let setup = MeshSetup {
            interface: interface.into(),
            links,
            ports: Vec::new(),
            tunnels: Vec::new(),
            profile: Profile::Default,
            routing: MeshRouting::OnDemand,
            trust: MeshTrust::Open,
        };
        let started = node.run(|| MeshRouter::start(&setup, 1, EventSink::default()))?;
        Ok(started.err().ok_or("it starts")?.to_string())
    };
    assert!(start("mesh0", &["eth9"])?.starts_with("[mesh] links: eth9: "));
    let why = start("lo", &[])?;
    assert!(why.contains("choose another name"), "{why}");
    let why = start("a-name-of-15-oc", &[])?;
    assert!(why.contains("too long"), "{why}");
    Ok(())
}
