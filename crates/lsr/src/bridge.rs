//! Bridge ports of the node: interfaces whose stations take part in the mesh.

use crate::forwarding::port_number;
use crate::frames::{IPV4, IPV6};
use crate::port;
use gatewright_link::{FrameSelection, FrameSocket, InterfaceProperties, OFFLOADS_LEN};
use gatewright_mesh::BridgePort;
use gatewright_xdp::LabelSwitching;
use gatewright_xdp::program::{AttachedProgram, Hook};
use std::io;

/// A bridge port of the node.
#[derive(Debug)]
pub(crate) struct StationPort {
    /// Name of its interface.
    pub(crate) name: String,
    /// Its number for the machine.
    pub(crate) port: BridgePort,
    /// What the interface was when it was looked at last; `None` if it was not there.
    pub(crate) properties: Option<InterfaceProperties>,
    open: Option<OpenStationPort>,
    /// Whether the machine has it as up.
    pub(crate) is_up: bool,
    /// Whether it forwards.
    pub(crate) forwards: bool,
}

/// Program and sockets of a bridge port.
#[derive(Debug)]
struct OpenStationPort {
    /// The interface that they belong to.
    index: u32,
    /// What stations send and the program does not take, and ends of TCP connections.
    receive: [FrameSocket; 3],
    _program: AttachedProgram,
}

impl StationPort {
    pub(crate) fn new(name: String, port: BridgePort) -> Self {
        Self { name, port, properties: None, open: None, is_up: false, forwards: false }
    }

    /// Whether frames can pass.
    pub(crate) fn can_carry(&self) -> bool {
        self.open.is_some() && self.properties.is_some_and(|known| known.is_up)
    }

    /// Looks at the interface; returns whether it is another one than before, or changed.
    pub(crate) fn look(&mut self) -> bool {
        port::look(&self.name, &mut self.properties, &mut self.open, |open| open.index)
    }

    /// Opens sockets and loads the program, if the interface is there and they are not.
    pub(crate) fn begin(&mut self, switching: &LabelSwitching) -> io::Result<()> {
        let Some(found) = self.properties else {
            return Err(io::Error::from_raw_os_error(nix::libc::ENODEV));
        };
        if self.open.is_some() {
            return Ok(());
        }
        let socket = |selection| FrameSocket::open(found.index, selection, true);
        let receive = [
            socket(FrameSelection::EtherType(IPV4))?,
            socket(FrameSelection::EtherType(IPV6))?,
            socket(FrameSelection::NotIpOrTcpEnds)?,
        ];
        let [first, ..] = &receive;
        // Stations send to other stations.
        first.be_promiscuous(found.index)?;
        let program = switching.push(port_number(self.port)).map_err(io::Error::other)?;
        let program = program.attach(found.index, Hook::Ingress)?;
        self.open = Some(OpenStationPort { index: found.index, receive, _program: program });
        Ok(())
    }

    /// The sockets that receive, while the port can carry frames.
    pub(crate) fn receive(&self) -> &[FrameSocket] {
        self.open.as_ref().map_or(&[], |open| &open.receive)
    }

    /// Sends a frame with its offload header.
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        match self.receive() {
            [first, ..] => first.send(frame),
            [] => Err(io::Error::from_raw_os_error(nix::libc::ENETDOWN)),
        }
    }

    /// Sends a frame that leaves nothing to a device.
    pub(crate) fn send_whole(&self, frame: &[u8]) -> io::Result<()> {
        self.send(&[&[0; OFFLOADS_LEN], frame].concat())
    }

    /// Its state in a word.
    pub(crate) fn word(&self) -> &'static str {
        match self.properties {
            None => "absent",
            Some(_) if self.open.is_none() => "refused",
            Some(found) if !found.is_up => "down",
            Some(_) if self.forwards => "forwards",
            Some(_) => "stands by",
        }
    }
}
