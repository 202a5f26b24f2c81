//! The network of programs in a gateway: the kernel's sockets, and for some roles those of the
//! gateway's own stack.
//!
//! One poller waits for both. The kernel's sockets are watched by `mio`; the stack's sockets notify
//! a [`ReadySet`], which wakes the poller by the event of its waker. A program uses the stack with
//! one loop: the stack has one socket at an address. It has UDP and no TCP yet.

use gatewright_config::{self as config, Config};
use gatewright_diagnostic::Span;
use gatewright_edge::{
    Bind, Datagrams, Domain, GROUP_HOPS, Network, Poller, Readiness, ReadySet, Sharing, Token, Wake,
};
use gatewright_lang::ir::{Program, Role, Side, Transport};
use gatewright_packet::LinkIndex;
use gatewright_planes::Planes;
use gatewright_runner::{
    KernelDatagrams, KernelListener, KernelNetwork, KernelPoller, KernelStream,
};
use gatewright_stack::{Sockets, UdpSocket};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Maximum sockets of the stack in one loop, those of programs that end included.
const STACK_SOCKETS_MAX: usize = 256;

/// The domain of the stack's sockets; the kernel's is the default.
const STACK: Domain = Domain(1);

/// The kernel's network, and the gateway's own stack for the roles of certain names.
#[derive(Clone, Debug)]
pub struct StackNetwork {
    kernel: KernelNetwork,
    sockets: Sockets,
    /// The links whose groups are joined.
    links: Arc<[LinkIndex]>,
    roles: Arc<[String]>,
}

impl StackNetwork {
    /// The network of a gateway's planes; `roles` use the stack. Groups are joined on the links
    /// that it has now.
    #[must_use]
    pub fn new(planes: &Planes, roles: Vec<String>) -> Self {
        let links = planes
            .change_host(|host| host.interfaces().iter().map(|interface| interface.link).collect());
        let sockets = planes.sockets().clone();
        Self { kernel: KernelNetwork::new(), sockets, links, roles: roles.into() }
    }

    /// The network of another program, with the time of this one.
    pub(crate) fn renewed(&self, planes: &Planes, roles: Vec<String>) -> Self {
        Self { kernel: self.kernel, ..Self::new(planes, roles) }
    }

    fn uses_stack(&self, role: &str) -> bool {
        self.roles.iter().any(|it| it == role)
    }

    /// A socket of the stack.
    fn bind(&self, bind: Bind) -> io::Result<UdpSocket> {
        let any = |like: SocketAddr, port| match like {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
        };
        let local = match bind {
            Bind::Server(address) => address,
            Bind::Group(group) => any(group, group.port()),
            Bind::Client(peer) => any(peer, 0),
        };
        let socket = self.sockets.bind(local)?;
        socket.set_nonblocking(true);
        // A route decides over IPv4; a group of IPv6 is in the scope of a link.
        socket.set_multicast(GROUP_HOPS, self.links.first().copied().filter(|_| local.is_ipv6()));
        if let Bind::Group(group) = bind {
            if self.links.is_empty() {
                return Err(ErrorKind::AddrNotAvailable.into());
            }
            self.links.iter().try_for_each(|&link| socket.join_multicast(group.ip(), link))?;
        }
        Ok(socket)
    }
}

impl Network for StackNetwork {
    type Poller = StackPoller;

    fn now(&self) -> Duration {
        self.kernel.now()
    }

    fn poller(&self) -> io::Result<StackPoller> {
        let kernel = self.kernel.poller()?;
        let ready = ReadySet::new(STACK_SOCKETS_MAX, kernel.waker());
        Ok(StackPoller { kernel, ready, tokens: vec![None; STACK_SOCKETS_MAX] })
    }

    fn listen(
        &self,
        role: &str,
        address: SocketAddr,
        sharing: Sharing,
    ) -> io::Result<KernelListener> {
        if self.uses_stack(role) {
            return Err(ErrorKind::Unsupported.into());
        }
        self.kernel.listen(role, address, sharing)
    }

    fn datagrams(&self, role: &str, bind: Bind, sharing: Sharing) -> io::Result<StackDatagrams> {
        if self.uses_stack(role) {
            return self.bind(bind).map(|socket| StackDatagrams::Stack(Box::new(socket)));
        }
        self.kernel.datagrams(role, bind, sharing).map(StackDatagrams::Kernel)
    }

    fn domain(&self, role: &str) -> Domain {
        if self.uses_stack(role) { STACK } else { Domain::default() }
    }

    fn resolve(&self, host: &str, port: u16) -> Option<SocketAddr> {
        self.kernel.resolve(host, port)
    }
}

/// Waits for sockets of the kernel and of the stack.
#[derive(Debug)]
pub struct StackPoller {
    kernel: KernelPoller,
    ready: Arc<ReadySet>,
    /// The tokens of the stack's sockets, by their places in the set.
    tokens: Vec<Option<Token>>,
}

