//! Events of links, addresses and routes, in words for the operator.

use super::{
    Control,
    learnt::{LEARNT_MAX, LearntItem},
};
use crate::setup::RouteTo;
use gatewright_data::DeviceSetup;
use gatewright_link::{Backend, LinkInfo, Mode, NameHolder, claim_name_holders};
use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_part::{EventSink, LogEvent, LogLevel};
use gatewright_stack::{Event, Lease};
use std::{net::IpAddr, time::Duration};

/// A station of a link, in words.
fn station(address: LinkAddress) -> String {
    if address.is_none() { "another station".to_owned() } else { format!("the station {address}") }
}

/// What is said of a shared VLAN for which the kernel has no interface.
fn without_interface(name: &str, device: &str, tag: u16) -> String {
    format!(
        "link {name} is down: the kernel has no VLAN interface with its tag {tag} on {device}, so that \
         nothing is routed over it; `ip link add link {device} type vlan id {tag}` makes one"
    )
}

/// The part whose events these are.
const PART: &str = "links";

impl Control {
    /// Logs an event of a layer that has changed something.
    pub(super) fn report(&self, event: &Event) {
        if let Some(event) = self.in_words(event) {
            self.log.log(event);
        }
    }

    fn in_words(&self, event: &Event) -> Option<LogEvent> {
        Some(match *event {
            Event::Link { link, up } => self.carries(link, up),
            Event::Device { link, link_address, mtu } => {
                let name = self.name(link);
                let text = format!(
                    "the device of link {name} has changed: hardware address {link_address}, MTU \
                     {mtu}"
                );
                event_of(LogLevel::Info, "device-changed", name, text)
                    .with("mac", link_address)
                    .with("mtu", mtu)
            }
            Event::Duplicate { link, address, .. }
            | Event::Conflict { link, address, .. }
            | Event::Unique { link, address } => self.addressed(event, link, address),
            Event::Router { link, address, lifetime, .. } if !lifetime.is_zero() => {
                let name = self.name(link);
                let seconds = lifetime.as_secs();
                let text = format!(
                    "the router {address} on link {name} is used, for {seconds} s at first"
                );
                event_of(LogLevel::Info, "router-learnt", name, text)
                    .with("address", address)
                    .with("lifetime_s", seconds)
            }
            Event::Prefix { link, prefix, valid, .. } => {
                let (name, valid) = (self.name(link), in_seconds(valid));
                let text =
                    format!("a router on link {name} advertises {prefix}, valid for {valid}");
                event_of(LogLevel::Info, "prefix-learnt", name, text).with("prefix", prefix)
            }
            Event::LinkMtu { link, mtu } => {
                let name = self.name(link);
                let text = format!("a router on link {name} advertises the MTU {mtu}");
                event_of(LogLevel::Info, "mtu-learnt", name, text).with("mtu", mtu)
            }
            Event::Redirect { link, destination, gateway } => {
                let name = self.name(link);
                let text = format!(
                    "a router on link {name} says that {gateway} is nearer to {destination}"
                );
                event_of(LogLevel::Debug, "redirect-learnt", name, text)
                    .with("destination", destination)
                    .with("gateway", gateway)
            }
            Event::PathMtu { destination, mtu } => {
                let text = format!("the path to {destination} carries packets of {mtu} octets");
                LogEvent::new(LogLevel::Debug, PART, "path-mtu", text)
                    .with("destination", destination)
                    .with("mtu", mtu)
            }
            Event::LearntFull { link } => {
                let name = self.name(link);
                let text = format!(
                    "an item from a router or DHCP server of link {name} is not kept: {LEARNT_MAX} \
                     are known, and no more is kept until one ends; look for a station that \
                     advertises what it should not"
                );
                event_of(LogLevel::Warning, "learnt-full", name, text)
            }
            Event::Lease { link, ref lease } => self.leased(link, lease.as_ref()),
            // Reported where it ends.
            _ => return None,
        })
    }

    /// An event about one of our own addresses.
    fn addressed(&self, event: &Event, link: LinkIndex, address: IpAddr) -> LogEvent {
        let name = self.name(link);
        match event {
            Event::Duplicate { by, .. } => {
                let station = station(*by);
                let text = format!(
                    "{address} is not used on link {name}: {station} has it, too; give one \
                     of the two another address; until then it is checked again every minute"
                );
                event_of(LogLevel::Warning, "address-duplicate", name, text)
                    .with("address", address)
                    .with("by", by)
            }
            Event::Conflict { by, .. } => {
                let station = station(*by);
                let text = format!(
                    "{station} uses {address} of link {name}, too: it stays ours and is \
                     defended; give one of the two another address"
                );
                event_of(LogLevel::Warning, "address-conflict", name, text)
                    .with("address", address)
                    .with("by", by)
            }
            _ => {
                let text = format!("{address} is in use on link {name}: no other station has it");
                event_of(LogLevel::Info, "address-ready", name, text).with("address", address)
            }
        }
    }

