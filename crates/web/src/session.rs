//! Who a caller is: by a token, a session that began with one, or a certificate.

use crate::{
    access::{Arrival, ArrivalKind, Certified},
    answer::{WebRefusal, hexadecimal},
    counters::count,
    tokens::{AccessRole, KnownToken, LiveTokens, TokenFile, TokenHash, random_token},
};
use gatewright_onem2m::network;
use hyper::{
    StatusCode,
    header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// How long a session lasts.
const SESSION_FOR: Duration = Duration::from_hours(12);

/// Maximum sessions; the oldest of the token that has most gives way.
const SESSIONS_MAX: usize = 256;

/// Maximum sessions of one token; its oldest gives way.
const OF_TOKEN_MAX: usize = 32;

/// Wrong tokens of one address in [`WRONG_FOR`]; then it is told to wait. From another machine, a right
/// one waits, too; on this machine all callers share an address, and only wrong ones do.
const WRONG_MAX: u32 = 10;

/// How long a wrong token counts.
const WRONG_FOR: Duration = Duration::from_mins(1);

/// Maximum addresses whose wrong tokens are counted; the oldest gives way.
const ADDRESSES_MAX: usize = 1024;

/// Maximum octets of a token that are looked at.
pub(crate) const TOKEN_MAX: usize = 256;

/// The word of the status that says why the file of tokens cannot be read.
pub(crate) const TOKENS_UNREADABLE: &str = "tokens_unreadable";

/// The name of the session's cookie in the clear.
const COOKIE_NAME: &str = "gatewright";

/// Its name over TLS: a browser takes it from this host over TLS only, and from no server in the clear
/// (RFC 6265bis §4.1.3.2).
const SECURE_COOKIE_NAME: &str = "__Host-gatewright";

/// A caller of the API.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Caller {
    /// What it may do; `None` if it has shown nothing.
    pub(crate) role: Option<AccessRole>,
    /// The name of its token, or how else it is known.
    pub(crate) name: String,
    /// How it has shown that.
    pub(crate) shown: ShownBy,
    /// The token that it has shown, or with which its session began.
    token: Option<TokenHash>,
}

/// How a caller shows who it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ShownBy {
    /// By a token in the request itself, which no page of another site can send.
    Token,
    /// By the cookie of a session.
    Session,
    /// By a certificate.
    Certificate,
    /// By nothing: it is on this machine, or a stranger.
    Nothing,
}

impl ShownBy {
    /// Its name in the audit log.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Session => "session",
            Self::Certificate => "certificate",
            Self::Nothing => "nothing",
        }
    }
}

impl Caller {
    /// The holder of a token.
    pub(crate) fn known(KnownToken { role, name, hash }: KnownToken, shown: ShownBy) -> Self {
        Self { role: Some(role), name, shown, token: Some(hash) }
    }

    /// A caller of this name.
    #[cfg(test)]
    pub(crate) fn of_test(name: &str, role: AccessRole) -> Self {
        Self { role: Some(role), name: name.to_owned(), shown: ShownBy::Certificate, token: None }
    }
}

/// What authentication counts.
#[derive(Debug, Default)]
pub(crate) struct AuthenticationCounters {
    /// Wrong tokens.
    pub(crate) tokens_refused: AtomicU64,
    /// Tokens that were not checked, as their file cannot be read.
    pub(crate) tokens_unchecked: AtomicU64,
    /// Requests of addresses that had too many.
    pub(crate) tokens_limited: AtomicU64,
    /// Requests without the role that they need.
    pub(crate) roles_refused: AtomicU64,
    /// Sessions that were begun.
    pub(crate) sessions: AtomicU64,
}

impl AuthenticationCounters {
    /// Each counter with its name in status and metrics.
    pub(crate) fn read(&self) -> Vec<(&'static str, u64)> {
        [
            ("tokens_refused", &self.tokens_refused),
            ("tokens_unchecked", &self.tokens_unchecked),
            ("tokens_limited", &self.tokens_limited),
            ("roles_refused", &self.roles_refused),
            ("sessions", &self.sessions),
        ]
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
        .into()
    }
}

