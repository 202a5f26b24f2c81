//! Which requests are served: those for a name of this listener that no page of another origin sent.

use crate::{
    answer::WebRefusal,
    counters::{WebCounters, count},
    session::{Caller, ShownBy},
    tokens::AccessRole,
};
use gatewright_gateway::names_loopback;
use hyper::{
    StatusCode, Uri,
    header::{HOST, HeaderMap, HeaderName, ORIGIN},
};
use std::{collections::BTreeSet, net::IpAddr};

/// How a connection came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Arrival {
    pub(crate) kind: ArrivalKind,
    /// The peer's address, if it has one.
    pub(crate) peer: Option<IpAddr>,
    /// Whether it is encrypted.
    pub(crate) is_secure: bool,
    /// What the peer's certificate says, if it has shown one.
    pub(crate) certified: Option<Certified>,
    /// Why only `/livez` is answered, if that is so.
    pub(crate) probe: Option<ProbeCause>,
}

/// Why a connection gets answers of `/livez` only.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ProbeCause {
    /// The process has few descriptors left.
    Descriptors,
    /// All places of connections are taken.
    Connections,
}

/// What a client's certificate says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Certified {
    /// The role that it gives.
    pub(crate) role: Result<AccessRole, RefusedRole>,
    /// The SHA-256 of the certificate, which tells it from others.
    pub(crate) fingerprint: [u8; 32],
}

/// The kind of a listener.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ArrivalKind {
    /// TCP at an address of loopback.
    Loopback,
    /// A Unix socket, which only its owner can open.
    Unix,
    /// TCP at an address that other machines reach.
    Network,
}

impl Arrival {
    /// A connection in the clear.
    pub(crate) const fn new(kind: ArrivalKind, peer: Option<IpAddr>) -> Self {
        Self { kind, peer, is_secure: false, certified: None, probe: None }
    }

    /// Whether it came from this machine, where all callers share an address.
    pub(crate) fn is_of_this_machine(&self) -> bool {
        self.kind != ArrivalKind::Network
            || self.peer.is_some_and(|peer| peer.to_canonical().is_loopback())
    }

    /// The scheme of its pages' origin.
    const fn scheme(&self) -> &'static str {
        if self.is_secure { "https" } else { "http" }
    }
}

/// Why a certificate gives no role.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RefusedRole {
    /// It names a role that there is not.
    Unknown,
    /// It names several.
    Ambiguous,
}

/// The role of a client certificate with these names: that of `urn:gatewright:role:operator` and the
/// like, or viewer if there is none.
///
/// # Errors
///
/// [`RefusedRole`] if one of them is no role, or two differ: what was meant is not guessed.
pub(crate) fn certified(names: &[String]) -> Result<AccessRole, RefusedRole> {
    let mut roles = names.iter().filter_map(|name| {
        // "urn" and the namespace are the same in either case (RFC 8141 §3.1).
        let (prefix, role) = name.split_at_checked(ROLE_NAME.len())?;
        prefix.eq_ignore_ascii_case(ROLE_NAME).then_some(role)
    });
    let roles: Result<BTreeSet<AccessRole>, _> =
        roles.try_fold(BTreeSet::new(), |mut roles, role| {
            roles.insert(role.parse()?);
            Ok::<_, String>(roles)
        });
    let roles = roles.map_err(|_| RefusedRole::Unknown)?;
    if roles.len() > 1 {
        return Err(RefusedRole::Ambiguous);
    }
    Ok(roles.into_iter().next().unwrap_or(AccessRole::Viewer))
}

