//! The protocol's registries (RFC 7252 §12).

use crate::numbers::numbers;
use core::fmt;

numbers! {
    /// The type of a message: whether it requests an acknowledgement, or is one (RFC 7252 §4).
    MessageType(u8) {
        CONFIRMABLE = 0, "CON";
        NON_CONFIRMABLE = 1, "NON";
        ACKNOWLEDGEMENT = 2, "ACK";
        RESET = 3, "RST";
    }

    /// The number of an option (IANA CoAP option numbers).
    OptionNumber(u16) {
        IF_MATCH = 1, "If-Match";
        URI_HOST = 3, "Uri-Host";
        ETAG = 4, "ETag";
        IF_NONE_MATCH = 5, "If-None-Match";
        OBSERVE = 6, "Observe";
        URI_PORT = 7, "Uri-Port";
        LOCATION_PATH = 8, "Location-Path";
        URI_PATH = 11, "Uri-Path";
        CONTENT_FORMAT = 12, "Content-Format";
        MAX_AGE = 14, "Max-Age";
        URI_QUERY = 15, "Uri-Query";
        ACCEPT = 17, "Accept";
        LOCATION_QUERY = 20, "Location-Query";
        BLOCK2 = 23, "Block2";
        BLOCK1 = 27, "Block1";
        SIZE2 = 28, "Size2";
        PROXY_URI = 35, "Proxy-Uri";
        PROXY_SCHEME = 39, "Proxy-Scheme";
        SIZE1 = 60, "Size1";
    }

    /// The format of a payload (IANA CoAP content formats).
    ContentFormat(u16) {
        TEXT_PLAIN = 0, "text/plain;charset=utf-8";
        LINK_FORMAT = 40, "application/link-format";
        XML = 41, "application/xml";
        OCTET_STREAM = 42, "application/octet-stream";
        EXI = 47, "application/exi";
        JSON = 50, "application/json";
        CBOR = 60, "application/cbor";
    }
}

impl OptionNumber {
    /// Whether a node that does not know the option must not process the message (§5.4.1).
    pub const fn is_critical(self) -> bool {
        self.0 & 0x01 != 0
    }

    /// Whether a message may have the option several times (§5.4.5, §5.10): of the options known here,
    /// and never one of TS-0008.
    pub const fn is_repeatable(self) -> bool {
        matches!(
            self,
            Self::IF_MATCH
                | Self::ETAG
                | Self::LOCATION_PATH
                | Self::URI_PATH
                | Self::URI_QUERY
                | Self::LOCATION_QUERY
        )
    }

    /// Whether a proxy that does not know the option must not forward it (§5.4.2).
    pub const fn is_unsafe_to_forward(self) -> bool {
        self.0 & 0x02 != 0
    }

    /// Whether the option is not part of the cache key (§5.4.2).
    pub const fn is_no_cache_key(self) -> bool {
        self.0 & 0x1e == 0x1c
    }
}

/// A method or a response code: class and detail, written `2.05` (RFC 7252 §5.2, §12.1).
#[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Code(pub u8);

macro_rules! codes {
    ($($constant:ident = $class:literal . $detail:literal, $text:literal;)*) => {
        impl Code {
            $(#[doc = concat!("`", $class, ".", $detail, "` ", $text, ".")]
            pub const $constant: Self = Self::new($class, $detail);)*

            /// The meaning of the code, if it has a constant here.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$constant => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    EMPTY = 0 . 0, "Empty";
    GET = 0 . 1, "GET";
    POST = 0 . 2, "POST";
    PUT = 0 . 3, "PUT";
    DELETE = 0 . 4, "DELETE";
    CREATED = 2 . 1, "Created";
    DELETED = 2 . 2, "Deleted";
    VALID = 2 . 3, "Valid";
    CHANGED = 2 . 4, "Changed";
    CONTENT = 2 . 5, "Content";
    CONTINUE = 2 . 31, "Continue";
    BAD_REQUEST = 4 . 0, "Bad Request";
    UNAUTHORIZED = 4 . 1, "Unauthorized";
    BAD_OPTION = 4 . 2, "Bad Option";
    FORBIDDEN = 4 . 3, "Forbidden";
    NOT_FOUND = 4 . 4, "Not Found";
    METHOD_NOT_ALLOWED = 4 . 5, "Method Not Allowed";
    NOT_ACCEPTABLE = 4 . 6, "Not Acceptable";
    REQUEST_ENTITY_INCOMPLETE = 4 . 8, "Request Entity Incomplete";
    CONFLICT = 4 . 9, "Conflict";
    PRECONDITION_FAILED = 4 . 12, "Precondition Failed";
    REQUEST_ENTITY_TOO_LARGE = 4 . 13, "Request Entity Too Large";
    UNSUPPORTED_CONTENT_FORMAT = 4 . 15, "Unsupported Content-Format";
    TOO_MANY_REQUESTS = 4 . 29, "Too Many Requests";
    INTERNAL_SERVER_ERROR = 5 . 0, "Internal Server Error";
    NOT_IMPLEMENTED = 5 . 1, "Not Implemented";
    BAD_GATEWAY = 5 . 2, "Bad Gateway";
    SERVICE_UNAVAILABLE = 5 . 3, "Service Unavailable";
    GATEWAY_TIMEOUT = 5 . 4, "Gateway Timeout";
    PROXYING_NOT_SUPPORTED = 5 . 5, "Proxying Not Supported";
}

impl Code {
    /// The code `class.detail`; of each, the bits that the code has room for.
    pub const fn new(class: u8, detail: u8) -> Self {
        Self(class << 5 | detail & 0x1f)
    }

    /// The class of the code: 0 requests, 2 success, 4 the client's error, 5 the server's error.
    pub const fn class(self) -> u8 {
        self.0 >> 5
    }

    /// The detail within the class.
    pub const fn detail(self) -> u8 {
        self.0 & 0x1f
    }

    /// Whether it is a method.
    pub const fn is_request(self) -> bool {
        self.class() == 0 && self.0 != 0
    }

    /// Whether it answers a request.
    pub const fn is_response(self) -> bool {
        matches!(self.class(), 2..=5)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.class(), self.detail())
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