/// Authenticates callers.
#[derive(Debug, Default)]
pub(crate) struct Authenticator {
    /// The tokens of `[web] tokens`; `None` if none are configured.
    tokens: RwLock<Option<Arc<LiveTokens>>>,
    sessions: Mutex<Vec<WebSession>>,
    wrong: Mutex<HashMap<IpAddr, (u32, Instant)>>,
    pub(crate) counters: AuthenticationCounters,
}

#[derive(Debug)]
struct WebSession {
    id: TokenHash,
    token: TokenHash,
    until: Instant,
}

impl Authenticator {
    /// Takes the tokens of this file from now on; sessions whose token is not in it end.
    pub(crate) fn configure(&self, file: Option<&str>) {
        let tokens = file.map(|file| Arc::new(LiveTokens::new(TokenFile::new(file))));
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
    }

    fn tokens(&self) -> Option<Arc<LiveTokens>> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether tokens are configured.
    pub(crate) fn has_tokens(&self) -> bool {
        self.tokens().is_some()
    }

    /// Why the configured tokens are not known, if they are not.
    pub(crate) fn tokens_error(&self) -> Option<String> {
        self.tokens()?.error()
    }

    /// The token with this hash.
    ///
    /// # Errors
    ///
    /// 503 if tokens are configured and cannot be read. A stranger is not told which file that is.
    fn find(&self, hash: &TokenHash) -> Result<Option<KnownToken>, WebRefusal> {
        let Some(tokens) = self.tokens() else { return Ok(None) };
        tokens.find(hash).map_err(|_| {
            count(&self.counters.tokens_unchecked);
            let why = "no token can be checked now, as the file of tokens cannot be read: \
                       `gatewright events` on the gateway says why";
            WebRefusal::unavailable(why)
        })
    }

    /// The caller of a request.
    ///
    /// # Errors
    ///
    /// 401 if it shows a wrong token, 429 if its address has shown too many ([`WRONG_MAX`]), 503 if the file of tokens
    /// cannot be read, 400 if it shows two.
    pub(crate) fn caller(
        &self,
        arrival: &Arrival,
        headers: &HeaderMap,
    ) -> Result<Caller, WebRefusal> {
        if headers.get_all(AUTHORIZATION).iter().count() > 1 {
            let why = "a request has at most one field Authorization";
            return Err(WebRefusal::bad_request(why));
        }
        if let Some(authorization) = headers.get(AUTHORIZATION) {
            let token = authorization.to_str().ok().and_then(|text| text.split_once(' '));
            let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            let known = self.verify(arrival, token.map_or("", |(_, token)| token.trim()))?;
            return Ok(Caller::known(known, ShownBy::Token));
        }
        if let Some(known) = self.of_session(arrival, headers)? {
            return Ok(Caller::known(known, ShownBy::Session));
        }
        if let Some(Certified { role: Ok(role), fingerprint }) = arrival.certified {
            let name = format!("certificate {}", hexadecimal(&fingerprint));
            let shown = ShownBy::Certificate;
            return Ok(Caller { role: Some(role), name, shown, token: None });
        }
        let (role, name) = match (arrival.certified, arrival.kind) {
            // A certificate with a role that is none gets no further than to `access::check`.
            (Some(_), _) | (None, ArrivalKind::Network) => (None, ""),
            (None, _) if self.tokens().is_some() => (None, ""),
            (None, ArrivalKind::Loopback | ArrivalKind::Unix) => {
                (Some(AccessRole::Viewer), "local")
            }
        };
        Ok(Caller { role, name: name.to_owned(), shown: ShownBy::Nothing, token: None })
    }

    /// Whether a caller would be admitted again: its token is still there, or none is needed.
    pub(crate) fn still_admits(&self, caller: &Caller) -> bool {
        match caller.token {
            Some(token) => matches!(self.find(&token), Ok(Some(_))),
            None => caller.shown == ShownBy::Certificate || !self.has_tokens(),
        }
    }