/// What a name of a certificate begins with that gives a role (RFC 8141).
const ROLE_NAME: &str = "urn:gatewright:role:";

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Checks where a request comes from and what it is for; `is_file` if that is a file of the page.
///
/// A page of another site can send requests to an address of this machine, and by a name that it
/// resolves to it (DNS rebinding) even read the answers. The field Host shows such a name, Origin
/// and Sec-Fetch-Site show such a page.
pub(crate) fn check(
    arrival: &Arrival,
    uri: &Uri,
    (headers, is_file): (&HeaderMap, bool),
    counters: &WebCounters,
) -> Result<(), WebRefusal> {
    let host = host(arrival, uri, headers).inspect_err(|_| count(&counters.hosts_refused))?;
    let is_own = origin(arrival, host, headers, is_file);
    is_own.inspect_err(|_| count(&counters.origins_refused))?;
    let why = match arrival.certified.map(|certified| certified.role) {
        None | Some(Ok(_)) => return Ok(()),
        Some(Err(RefusedRole::Unknown)) => {
            "the certificate names a role that there is not: urn:gatewright:role: is followed by \
             viewer, operator or admin, in lower case"
        }
        Some(Err(RefusedRole::Ambiguous)) => {
            "the certificate names several roles: one URI urn:gatewright:role: says which it is"
        }
    };
    Err(WebRefusal::new(StatusCode::FORBIDDEN, why))
}

/// The field Host, which names this listener.
fn host<'a>(arrival: &Arrival, uri: &Uri, headers: &'a HeaderMap) -> Result<&'a str, WebRefusal> {
    let mut hosts = headers.get_all(HOST).into_iter();
    // RFC 9112 §3.2: exactly one field Host.
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(WebRefusal::bad_request("a request has exactly one field Host"));
    };
    let host =
        host.to_str().map_err(|_| WebRefusal::bad_request("the field Host is not a name"))?;
    if uri.authority().is_some_and(|authority| !authority.as_str().eq_ignore_ascii_case(host)) {
        return Err(WebRefusal::bad_request("the target and the field Host name different hosts"));
    }
    if arrival.kind == ArrivalKind::Loopback && !names_loopback(host) {
        return Err(WebRefusal::new(
            StatusCode::MISDIRECTED_REQUEST,
            "the field Host is no name of this listener: use localhost, 127.0.0.1 or [::1]",
        ));
    }
    Ok(host)
}

/// Refuses requests of pages of other origins, but lets a link lead to the page: what a browser shows
/// as a document of its own no other site reads.
fn origin(
    arrival: &Arrival,
    host: &str,
    headers: &HeaderMap,
    is_file: bool,
) -> Result<(), WebRefusal> {
    let foreign = || {
        let why =
            "the request comes from a page of another origin, which this server does not answer";
        WebRefusal::new(StatusCode::FORBIDDEN, why)
    };
    for origin in headers.get_all(ORIGIN) {
        let own = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        let is_own = own.is_some_and(|(scheme, authority)| {
            scheme == arrival.scheme() && authority.eq_ignore_ascii_case(host)
        });
        if !is_own {
            return Err(foreign());
        }
    }
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let is_document = text(FETCH_DEST).is_none_or(|dest| dest == "document");
    let is_followed = is_file && text(FETCH_MODE) == Some("navigate") && is_document;
    match text(FETCH_SITE) {
        Some("same-origin" | "none") | None => Ok(()),
        Some(_) if is_followed => Ok(()),
        Some(_) => Err(foreign()),
    }
}

