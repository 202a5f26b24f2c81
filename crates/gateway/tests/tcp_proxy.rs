//! A TCP proxy between clients and servers of the kernel, on this host's own addresses.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use gatewright_config::{Balance, BalancedRelay, Located};
use gatewright_delay::{FlowKind, PathPolicy};
use gatewright_gateway::{Balancer, ConnectionTarget, TcpProxy, TcpProxyCounters, TcpProxySetup};
use gatewright_part::EventSink;
use gatewright_testbed::wait_until;
use nix::sys::socket::{Backlog, listen};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn proxy(
    listen: SocketAddr,
    server: SocketAddr,
    change: impl FnOnce(&mut TcpProxySetup),
) -> TcpProxy {
    let target = ConnectionTarget::Server(server);
    let mut setup =
        TcpProxySetup { listen, target, connections_max: 100, idle: PATIENCE, connect: PATIENCE };
    change(&mut setup);
    TcpProxy::start(setup).unwrap()
}

fn any4() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn any6() -> SocketAddr {
    (Ipv6Addr::LOCALHOST, 0).into()
}

fn connect(proxy: &TcpProxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A server that answers everything a client has said, backwards, once the client has said it all.
fn reversing(listener: TcpListener) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut said = Vec::new();
                if stream.read_to_end(&mut said).is_ok() {
                    said.reverse();
                    let _gone = stream.write_all(&said);
                }
            });
        }
    });
}

fn becomes(proxy: &TcpProxy, condition: impl Fn(TcpProxyCounters) -> bool) {
    assert!(wait_until(PATIENCE, || condition(proxy.counters())), "{:?}", proxy.counters());
}

/// More than all buffers on the way hold, so that either side has to wait for the other.
const LARGE: usize = 3_000_000;

