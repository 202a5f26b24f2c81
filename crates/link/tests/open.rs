//! How links are opened, refused, lost and closed.
//!
//! A test that lacks its rights or programs is shown as ignored, with what is missing.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

use gatewright_link::{
    Backend, Exclusive, Link, LinkConfig, LinkState, Mode, NameHolder, OpenError, Opener,
    claim_name_holders,
};
use gatewright_packet::{Batch, CHUNK_SIZE, LinkAddress, LinkIndex, Pool};
use gatewright_testbed::{Namespace, Needs, Veth, wait_until};
use libtest_mimic::{Arguments, Failed, Trial};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket,
};
use nix::unistd::{Uid, setresuid};
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{ExitCode, Stdio};
use std::rc::Rc;
use std::time::Duration;
use std::{env, fs};

const LIMIT: Duration = Duration::from_secs(30);
/// The role of a copy that has the name of a claim to g0, and no right to open links.
const SQUATTER: &str = "squatter";
const SQUATTER_UID: u32 = 65_534;
/// Set for the copies of this program that tests start: what the copy is to do.
const ROLE: &str = "GATEWRIGHT_LINK_ROLE";

fn main() -> ExitCode {
    if let Ok(role) = env::var(ROLE) {
        return play(&role);
    }
    let trials = vec![
        trial("automatic_mode_says_why", automatic),
        trial("what_af_xdp_cannot_do_is_said", fallbacks),
        trial("the_generic_mode_is_for_drivers_without_a_native_one", generic),
        trial("a_link_without_frames_is_refused", lent),
        trial("a_missing_device_and_a_missing_right_are_named", refused),
        trial("every_packet_comes_home_when_a_link_closes", comes_home),
        trial("a_link_opens_again_at_once", opens_again),
        trial("one_process_is_the_host_on_an_exclusive_link", one_host),
        trial("another_users_name_removes_no_claim", squatted),
        trial("kill_9_detaches_the_program", kill_9),
        trial("kill_9_gives_the_kernel_its_voice_back", kill_9_of_a_packet_socket),
        trial("a_link_that_goes_is_told_and_taken_back", goes_and_returns),
        trial("frames_of_another_pool_are_copied", foreign_packets),
        trial("a_full_pool_is_counted_and_recovers", empty_pool),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(name: &str, test: fn() -> Result<(), Failed>) -> Trial {
    match Needs::new().namespaces().program("setpriv").program("ethtool").missing() {
        None => Trial::test(name, test),
        Some(missing) => {
            Trial::test(format!("{name} (needs {missing})"), test).with_ignored_flag(true)
        }
    }
}

/// A copy of this program: opens g0 and tells about it on one line, then waits to be killed.
fn play(role: &str) -> ExitCode {
    if role == SQUATTER {
        let _queue = squat();
        println!("opened");
        std::thread::sleep(Duration::from_secs(1000));
    }
    let backend = if role == "xdp" { Backend::Xdp } else { Backend::PacketSocket };
    match Opener::new(pool(512, CHUNK_SIZE)).open(&config("g0", backend)) {
        Ok(_link) => {
            println!("opened");
            std::thread::sleep(Duration::from_secs(1000));
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Takes the name as another user, and fills its queue.
fn squat() -> Vec<OwnedFd> {
    let nobody = Uid::from_raw(SQUATTER_UID);
    setresuid(nobody, nobody, nobody).unwrap();
    let index = if_nametoindex("g0").unwrap();
    let name = UnixAddr::new_abstract(format!("gatewright/link/{index}").as_bytes()).unwrap();
    let flags = SockFlag::SOCK_NONBLOCK;
    let open = || socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
    let mut queue = vec![open()];
    bind(queue[0].as_raw_fd(), &name).unwrap();
    listen(&queue[0], Backlog::new(0).unwrap()).unwrap();
    loop {
        queue.push(open());
        match connect(queue[queue.len() - 1].as_raw_fd(), &name) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, Errno::EAGAIN);
                return queue;
            }
        }
    }
}

/// A cable with the gateway's end g0 and the host's end h0, both up, in one namespace: its kernel
/// has no address and says nothing.
fn cable(mtu: u32) -> Result<(Namespace, Veth), Failed> {
    let namespace = Namespace::new()?;
    let cable = Veth::pair(&namespace, "g0", &namespace, "h0")?;
    for end in [&cable.a, &cable.b] {
        end.set_mtu(mtu)?;
        end.disable_ipv6()?;
    }
    cable.up()?;
    Ok((namespace, cable))
}

/// The host's end, and the pool of its packets.
fn far_end() -> Result<(Box<dyn Link>, Rc<Pool>), Failed> {
    let pool = pool(512, CHUNK_SIZE);
    let far = LinkConfig { exclusive: false, ..config("h0", Backend::PacketSocket) };
    Ok((Opener::new(Rc::clone(&pool)).open(&far)?, pool))
}

fn pool(chunks: usize, chunk_size: usize) -> Rc<Pool> {
    Rc::new(Pool::new(chunks, chunk_size).unwrap())
}

fn config(name: &str, backend: Backend) -> LinkConfig {
    LinkConfig { backend, ring_slots: 128, ..LinkConfig::new(LinkIndex(3), name) }
}

fn automatic() -> Result<(), Failed> {
    let (gateway, cable) = cable(1500)?;
    let link = |config: LinkConfig| -> Result<_, Failed> {
        gateway.run(|| -> Result<_, Failed> {
            Ok(Opener::new(pool(512, CHUNK_SIZE)).open(&config)?.info().clone())
        })?
    };
    let info = link(config("g0", Backend::Auto))?;
    assert_eq!((info.mode, info.exclusive), (Mode::XdpCopy, Exclusive::Redirected));
    let said = "g0: AF_XDP native, copy (the fastest that veth offers), MTU 1500, exclusive, the \
                driver hands all to it";
    assert_eq!(info.to_string(), said);
    assert_eq!((info.mtu, info.driver.as_str(), info.partial_checksums), (1500, "veth", true));
    let mac = info.link_address.to_string();
    assert_eq!(mac, cable.a.mac()?);
    assert_eq!(info.kernel_index, cable.a.index()?);
    let shared = LinkConfig { exclusive: false, ..config("g0", Backend::Auto) };
    let info = link(shared)?;
    assert_eq!((info.mode, info.exclusive), (Mode::PacketSocket, Exclusive::Shared));
    assert!(info.why.starts_with("not AF_XDP: the link is shared"), "{}", info.why);
    Ok(())
}

fn fallbacks() -> Result<(), Failed> {
    let (gateway, cable) = cable(3600)?;
    let open = |backend, chunk_size| -> Result<_, Failed> {
        Ok(gateway.run(|| {
            let opener = Opener::new(pool(512, chunk_size));
            opener.open(&config("g0", backend)).map(|link| link.info().clone())
        })?)
    };
    for chunk_size in [4096, 6144] {
        let info = open(Backend::Auto, chunk_size)??;
        if info.mode == Mode::PacketSocket {
            // A kernel without multi-buffer AF_XDP (before Linux 6.6).
            assert!(info.why.starts_with("not AF_XDP: "), "{}", info.why);
            continue;
        }
        let why = "the fastest that veth offers; frames above a page come in several buffers, and \
                   are copied into one";
        assert_eq!((info.mode, info.why.as_str()), (Mode::XdpCopy, why));
    }
    let error = open(Backend::Auto, 2048)?.unwrap_err();
    let said = "g0 has frames of 3622 octets (MTU 3600), but a packet of the slab holds 1760";
    assert_eq!((error.to_string().as_str(), error.exit_code()), (said, 69));
    for end in [&cable.a, &cable.b] {
        end.set_mtu(3498)?;
    }
    assert_eq!(open(Backend::Auto, 4096)??.mode, Mode::XdpCopy);
    Ok(())
}

/// A link for which the slab has no frames left is refused: it would neither receive nor send.
fn lent() -> Result<(), Failed> {
    let (gateway, _cable) = cable(1500)?;
    let _second = Veth::pair(&gateway, "g1", &gateway, "h1")?;
    gateway.ip(&["link", "set", "g1", "mtu", "1500", "up"])?;
    gateway.ip(&["link", "set", "h1", "up"])?;
    gateway.run(|| -> Result<(), Failed> {
        let pool = pool(160, CHUNK_SIZE);
        let opener = Opener::new(Rc::clone(&pool));
        let _first = opener.open(&config("g0", Backend::Xdp))?;
        // An eighth is kept for packets on the way.
        assert_eq!(pool.available(), 160 - 128);
        let error = opener.open(&config("g1", Backend::Xdp)).map(drop).unwrap_err();
        assert!(error.to_string().contains("all 160 frames of the worker are lent"), "{error}");
        drop(opener.open(&config("g1", Backend::PacketSocket))?);
        Ok(())
    })?
}

fn generic() -> Result<(), Failed> {
    let (gateway, _cable) = cable(1500)?;
    gateway.run(|| -> Result<(), Failed> {
        let pool = pool(512, CHUNK_SIZE);
        let opener = Opener::new(Rc::clone(&pool));
        let error = opener.open(&config("g0", Backend::XdpGeneric)).map(drop).unwrap_err();
        assert!(error.to_string().starts_with("g0: on veth the generic mode loses"), "{error}");

        gateway.ip(&["link", "add", "br0", "type", "bridge"])?;
        gateway.sysctl("net.ipv6.conf.br0.disable_ipv6", "1")?;
        gateway.ip(&["link", "set", "dev", "g0", "master", "br0"])?;
        gateway.ip(&["link", "set", "dev", "br0", "up"])?;
        let automatic = opener.open(&config("br0", Backend::Auto))?;
        let info = automatic.info();
        assert_eq!(info.mode, Mode::PacketSocket);
        assert!(info.why.starts_with("not AF_XDP: cannot attach"), "a bridge has none: {info}");
        drop(automatic);
        let error = opener.open(&config("br0", Backend::XdpGeneric)).map(drop).unwrap_err();
        assert!(error.to_string().contains("(GRO or LRO) is on"), "{error}");
        gateway.command("ethtool").args(["-K", "br0", "gro", "off"]).run()?;
        let mut link = opener.open(&config("br0", Backend::XdpGeneric))?;
        assert_eq!(link.info().mode, Mode::XdpGeneric);
        assert_eq!(exchange(&mut *link)?, 10, "{:?}", link.counters());
        let (mut far, _) = far_end()?;
        send(&mut *link, &pool, 10);
        assert_eq!(take(&mut *far, 10, LIMIT), 10, "{:?}", link.counters());
        Ok(())
    })?
}

fn refused() -> Result<(), Failed> {
    let (gateway, _cable) = cable(1500)?;
    let missing = gateway.run(|| {
        let opener = Opener::new(pool(512, CHUNK_SIZE));
        let configs =
            ["nothing0", "a-name-that-is-too-long", ""].map(|name| config(name, Backend::Auto));
        configs.map(|config| opener.open(&config).map(drop).unwrap_err())
    })?;
    for error in missing {
        assert!(matches!(error, OpenError::NoDevice { .. }) && error.exit_code() == 69, "{error}");
        assert!(error.to_string().contains("; there are: g0"), "{error}");
    }
    for (role, capabilities, said, code) in [
        (
            "xdp",
            "-all",
            "no permission to make a map of sockets on g0, which needs CAP_BPF and CAP_NET_ADMIN",
            77,
        ),
        (
            "packet",
            "-all",
            "no permission to open a packet socket on g0, which needs CAP_NET_RAW",
            77,
        ),
        // A kernel that has nothing to say needs not be cut off.
        ("packet", "-all,+net_raw", "opened", 0),
    ] {
        assert_eq!(play_without(&gateway, role, capabilities)?, (said.to_owned(), Some(code)));
    }
    // With an address it answers: the link would not be exclusive.
    gateway.ip(&["address", "add", "192.0.2.9/24", "dev", "h0"])?;
    let (said, code) = play_without(&gateway, "packet", "-all,+net_raw")?;
    let expected = "g0 cannot be exclusive: the kernel would answer there, as it has the address \
                    192.0.2.9 on h0; CAP_NET_ADMIN is needed to prevent that (and CAP_BPF without \
                    nftables)";
    assert_eq!((said.as_str(), code), (expected, Some(77)));
    let (said, _) = play_without(&gateway, "packet", "-all,+net_raw,+net_admin")?;
    assert_eq!(said, "opened", "it is cut off, and may have an address");
    Ok(())
}

/// What a copy of this program says that has only the capabilities of the bounding set
/// `capabilities`, and its exit code: 0 for one that opened its link and was killed.
fn play_without(
    gateway: &Namespace,
    role: &str,
    capabilities: &str,
) -> Result<(String, Option<i32>), Failed> {
    let mut copy = gateway
        .command("setpriv")
        .args(["--bounding-set", capabilities, "--inh-caps", "-all"])
        .arg(env::current_exe()?)
        .env(ROLE, role)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(copy.stdout().ok_or("no output")?).lines();
    let said = lines.next().ok_or("it said nothing")??;
    if said == "opened" {
        copy.kill();
        return Ok((said, Some(0)));
    }
    Ok((said, copy.wait()?.code()))
}

/// Has the gateway's link send `count` frames of broadcast to the host.
fn send(link: &mut dyn Link, pool: &Pool, count: usize) {
    let mut batch = Batch::default();
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame.resize(60, 0);
    for _ in 0..count {
        batch.push(pool.packet_of(&frame).unwrap()).unwrap();
    }
    link.transmit(Duration::ZERO, &mut batch);
}

/// Takes what arrives until it is `count` frames or nothing more comes; how many they were.
fn take(link: &mut dyn Link, count: usize, limit: Duration) -> usize {
    let (mut batch, mut taken) = (Batch::default(), 0);
    wait_until(limit, || {
        taken += link.receive(Duration::ZERO, &mut batch);
        batch.clear();
        taken >= count
    });
    taken
}

fn comes_home() -> Result<(), Failed> {
    let (gateway, _cable) = cable(1500)?;
    for backend in [Backend::Xdp, Backend::PacketSocket] {
        gateway.run(|| -> Result<(), Failed> {
            let pool = pool(512, CHUNK_SIZE);
            let opener = Opener::new(Rc::clone(&pool));
            let mut link = opener.open(&config("g0", backend))?;
            let (mut far, far_pool) = far_end()?;
            for _ in 0..8 {
                send(&mut *far, &far_pool, 40);
                send(&mut *link, &pool, 40);
                assert_eq!(take(&mut *link, 40, LIMIT), 40, "{backend:?}");
                assert_eq!(take(&mut *far, 40, LIMIT), 40, "{backend:?}");
            }
            // These are never taken: they are in the rings when the link closes.
            send(&mut *far, &far_pool, 40);
            let lent = pool.capacity() - pool.available();
            assert_eq!(lent > 0, backend == Backend::Xdp, "{backend:?} has {lent}");
            drop(link);
            assert_eq!(pool.available(), pool.capacity(), "{backend:?}");
            Ok(())
        })??;
    }
    Ok(())
}

fn opens_again() -> Result<(), Failed> {
    let (gateway, _cable) = cable(1500)?;
    gateway.run(|| -> Result<(), Failed> {
        let opener = Opener::new(pool(512, CHUNK_SIZE));
        for _ in 0..10 {
            opener.open(&config("g0", Backend::Xdp))?;
        }
        let _link = opener.open(&config("g0", Backend::Xdp))?;
        let second = opener.open(&config("g0", Backend::Xdp)).map(drop).unwrap_err();
        assert!(second.to_string().contains("busy"), "two cannot both have it: {second}");
        Ok(())
    })?
}

/// Starts a copy that opens g0; what it says of that.
fn copy_opens(
    gateway: &Namespace,
    role: &str,
) -> Result<(gatewright_testbed::Process, String), Failed> {
    let mut copy = gateway
        .command(env::current_exe()?.to_str().ok_or("a path of another world")?)
        .env(ROLE, role)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(copy.stdout().ok_or("no output")?).lines();
    let said = lines.next().ok_or("it ended")??;
    Ok((copy, said))
}

fn one_host() -> Result<(), Failed> {
    for (first, second) in [("packet", "packet"), ("xdp", "packet"), ("packet", "xdp")] {
        let (gateway, _cable) = cable(1500)?;
        let (host, said) = copy_opens(&gateway, first)?;
        assert_eq!(said, "opened");
        let (_other, said) = copy_opens(&gateway, second)?;
        assert!(said.starts_with("g0 cannot be exclusive: "), "{first}, {second}: {said}");
        assert!(said.contains(" is the host there; "), "{said}");
        // The interface of the same index in another namespace is another one.
        let (elsewhere, _cable) = cable(1500)?;
        assert_eq!(copy_opens(&elsewhere, second)?.1, "opened");
        host.kill();
        let opens = || copy_opens(&gateway, second).is_ok_and(|(_, said)| said == "opened");
        assert!(wait_until(LIMIT, opens), "a killed process has no claim");
    }
    Ok(())
}

/// A user without the right to open links takes a claim's name beforehand: the first process is the host
/// all the same, and the second is refused.
fn squatted() -> Result<(), Failed> {
    let (gateway, _cable) = cable(1500)?;
    let (squatter, said) = copy_opens(&gateway, SQUATTER)?;
    assert_eq!(said, "opened");
    let (host, said) = copy_opens(&gateway, "packet")?;
    assert_eq!(said, "opened", "a stranger's name is no claim");
    let holders = gateway.run(|| if_nametoindex("g0").map(claim_name_holders))??;
    let [NameHolder { user: SQUATTER_UID, .. }] = holders[..] else {
        return Err(format!("{holders:?}").into());
    };
    let (_other, said) = copy_opens(&gateway, "packet")?;
    assert!(said.contains(" is the host there; "), "{said}");
    squatter.kill();
    let (_other, said) = copy_opens(&gateway, "packet")?;
    assert!(said.contains(" is the host there; "), "when the first name is free: {said}");
    host.kill();
    let opens = || copy_opens(&gateway, "packet").is_ok_and(|(_, said)| said == "opened");
    assert!(wait_until(LIMIT, opens), "a killed process has no claim");
    Ok(())
}

fn kill_9() -> Result<(), Failed> {
    let (gateway, _cable) = cable(1500)?;
    let attached = || -> Result<bool, Failed> {
        Ok(gateway.ip(&["-details", "link", "show", "dev", "g0"])?.contains("prog/xdp"))
    };
    let (copy, said) = copy_opens(&gateway, "xdp")?;
    assert_eq!(said, "opened");
    assert!(attached()?);
    copy.kill();
    assert!(wait_until(LIMIT, || !attached().unwrap_or(true)), "the program must go");
    Ok(())
}

fn kill_9_of_a_packet_socket() -> Result<(), Failed> {
    let (gateway, host) = (Namespace::new()?, Namespace::new()?);
    let cable = Veth::pair(&gateway, "g0", &host, "h0")?;
    cable.a.add_address("192.0.2.1/24")?;
    cable.b.add_address("192.0.2.2/24")?;
    cable.up()?;
    // A kernel that can speak says that nobody listens there.
    let speaks = || -> Result<bool, Failed> {
        let refused = host.run(|| -> std::io::Result<bool> {
            let socket = UdpSocket::bind("192.0.2.2:0")?;
            socket.connect("192.0.2.1:9")?;
            socket.set_read_timeout(Some(Duration::from_millis(500)))?;
            socket.send(&[0])?;
            let answer = socket.recv(&mut [0; 16]).map_err(|error| error.kind());
            Ok(answer == Err(ErrorKind::ConnectionRefused))
        })??;
        Ok(refused)
    };
    assert!(wait_until(LIMIT, || speaks().unwrap_or(false)), "it can");
    let (copy, said) = copy_opens(&gateway, "packet")?;
    assert_eq!(said, "opened");
    assert!(!speaks()?, "the link is exclusive");
    copy.kill();
    assert!(wait_until(LIMIT, || speaks().unwrap_or(false)), "it must be able to again");
    Ok(())
}

fn goes_and_returns() -> Result<(), Failed> {
    for backend in [Backend::Xdp, Backend::PacketSocket] {
        let (gateway, cable) = cable(1500)?;
        gateway.run(|| -> Result<(), Failed> {
            let pool = pool(512, CHUNK_SIZE);
            let opener = Opener::new(Rc::clone(&pool));
            let mut link = opener.open(&config("g0", backend))?;
            assert_eq!(link.state(), LinkState::Up);
            cable.b.down()?;
            // The kernel tells a lost carrier a moment later.
            assert!(wait_until(LIMIT, || link.state() == LinkState::Down), "without a carrier");
            send(&mut *link, &pool, 1);
            cable.b.up()?;
            cable.a.down()?;
            send(&mut *link, &pool, 1);
            assert_eq!(link.state(), LinkState::Down);
            assert_is_quiet(&*link);
            cable.a.up()?;
            assert!(wait_until(LIMIT, || link.state() == LinkState::Up));
            assert_eq!(exchange(&mut *link)?, 10, "{backend:?} carries: {:?}", link.counters());

            let sent_before = link.counters().received;
            cable.a.delete()?;
            assert_is_quiet(&*link);
            assert_eq!(link.state(), LinkState::Gone);
            send(&mut *link, &pool, 3);
            take(&mut *link, 1, Duration::ZERO);
            assert_is_quiet(&*link);
            assert_eq!(link.state(), LinkState::Gone, "it is not there yet");
            let mut is_home = || {
                assert_eq!(link.state(), LinkState::Gone);
                pool.available() == pool.capacity()
            };
            assert!(wait_until(LIMIT, &mut is_home), "its packets are home");
            let again = Veth::pair(&gateway, "g0", &gateway, "h0")?;
            again.a.disable_ipv6()?;
            again.b.disable_ipv6()?;
            again.a.set_mac("02:00:00:00:00:99")?;
            again.up()?;
            assert!(wait_until(LIMIT, || link.state() == LinkState::Up), "it is taken back");
            let own = LinkAddress::ethernet([2, 0, 0, 0, 0, 0x99]);
            assert_eq!(link.info().link_address, own);
            assert_eq!(exchange(&mut *link)?, 10, "{backend:?} is back: {:?}", link.counters());
            let counters = link.counters();
            assert_eq!(counters.received, sent_before + 10, "the counters go on");
            assert!(counters.transmit_down >= 3, "{counters:?}");
            Ok(())
        })??;
    }
    Ok(())
}

/// A worker that sleeps on the link is not woken.
fn assert_is_quiet(link: &dyn Link) {
    if let Some(fd) = link.poll_fd() {
        let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(20_u8)).unwrap(), 0, "{:?}", fds[0].revents());
    }
}

