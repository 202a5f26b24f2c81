//! The status of a gateway, as its control socket answers.

use crate::{
    Gateway,
    balance::BalanceStatus,
    delay_models::RelayDelay,
    events::EventCount,
    hops::HopDelay,
    messages::{AttachedMessages, MessageCounts},
};
use gatewright_config::MessageHandler;
use gatewright_part::NamedStatus;
use gatewright_planes::{MeasuredTime, Status, UdpGateway};
use gatewright_stack::Attachment;
use serde::Serialize;
use std::time::Duration;

/// The answer to `status`.
#[derive(Clone, Debug, Serialize)]
pub struct StatusAnswer {
    /// The gateway.
    #[serde(flatten)]
    pub gateway: Status,
    /// The links that do not forward what arrives there for other hosts (`forwarding = false`), in a
    /// gateway with links in several networks.
    pub not_forwarding: Vec<String>,
    /// The built-in handlers.
    pub attached: Vec<AttachedAnswer>,
    /// The UDP gateways.
    pub udp_gateways: Vec<UdpGatewayAnswer>,
    /// The reports of TCP proxies, services and programs.
    pub parts: Vec<NamedStatus>,
    /// The delay models of packets, proxies and programs that have a reading.
    pub delays: Vec<RelayDelay>,
    /// Relays without a delay model, as there are too many.
    pub delays_left_out: u64,
    /// The balances.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub balances: Vec<BalanceStatus>,
    /// The numbers of logged events, by kind.
    pub events: Vec<EventCount>,
    /// Why the last good description runs instead of the file's, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// Delays of hops beside their budgets, if somebody shows them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<HopDelay>,
}

/// A built-in handler.
#[derive(Clone, Debug, Serialize)]
pub struct AttachedAnswer {
    /// Its id.
    pub id: u32,
    /// Its name.
    pub handler: &'static str,
    /// Its position.
    pub at: String,
    /// Packets counted, if it counts packets.
    pub packets: Option<u64>,
    /// Octets counted, if it counts octets.
    pub octets: Option<u64>,
    /// Packets, or pieces of messages, that it could not write or copy in time, if it can miss any.
    pub missed: Option<u64>,
    /// Messages seen, if it handles messages and looks at them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// Requests refused, if it handles messages and refuses some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<u64>,
    /// The time in it, if it handles packets and that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredTime>,
}

/// A UDP gateway's counters.
#[derive(Clone, Debug, Serialize)]
pub struct UdpGatewayAnswer {
    /// Its name.
    pub name: String,
    /// Datagrams read from clients.
    pub received: u64,
    /// Datagrams sent to the server.
    pub sent: u64,
    /// Datagrams returned to clients.
    pub returned: u64,
    /// Datagrams lost here, for any reason.
    pub lost: u64,
}

/// A gateway's metrics as OpenMetrics text.
pub(crate) fn metrics(gateway: &Gateway) -> Result<String, String> {
    Ok(crate::metrics::text(&status(gateway)?))
}

/// A gateway's status and counters, as answered on the control socket.
///
/// # Errors
///
/// In words, if its worker has ended.
pub fn status(gateway: &Gateway) -> Result<StatusAnswer, String> {
    Ok(answer(gateway, gateway.planes().status().map_err(|error| error.to_string())?))
}

/// Maximum time for which one request measures the times of layers: the longest interval of `top`,
/// and a little.
const MEASURED_MAX: Duration = Duration::from_secs(3700);

/// As [`status`], with the times of layers, ways and handlers, which are measured from the first
/// request until `seconds` after the last one.
///
/// # Errors
///
/// In words, if its worker has ended.
pub(crate) fn measured_status(gateway: &Gateway, seconds: f64) -> Result<StatusAnswer, String> {
    let time = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    let planes = gateway.planes().measured_status(time.min(MEASURED_MAX));
    Ok(answer(gateway, planes.map_err(|error| error.to_string())?))
}

fn answer(gateway: &Gateway, mut planes: Status) -> StatusAnswer {
    let times = std::mem::take(&mut planes.handler_times);
    let measured_of =
        |id| times.iter().find(|(measured, _)| *measured == id).map(|(_, time)| *time);
    let names = gateway.links.names();
    let standing = gateway.handlers.attached();
    let handlers = gateway.planes().handlers();
    let attached = standing.iter().map(|attached| {
        let now = handlers.iter().find(|now| now.id == attached.id);
        let counted = now.and_then(|now| now.counted);
        let missed = now.and_then(|now| now.missed);
        AttachedAnswer {
            id: attached.id.0,
            handler: attached.name,
            at: place_of(attached.attachment, &names),
            packets: counted.map(|(packets, _)| packets),
            octets: counted.map(|(_, octets)| octets),
            missed: missed.map(|missed| missed + gateway.handlers.unrecorded(attached.id)),
            messages: None,
            refused: None,
            measured: measured_of(attached.id),
        }
    });
    let at_messages = gateway.messages.attached();
    let attached = attached.chain(at_messages.iter().map(messages_answer));
    let parts = gateway.parts_told();
    planes.sojourn.extend(parts.iter().flat_map(|part| part.told.sojourns.iter().cloned()));
    let (delays, delays_left_out) = gateway.delays();
    StatusAnswer {
        gateway: planes,
        not_forwarding: gateway.links.not_forwarding().clone(),
        attached: attached.collect(),
        udp_gateways: gateway.udp_gateways.map(relay_answer),
        parts,
        delays,
        delays_left_out,
        balances: gateway.balances(),
        events: gateway.events().counts(),
        fallback: gateway.fallback(),
        hops: gateway.hops.now(),
    }
}

/// The answer for a handler at messages.
fn messages_answer(one: &AttachedMessages) -> AttachedAnswer {
    let MessageCounts { messages, octets, refused, missed } = one.counts();
    let captures = matches!(one.attach.handler, MessageHandler::Capture { .. });
    let looks = captures || matches!(one.attach.handler, MessageHandler::Count);
    AttachedAnswer {
        id: one.id.0,
        handler: one.attach.handler.name(),
        at: one.place(),
        packets: None,
        octets: looks.then_some(octets),
        missed: captures.then_some(missed),
        messages: looks.then_some(messages),
        refused: (!looks).then_some(refused),
        measured: None,
    }
}

/// A handler's position, with its link's name.
fn place_of(attachment: Attachment, names: &[String]) -> String {
    let everywhere = Attachment { link: None, ..attachment }.to_string();
    let name = attachment.link.and_then(|link| names.get(link.index()));
    name.map_or(everywhere.clone(), |name| format!("{everywhere} on {name}"))
}

fn relay_answer(name: &str, gateway: &UdpGateway) -> UdpGatewayAnswer {
    let counts = gateway.counts();
    let refused = gateway.balance_counts().map_or(0, |balance| balance.refused());
    UdpGatewayAnswer {
        name: name.to_owned(),
        received: counts.received,
        sent: counts.sent,
        returned: counts.returned,
        lost: counts.cut_short + counts.not_sent + counts.datagrams_refused + refused,
    }
}
