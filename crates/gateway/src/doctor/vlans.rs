//! The VLANs that a description shares with the kernel.

use super::SystemCheck;
use gatewright_config::{Config, Device, VirtualTag};
use gatewright_planes::kernel_vlans;
use std::io;

/// A VLAN of a description: the link, the interface below, and the tag.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct SharedVlan<'a> {
    link: &'a str,
    device: &'a str,
    tag: u16,
}

/// Whether the kernel has an interface for each shared VLAN: without one the link is down.
pub(super) fn checks(config: &Config) -> Vec<SystemCheck> {
    let vlans = shared(config);
    if vlans.is_empty() {
        return Vec::new();
    }
    let known = kernel_vlans();
    vlans.into_iter().map(|vlan| check(vlan, &known)).collect()
}

fn shared(config: &Config) -> Vec<SharedVlan<'_>> {
    let device = |name: &str| {
        let below = config.links.iter().find(|link| link.name.value == name)?;
        match &below.device {
            Device::Interface { name, .. } => Some(name.value.as_str()),
            _ => None,
        }
    };
    (config.links.iter().filter(|link| link.is_shared()))
        .filter_map(|link| {
            let Device::Virtual { on, tag: VirtualTag::Vlan { id, .. } } = &link.device else {
                return None;
            };
            Some(SharedVlan { link: &link.name.value, device: device(&on.value)?, tag: id.value })
        })
        .collect()
}

fn check(vlan: SharedVlan<'_>, known: &io::Result<Vec<(String, u16)>>) -> SystemCheck {
    let SharedVlan { link, device, tag } = vlan;
    let of_vlan =
        |found: String| SystemCheck::good("devices", format!("VLAN {tag} on {device}"), found);
    match known {
        Ok(known) if known.iter().any(|(below, id)| below == device && *id == tag) => {
            of_vlan("the kernel has its interface".to_owned())
        }
        Ok(_) => {
            let advice = format!(
                "link {link} is down without it: `ip link add link {device} type vlan id {tag}` makes \
                 one"
            );
            of_vlan("the kernel has no interface for it".to_owned()).lacking(true, advice)
        }
        Err(error) => {
            let advice = "`ip -d link` shows the VLAN interfaces of the kernel";
            of_vlan(format!("the kernel's interfaces are not known: {error}"))
                .lacking(false, advice)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckState;
    use gatewright_diagnostic::SourceId;

    #[test]
    fn a_shared_vlan_without_an_interface_of_the_kernel_is_missing() {
        let text = "[link.up]\ndevice = \"up0\"\nexclusive = false\n\
                    [link.ten]\non = \"up\"\nvlan = 10\n\
                    [link.lan]\ndevice = \"lan0\"\naddresses = [\"192.0.2.1/24\"]\n\
                    [link.own]\non = \"lan\"\nvlan = 11\naddresses = [\"198.51.100.1/24\"]\n";
        let parsed = gatewright_config::parse(SourceId::default(), text);
        let config = parsed.config.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics));
        let vlans = shared(&config);
        assert_eq!(vlans, [SharedVlan { link: "ten", device: "up0", tag: 10 }]);
        let state = |known: &[(&str, u16)]| {
            let known = known.iter().map(|(device, id)| ((*device).to_owned(), *id)).collect();
            let check = check(vlans[0], &Ok(known));
            (check.state, check.advice)
        };
        assert_eq!(state(&[("up1", 10), ("up0", 10)]), (CheckState::Good, None));
        let (missing, advice) = state(&[("up0", 11), ("up1", 10)]);
        assert_eq!(missing, CheckState::Missing);
        assert!(advice.unwrap().contains("`ip link add link up0 type vlan id 10`"));
        let unknown = check(vlans[0], &Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(unknown.state, CheckState::Limited);
    }
}
