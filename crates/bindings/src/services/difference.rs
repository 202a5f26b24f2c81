//! Differences between two descriptions in `[devices]` and `[cse]`, by key.

use super::{cse_tls, devices_tls};
use core::fmt::Display;
use gatewright_config::{Config, Cse, CseTls, Devices, DevicesTls, Located, is_fixed};
use gatewright_part::Change;
use std::net::SocketAddr;

/// The differences found so far.
#[derive(Debug, Default)]
struct Found(Vec<Change>);

impl Found {
    fn tell(&mut self, key: &str, how: impl Into<String>) {
        let change = if is_fixed(key) { Change::restart } else { Change::new };
        self.0.push(change(key.to_owned(), how.into()));
    }

    /// Reports a table that is added or removed without needing a restart.
    fn tell_table(&mut self, key: &str, comes: bool) {
        let how = if comes { "is new" } else { "is gone" };
        self.0.push(Change::restart(key, how));
    }

    /// All differences; an unknown one is also reported.
    fn all(mut self, table: &str, same: bool) -> Vec<Change> {
        if self.0.is_empty() && !same {
            self.0.push(Change::restart(table, "changed"));
        }
        self.0
    }

    fn compare<T: PartialEq>(&mut self, key: &str, old: &T, new: &T) {
        if old != new {
            self.tell(key, "changed");
        }
    }

    /// Reports a value that may be shown.
    fn show<T: PartialEq + Display>(&mut self, key: &str, old: Option<&T>, new: Option<&T>) {
        match (old, new) {
            (Some(old), Some(new)) if old != new => self.tell(key, format!("{new}, not {old}")),
            (Some(old), None) => self.tell(key, format!("no longer {old}")),
            (None, Some(new)) => self.tell(key, format!("{new}")),
            _ => {}
        }
    }

    fn sockets(&mut self, key: &str, [old, new]: [Option<&Located<SocketAddr>>; 2]) {
        self.show(key, old.map(|it| &it.value), new.map(|it| &it.value));
    }
}

/// Differences in `[cse]`.
pub(super) fn cse(old: &Config, new: &Config) -> Vec<Change> {
    let mut found = Found::default();
    match (&old.cse, &new.cse) {
        (Some(old), Some(new)) => entity(&mut found, old, new),
        (None, None) => {}
        (_, new) => found.tell_table("[cse]", new.is_some()),
    }
    found.all("[cse]", old.cse == new.cse)
}

fn entity(found: &mut Found, old: &Cse, new: &Cse) {
    found.show("[cse] base", Some(&old.base.value), Some(&new.base.value));
    found.show("[cse] id", Some(&old.id), Some(&new.id));
    found.sockets("[cse] http", [old, new].map(|it| it.http.as_ref()));
    found.sockets("[cse] coap", [old, new].map(|it| it.coap.as_ref()));
    found.sockets("[cse] ws", [old, new].map(|it| it.ws.as_ref()));
    // It may hold a password.
    found.compare("[cse] mqtt", &old.mqtt, &new.mqtt);
    found.show("[cse] store", old.store.as_ref(), new.store.as_ref());
    found.show("[cse] store_mib", old.store_mib.as_ref(), new.store_mib.as_ref());
    let resources = |it: &Cse| {
        [
            ("[cse] resources_max", it.resources_max),
            ("[cse] branch_max", it.branch_max),
            ("[cse] instances_max", it.instances_max),
        ]
    };
    for ((key, old), (_, new)) in resources(old).into_iter().zip(resources(new)) {
        found.show(key, old.as_ref(), new.as_ref());
    }
    found.compare("[cse] type", &old.infrastructure, &new.infrastructure);
    found.show("[cse] admin", old.admin.as_ref(), new.admin.as_ref());
    found.compare("[cse] admit", &old.admit, &new.admit);
    found.compare("[cse] admit_devices", &old.admit_devices, &new.admit_devices);
    found.compare("[cse] adopt_devices", &old.adopt_devices, &new.adopt_devices);
    found.compare("[cse] admit_beyond", &old.admit_beyond, &new.admit_beyond);
    found.show("[cse] audit", Some(&old.audit), Some(&new.audit));
    found.show("[cse] audit_mib", old.audit_mib.as_ref(), new.audit_mib.as_ref());
    found.show("[cse] audit_strict", Some(&old.audit_strict), Some(&new.audit_strict));
    found.show("[cse] reach_own", Some(&old.reach_own), Some(&new.reach_own));
    let bounds = |it: &Cse| {
        let bounds = it.peer;
        [
            ("[cse] peer_rate", bounds.rate),
            ("[cse] peer_requests", bounds.requests),
            ("[cse] peer_mib", bounds.mib),
            ("[cse] content_mib", bounds.mib_of_all),
            ("[cse] peer_connections", bounds.connections),
        ]
    };
    for ((key, old), (_, new)) in bounds(old).into_iter().zip(bounds(new)) {
        found.show(key, old.as_ref(), new.as_ref());
    }
    found.show("[cse] provider", old.provider.as_ref(), new.provider.as_ref());
    match (&old.tls, &new.tls) {
        (Some(old), Some(new)) => entity_tls(found, old, new),
        (None, None) => {}
        // Connections to others were begun without one, or with it.
        (_, new) => found.tell_table("[cse.tls]", new.is_some()),
    }
    match (&old.registrar, &new.registrar) {
        (Some(old), Some(new)) => {
            found.show("[cse.registrar] url", Some(&old.url), Some(&new.url));
            found.show("[cse.registrar] id", Some(&old.id), Some(&new.id));
            found.show("[cse.registrar] base", Some(&old.base), Some(&new.base));
            let key = "[cse.registrar] readings";
            found.show(key, old.readings.as_ref(), new.readings.as_ref());
        }
        (None, None) => {}
        (_, new) => found.tell_table("[cse.registrar]", new.is_some()),
    }
}

