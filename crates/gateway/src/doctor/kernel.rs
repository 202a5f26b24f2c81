//! The kernel's version and features: packet sockets, AF_XDP, BPF, TUN, Landlock, nftables.

use super::{Needs, SystemCheck};
use gatewright_link::LinkFacilities;
use gatewright_planes::landlock_version;
use std::{fs, io, path::Path};

/// The kernel from which a veth interface receives in batches without a program (NAPI), so that links
/// on veth devices lose nothing under load.
const VETH_NAPI: (u32, u32) = (5, 13);
/// The kernel from which programs are attached to an interface's ingress by links (tcx), as label
/// switching needs.
const LABELS: (u32, u32) = (6, 6);
/// The kernel from which a table of nftables has an owner, with whom it goes.
const OWNED_TABLES: (u32, u32) = (5, 12);

/// The state of each feature.
pub(super) fn checks(needs: Needs) -> Vec<SystemCheck> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let LinkFacilities { packet_socket, xdp_socket, xdp_program } = LinkFacilities::probe();
    let tun = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").map(drop);
    let btf = Path::new("/sys/kernel/btf/vmlinux").exists();
    let landlock = landlock_version();
    let mut checks = vec![
        since(release, "exclusive links", OWNED_TABLES, false, "tables of nftables with an owner"),
        since(release, "veth NAPI", VETH_NAPI, false, "veth devices receive in batches"),
        since(release, "label switching", LABELS, needs.mesh, "the mesh's label programs (tcx)"),
        tried(
            "packet sockets",
            packet_socket,
            needs.interfaces,
            "links of mode packet",
            "CONFIG_PACKET",
        ),
        tried("AF_XDP", xdp_socket, needs.xdp, "links of mode xdp", "CONFIG_XDP_SOCKETS"),
        tried(
            "BPF and XDP",
            xdp_program,
            needs.xdp || needs.mesh,
            "XDP programs",
            "CONFIG_BPF_SYSCALL",
        ),
        tried("TUN", tun, needs.tun, "links of modes tap and tun", "CONFIG_TUN (`modprobe tun`)"),
    ];
    let types = SystemCheck::good("kernel", "BTF", if btf { "has it" } else { "has it not" });
    checks.push(if btf {
        types
    } else {
        types.lacking(false, "AF_XDP links lose VLAN tags that a driver takes out: use mode packet")
    });
    let found = landlock.map_or("none".to_owned(), |version| format!("version {version}"));
    let check = SystemCheck::good("kernel", "Landlock", found);
    checks.push(match landlock {
        Some(_) => check,
        None => check.lacking(
            false,
            "a data plane in a process of its own may open all files of its user: boot with \
             `lsm=landlock,…` (Linux 5.13)",
        ),
    });
    checks
}

/// A feature that came with a version of the kernel.
fn since(release: &str, name: &str, from: (u32, u32), needed: bool, what: &str) -> SystemCheck {
    let check = SystemCheck::good("kernel", name, format!("Linux {release}: {what}"));
    if version(release).is_some_and(|version| version >= from) {
        return check;
    }
    check.lacking(needed, format!("needs Linux {}.{}", from.0, from.1))
}

/// A feature that was tried.
fn tried(
    name: &str,
    result: io::Result<()>,
    needed: bool,
    what: &str,
    option: &str,
) -> SystemCheck {
    let Err(error) = result else {
        return SystemCheck::good("kernel", name, format!("works: {what}"));
    };
    let advice = if error.kind() == io::ErrorKind::PermissionDenied {
        "a right is missing: see rights".to_owned()
    } else {
        format!("the kernel may be without {option}")
    };
    SystemCheck::good("kernel", name, format!("{what}: {error}")).lacking(needed, advice)
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckState;

    #[test]
    fn a_feature_is_there_from_its_version_on() {
        let state = |release, needed| since(release, "labels", LABELS, needed, "mesh").state;
        assert_eq!(state("6.6.0-1-amd64", true), CheckState::Good);
        assert_eq!(state("6.1.0-37-amd64", true), CheckState::Missing);
        assert_eq!(state("6.1.0-37-amd64", false), CheckState::Limited);
        assert_eq!(state("10.0", true), CheckState::Good);
        assert_eq!(state("unknown", false), CheckState::Limited);
    }

    #[test]
    fn a_missing_right_is_told_apart_from_a_missing_feature() {
        let told = |kind: io::ErrorKind| {
            tried("AF_XDP", Err(kind.into()), true, "links", "CONFIG_XDP_SOCKETS").advice.unwrap()
        };
        assert!(told(io::ErrorKind::PermissionDenied).contains("rights"));
        assert!(told(io::ErrorKind::Unsupported).contains("CONFIG_XDP_SOCKETS"));
    }
}
