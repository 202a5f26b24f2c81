//! The handlers that come with the house, made as their description says.

use crate::{configured::RunError, recorder::Recorder};
use gatewright_config as config;
use gatewright_packet::LinkIndex;
use gatewright_stack::{
    At, Attachment, Counter, Handler, Place, Side,
    builtin::{Capture, Count, Filter, Match, Mirror, RateLimit},
};
use gatewright_wire::IpProtocol;

/// A handler that is not attached yet.
pub(crate) struct Made {
    pub(crate) name: &'static str,
    pub(crate) attachment: Attachment,
    pub(crate) handler: Box<dyn Handler>,
    pub(crate) count: Option<Count>,
    pub(crate) missed: Option<Counter>,
    pub(crate) recorder: Option<Recorder>,
}

/// The link of a name. Places without a link have none.
pub(crate) fn link_of(names: &[String], name: &str) -> Option<LinkIndex> {
    let index = names.iter().position(|known| known == name && !name.is_empty())?;
    u16::try_from(index).ok().map(LinkIndex)
}

/// Makes a handler for a gateway whose links are `names`; a capture begins its file.
pub(crate) fn make(attach: &config::Attach, names: &[String]) -> Result<Made, RunError> {
    let attachment = attachment(attach, names);
    let made = |name, handler: Box<dyn Handler>| Made {
        name,
        attachment,
        handler,
        count: None,
        missed: None,
        recorder: None,
    };
    Ok(match &attach.handler {
        config::Handler::Count => {
            let count = Count::default();
            Made { count: Some(count.clone()), ..made("count", Box::new(count)) }
        }
        config::Handler::Drop { matching } => {
            made("drop", Box::new(drop_matching(*matching, attachment.at)))
        }
        config::Handler::Filter { rules, default } => {
            let filter = Filter::new(rules.clone(), *default, link_header(attachment.at));
            made("filter", Box::new(filter))
        }
        config::Handler::RateLimit { rate, burst } => {
            made("rate-limit", Box::new(RateLimit::new(*rate, *burst)))
        }
        config::Handler::Mirror { to } => {
            let mirror = Mirror::new(link_of(names, to).unwrap_or(LinkIndex::NONE));
            Made { missed: Some(mirror.missed_counter()), ..made("mirror", Box::new(mirror)) }
        }
        config::Handler::Capture { file } => {
            let (at, side) = (attachment.at, attachment.side);
            let (capture, captured, missed) = Capture::new(at, side, Match::default());
            let recorder = Recorder::start(&file.value, at, names, captured)
                .map_err(|source| RunError::File { file: file.value.clone(), source })?;
            let (missed, recorder) = (Some(missed), Some(recorder));
            Made { missed, recorder, ..made("capture", Box::new(capture)) }
        }
        _ => return Err(RunError::NotInThisVersion("this handler".to_owned())),
    })
}

/// Where a handler stands.
fn attachment(attach: &config::Attach, names: &[String]) -> Attachment {
    Attachment {
        at: attach.at.value,
        side: match attach.side {
            config::Side::Receive => Side::Receive,
            config::Side::Transmit => Side::Transmit,
        },
        place: match attach.place {
            config::Place::Before => Place::Before,
            config::Place::Instead => Place::Instead,
            config::Place::After => Place::After,
            config::Place::Tap => Place::Tap,
        },
        link: attach.link.as_ref().and_then(|name| link_of(names, name)),
    }
}

fn drop_matching(matching: config::Match, at: At) -> Filter {
    let subnet = |prefix: config::Prefix| (prefix.address(), prefix.length());
    let which = Match {
        source: matching.source.map(subnet),
        destination: matching.destination.map(subnet),
        protocol: matching.protocol.map(IpProtocol),
        port: matching.port,
    };
    Filter::dropping(which, link_header(at))
}

/// Octets before the IP header of a packet at this position.
fn link_header(at: At) -> usize {
    if at == At::Frame { ETHERNET_LEN } else { 0 }
}

/// Octets of the link-layer header before the IP header of a whole frame.
const ETHERNET_LEN: usize = 14;
