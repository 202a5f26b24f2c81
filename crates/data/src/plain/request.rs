//! Requests to the data plane and its answers.

use super::{Plain, plain_enum, plain_newtype, plain_struct, taken};
use crate::{
    captures::CaptureNumber,
    error::DataError,
    neighbours::{Forget, NeighbourUpdate},
    port::{
        HandlerOrder, HandlerValue, KeptHandler, PortAnswer, PortRequest, StageNumber, TraceNumber,
        TraceOrder,
    },
    worker::Pace,
};
use gatewright_stack::{GraphTimes, TimeSum, builtin::HostPart};

plain_newtype!(CaptureNumber, StageNumber, KeptHandler, TraceNumber);
plain_enum!(HostPart { 0 => Deliver, 1 => Copy, 2 => Send });
plain_struct!(Pace { spin });
plain_struct!(Forget { link, address });
plain_struct!(NeighbourUpdate { link, address, station });
plain_struct!(TraceOrder { number, link, which, frame, own });

plain_enum!(HandlerValue {
    0 => Count,
    1 => Drop { which },
    2 => Filter { rules, default },
    3 => RateLimit { rate, burst },
    4 => Mirror { to },
    5 => Kept(number),
    6 => Capture { which, to },
    7 => Host { part, to },
    8 => NextHops { to, balance },
    9 => RateLimitWithDrivers { rate, burst, bucket },
});

impl Plain for HandlerOrder {
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Self::Kept(id) => {
                to.push(0);
                id.put(to);
            }
            Self::New(id, attachment, value) => {
                to.push(1);
                id.put(to);
                attachment.put(to);
                value.put(to);
            }
        }
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(match u8::take(from)? {
            0 => Self::Kept(Plain::take(from)?),
            1 => Self::New(Plain::take(from)?, Plain::take(from)?, Plain::take(from)?),
            _ => return None,
        })
    }
}

plain_enum!(PortRequest {
    0 => Stage(orders),
    1 => Commit(stage),
    2 => Discard(stage),
    3 => Neighbours(updates),
    4 => LookAtNeighbours(forget),
    5 => Links,
    6 => Pace(pace),
    7 => Reopen(order),
    8 => SetLink { link, up },
    9 => Begin,
    10 => Trace(order),
    11 => EndTrace(trace),
    12 => FlushCaptures,
    13 => Prepare(order),
    14 => DropPrepared,
    15 => NeighboursUsed(used),
    16 => Measure(time),
    17 => Receive,
});

plain_enum!(PortAnswer {
    0 => Done,
    1 => Staged(stage),
    2 => Links(links),
    3 => Reopened(info),
    4 => Traced(steps),
    5 => Measured(times),
});
plain_struct!(TimeSum { packets, ns });
plain_struct!(GraphTimes { runs, ways, layers, handlers });

impl Plain for DataError {
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Self::Busy => to.push(0),
            Self::Late => to.push(1),
            Self::Unknown => to.push(2),
            Self::Ended => to.push(3),
            Self::OneOnly(attachment) => {
                to.push(4);
                attachment.put(to);
            }
            Self::Reopen { name, reason } => {
                to.push(5);
                name.put(to);
                reason.put(to);
            }
            // A source of the system does not travel: its words and the exit code do.
            other => {
                to.push(6);
                other.to_string().put(to);
                other.exit_code().put(to);
            }
        }
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(match u8::take(from)? {
            0 => Self::Busy,
            1 => Self::Late,
            2 => Self::Unknown,
            3 => Self::Ended,
            4 => Self::OneOnly(Plain::take(from)?),
            5 => Self::Reopen { name: Plain::take(from)?, reason: Plain::take(from)? },
            6 => Self::Refused { reason: Plain::take(from)?, exit_code: Plain::take(from)? },
            _ => return None,
        })
    }
}

