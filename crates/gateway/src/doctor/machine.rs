//! Interfaces, clocks, limits and processors.

use super::{Needs, SystemCheck};
use crate::{descriptor_need, links};
use gatewright_config::{Config, Device, Link, Mode};
use gatewright_descriptors::clock_is_set;
use gatewright_link::{InterfaceDriver, InterfaceProperties, NameHolder, claim_name_holders};
use gatewright_planes::limit_shortages;
use nix::{
    net::if_::if_nametoindex,
    sys::resource::{RLIM_INFINITY, Resource, getrlimit},
};
use std::{fs, num::NonZero, path::Path, thread::available_parallelism};

/// Largest MTU of a veth device whose frames AF_XDP receives in one buffer.
const VETH_MTU_MAX: usize = 3498;
/// Largest MTU whose frames fit into a chunk of a page, which AF_XDP needs to copy nothing.
const PAGE_MTU_MAX: usize = 3786;
/// What a store takes at the least, with the log of its changes.
const STORE_OCTETS_MIN: u64 = 1024 * 1024;

/// The state of a description's interfaces; without one, of all that this machine has.
pub(super) fn devices(config: Option<&Config>) -> Vec<SystemCheck> {
    let wanted = |link: &Link| match &link.device {
        Device::Interface { name, mode } => Some((name.value.clone(), *mode, link.mtu)),
        _ => None,
    };
    let Some(config) = config else {
        let found = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
        let mut names: Vec<_> =
            found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        return names.into_iter().map(|name| device(&name, Mode::Auto, None, false)).collect();
    };
    let held = config.links.iter().filter_map(held_names);
    let links = config.links.iter().filter_map(wanted);
    let mesh = config.mesh.iter().flat_map(|mesh| &mesh.links);
    let mesh = mesh.map(|link| (link.value.clone(), Mode::Packet, None));
    let devices = links.chain(mesh).map(|(name, mode, mtu)| device(&name, mode, mtu, true));
    devices.chain(held).collect()
}

/// Other users' sockets whose names are as those of the claim to an exclusive link.
fn held_names(link: &Link) -> Option<SystemCheck> {
    let Device::Interface { name, .. } = &link.device else { return None };
    let index = if_nametoindex(name.value.as_str()).ok().filter(|_| link.exclusive)?;
    names_held(&name.value, &claim_name_holders(index))
}

fn names_held(device: &str, holders: &[NameHolder]) -> Option<SystemCheck> {
    let (first, others) = holders.split_first()?;
    let others = if others.is_empty() { "" } else { ", and there are more" };
    let check = SystemCheck::good("devices", device, format!("{first}{others}"));
    let advice = "such a name says who has the link; another user's is passed over, but its program may \
                  mean to disturb the gateway: find out what it is";
    Some(check.lacking(false, advice))
}

fn device(name: &str, mode: Mode, mtu: Option<u32>, needed: bool) -> SystemCheck {
    let subject = "devices";
    let driver = match InterfaceDriver::of(name) {
        Ok(driver) => driver,
        Err(error) => {
            let advice = "`ip link` lists the interfaces; correct `device`, or make it";
            return SystemCheck::good(subject, name, error.to_string()).lacking(needed, advice);
        }
    };
    let InterfaceDriver { name: driver, receive_queues: queues } = driver;
    let driver = if driver.is_empty() { "no driver" } else { driver.as_str() };
    let Ok(properties) = InterfaceProperties::of(name) else {
        let found = format!("{driver}, not Ethernet");
        let advice = "links of modes auto, xdp and packet are Ethernet; use another interface";
        let check = SystemCheck::good(subject, name, found);
        return if needed { check.lacking(true, advice) } else { check };
    };
    let state = if properties.is_up { "up" } else { "down" };
    let found = format!("{driver}, MTU {}, {state}, {queues} receive queues", properties.mtu);
    let check = SystemCheck::good(subject, name, found);
    if let Some(mtu) = mtu.filter(|mtu| usize::try_from(*mtu).is_ok_and(|mtu| mtu > properties.mtu))
    {
        let advice =
            format!("the link's MTU is {mtu}: `ip link set {name} mtu {mtu}`, or lower `mtu`");
        return check.lacking(needed, advice);
    }
    let is_xdp = mode != Mode::Packet;
    if is_xdp && driver == "veth" && properties.mtu > VETH_MTU_MAX {
        let advice = format!("AF_XDP copies frames above an MTU of {VETH_MTU_MAX} there");
        return check.lacking(false, advice);
    }
    if is_xdp && properties.mtu > PAGE_MTU_MAX {
        let advice = format!("AF_XDP copies frames above an MTU of {PAGE_MTU_MAX}");
        return check.lacking(false, advice);
    }
    if needed && !properties.is_up {
        return check
            .lacking(false, format!("it carries no frames: `ip link set {name} up`, or a cable"));
    }
    check
}

