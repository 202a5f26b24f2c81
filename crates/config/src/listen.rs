//! Where a gateway itself listens, and `[web]`, the web interface.

use crate::located::Located;
use std::net::SocketAddr;

/// Address of a listener.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Listen {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(String),
}

/// The web interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Web {
    /// Where it listens.
    pub listen: Located<Listen>,
    /// Path of its file of tokens; without one, everybody on this machine may look.
    pub tokens: Option<String>,
    /// Path of the database with the log of changes that callers make.
    pub audit: Option<String>,
    /// Path of the folder whose reports of the delay lab it shows.
    pub reports: Option<String>,
    /// TLS.
    pub tls: Option<WebTls>,
}

/// TLS of the web interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WebTls {
    /// Path of its certificate.
    pub certificate: String,
    /// Path of the certificate's key.
    pub key: String,
    /// Path of the authorities whose certificates clients may show.
    pub authorities: Option<String>,
}
