//! Relays of our own stack: routing, the UDP gateway and interworking, in the data plane; and routing
//! in the driver, below it.

use super::sockets::LOOK;
use super::{Ready, RelayJob, Seat, interwork};
use gatewright_config::RelayKind;
use gatewright_link::{Backend, Mode};
use gatewright_planes::{Planes, Series, Setup, UdpGateway, UdpGatewaySetup};
use gatewright_stack::{At, Attachment, Place, tap};
use gatewright_wire::EtherType;
use std::net::SocketAddr;
use std::time::Duration;

/// Longer than any run: a worker that never sleeps.
const FOR_EVER: Duration = Duration::from_hours(24);
/// Clients of the UDP gateway.
const CLIENTS_MAX: u16 = 16;
const SEED: u64 = 42;

/// Works as our stack on the seat's interfaces until the relay is stopped.
pub(super) fn serve(
    kind: RelayKind,
    seat: &Seat,
    job: &RelayJob,
    ready: &Ready,
) -> Result<(), String> {
    let (backend, modes) = match kind {
        RelayKind::GraphPacketSocket | RelayKind::GraphPacketSocketHandler => {
            (Backend::PacketSocket, &[Mode::PacketSocket][..])
        }
        _ => (Backend::Xdp, &[Mode::XdpCopy, Mode::XdpZeroCopy, Mode::XdpGeneric][..]),
    };
    let mut setup = Setup::new(SEED);
    for (name, ip) in seat.interfaces.iter().zip(seat.addresses) {
        let link = setup.link(name, name).backend(backend).address(ip, 24);
        if kind == RelayKind::DriverXdp {
            link.forward_in_driver();
        }
    }
    if matches!(kind, RelayKind::GatewayXdp | RelayKind::InterworkXdp) {
        setup.spin = FOR_EVER;
    }
    let planes = Planes::open(&setup).map_err(|error| error.to_string())?;
    let status = planes.status().map_err(|error| error.to_string())?;
    let named: Vec<String> = modes.iter().map(ToString::to_string).collect();
    if let Some(link) = status.links.iter().find(|link| !named.contains(&link.mode)) {
        return Err(format!("the link {} is in mode {}: {}", link.name, link.mode, link.why));
    }
    if kind == RelayKind::DriverXdp
        && let Some(link) = status.links.iter().find(|link| !link.forwards_in_driver)
    {
        return Err(format!("the link {} forwards {}", link.name, link.forwarding));
    }
    if matches!(kind, RelayKind::GraphXdpHandler | RelayKind::GraphPacketSocketHandler) {
        let mut packets = 0_u64;
        let handler = tap(move |batch| {
            packets += u64::try_from(batch.len()).unwrap_or(0);
            std::hint::black_box(packets);
        });
        let at = Attachment::new(At::EtherType(EtherType::IPV4), Place::Tap);
        planes.attach(at, handler).map_err(|error| error.to_string())?;
    }
    let gateway = (kind == RelayKind::GatewayXdp).then(|| {
        let (listen, target) = (seat.local.into(), SocketAddr::from(seat.to).into());
        let series = Series::Plain;
        let setup = UdpGatewaySetup { listen, target, series, clients_max: CLIENTS_MAX };
        UdpGateway::start(planes.sockets(), setup).map_err(|error| error.to_string())
    });
    let _gateway = gateway.transpose()?;
    let forwarder =
        (kind == RelayKind::InterworkXdp).then(|| interwork::forward(&planes, seat, &job.sizes));
    let _forwarder = forwarder.transpose()?;
    ready.tell(Ok(()));
    while !job.is_stopped() {
        std::thread::sleep(LOOK);
    }
    if kind == RelayKind::DriverXdp { forwarded_in_driver(&planes) } else { Ok(()) }
}

/// Whether drivers have forwarded nearly all packets that came in; what went up to the graph was
/// relayed by that.
fn forwarded_in_driver(planes: &Planes) -> Result<(), String> {
    const SHARE_PCT: u64 = 95;
    let status = planes.status().map_err(|error| error.to_string())?;
    let counts = || status.links.iter().flat_map(|link| &link.in_driver);
    let all: u64 = counts().map(|count| count.packets).sum();
    let forwarded = counts().filter(|count| count.outcome == "forwarded").map(|it| it.packets);
    let forwarded: u64 = forwarded.sum();
    if forwarded * 100 >= all * SHARE_PCT {
        return Ok(());
    }
    Err(format!("drivers forwarded {forwarded} of {all} packets, the graph the others"))
}