    /// The token that a caller shows.
    ///
    /// Callers on this machine cannot be told apart by their address. There a right token is taken
    /// whatever others have shown, or one of them could keep the operator out. Guesses are not held up
    /// by that limit then, but by the 256 random bits of a token.
    fn verify(&self, arrival: &Arrival, token: &str) -> Result<KnownToken, WebRefusal> {
        let address = arrival.peer.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), network);
        let is_limited = self.is_limited(address);
        if is_limited && !arrival.is_of_this_machine() {
            return Err(self.too_many());
        }
        let hash = (token.len() <= TOKEN_MAX).then(|| TokenHash::of(token));
        if let Some(hash) = hash
            && let Some(known) = self.find(&hash)?
        {
            return Ok(known);
        }
        if is_limited {
            return Err(self.too_many());
        }
        count(&self.counters.tokens_refused);
        self.count_wrong(address);
        let why = "the token is not known: `gatewright web token add` makes one";
        let refusal = WebRefusal::new(StatusCode::UNAUTHORIZED, why);
        Err(refusal.with(WWW_AUTHENTICATE, "Bearer"))
    }

    fn too_many(&self) -> WebRefusal {
        count(&self.counters.tokens_limited);
        let why = "too many wrong tokens came from this address: wait a minute";
        WebRefusal::new(StatusCode::TOO_MANY_REQUESTS, why).with(RETRY_AFTER, "60")
    }

    fn wrong(&self) -> MutexGuard<'_, HashMap<IpAddr, (u32, Instant)>> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_limited(&self, address: IpAddr) -> bool {
        let is_much =
            |(number, since): &(u32, Instant)| *number >= WRONG_MAX && since.elapsed() < WRONG_FOR;
        self.wrong().get(&address).is_some_and(is_much)
    }

    fn count_wrong(&self, address: IpAddr) {
        let mut wrong = self.wrong();
        if wrong.len() >= ADDRESSES_MAX && !wrong.contains_key(&address) {
            wrong.retain(|_, (_, since)| since.elapsed() < WRONG_FOR);
            let oldest = wrong.iter().min_by_key(|(_, (_, since))| *since).map(|(one, _)| *one);
            if let Some(oldest) = oldest.filter(|_| wrong.len() >= ADDRESSES_MAX) {
                wrong.remove(&oldest);
            }
        }
        let now = Instant::now();
        let (number, since) = wrong.entry(address).or_insert((0, now));
        if since.elapsed() >= WRONG_FOR {
            (*number, *since) = (0, now);
        }
        *number = number.saturating_add(1);
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<WebSession>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token with which the session of a request began, if both are still there.
    fn of_session(
        &self,
        arrival: &Arrival,
        headers: &HeaderMap,
    ) -> Result<Option<KnownToken>, WebRefusal> {
        let Some(id) = cookie(headers, arrival.is_secure).map(TokenHash::of) else {
            return Ok(None);
        };
        let token = {
            let mut sessions = self.sessions();
            sessions.retain(|session| Instant::now() < session.until);
            sessions.iter().find(|session| session.id == id).map(|session| session.token)
        };
        token.map_or(Ok(None), |token| self.find(&token))
    }

    /// Begins a session with a token; returns the token and the cookie.
    ///
    /// # Errors
    ///
    /// As [`caller`](Self::caller).
    pub(crate) fn begin(
        &self,
        arrival: &Arrival,
        token: &str,
    ) -> Result<(KnownToken, HeaderValue), WebRefusal> {
        let known = self.verify(arrival, token)?;
        let refuse = |why: String| WebRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, why);
        let id = random_token().map_err(|error| refuse(error.to_string()))?;
        let hash = TokenHash::of(token);
        let mut sessions = self.sessions();
        sessions.retain(|session| Instant::now() < session.until);
        make_room(&mut sessions, hash);
        let until = Instant::now() + SESSION_FOR;
        sessions.push(WebSession { id: TokenHash::of(&id), token: hash, until });
        drop(sessions);
        count(&self.counters.sessions);
        Ok((known, set_cookie(arrival, &id, SESSION_FOR).map_err(refuse)?))
    }

    /// Ends the session of a request; returns what makes its client forget the cookie, and whether
    /// there was one.
    pub(crate) fn end(
        &self,
        arrival: &Arrival,
        headers: &HeaderMap,
    ) -> Result<(HeaderValue, bool), WebRefusal> {
        let mut has_ended = false;
        if let Some(id) = cookie(headers, arrival.is_secure).map(TokenHash::of) {
            let mut sessions = self.sessions();
            let before = sessions.len();
            sessions.retain(|session| session.id != id);
            has_ended = sessions.len() < before;
        }
        let refuse = |why: String| WebRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, why);
        Ok((set_cookie(arrival, "", Duration::ZERO).map_err(refuse)?, has_ended))
    }
}

