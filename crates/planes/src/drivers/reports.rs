//! Reports of devices that drivers send on: where they come in and where they go, and whether somebody
//! looks at them on the way.

use super::handlers::{Attached, DriverPart, is_of_transit};
use crate::setup::ReportRoute;
use gatewright_packet::LinkIndex;
use gatewright_stack::{Host, Route, View};
use gatewright_tables::{DriverReports, DriverRoute};
use gatewright_xdp::program_clock;
use std::{
    net::{IpAddr, SocketAddr},
    time::{SystemTime, UNIX_EPOCH},
};

/// Devices whose reports drivers send on, some 2 KiB each; those of further ones are the worker's.
const DEVICES_MAX: u32 = 4_096;
/// The same on a machine with little memory.
const DEVICES_MAX_SMALL: u32 = 512;

/// The number of devices for which maps are made.
pub(super) const fn devices(route: Option<ReportRoute>, is_small: bool) -> u32 {
    match (route, is_small) {
        (None, _) => 0,
        (Some(_), true) => DEVICES_MAX_SMALL,
        (Some(_), false) => DEVICES_MAX,
    }
}

/// What drivers are told of reports.
#[derive(Debug)]
pub(super) struct DriverReporting {
    pub(super) reports: DriverReports,
    route: ReportRoute,
    published: Option<DriverRoute>,
    /// The host as workers see it.
    view: Option<View>,
}

impl DriverReporting {
    pub(super) const fn new(reports: DriverReports, route: ReportRoute) -> Self {
        Self { reports, route, published: None, view: None }
    }

    /// Publishes the way of reports, if it has changed. They go up if a handler of now, or one that is
    /// coming, sees what is for this host or from it.
    pub(super) fn publish<'a>(
        &mut self,
        host: &Host,
        mut handlers: impl Iterator<Item = &'a Attached>,
    ) {
        let sees = |one: &Attached| one.part != DriverPart::Ignores && !is_of_transit(one.at.at);
        let route = if handlers.any(sees) { None } else { self.towards_cse(host) };
        if route != self.published {
            self.reports.set_route(route.as_ref());
            self.published = route;
        }
    }

    /// The way to the CSE, as the worker's sockets go.
    fn towards_cse(&mut self, host: &Host) -> Option<DriverRoute> {
        let ReportRoute { listen, cse } = self.route;
        let host = self.view.get_or_insert_with(|| host.view());
        host.refresh();
        let (route, source): (Route, IpAddr) = match cse {
            SocketAddr::V4(cse) => (host.route4(*cse.ip()), host.source4(*cse.ip())?.into()),
            SocketAddr::V6(cse) => (host.route6(*cse.ip()), host.source6(None, *cse.ip())?.into()),
        };
        let (Route::Connected(LinkIndex(link)) | Route::Via { link: LinkIndex(link), .. }) = route
        else {
            return None;
        };
        Some(DriverRoute { listen, cse, source, link: link.into() })
    }

    /// Tells drivers what the time is, if the clock was set since.
    pub(super) fn set_clock(&self) {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let Some(began) = wall.checked_sub(program_clock()) else { return };
        self.reports.set_clock(u64::try_from(began.as_micros()).unwrap_or_default());
    }
}