/// Sends ten frames from the host; how many of them arrive.
fn exchange(link: &mut dyn Link) -> Result<usize, Failed> {
    while take(link, 1, Duration::from_millis(20)) > 0 {}
    let (mut far, far_pool) = far_end()?;
    send(&mut *far, &far_pool, 10);
    Ok(take(link, 10, LIMIT))
}

fn foreign_packets() -> Result<(), Failed> {
    let (gateway, _cable) = cable(1500)?;
    gateway.run(|| -> Result<(), Failed> {
        let (own, other) = (pool(512, CHUNK_SIZE), pool(512, CHUNK_SIZE));
        let mut link = Opener::new(Rc::clone(&own)).open(&config("g0", Backend::Xdp))?;
        let (mut far, _) = far_end()?;
        send(&mut *link, &other, 10);
        assert_eq!(take(&mut *far, 10, LIMIT), 10);
        assert_eq!(other.available(), other.capacity(), "theirs went home");
        Ok(())
    })?
}

fn empty_pool() -> Result<(), Failed> {
    let (gateway, _cable) = cable(1500)?;
    for backend in [Backend::Xdp, Backend::PacketSocket] {
        gateway.run(|| -> Result<(), Failed> {
            let pool = pool(160, CHUNK_SIZE);
            let mut link = Opener::new(Rc::clone(&pool)).open(&config("g0", backend))?;
            let mut held = Vec::new();
            while let Some(packet) = pool.packet() {
                held.push(packet);
            }
            let (mut far, far_pool) = far_end()?;
            let mut batch = Batch::default();
            for _ in 0..10 {
                send(&mut *far, &far_pool, 40);
                wait_until(Duration::from_millis(20), || {
                    link.receive(Duration::ZERO, &mut batch);
                    held.extend(batch.drain());
                    false
                });
            }
            let counters = link.counters();
            let dropped = counters.receive_no_packet + counters.receive_overrun;
            assert!(dropped > 0, "{backend:?}: {counters:?}");
            held.clear();
            take(&mut *link, usize::MAX, Duration::from_millis(20));
            assert_eq!(exchange(&mut *link)?, 10, "{backend:?}: {:?}", link.counters());
            Ok(())
        })??;
    }
    // The namespaces are this test's alone; nothing of it is left in ours.
    assert!(!fs::read_to_string("/proc/net/dev")?.contains(" g0:"));
    Ok(())
}