/// Ends sessions until there is room for one of `token`: its own oldest if it has its share, or else
/// the oldest of the token that has most.
fn make_room(sessions: &mut Vec<WebSession>, token: TokenHash) {
    let count = |sessions: &[WebSession], token: TokenHash| {
        sessions.iter().filter(|session| session.token == token).count()
    };
    let gives_way = if count(sessions, token) >= OF_TOKEN_MAX {
        Some(token)
    } else if sessions.len() >= SESSIONS_MAX {
        let tokens = sessions.iter().map(|session| session.token);
        tokens.max_by_key(|token| count(sessions, *token))
    } else {
        None
    };
    // The oldest is the first.
    if let Some(first) = sessions.iter().position(|session| Some(session.token) == gives_way) {
        sessions.remove(first);
    }
}

/// The session's cookie of a request (RFC 6265 §4.2.1).
pub(crate) fn cookie(headers: &HeaderMap, is_secure: bool) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split("; "));
    let value =
        pairs.find_map(|pair| pair.strip_prefix(cookie_name(is_secure))?.strip_prefix('='))?;
    (value.len() <= TOKEN_MAX).then_some(value)
}

const fn cookie_name(is_secure: bool) -> &'static str {
    if is_secure { SECURE_COOKIE_NAME } else { COOKIE_NAME }
}