    fn carries(&self, link: LinkIndex, up: bool) -> LogEvent {
        let (name, device) = (self.name(link), self.device_name(link));
        if up {
            let text = format!("link {name} is up: its device {device} carries frames");
            return event_of(LogLevel::Info, "link-up", name, text).with("device", device);
        }
        if self.links.get(link.index()).is_some_and(|(_, info)| info.mode == Mode::CaptureFile) {
            let text = format!("link {name} has ended: its capture file is replayed to its end");
            return event_of(LogLevel::Info, "link-ended", name, text);
        }
        let text = format!(
            "link {name} is down: its device {device} has gone, is switched off or has no carrier; \
             its routes give way to others until it is back"
        );
        event_of(LogLevel::Warning, "link-down", name, text).with("device", device)
    }

    fn leased(&self, link: LinkIndex, lease: Option<&Lease>) -> LogEvent {
        let name = self.name(link);
        let Some(lease) = lease else {
            let text = format!("link {name} has lost its DHCP lease; a server is asked again");
            return event_of(LogLevel::Warning, "lease-lost", name, text);
        };
        let Lease { address, prefix_len, duration, .. } = lease;
        let held = in_seconds(*duration);
        let text = format!("link {name} has {address}/{prefix_len} by DHCP for {held}");
        event_of(LogLevel::Info, "lease-learnt", name, text)
            .with("address", format!("{address}/{prefix_len}"))
    }

    /// Logs that a link was taken down by command, or up again.
    pub(super) fn report_closed(&self, link: LinkIndex, closed: bool) {
        let name = self.name(link);
        let (kind, state) =
            if closed { ("link-closed", "down") } else { ("link-reopened", "up again") };
        let text = format!("link {name} is set {state} by command");
        self.log.log(event_of(LogLevel::Info, kind, name, text));
    }

    /// Logs which shared VLANs have come to be without an interface of the kernel, or have one again.
    pub(crate) fn report_without_interface(&mut self) {
        let Some(kernel) = &self.kernel else { return };
        let now = kernel.without_interface();
        let before = std::mem::replace(&mut self.without_interface, now);
        for link in self.without_interface.iter().filter(|link| !before.contains(link)) {
            let (name, device) = (self.name(*link), self.device_name(*link));
            let tag = self.kernel.as_ref().and_then(|kernel| kernel.tag_of(*link));
            let text = without_interface(name, device, tag.unwrap_or_default());
            let event = event_of(LogLevel::Warning, "link-down", name, text);
            self.log.log(event.with("device", device));
        }
        for link in before.iter().filter(|link| !self.without_interface.contains(link)) {
            let (name, device) = (self.name(*link), self.device_name(*link));
            let text = format!("link {name} is up: the kernel has its VLAN interface on {device}");
            self.log.log(event_of(LogLevel::Info, "link-up", name, text).with("device", device));
        }
    }

    /// Logs which links stay down that a command has taken down under the control plane before.
    pub(crate) fn report_still_closed(&self) {
        for link in &self.closed {
            let name = self.name(*link);
            let text = format!(
                "link {name} stays down, as a command has set it: `gatewright link up {name}` sets it \
                 up again"
            );
            self.log.log(event_of(LogLevel::Warning, "link-closed", name, text));
        }
    }

    /// Logs that a learnt item has ended or was taken back.
    pub(super) fn report_lost(&self, thing: &LearntItem) {
        let name = self.name(thing.link());
        let event = match thing {
            LearntItem::Router { address, .. } => {
                let text = format!("the router {address} on link {name} is no longer used");
                event_of(LogLevel::Warning, "router-lost", name, text).with("address", address)
            }
            LearntItem::Address { address, .. } => {
                let text = format!("the lifetime of address {address} of link {name} has ended");
                event_of(LogLevel::Warning, "address-lost", name, text).with("address", address)
            }
            LearntItem::OnLink { prefix, .. } => {
                let text = format!("{prefix} is no longer on link {name}");
                event_of(LogLevel::Info, "prefix-lost", name, text).with("prefix", prefix)
            }
            LearntItem::Leased { .. } | LearntItem::Redirect { .. } => return,
        };
        self.log.log(event);
    }