impl StackPoller {
    /// Sets the token of a socket of the stack.
    fn watch(&mut self, socket: &UdpSocket, token: Token) -> io::Result<()> {
        if socket.notifier().is_none() {
            let notifier = self.ready.notifier().ok_or(ErrorKind::OutOfMemory)?;
            // It has none, and only its own loop gives it one.
            let _set = socket.set_notifier(notifier);
        }
        let place = socket.notifier().and_then(|it| self.tokens.get_mut(it.place()));
        *place.ok_or(ErrorKind::OutOfMemory)? = Some(token);
        Ok(())
    }
}

impl Poller for StackPoller {
    type Stream = KernelStream;
    type Listener = KernelListener;
    type Datagrams = StackDatagrams;

    fn now(&self) -> Duration {
        self.kernel.now()
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.kernel.waker()
    }

    fn watch_listener(&mut self, listener: &mut KernelListener, token: Token) -> io::Result<()> {
        self.kernel.watch_listener(listener, token)
    }

    fn watch_datagrams(&mut self, socket: &StackDatagrams, token: Token) -> io::Result<()> {
        match socket {
            StackDatagrams::Kernel(socket) => self.kernel.watch_datagrams(socket, token),
            StackDatagrams::Stack(socket) => self.watch(socket, token),
        }
    }

    fn watch_stream(&mut self, stream: &mut KernelStream, token: Token) -> io::Result<()> {
        self.kernel.watch_stream(stream, token)
    }

    fn forget_datagrams(&mut self, socket: &StackDatagrams) {
        match socket {
            StackDatagrams::Kernel(socket) => self.kernel.forget_datagrams(socket),
            StackDatagrams::Stack(socket) => {
                let place = socket.notifier().and_then(|it| self.tokens.get_mut(it.place()));
                if let Some(token) = place {
                    *token = None;
                }
            }
        }
    }

    fn connect(&mut self, to: SocketAddr, token: Token) -> io::Result<KernelStream> {
        self.kernel.connect(to, token)
    }

    fn wait(&mut self, ready: &mut Vec<Readiness>, pause: Option<Duration>) -> io::Result<bool> {
        let woken = self.kernel.wait(ready, pause)?;
        if woken {
            let tokens = &self.tokens;
            self.ready.take(|place| {
                if let Some(&Some(token)) = tokens.get(place) {
                    ready.push(Readiness { token, readable: true, ..Readiness::default() });
                }
            });
        }
        Ok(woken)
    }
}

/// A datagram socket of the kernel or of the stack.
#[derive(Debug)]
pub enum StackDatagrams {
    /// One of the kernel.
    Kernel(KernelDatagrams),
    /// One of the gateway's own stack, which keeps as many datagrams as
    /// [`SOCKET_QUEUE_MAX`](gatewright_stack::SOCKET_QUEUE_MAX).
    Stack(Box<UdpSocket>),
}

impl Datagrams for StackDatagrams {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        match self {
            Self::Kernel(socket) => socket.receive(buffer),
            Self::Stack(socket) => socket.recv_from(buffer).map_err(|error| match error.kind() {
                // The stack has ended: nothing comes any more.
                ErrorKind::NotConnected => ErrorKind::WouldBlock.into(),
                _ => error,
            }),
        }
    }

    fn send(&self, octets: &[u8], to: SocketAddr) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => socket.send(octets, to),
            Self::Stack(socket) => socket.send_to(octets, to).map(drop),
        }
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(socket) => socket.local_address(),
            Self::Stack(socket) => Ok(socket.local_addr()),
        }
    }
}

/// Findings about roles of `program` that are to use the gateway's own stack, each at its place in
/// the description.
pub fn stack_findings(
    program: &Program,
    wanted: &config::Program,
    config: &Config,
) -> Vec<(Span, String)> {
    let finding = |name: &config::Located<String>| {
        let found = program.roles.iter().find(|role| role.name == name.value);
        let why = match found {
            None => Some("the program has no such role".to_owned()),
            Some(role) => stack_refuses(role, wanted, config),
        };
        why.map(|why| (name.span, format!("`{}` over the gateway's own stack: {why}", name.value)))
    };
    wanted.stack.iter().filter_map(finding).collect()
}

/// Why a role cannot use the stack of the gateway that `config` describes.
fn stack_refuses(role: &Role, wanted: &config::Program, config: &Config) -> Option<String> {
    if role.transport == Transport::Tcp {
        return Some("it is a role of TCP, which the stack does not have yet".to_owned());
    }
    let mut exclusive = config.links.iter().filter(|link| link.exclusive).peekable();
    if exclusive.peek().is_none() {
        return Some("no link is exclusive, so the stack is no host".to_owned());
    }
    let set = wanted.at.iter().find(|(name, _)| *name == role.name).map(|(_, address)| address);
    let address = set.unwrap_or(&role.address).parse().ok().map(|at: SocketAddr| at.ip());
    let own = |ip: IpAddr| ip.is_unspecified() || ip.is_multicast();
    // A name, a client's peer or a group is no address of ours.
    let ip = address.filter(|&ip| role.side == Side::Server && !own(ip))?;
    let has = |link: &config::Link| {
        link.is_dynamic() || link.addresses.iter().any(|own| own.address() == ip)
    };
    (!exclusive.any(has)).then(|| format!("{ip} is no address of an exclusive link"))
}
