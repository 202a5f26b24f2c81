//! The simple two-way active measurement protocol (STAMP, RFC 8762): delays and losses to any host
//! that reflects its test packets, and a reflector for other senders.
//!
//! [`StampSenderPacket`], [`StampReflectorPacket`] and [`StampReflector`] are pure; [`reflect`] and
//! [`measure`] are the sockets around them. Sessions are unauthenticated or authenticated by a key
//! of both sides. Of the extensions (RFC 8972), the session identifier and padding are known; all
//! others are reflected as not understood.

mod packet;
mod reflector;
mod sender;
mod session;

pub use packet::{
    AUTHENTICATED_LEN, ClockErrorEstimate, NtpTime, StampError, StampKey, StampReflectorPacket,
    StampSenderPacket, UNAUTHENTICATED_LEN,
};
pub use reflector::{StampArrival, StampReflector, StampReflectorCounters, StampReflectorMode};
pub use sender::{StampExchange, StampReport, stamp_report};
pub(crate) use session::exchanges;
pub use session::{StampSettings, measure, measure_until, reflect};

/// The port of reflectors (RFC 8762 §4.1).
pub const STAMP_PORT: u16 = 862;
