//! Links that go on with what an earlier process has open, and what another process may hold of them.

use super::{GroupSockets, LinkConfig, Preparer};
use crate::exclusive::KernelSilenced;
use crate::interface::Interface;
use crate::packet_socket::Bound;
use crate::unbound::{Opened, UnboundDevice};
use crate::xdp::{self, Unbound};
use crate::{
    DeviceFacts, DriverForwarding, HeldDevice, HeldKind, KernelTables, LinkInfo, OpenDevices,
    OpenError, Share,
};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

impl Preparer {
    /// Goes on with what an earlier process has open. There is no other way while somebody holds it:
    /// an interface has one program, and two sockets would both receive.
    pub(super) fn go_on(
        &self,
        config: &LinkConfig,
        held: HeldDevice,
        now: &LinkInfo,
        interface: Interface,
    ) -> Result<Opened, OpenError> {
        match held.facts.kind {
            HeldKind::XdpProgram { is_generic, in_pieces, .. } => {
                self.go_on_with_program(config, held, now, (interface, is_generic, in_pieces))
            }
            HeldKind::PacketSockets { .. } => {
                let sockets = GroupSockets::of_held(config, held, now, &interface);
                let sockets = sockets.map_err(|source| {
                    let action = "go on with the packet sockets of the process before";
                    OpenError::system(&now.name, action, "CAP_NET_RAW", source)
                })?;
                sockets.into_link(config, self.devices())
            }
            HeldKind::Tap | HeldKind::XdpSockets { .. } => Err(OpenError::Unsupported {
                name: now.name.clone(),
                reason: "what the process before had of it is of another kind".to_owned(),
            }),
        }
    }

    fn go_on_with_program(
        &self,
        config: &LinkConfig,
        mut held: HeldDevice,
        now: &LinkInfo,
        (interface, is_generic, in_pieces): (Interface, bool, bool),
    ) -> Result<Opened, OpenError> {
        let options = self.options(config, is_generic, in_pieces);
        let (name, driver) = (now.name.as_str(), now.driver.clone());
        let info = &mut held.facts.info;
        if options.division.is_some() && info.link_address != now.link_address {
            let reason = "the program of the process before is for another address".to_owned();
            return Err(OpenError::Unsupported { name: name.to_owned(), reason });
        }
        (info.link_address, info.mtu) = (now.link_address, now.mtu);
        let held = (held, self.held_sockets(config));
        let mut registered = self.registered();
        let opened = Unbound::go_on(held, interface, &options, self.slab, &mut registered);
        let opened = opened.and_then(|opened| self.note(config, &options, opened));
        let (link, common) = opened.map_err(|failed| OpenError::of_xdp(name, &driver, failed))?;
        Ok(Opened { device: UnboundDevice::Xdp(Box::new(link)), common })
    }

    /// The AF_XDP sockets that an earlier process has open of a share of a link.
    pub(super) fn held_sockets(&self, config: &LinkConfig) -> Option<HeldDevice> {
        let are_sockets = |kind: &HeldKind| matches!(kind, HeldKind::XdpSockets { .. });
        self.devices().take(config.index, config.share, are_sockets)
    }

    /// Notes the sockets of a share of an exclusive link for another process, if it can go on with
    /// them. The kernel has the frames of a shared link while there is no process.
    pub(super) fn note_sockets(&self, config: &LinkConfig, link: &Unbound) {
        let Some(memory) = self.memory.as_ref().filter(|_| config.exclusive) else { return };
        if let Some((kind, descriptors)) = link.to_keep(self.slab, memory) {
            let (index, share, info) = (config.index, config.share, link.info().clone());
            let facts = DeviceFacts { link: index, share, info, kind };
            self.devices().note(facts, &descriptors);
        }
    }

    /// Notes a link that was opened, for other maps and for another process.
    pub(super) fn note(
        &self,
        config: &LinkConfig,
        options: &xdp::XdpOptions,
        (link, common): xdp::Opened,
    ) -> Result<xdp::Opened, xdp::Failed> {
        let KernelTables { forwarding, devices, .. } = &self.tables;
        let mut noted = common.note_in(devices, config.index);
        if common.info.driver_forwarding == DriverForwarding::Active {
            noted = noted.and_then(|()| forwarding.note(&common, &options.forwarding));
        }
        self.note_sockets(config, &link);
        match noted {
            Ok(()) => Ok((link, common)),
            Err(source) => Err(xdp::Failed { action: "share what is open", source }),
        }
    }
}

impl GroupSockets {
    /// The sockets that an earlier process has opened.
    fn of_held(
        config: &LinkConfig,
        held: HeldDevice,
        now: &LinkInfo,
        interface: &Interface,
    ) -> io::Result<Self> {
        let HeldDevice { facts: DeviceFacts { info, kind, .. }, descriptors } = held;
        let HeldKind::PacketSockets { sockets, slots, frame_len } = kind else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let mut all = descriptors.into_iter();
        let mut next = || all.next().ok_or(io::ErrorKind::InvalidData);
        let mut one = || {
            let (own, pair) = (interface.again()?, [next()?, next()?]);
            Bound::of_held(config.index, own, pair, (size(slots), size(frame_len)))
        };
        let bound = (0..sockets).map(|_| one()).collect::<io::Result<Vec<_>>>()?;
        let silenced = KernelSilenced::of_held(all.next(), info.exclusive);
        let info = LinkInfo { link_address: now.link_address, mtu: now.mtu, ..info };
        Ok(Self { info, interface: interface.again()?, bound, silenced: Some(silenced) })
    }

    /// What another process may hold of an exclusive link. The kernel has the frames of a shared one
    /// while there is no process.
    pub(super) fn to_keep(
        &self,
        config: &LinkConfig,
        devices: &OpenDevices,
    ) -> io::Result<Option<(DeviceFacts, Vec<OwnedFd>)>> {
        if !devices.are_kept() || !config.exclusive {
            return Ok(None);
        }
        let number = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        let [sockets, slots] = [self.bound.len(), config.ring_slots].map(number);
        let frame_len = number(self.bound.first().map_or(0, Bound::frame_len));
        let silenced = self.silenced.as_ref().and_then(KernelSilenced::attached);
        let all = self.bound.iter().flat_map(Bound::descriptors);
        let all = all.chain(silenced.map(AsFd::as_fd)).map(|fd| fd.try_clone_to_owned());
        let kind = HeldKind::PacketSockets { sockets, slots, frame_len };
        let (link, info) = (config.index, self.info.clone());
        let facts = DeviceFacts { link, share: Share::WHOLE, info, kind };
        Ok(Some((facts, all.collect::<io::Result<_>>()?)))
    }
}
