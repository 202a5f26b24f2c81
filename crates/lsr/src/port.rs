//! Links that the node has joined, each with its program and sockets.

use crate::frames::MPLS;
use gatewright_link::{FrameSelection, FrameSocket, InterfaceProperties};
use gatewright_mesh::LinkProperties;
use gatewright_mesh::message::{ETHER_TYPE, GROUP_ADDRESS};
use gatewright_packet::LinkAddress;
use gatewright_xdp::LabelSwitching;
use gatewright_xdp::program::{AttachedProgram, Hook};
use std::io;

/// MTU that hosts keep, whatever links their frames take.
const HOSTS_MTU: usize = 1500;
/// Cost of a hop that cannot carry all of their frames: more than that of the longest path of others.
const NARROW_COST: u16 = 400;

/// A link of the node.
#[derive(Debug)]
pub(crate) struct Port {
    /// Name of its interface.
    pub(crate) name: String,
    /// Its number in the label table, where its program finds its own address.
    pub(crate) number: u32,
    /// What the interface was when it was looked at last; `None` if it was not there.
    pub(crate) properties: Option<InterfaceProperties>,
    /// Program and sockets, while the interface is there.
    pub(crate) open: Option<OpenPort>,
    /// Whether an operator has cut it.
    pub(crate) is_cut: bool,
    /// Whether the machine has it as up.
    pub(crate) is_up: bool,
}

/// Program and sockets of a link.
#[derive(Debug)]
pub(crate) struct OpenPort {
    /// The interface that they belong to.
    pub(crate) index: u32,
    /// Sends and receives control messages.
    pub(crate) control: FrameSocket,
    /// Receives labelled frames that the program has passed up, with offloads.
    pub(crate) passed_up: FrameSocket,
    /// Sends labelled frames.
    pub(crate) labelled: FrameSocket,
    _program: AttachedProgram,
}

/// Looks at the interface `name`, and closes what belongs to another one, as `index` tells; returns
/// whether it is another one than before, or changed.
pub(crate) fn look<O>(
    name: &str,
    properties: &mut Option<InterfaceProperties>,
    open: &mut Option<O>,
    index: impl FnOnce(&O) -> u32,
) -> bool {
    let now = InterfaceProperties::of(name).ok();
    let before = std::mem::replace(properties, now);
    if open.as_ref().map(index) != now.map(|now| now.index) {
        *open = None;
    }
    before != now
}

impl Port {
    pub(crate) fn new(name: String, number: u32) -> Self {
        Self { name, number, properties: None, open: None, is_cut: false, is_up: false }
    }

    /// Whether frames can pass.
    pub(crate) fn can_carry(&self) -> bool {
        self.open.is_some() && !self.is_cut && self.properties.is_some_and(|known| known.is_up)
    }

    /// Looks at the interface; returns whether it is another one than before, or changed.
    pub(crate) fn look(&mut self) -> bool {
        look(&self.name, &mut self.properties, &mut self.open, |open| open.index)
    }

    /// Opens sockets and loads the program, if the interface is there and they are not.
    pub(crate) fn begin(&mut self, switching: &LabelSwitching) -> io::Result<()> {
        let Some(found) = self.properties else {
            return Err(io::Error::from_raw_os_error(nix::libc::ENODEV));
        };
        if self.open.is_some() {
            return Ok(());
        }
        let control = FrameSelection::EtherType(ETHER_TYPE);
        let control = FrameSocket::open(found.index, control, false)?;
        control.join(found.index, GROUP_ADDRESS)?;
        let passed_up = FrameSocket::open(found.index, FrameSelection::EtherType(MPLS), true)?;
        let labelled = FrameSocket::open(found.index, FrameSelection::Nothing, false)?;
        let program = switching.switch(self.number).map_err(io::Error::other)?;
        let program = program.attach(found.index, Hook::Ingress)?;
        let index = found.index;
        self.open = Some(OpenPort { index, control, passed_up, labelled, _program: program });
        Ok(())
    }

    /// The link as the machine knows it.
    pub(crate) fn link_properties(&self) -> LinkProperties {
        let mtu = self.properties.map_or(0, |found| found.mtu);
        let other = LinkProperties::default();
        LinkProperties {
            cost: if mtu < HOSTS_MTU { NARROW_COST } else { other.cost },
            frame_limit: u16::try_from(mtu).unwrap_or(u16::MAX),
            address: self.properties.map_or(LinkAddress::NONE, |it| LinkAddress::ethernet(it.mac)),
            ..other
        }
    }

    /// Its state in a word.
    pub(crate) fn word(&self) -> &'static str {
        match self.properties {
            None => "absent",
            Some(_) if self.is_cut => "cut",
            Some(_) if self.open.is_none() => "refused",
            Some(found) if found.is_up => "up",
            Some(_) => "down",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_mesh::message::HOPS_MAX;

    /// Longer frames are lost there, so that any other way is better.
    #[test]
    fn a_link_of_a_smaller_mtu_costs_more_than_any_path_of_others() {
        let cost = |mtu| {
            let found = InterfaceProperties {
                index: 1,
                mac: [2; 6],
                mtu,
                is_up: true,
                cuts_super_frames: false,
            };
            let port = Port { properties: Some(found), ..Port::new("wan".to_owned(), 0) };
            port.link_properties().cost
        };
        assert_eq!(cost(9000), cost(1500));
        assert!(usize::from(cost(1499)) > (HOPS_MAX + 1) * usize::from(cost(1500)));
    }
}
