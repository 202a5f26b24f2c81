//! What of `[devices]` and `[cse]` is another in a description, key by key.

use super::{cse_tls, devices_tls};
use core::fmt::Display;
use gatewright_config::{Config, Cse, CseTls, Devices, DevicesTls, Located, is_fixed};
use std::net::SocketAddr;

/// Something that is another.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Difference {
    /// The key with its table: `[cse] http`; a table alone if it comes or goes.
    pub key: String,
    /// How: `127.0.0.1:8081, not 127.0.0.1:8080`.
    pub how: String,
    /// Whether only a gateway that is started anew takes it.
    pub restart: bool,
}

/// What was found so far.
#[derive(Debug, Default)]
struct Told(Vec<Difference>);

impl Told {
    fn tell(&mut self, key: &str, how: impl Into<String>) {
        let restart = is_fixed(key);
        self.0.push(Difference { key: key.to_owned(), how: how.into(), restart });
    }

    /// A table that comes or goes where nothing waits for that.
    fn tell_table(&mut self, key: &str, comes: bool) {
        let how = if comes { "is new" } else { "is gone" };
        self.0.push(Difference { key: key.to_owned(), how: how.to_owned(), restart: true });
    }

    /// Everything; what nobody here knows of is not taken silently.
    fn all(mut self, table: &str, same: bool) -> Vec<Difference> {
        if self.0.is_empty() && !same {
            let (key, how) = (table.to_owned(), "changed".to_owned());
            self.0.push(Difference { key, how, restart: true });
        }
        self.0
    }

    fn compare<T: PartialEq>(&mut self, key: &str, old: &T, new: &T) {
        if old != new {
            self.tell(key, "changed");
        }
    }

    /// A value that may be shown.
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

/// What is another in `[cse]`.
pub(super) fn cse(old: &Config, new: &Config) -> Vec<Difference> {
    let mut told = Told::default();
    match (&old.cse, &new.cse) {
        (Some(old), Some(new)) => entity(&mut told, old, new),
        (None, None) => {}
        (_, new) => told.tell_table("[cse]", new.is_some()),
    }
    told.all("[cse]", old.cse == new.cse)
}

fn entity(told: &mut Told, old: &Cse, new: &Cse) {
    told.show("[cse] base", Some(&old.base.value), Some(&new.base.value));
    told.show("[cse] id", Some(&old.id), Some(&new.id));
    told.sockets("[cse] http", [old, new].map(|it| it.http.as_ref()));
    told.sockets("[cse] coap", [old, new].map(|it| it.coap.as_ref()));
    told.sockets("[cse] ws", [old, new].map(|it| it.ws.as_ref()));
    // It may hold a password.
    told.compare("[cse] mqtt", &old.mqtt, &new.mqtt);
    told.show("[cse] store", old.store.as_ref(), new.store.as_ref());
    told.show("[cse] store_mib", old.store_mib.as_ref(), new.store_mib.as_ref());
    told.compare("[cse] type", &old.infrastructure, &new.infrastructure);
    told.show("[cse] admin", old.admin.as_ref(), new.admin.as_ref());
    told.compare("[cse] admit", &old.admit, &new.admit);
    told.compare("[cse] admit_devices", &old.admit_devices, &new.admit_devices);
    told.compare("[cse] adopt_devices", &old.adopt_devices, &new.adopt_devices);
    told.compare("[cse] admit_beyond", &old.admit_beyond, &new.admit_beyond);
    told.show("[cse] audit", Some(&old.audit), Some(&new.audit));
    told.show("[cse] audit_mib", old.audit_mib.as_ref(), new.audit_mib.as_ref());
    told.show("[cse] audit_strict", Some(&old.audit_strict), Some(&new.audit_strict));
    told.show("[cse] reach_own", Some(&old.reach_own), Some(&new.reach_own));
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
        told.show(key, old.as_ref(), new.as_ref());
    }
    told.show("[cse] provider", old.provider.as_ref(), new.provider.as_ref());
    match (&old.tls, &new.tls) {
        (Some(old), Some(new)) => entity_tls(told, old, new),
        (None, None) => {}
        // Connections to others were begun without one, or with it.
        (_, new) => told.tell_table("[cse.tls]", new.is_some()),
    }
    match (&old.registrar, &new.registrar) {
        (Some(old), Some(new)) => {
            told.show("[cse.registrar] url", Some(&old.url), Some(&new.url));
            told.show("[cse.registrar] id", Some(&old.id), Some(&new.id));
            told.show("[cse.registrar] base", Some(&old.base), Some(&new.base));
            let key = "[cse.registrar] readings";
            told.show(key, old.readings.as_ref(), new.readings.as_ref());
        }
        (None, None) => {}
        (_, new) => told.tell_table("[cse.registrar]", new.is_some()),
    }
}

fn entity_tls(told: &mut Told, old: &CseTls, new: &CseTls) {
    told.sockets("[cse.tls] https", [old, new].map(|it| it.https.as_ref()));
    told.sockets("[cse.tls] wss", [old, new].map(|it| it.wss.as_ref()));
    let (old, new) = (cse_tls(old), cse_tls(new));
    told.compare("[cse.tls] certificate", &old.certificate, &new.certificate);
    told.compare("[cse.tls] key", &old.key, &new.key);
    told.compare("[cse.tls] authorities", &old.authorities, &new.authorities);
}

/// What is another in `[devices]`.
pub(super) fn devices(old: &Config, new: &Config) -> Vec<Difference> {
    let mut told = Told::default();
    match (&old.devices, &new.devices) {
        (Some(old), Some(new)) => listener(&mut told, old, new),
        (None, None) => {}
        (_, new) => told.tell_table("[devices]", new.is_some()),
    }
    told.all("[devices]", old.devices == new.devices)
}

fn listener(told: &mut Told, old: &Devices, new: &Devices) {
    told.sockets("[devices] listen", [Some(&old.listen), Some(&new.listen)]);
    told.sockets("[devices] udp", [old, new].map(|it| it.udp.as_ref()));
    told.compare("[devices] delivery", &old.delivery, &new.delivery);
    told.compare("[devices] direct", &old.direct, &new.direct);
    told.compare("[devices] durable", &old.durable, &new.durable);
    told.show("[devices] devices_max", Some(&old.devices_max), Some(&new.devices_max));
    let of_one = |it: &Devices| it.peer_connections;
    told.show("[devices] peer_connections", of_one(old).as_ref(), of_one(new).as_ref());
    told.compare("[devices] admit", &old.admit, &new.admit);
    told.compare("[devices] operators", &old.operators, &new.operators);
    told.compare("[devices] keep_hours", &old.keep, &new.keep);
    told.show("[devices] waiting_max", Some(&old.waiting_max), Some(&new.waiting_max));
    told.show("[devices] waiting_total", Some(&old.waiting_total), Some(&new.waiting_total));
    told.show("[devices] views", Some(&old.views), Some(&new.views));
    told.compare("[devices] map", &old.maps, &new.maps);
    listener_tls(told, old.tls.as_ref(), new.tls.as_ref());
}

fn listener_tls(told: &mut Told, old: Option<&DevicesTls>, new: Option<&DevicesTls>) {
    told.sockets("[devices.tls] listen", [old, new].map(|it| it.map(|tls| &tls.listen)));
    if let (Some(old), Some(new)) = (old.map(devices_tls), new.map(devices_tls)) {
        told.compare("[devices.tls] certificate", &old.certificate, &new.certificate);
        told.compare("[devices.tls] key", &old.key, &new.key);
        told.compare("[devices.tls] authorities", &old.authorities, &new.authorities);
    }
}
