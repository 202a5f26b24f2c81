//! Interworking by the control plane: an oximeter's readings are stored, and sent to the CSE above from
//! the outbox.

use super::sockets::LOOK;
use super::{Ready, RelayJob, Seat};
use crate::clock;
use gatewright_bindings::services;
use gatewright_config::parse;
use gatewright_diagnostic::SourceId;
use gatewright_gateway::{Assembly, Gateway};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const SEED: u64 = 42;
/// Where files stay when memory does not (hier(7)): the folder for temporary files may be memory, in
/// which nothing is durable.
const DISK: &str = "/var/tmp";

/// Devices and service entity.
const ASSEMBLY: Assembly =
    Assembly { services: Some(services::component), programs: None, web: false };

/// Works as a gateway with `[devices]` and `[cse]` until the relay is stopped.
pub(super) fn serve(seat: &Seat, job: &RelayJob, ready: &Ready) -> Result<(), String> {
    let folder = StoreFolder::new()?;
    let parsed = parse(SourceId::default(), &description(seat, &folder.0));
    let said = || parsed.diagnostics.iter().map(|it| it.message.clone()).collect::<Vec<_>>();
    let config = parsed.config.as_ref().ok_or_else(|| said().join("; "))?;
    let gateway = Gateway::open(config, SEED, ASSEMBLY).map_err(|error| error.to_string())?;
    ready.tell(Ok(()));
    while !job.is_stopped() {
        std::thread::sleep(LOOK);
    }
    gateway.stop().map(drop)
}

/// The gateway: devices send to the seat, the CSE above is the receiver.
fn description(seat: &Seat, folder: &Path) -> String {
    let (local, to) = (seat.local, seat.to);
    format!(
        "[gateway]\nname = \"lab\"\n[devices]\nlisten = \"{local}\"\nudp = \"{local}\"\n\
         [cse]\nbase = \"cse-gw\"\nid = \"/gw\"\nadmin = \"CAdmin\"\nstore = \"{}\"\n\
         [cse.registrar]\nurl = \"coap://{to}\"\nid = \"/id-in\"\nbase = \"cse-in\"\n",
        folder.join("lab.db").display()
    )
}

/// A folder on a disk, which goes with the relay.
#[derive(Debug)]
struct StoreFolder(PathBuf);

impl StoreFolder {
    fn new() -> Result<Self, String> {
        let disk = Some(PathBuf::from(DISK)).filter(|disk| disk.is_dir());
        let disk = disk.unwrap_or_else(std::env::temp_dir);
        let folder = disk.join(format!("gatewright-lab-{:x}", clock::now()));
        // It must not exist yet: the store would go on with what another user put there.
        let made = fs::DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for StoreFolder {
    fn drop(&mut self) {
        // Temporary files that stay harm nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddrV4};

    #[test]
    fn the_description_is_accepted() {
        let at = |octet, port| SocketAddrV4::new(Ipv4Addr::new(10, 74, 1, octet), port);
        let seat = Seat {
            node: None,
            interfaces: Default::default(),
            addresses: [Ipv4Addr::LOCALHOST; 2],
            from: Ipv4Addr::LOCALHOST,
            local: at(2, 9000),
            to: at(9, 9000),
            processor: None,
        };
        let parsed = parse(SourceId::default(), &description(&seat, Path::new("/var/tmp/x")));
        let said: Vec<_> = parsed.diagnostics.iter().map(|it| &it.message).collect();
        assert!(parsed.config.is_some(), "{said:?}");
    }
}