impl<T: Plain> Plain for Result<T, DataError> {
    fn put(&self, to: &mut Vec<u8>) {
        to.push(u8::from(self.is_err()));
        match self {
            Ok(value) => value.put(to),
            Err(error) => error.put(to),
        }
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(if bool::take(from)? { Err(Plain::take(from)?) } else { Ok(T::take(from)?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlowBalance;
    use crate::{
        reopen::Reopen,
        setup::{DeviceSetup, WorkerLink},
        workers::LinkNow,
    };
    use gatewright_delay::{FlowKind, PathPolicy};
    use gatewright_link::{LinkConfig, LinkState, OpenError};
    use gatewright_packet::{LinkAddress, LinkIndex};
    use gatewright_stack::{
        At, Attachment, AttachmentId, Place,
        builtin::{Among, Match, PortRange, Rule, Selector, Subnet, Verdict},
    };
    use gatewright_wire::{EtherType, IpProtocol};
    use std::time::Duration;

    fn a_balance() -> FlowBalance {
        let kind = FlowKind { rate: 10.0, octets: 100.0, bound_us: 6000.0, quantile: 0.95 };
        FlowBalance {
            policy: PathPolicy::MinHop,
            kind,
            flows_max: 7,
            flows_per_client: Some(2),
            relays: Vec::new(),
        }
    }

    fn a_trace(link: LinkIndex, which: Match) -> PortRequest {
        let (number, frame) = (TraceNumber(8), Some(vec![1, 2]));
        PortRequest::Trace(TraceOrder { number, link: Some(link), which, frame, own: None })
    }

    #[test]
    fn every_request_comes_back_from_its_octets() {
        let link = LinkIndex(2);
        let subnet = Subnet { address: "192.0.2.0".parse().unwrap(), bits: 24 };
        let which = Selector {
            source: Among::In(vec![subnet]),
            protocol: Among::NotIn(vec![IpProtocol::UDP]),
            destination_port: Among::In(vec![PortRange { first: 1, last: 9 }]),
            ..Selector::default()
        };
        let matching = Match {
            source: Some(("2001:db8::".parse().unwrap(), 32)),
            protocol: Some(IpProtocol(89)),
            port: Some(5683),
            ..Match::default()
        };
        let at = Attachment {
            link: Some(link),
            ..Attachment::new(At::EtherType(EtherType::IPV6), Place::Before)
        };
        let new = |value| HandlerOrder::New(AttachmentId(3), at, value);
        let rules = vec![Rule { which, verdict: Verdict::Drop }];
        let balance = a_balance();
        let orders = vec![
            HandlerOrder::Kept(AttachmentId(1)),
            new(HandlerValue::Count),
            new(HandlerValue::Drop { which: matching }),
            new(HandlerValue::Filter { rules, default: Verdict::Accept }),
            new(HandlerValue::RateLimit { rate: 100, burst: u32::MAX }),
            new(HandlerValue::RateLimitWithDrivers { rate: 1, burst: 2, bucket: 255 }),
            new(HandlerValue::Mirror { to: link }),
            new(HandlerValue::Kept(KeptHandler(5))),
            new(HandlerValue::Capture { which: matching, to: CaptureNumber(9) }),
            new(HandlerValue::Host { part: HostPart::Copy, to: link }),
            new(HandlerValue::NextHops { to: subnet, balance }),
        ];
        let device = |name: &str| WorkerLink {
            name: name.to_owned(),
            device: DeviceSetup::Interface(LinkConfig::new(link, name)),
            queues: None,
        };
        let address = "fe80::9".parse().unwrap();
        let station = Some((LinkAddress::ethernet([2, 0, 0, 0, 0, 7]), true));
        for request in [
            PortRequest::Stage(orders),
            PortRequest::Commit(StageNumber(7)),
            PortRequest::Discard(StageNumber(u64::MAX)),
            PortRequest::Neighbours(vec![NeighbourUpdate { link, address, station }]),
            PortRequest::NeighboursUsed(vec![(link, address)]),
            PortRequest::LookAtNeighbours(Some(Forget { link: Some(link), address: None })),
            PortRequest::LookAtNeighbours(None),
            PortRequest::Links,
            PortRequest::Pace(Pace { spin: Duration::from_micros(50) }),
            PortRequest::Reopen(Box::new(Reopen { device: device("b"), before: device("a") })),
            PortRequest::Prepare(Box::new(Reopen { device: device("b"), before: device("a") })),
            PortRequest::DropPrepared,
            PortRequest::SetLink { link, up: false },
            PortRequest::Begin,
            PortRequest::Receive,
            a_trace(link, matching),
            PortRequest::EndTrace(None),
            PortRequest::EndTrace(Some(TraceNumber(8))),
            PortRequest::FlushCaptures,
            PortRequest::Measure(Duration::from_secs(3)),
        ] {
            let back = PortRequest::of(&request.octets());
            assert_eq!(format!("{:?}", back.unwrap()), format!("{request:?}"));
        }
    }

    #[test]
    fn answers_and_errors_come_back_from_their_octets() {
        let now = LinkNow { state: LinkState::Gone, queues: vec![(0, 1), (1, 0)] };
        for answer in [
            PortAnswer::Done,
            PortAnswer::Staged(StageNumber(1)),
            PortAnswer::Links(vec![now, LinkNow::default()]),
            PortAnswer::Traced(Vec::new()),
            PortAnswer::Measured(GraphTimes {
                runs: 7,
                ways: vec![TimeSum::default(), TimeSum { packets: 3, ns: 129 }],
                layers: vec![TimeSum { packets: 3, ns: 129 }],
                handlers: vec![(AttachmentId(4), TimeSum { packets: 1, ns: 9 })],
            }),
        ] {
            let text = format!("{:?}", Ok::<_, ()>(&answer));
            let back = Result::<PortAnswer, DataError>::of(&Ok(answer).octets());
            assert_eq!(format!("{:?}", back.unwrap()), text);
        }
        let name = "eth7".to_owned();
        let action = "open a packet socket";
        let source =
            OpenError::Permission { name: name.clone(), action, capability: "CAP_NET_RAW" };
        let error = DataError::Link { name, source };
        let (text, code) = (error.to_string(), error.exit_code());
        let back = DataError::of(&error.octets()).unwrap();
        // sysexits.h: EX_NOPERM.
        assert_eq!((back.to_string(), back.exit_code(), code), (text, 77, 77));
    }
}