/// The state of the clocks.
pub(super) fn clocks(needs: Needs) -> Vec<SystemCheck> {
    let has_rtc = Path::new("/sys/class/rtc/rtc0").exists();
    let rtc = SystemCheck::good("clock", "RTC", if has_rtc { "has one" } else { "has none" });
    let is_set = clock_is_set();
    let found =
        if is_set { "set by the time service" } else { "not known to be set since the start" };
    let wall = SystemCheck::good("clock", "wall clock", found);
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = fs::read_to_string(source).unwrap_or_default().trim().to_owned();
    let is_quick =
        ["tsc", "kvm-clock", "arch_sys_counter", "riscv_clocksource"].contains(&source.as_str());
    let monotonic = SystemCheck::good("clock", "clock source", source);
    vec![
        if has_rtc {
            rtc
        } else {
            rtc.lacking(
                false,
                "times are wrong after a start until the time service has set the clock",
            )
        },
        if is_set {
            wall
        } else {
            let advice = "enable systemd-timesyncd; of another time service this is not seen. Until \
                          then a service entity holds back what expires";
            wall.lacking(false, if needs.clock { advice } else { "enable systemd-timesyncd" })
        },
        if is_quick {
            monotonic
        } else {
            monotonic
                .lacking(false, "reading it takes a system call: measured delays have that in them")
        },
    ]
}

/// Limits of this process and of the system.
pub(super) fn limits(config: Option<&Config>) -> Vec<SystemCheck> {
    let hard = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(_, hard)| hard);
    let needed = descriptor_need::needed(config.unwrap_or(&Config::default()));
    let found = format!("{hard} at most, {needed} needed to run at all");
    let descriptors = SystemCheck::good("limits", "file descriptors", found);
    let mut checks = vec![if hard < needed {
        let advice =
            format!("`ulimit -Hn {needed}` as root, or `LimitNOFILE={needed}` in the service");
        descriptors.lacking(config.is_some(), advice)
    } else {
        descriptors
    }];
    let size = getrlimit(Resource::RLIMIT_FSIZE).map_or(RLIM_INFINITY, |(soft, _)| soft);
    // Without a limit there is nothing to be said.
    checks.extend((size != RLIM_INFINITY).then(|| file_size(config, size)));
    let setup = config.and_then(|config| links::setup_of(config).ok());
    let short = setup.map(|setup| limit_shortages(&setup)).unwrap_or_default();
    let memory = "locked memory and mappings";
    if short.is_empty() {
        checks.push(SystemCheck::good("limits", memory, "enough"));
    }
    // Links are opened nevertheless, as the start does; each says what it got.
    let told = short.into_iter().map(|text| {
        let (found, advice) = text.split_once(": ").unwrap_or((&text, "raise it"));
        SystemCheck::good("limits", memory, found).lacking(false, advice)
    });
    checks.extend(told);
    checks
}

/// The largest file that the process may write, of so many octets.
#[allow(clippy::useless_conversion, reason = "the limit is narrower on machines of 32 bits")]
fn file_size(config: Option<&Config>, octets: nix::sys::resource::rlim_t) -> SystemCheck {
    let stores = |config: &Config| config.cse.as_ref().is_some_and(|cse| cse.store.is_some());
    let needs = config.is_some_and(stores) && u64::from(octets) < STORE_OCTETS_MIN;
    let found = format!("{octets} octets at most");
    SystemCheck::good("limits", "file size", found).lacking(
        needs,
        "`ulimit -f unlimited`, or `LimitFSIZE=infinity` in the service: stores and captures grow",
    )
}

/// Processors, and those that a description takes for itself.
pub(super) fn processors(config: Option<&Config>) -> Vec<SystemCheck> {
    let count = available_parallelism().map_or(1, NonZero::get);
    let check = SystemCheck::good("processors", "cores", format!("{count}"));
    let Some(config) = config.filter(|config| !config.links.is_empty()) else { return vec![check] };
    let control = usize::from(config.control_core.is_some());
    let wanted = usize::from(config.workers.max(1)) + control;
    if wanted <= count {
        return vec![check];
    }
    let advice = format!("the planes want {wanted}: lower `[planes] data_cores`");
    vec![check.lacking(control == 1, advice)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckState;

    #[test]
    fn socket_names_of_other_users_are_told() {
        assert_eq!(names_held("eth0", &[]), None);
        let name = "gatewright/link/7".to_owned();
        let holder = NameHolder { name, user: 1000, process: Some(12) };
        let check = names_held("eth0", std::slice::from_ref(&holder)).unwrap();
        assert_eq!((check.state, check.name.as_str()), (CheckState::Limited, "eth0"));
        assert_eq!(check.found, holder.to_string());
        let check = names_held("eth0", &[holder.clone(), holder]).unwrap();
        assert!(check.found.ends_with(", and there are more"), "{}", check.found);
    }
}
