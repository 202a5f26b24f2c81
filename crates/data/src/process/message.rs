//! Messages in the rings between control plane and data plane.

use crate::{
    error::DataError,
    plain::{Plain, plain_enum, plain_struct, taken},
    port::{PortAnswer, PortRequest},
};
use gatewright_stack::SocketOrder;
use std::time::Duration;

/// A message to the data plane.
pub(super) enum Incoming {
    Request {
        /// The number that the answer bears.
        number: u64,
        request: PortRequest,
    },
    /// Sets a virtual clock.
    SetClock(Duration),
    /// Another control plane begins: requests and sockets of the one before are forgotten.
    Adopted,
    /// An order to the UDP layer.
    Sockets {
        /// The number that the answer bears.
        number: u64,
        order: SocketOrder,
    },
}

plain_enum!(Incoming {
    0 => Request { number, request },
    1 => SetClock(now),
    2 => Adopted,
    3 => Sockets { number, order },
});

/// A message of the data plane.
pub(super) struct Outgoing {
    pub(super) number: u64,
    pub(super) answer: Result<PortAnswer, DataError>,
}

plain_struct!(Outgoing { number, answer });
