//! Gatewright, as users run it.

use super::world::{LOCAL, OWN_IP, REMOTE};
use gatewright_link::{Backend, Mode};
use gatewright_planes::{Planes, Series, Setup, UdpGateway, UdpGatewaySetup};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long it takes to notice that it is to end: seldom enough not to be in the worker's way, with
/// which this shares a processor.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// What was seen inside of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatewaySamples {
    /// The time within which half of the packets, and 99 of 100, left.
    pub(crate) sojourn: [Duration; 2],
}

/// Works as Gatewright on g0 and g1 until `stop`, as [`serve`] says.
pub(crate) fn gateway(
    (backend, wanted): (Backend, Mode),
    spin: Option<Duration>,
    series: Option<Series>,
    stop: &AtomicBool,
) -> Result<GatewaySamples, String> {
    let mut setup = Setup::new(42);
    for (name, ip) in ["g0", "g1"].into_iter().zip(OWN_IP) {
        setup.link(name, name).backend(backend).address(ip, 24);
    }
    setup.spin = spin.unwrap_or(setup.spin);
    serve(&setup, wanted, series, stop)
}

/// Works by this setup until `stop`: a router, and with `series` a UDP gateway. Refuses to have run
/// with its links in another mode than `wanted`, or without having sent anything.
pub(super) fn serve(
    setup: &Setup,
    wanted: Mode,
    series: Option<Series>,
    stop: &AtomicBool,
) -> Result<GatewaySamples, String> {
    let gateway = Planes::open(setup).map_err(|error| error.to_string())?;
    let relay = series.map(|series| {
        let (listen, target) = (LOCAL.into(), SocketAddr::from(REMOTE).into());
        let setup = UdpGatewaySetup { listen, target, series, clients_max: 256 };
        UdpGateway::start(gateway.sockets(), setup).map_err(|error| error.to_string())
    });
    let relay = relay.transpose()?;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
    }
    let status = gateway.status().map_err(|error| error.to_string())?;
    if let Some(link) = status.links.iter().find(|link| link.mode != wanted.to_string()) {
        return Err(format!("wanted {wanted}, got {}", link.mode));
    }
    if relay.is_some_and(|relay| relay.counts().sent == 0) {
        return Err("it relayed nothing".to_owned());
    }
    let times = gateway.sojourn();
    let [Some(half), Some(most)] = [50, 99].map(|percent| times.quantile(percent, 100)) else {
        return Err("no packet has left it".to_owned());
    };
    Ok(GatewaySamples { sojourn: [half, most].map(Duration::from_nanos) })
}