/// A side that has said everything still hears the answer (half-close), in every pair of families.
#[test]
fn what_is_said_is_answered_in_both_families() {
    for (listen, server) in [(any4(), any4()), (any6(), any4()), (any4(), any6()), (any6(), any6())]
    {
        let listener = TcpListener::bind(server).unwrap();
        let proxy = proxy(listen, listener.local_addr().unwrap(), |_| ());
        reversing(listener);
        let clients: Vec<_> = (0..8_u8)
            .map(|number| {
                let mut client = connect(&proxy);
                thread::spawn(move || {
                    let said: Vec<u8> =
                        (0..LARGE / 8).map(|at| at.to_le_bytes()[0] ^ number).collect();
                    client.write_all(&said).unwrap();
                    client.shutdown(Shutdown::Write).unwrap();
                    let mut answer = Vec::new();
                    client.read_to_end(&mut answer).unwrap();
                    answer.reverse();
                    assert!(answer == said, "{} octets of {}", answer.len(), said.len());
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        becomes(&proxy, |counters| counters.open == 0);
        let octets = LARGE as u64;
        let expected = TcpProxyCounters {
            accepted: 8,
            ended: 8,
            octets_to_server: octets,
            octets_to_clients: octets,
            ..TcpProxyCounters::default()
        };
        assert_eq!(proxy.counters(), expected);
        // Each octet has stayed once, in its direction.
        let times = proxy.times();
        assert!(times.count() >= 16 && times.octets() == 2 * octets, "{times:?}");
    }
}

/// A reader that does not read holds up its writer, and costs no more than the buffers.
#[test]
fn a_slow_reader_holds_up_its_writer() {
    let listener = TcpListener::bind(any4()).unwrap();
    let proxy = proxy(any4(), listener.local_addr().unwrap(), |_| ());
    let client = connect(&proxy);
    let (mut server, _) = listener.accept().unwrap();
    let writer = thread::spawn(move || {
        let mut client = client;
        client.write_all(&vec![7; LARGE * 10]).unwrap();
    });
    let mut before = 0;
    // It comes to a halt by itself.
    assert!(wait_until(PATIENCE, || {
        thread::sleep(Duration::from_millis(200));
        let now = proxy.counters().octets_to_server;
        std::mem::replace(&mut before, now) == now && now > 0
    }));
    assert!(before < LARGE as u64 * 10 && !writer.is_finished());
    let mut heard = Vec::new();
    server.read_to_end(&mut heard).unwrap();
    assert_eq!(heard.len(), LARGE * 10);
    writer.join().unwrap();
}

#[test]
fn one_side_that_breaks_off_breaks_the_other() {
    let listener = TcpListener::bind(any4()).unwrap();
    let proxy = proxy(any4(), listener.local_addr().unwrap(), |_| ());
    let mut client = connect(&proxy);
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"never read").unwrap();
    let mut first = [0];
    server.read_exact(&mut first).unwrap();
    // Closed with octets unread: the kernel resets (RFC 9293 §3.6.1 of what was never delivered).
    drop(server);
    let error = client.read(&mut first).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    becomes(&proxy, |counters| (counters.broken, counters.open) == (1, 0));
}

#[test]
fn a_server_that_is_not_there_is_told() {
    let nobody = TcpListener::bind(any4()).unwrap().local_addr().unwrap();
    let proxy = proxy(any4(), nobody, |_| ());
    let mut client = connect(&proxy);
    assert!(client.read(&mut [0]).is_err());
    becomes(&proxy, |counters| (counters.unreachable, counters.open) == (1, 0));
}

#[test]
fn more_connections_than_may_be_are_closed() {
    let listener = TcpListener::bind(any4()).unwrap();
    let proxy = proxy(any4(), listener.local_addr().unwrap(), |setup| setup.connections_max = 2);
    let mut kept = [connect(&proxy), connect(&proxy)];
    becomes(&proxy, |counters| counters.open == 2);
    assert!(connect(&proxy).read(&mut [0]).is_err());
    assert_eq!(proxy.counters().refused, 1);
    let mut servers = [listener.accept().unwrap().0, listener.accept().unwrap().0];
    for stream in &mut kept {
        stream.write_all(b"x").unwrap();
    }
    for server in &mut servers {
        server.read_exact(&mut [0]).unwrap();
    }
    // One that ends makes room for another.
    drop((kept, servers));
    becomes(&proxy, |counters| counters.open == 0);
    connect(&proxy).write_all(b"x").unwrap();
    listener.accept().unwrap().0.read_exact(&mut [0]).unwrap();
}

#[test]
fn a_silent_connection_is_closed() {
    let listener = TcpListener::bind(any4()).unwrap();
    let idle = Duration::from_millis(300);
    let proxy = proxy(any4(), listener.local_addr().unwrap(), |setup| setup.idle = idle);
    let mut client = connect(&proxy);
    let _server = listener.accept().unwrap();
    assert!(client.read(&mut [0]).is_err());
    becomes(&proxy, |counters| (counters.idle, counters.open) == (1, 0));
}

#[test]
fn an_ended_proxy_leaves_nothing() {
    let listener = TcpListener::bind(any4()).unwrap();
    let proxy = proxy(any4(), listener.local_addr().unwrap(), |_| ());
    let mut client = connect(&proxy);
    let (mut server, _) = listener.accept().unwrap();
    let address = proxy.address();
    drop(proxy);
    assert!(client.read(&mut [0]).is_err());
    assert!(server.read(&mut [0]).is_err());
    assert!(TcpStream::connect(address).is_err());
}

/// A relay of a host that is silent answers neither yes nor no: after the time to connect the
/// connection goes to the other one, and the client has its answer.
#[test]
fn a_connection_to_a_silent_relay_goes_to_another_one() {
    let silent = TcpListener::bind(any4()).unwrap();
    // Room for one connection that nobody accepts: the kernel ignores further ones.
    listen(&silent, Backlog::new(0).unwrap()).unwrap();
    let silent_at = silent.local_addr().unwrap();
    let _only = TcpStream::connect(silent_at).unwrap();
    let answering = TcpListener::bind(any4()).unwrap();
    let answering_at = answering.local_addr().unwrap();
    reversing(answering);
    let located = |value| Located { value, span: gatewright_diagnostic::Span::default() };
    let relay = |(address, hops)| BalancedRelay {
        address: located(address),
        fixed: Duration::from_micros(1),
        octet_ps: 0,
        variation_pct: 100,
        spread_pct: 100,
        hops,
        is_live: false,
        path: None,
    };
    let balance = Balance {
        name: Located { value: "servers".to_owned(), span: gatewright_diagnostic::Span::default() },
        policy: PathPolicy::MinHop,
        flows_max: 100,
        flows_per_client: None,
        relays: [(silent_at, 1), (answering_at, 2)].map(relay).to_vec(),
    };
    let kind = FlowKind { rate: 10.0, octets: 100.0, bound_us: 6000.0, quantile: 0.95 };
    let balancer = Balancer::new(&balance, EventSink::default());
    let proxy = proxy(any4(), any4(), |setup| {
        setup.target = ConnectionTarget::Balance(balancer, kind);
        setup.connect = Duration::from_millis(300);
    });
    let mut client = connect(&proxy);
    client.write_all(b"abc").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"cba");
    becomes(&proxy, |counters| counters.ended == 1);
    assert_eq!(proxy.counters().unreachable, 0);
}