/// The field that sets the cookie (RFC 6265 §4.1).
fn set_cookie(arrival: &Arrival, id: &str, lasts: Duration) -> Result<HeaderValue, String> {
    let secure = if arrival.is_secure { "; Secure" } else { "" };
    let (name, age) = (cookie_name(arrival.is_secure), lasts.as_secs());
    let field = format!("{name}={id}; HttpOnly; SameSite=Strict; Path=/; Max-Age={age}{secure}");
    HeaderValue::try_from(field).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(kind: ArrivalKind, peer: Option<&str>) -> Arrival {
        let peer = peer.map(|peer| peer.parse().unwrap());
        Arrival::new(kind, peer)
    }

    fn status(authenticator: &Authenticator, arrival: &Arrival, token: &str) -> u16 {
        authenticator.verify(arrival, token).map_or_else(|it| it.status.as_u16(), |_| 200)
    }

    /// Wrong tokens hold up their address; on this machine, which has one for all, no right token.
    #[test]
    fn wrong_tokens_keep_nobody_else_out() {
        let path = std::env::temp_dir().join(format!("gw-limited-{}", std::process::id()));
        let _gone = std::fs::remove_file(&path);
        let right = TokenFile::new(&path).add(AccessRole::Operator, "ops").unwrap();
        let cases = [
            (ArrivalKind::Loopback, Some("127.0.0.1"), 200),
            (ArrivalKind::Loopback, Some("::1"), 200),
            (ArrivalKind::Loopback, Some("::ffff:127.0.0.1"), 200),
            (ArrivalKind::Unix, None, 200),
            (ArrivalKind::Network, Some("127.0.0.1"), 200),
            (ArrivalKind::Network, Some("192.0.2.7"), 429),
            (ArrivalKind::Network, Some("2001:db8::7"), 429),
        ];
        for (kind, peer, expected) in cases {
            let authenticator = Authenticator::default();
            authenticator.configure(path.to_str());
            let from = arrival(kind, peer);
            for _ in 0..WRONG_MAX {
                assert_eq!(status(&authenticator, &from, "gwt_0"), 401, "{peer:?}");
            }
            assert_eq!(status(&authenticator, &from, "gwt_0"), 429, "{peer:?}");
            assert_eq!(status(&authenticator, &from, &right), expected, "{peer:?}");
            assert_eq!(
                status(&authenticator, &from, "gwt_0"),
                429,
                "{peer:?}: a right one resets nothing"
            );
            let other = arrival(ArrivalKind::Network, Some("198.51.100.1"));
            assert_eq!(status(&authenticator, &other, &right), 200, "{peer:?}");
        }
        std::fs::remove_file(path).unwrap();
    }

    /// A token fills its own share of sessions, and ends none of another.
    #[test]
    fn sessions_of_one_token_end_none_of_another() {
        let path = std::env::temp_dir().join(format!("gw-sessions-{}", std::process::id()));
        let _gone = std::fs::remove_file(&path);
        let file = TokenFile::new(&path);
        let ops = file.add(AccessRole::Operator, "ops").unwrap();
        let others: Vec<String> = (0..12)
            .map(|number| file.add(AccessRole::Viewer, &format!("eve{number}")).unwrap())
            .collect();
        let authenticator = Authenticator::default();
        authenticator.configure(path.to_str());
        let from = arrival(ArrivalKind::Loopback, Some("127.0.0.1"));
        let begin = |token: &str| {
            let (_, cookie) = authenticator.begin(&from, token).unwrap();
            let cookie = cookie.to_str().unwrap().split(';').next().unwrap().to_owned();
            HeaderMap::from_iter([(COOKIE, HeaderValue::try_from(cookie).unwrap())])
        };
        let goes_on = |session: &HeaderMap| authenticator.of_session(&from, session).unwrap();
        let of_ops = begin(&ops);
        let sessions: Vec<HeaderMap> = (0..300).map(|_| begin(&others[0])).collect();
        assert_eq!(sessions.iter().filter(|it| goes_on(it).is_some()).count(), OF_TOKEN_MAX);
        assert!(goes_on(sessions.last().unwrap()).is_some(), "its newest goes on");
        for token in &others {
            for _ in 0..OF_TOKEN_MAX {
                begin(token);
            }
        }
        assert_eq!(authenticator.sessions().len(), SESSIONS_MAX);
        assert_eq!(goes_on(&of_ops).unwrap().name, "ops");
        assert!(authenticator.end(&from, &of_ops).unwrap().1);
        assert!(!authenticator.end(&from, &of_ops).unwrap().1, "it has ended");
        std::fs::remove_file(path).unwrap();
    }

    /// The cookie over TLS has a name that no server in the clear can set.
    #[test]
    fn the_cookie_of_tls_is_bound_to_its_host() {
        let plain = arrival(ArrivalKind::Loopback, Some("127.0.0.1"));
        let secure = Arrival { is_secure: true, ..plain };
        let field = |arrival| set_cookie(arrival, "x", SESSION_FOR).unwrap();
        assert!(field(&plain).to_str().unwrap().starts_with("gatewright=x; "));
        let field = field(&secure);
        let field = field.to_str().unwrap();
        assert!(
            field.starts_with("__Host-gatewright=x; ") && field.ends_with("; Secure"),
            "{field}"
        );
        assert!(field.contains("Path=/;") && !field.contains("Domain"), "{field}");
        let both = HeaderValue::from_static("gatewright=plain; __Host-gatewright=secure");
        let both = HeaderMap::from_iter([(COOKIE, both)]);
        assert_eq!((cookie(&both, false), cookie(&both, true)), (Some("plain"), Some("secure")));
    }
}