fn entity_tls(found: &mut Found, old: &CseTls, new: &CseTls) {
    found.sockets("[cse.tls] https", [old, new].map(|it| it.https.as_ref()));
    found.sockets("[cse.tls] wss", [old, new].map(|it| it.wss.as_ref()));
    let (old, new) = (cse_tls(old), cse_tls(new));
    found.compare("[cse.tls] certificate", &old.certificate, &new.certificate);
    found.compare("[cse.tls] key", &old.key, &new.key);
    found.compare("[cse.tls] authorities", &old.authorities, &new.authorities);
}

/// Differences in `[devices]`.
pub(super) fn devices(old: &Config, new: &Config) -> Vec<Change> {
    let mut found = Found::default();
    match (&old.devices, &new.devices) {
        (Some(old), Some(new)) => listener(&mut found, old, new),
        (None, None) => {}
        (_, new) => found.tell_table("[devices]", new.is_some()),
    }
    found.all("[devices]", old.devices == new.devices)
}

fn listener(found: &mut Found, old: &Devices, new: &Devices) {
    found.sockets("[devices] listen", [Some(&old.listen), Some(&new.listen)]);
    found.sockets("[devices] udp", [old, new].map(|it| it.udp.as_ref()));
    found.compare("[devices] delivery", &old.delivery, &new.delivery);
    found.compare("[devices] direct", &old.direct, &new.direct);
    found.compare("[devices] durable", &old.durable, &new.durable);
    found.show("[devices] devices_max", Some(&old.devices_max), Some(&new.devices_max));
    let of_one = |it: &Devices| it.peer_connections;
    found.show("[devices] peer_connections", of_one(old).as_ref(), of_one(new).as_ref());
    found.compare("[devices] admit", &old.admit, &new.admit);
    found.compare("[devices] operators", &old.operators, &new.operators);
    found.compare("[devices] keep_hours", &old.keep, &new.keep);
    found.show("[devices] waiting_max", Some(&old.waiting_max), Some(&new.waiting_max));
    found.show("[devices] waiting_total", Some(&old.waiting_total), Some(&new.waiting_total));
    found.show("[devices] views", Some(&old.views), Some(&new.views));
    found.compare("[devices] map", &old.maps, &new.maps);
    listener_tls(found, old.tls.as_ref(), new.tls.as_ref());
}

fn listener_tls(found: &mut Found, old: Option<&DevicesTls>, new: Option<&DevicesTls>) {
    found.sockets("[devices.tls] listen", [old, new].map(|it| it.map(|tls| &tls.listen)));
    let field = |it: Option<&DevicesTls>| it.map(|tls| tls.system_id);
    if let (Some(old), Some(new)) = (field(old), field(new)) {
        found.compare("[devices.tls] system_id", &old, &new);
    }
    if let (Some(old), Some(new)) = (old.map(devices_tls), new.map(devices_tls)) {
        found.compare("[devices.tls] certificate", &old.certificate, &new.certificate);
        found.compare("[devices.tls] key", &old.key, &new.key);
        found.compare("[devices.tls] authorities", &old.authorities, &new.authorities);
    }
}