/// Checks that no page of another origin sends a request that changes something. A browser says with
/// each of them where it comes from (Fetch §3.2); what shows its own token is no browser's.
pub(crate) fn check_change(
    caller: &Caller,
    headers: &HeaderMap,
    counters: &WebCounters,
) -> Result<(), WebRefusal> {
    if caller.shown == ShownBy::Token || headers.contains_key(ORIGIN) {
        // An Origin of its own, as `check` has found.
        return Ok(());
    }
    count(&counters.origins_refused);
    let why =
        "a change needs the field Origin of this server, or a token: Authorization: Bearer TOKEN";
    Err(WebRefusal::new(StatusCode::FORBIDDEN, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn status(kind: ArrivalKind, fields: &[(&'static str, &'static str)]) -> u16 {
        status_of(kind, fields, false)
    }

    fn status_of(kind: ArrivalKind, fields: &[(&'static str, &'static str)], is_file: bool) -> u16 {
        let uri = Uri::from_static(if is_file { "/" } else { "/api/v1/status" });
        let arrival = Arrival::new(kind, None);
        let fields = (&headers(fields), is_file);
        let checked = check(&arrival, &uri, fields, &WebCounters::default());
        checked.map_or_else(|refusal| refusal.status.as_u16(), |()| 200)
    }

    #[test]
    fn only_names_of_loopback_are_served_there() {
        for (host, expected) in [
            ("localhost", 200),
            ("LocalHost:8787", 200),
            ("127.0.0.1:8787", 200),
            ("127.9.9.9", 200),
            ("[::1]:8787", 200),
            ("[::1]", 200),
            ("gateway.example", 421),
            ("localhost.example:8787", 421),
            ("127.0.0.1.example", 421),
            ("192.0.2.1:8787", 421),
            ("[::1", 421),
            ("[::1]x", 421),
            ("localhost:x", 421),
            ("localhost:99999", 421),
            ("localhost:+80", 421),
            ("::1", 421),
            ("", 421),
        ] {
            assert_eq!(status(ArrivalKind::Loopback, &[("host", host)]), expected, "{host}");
        }
        assert_eq!(status(ArrivalKind::Unix, &[("host", "gateway.example")]), 200);
        assert_eq!(status(ArrivalKind::Unix, &[]), 400);
        assert_eq!(status(ArrivalKind::Loopback, &[("host", "localhost"), ("host", "a")]), 400);
    }

    #[test]
    fn a_target_with_another_host_is_refused() {
        let uri = Uri::from_static("http://evil.example/api/v1/status");
        let fields = headers(&[("host", "localhost")]);
        let counters = WebCounters::default();
        let kind = ArrivalKind::Loopback;
        let arrival = Arrival::new(kind, None);
        let refused = check(&arrival, &uri, (&fields, false), &counters).unwrap_err();
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn pages_of_other_origins_are_refused_and_links_are_followed() {
        let host = ("host", "localhost:8787");
        for (fields, expected) in [
            (&[host, ("origin", "http://localhost:8787")][..], 200),
            (&[host, ("origin", "http://localhost")], 403),
            (&[host, ("origin", "https://localhost:8787")], 403),
            (&[host, ("origin", "http://evil.example")], 403),
            (&[host, ("origin", "null")], 403),
            (&[host, ("sec-fetch-site", "same-origin")], 200),
            (&[host, ("sec-fetch-site", "none")], 200),
            (&[host, ("sec-fetch-site", "cross-site")], 403),
            (&[host, ("sec-fetch-site", "same-site")], 403),
            (&[host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], 403),
            (&[host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")], 403),
        ] {
            assert_eq!(status(ArrivalKind::Loopback, fields), expected, "{fields:?}");
        }
        let site = ("sec-fetch-site", "cross-site");
        let (link, document) = (("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"));
        for (fields, expected) in [
            (&[host, site, link, document][..], 200),
            (&[host, site, link], 200),
            (&[host, site, link, ("sec-fetch-dest", "iframe")], 403),
            (&[host, site, ("sec-fetch-mode", "no-cors"), document], 403),
            (&[host, site, link, document, ("origin", "http://evil.example")], 403),
        ] {
            assert_eq!(status_of(ArrivalKind::Loopback, fields, true), expected, "{fields:?}");
        }
    }

    #[test]
    fn a_certificate_names_roles_that_there_are() {
        let of = |names: &[&str]| {
            certified(&names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), Ok(AccessRole::Viewer));
        assert_eq!(of(&["urn:example:x", "m2m:cse:/a"]), Ok(AccessRole::Viewer));
        let two = ["urn:gatewright:role:viewer", "URN:gatewright:role:admin"];
        assert_eq!(of(&two), Err(RefusedRole::Ambiguous));
        let twice = ["urn:gatewright:role:admin", "URN:gatewright:role:admin"];
        assert_eq!(of(&twice), Ok(AccessRole::Admin));
        for bad in ["root", "ADMIN", "", "operator "] {
            let name = format!("urn:gatewright:role:{bad}");
            assert_eq!(
                of(&["urn:gatewright:role:viewer", &name]),
                Err(RefusedRole::Unknown),
                "{bad}"
            );
        }
    }
}