    /// Logs that the router has no room for a route.
    pub(super) fn report_full(&self, to: RouteTo) {
        let to = match to {
            RouteTo::V4(to) => to.to_string(),
            RouteTo::V6(to) => to.to_string(),
        };
        let text = format!(
            "there is no room for the route to {to}: [gateway] routes_max allows more, after a \
             restart"
        );
        self.log.log(LogEvent::new(LogLevel::Warning, PART, "routes-full", text).with("to", to));
    }

    /// Logs in which mode a link was opened.
    pub(crate) fn report_opened(&self, name: &str, device: &DeviceSetup) {
        if matches!(device, DeviceSetup::Spare(_)) {
            return;
        }
        if let Some((_, info)) = self.links.get(device.index().index()) {
            self.log.log(opened_in_words(name, device, info));
            if matches!(device, DeviceSetup::Interface(device) if device.exclusive) {
                let holders = claim_name_holders(info.kernel_index);
                names_held(&format!("who has link {name}"), &holders, &self.log);
            }
        }
    }

    fn name(&self, link: LinkIndex) -> &str {
        self.links.get(link.index()).map_or("?", |(name, _)| name)
    }

    fn device_name(&self, link: LinkIndex) -> &str {
        self.links.get(link.index()).map_or("?", |(_, info)| &info.name)
    }
}

fn opened_in_words(name: &str, device: &DeviceSetup, info: &LinkInfo) -> LogEvent {
    let (of, mode, why) = (&info.name, info.mode, &info.why);
    let is_auto = matches!(device, DeviceSetup::Interface(of) if of.backend == Backend::Auto);
    let event = if is_auto && mode == Mode::PacketSocket {
        let text = format!(
            "link {name} exchanges frames with {of} by a packet socket, the slower way: {why}; \
             `mode = \"packet\"` says that this is meant"
        );
        event_of(LogLevel::Warning, "mode-fallback", name, text)
    } else {
        let text = format!("link {name} exchanges frames with {of} by {mode}: {why}");
        event_of(LogLevel::Info, "link-opened", name, text)
    };
    event.with("device", of).with("mode", mode)
}

/// Logs that other users have socket names of the kind that say `what`, if any have.
pub(crate) fn names_held(what: &str, holders: &[NameHolder], log: &EventSink) {
    let Some((first, others)) = holders.split_first() else { return };
    let others = match others.len() {
        0 => String::new(),
        others => format!(", and {others} more are held"),
    };
    let text = format!(
        "{first}{others}: names of this kind say {what}; those of other users are passed over, but a          program that has one may mean to disturb this gateway"
    );
    let event = LogEvent::new(LogLevel::Warning, PART, "name-held", text).with("user", first.user);
    log.log(match first.process {
        Some(process) => event.with("process", process),
        None => event,
    });
}

/// Logs that the kernel forwards everything, or that packets are forwarded here again.
pub(crate) fn withdrawal(withdrawn: bool) -> LogEvent {
    if withdrawn {
        let text = "the kernel forwards everything: it has more routes than there is room for \
                    here; [gateway] routes_max allows more, after a restart";
        return LogEvent::new(LogLevel::Warning, PART, "forwarding-withdrawn", text);
    }
    let text = "there is room for the kernel's routes again: packets are forwarded here";
    LogEvent::new(LogLevel::Info, PART, "forwarding-resumed", text)
}

/// Logs that workers reported more than was read in time.
pub(crate) fn events_lost(number: u64) -> LogEvent {
    let text = "workers reported more than was read in time: links report their state again, and \
                the network says the rest again";
    LogEvent::new(LogLevel::Warning, PART, "events-lost", text).with("number", number)
}

/// Logs that changes in the kernel were missed.
pub(crate) fn overrun(times: u64) -> LogEvent {
    let text = "more changed in the kernel than was read in time: all of it is read again";
    LogEvent::new(LogLevel::Info, PART, "kernel-overrun", text).with("times", times)
}

fn event_of(level: LogLevel, kind: &'static str, link: &str, text: String) -> LogEvent {
    LogEvent::new(level, PART, kind, text).with("link", link)
}

fn in_seconds(duration: Duration) -> String {
    // Routers and DHCP servers write "for ever" as the largest number of 32 bits.
    if duration.as_secs() >= u32::MAX.into() {
        "ever".to_owned()
    } else {
        format!("{} s", duration.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_makes_a_vlan_interface_is_whole() {
        let text = without_interface("up", "up0", 10);
        assert!(text.contains("its tag 10 on up0"), "{text}");
        assert!(text.contains("`ip link add link up0 type vlan id 10`"), "{text}");
    }
}
