//! Routes and handlers that were set by command: the data plane's process keeps them for a control
//! plane that adopts it.

use gatewright_config::{
    Attach, AttachMessages, Handler, HandlerPlacement, HandlerSpec, MessageHandler,
};
use gatewright_part::{EventSink, LogEvent, LogLevel};
use gatewright_planes::{CommandRoute, StaticRoute};
use serde::{Deserialize, Serialize};

/// What was set by command, as the data plane's process keeps it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct ByCommand {
    pub(crate) routes: Vec<CommandRoute>,
    /// At packets, in their order, and at messages.
    pub(crate) handlers: Vec<HandlerSpec>,
}

/// What the control plane before had set by command, as far as this one can go on with it.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptByCommand {
    /// Routes, on the links of this gateway.
    pub(crate) routes: Vec<StaticRoute>,
    /// Handlers at packets.
    pub(crate) packets: Vec<(HandlerSpec, Attach)>,
    /// Handlers at messages.
    pub(crate) messages: Vec<(HandlerSpec, AttachMessages)>,
    /// As it was found.
    pub(crate) memo: String,
    /// What ends, and why.
    dropped: Vec<(String, String)>,
}

/// The part of the events.
const GATEWAY: &str = "gateway";
/// Why a capture does not go on.
const CAPTURE: &str = "captures end with the control plane, as their files would begin anew";

impl ByCommand {
    /// As the data plane's process keeps it; empty if nothing was set.
    pub(crate) fn memo(&self) -> String {
        if *self == Self::default() {
            return String::new();
        }
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl KeptByCommand {
    /// What is in the `memo` of a data plane that was found, for links with these names by place.
    pub(crate) fn read(memo: &str, names: &[String]) -> Self {
        let mut this = Self { memo: memo.to_owned(), ..Self::default() };
        let read =
            if memo.is_empty() { Ok(ByCommand::default()) } else { serde_json::from_str(memo) };
        let ByCommand { routes, handlers } = read.unwrap_or_else(|error| {
            this.dropped.push(("all of it".to_owned(), error.to_string()));
            ByCommand::default()
        });
        for route in routes {
            match route.among(names) {
                Some(route) => this.routes.push(route),
                None => this.dropped.push((route.to_string(), "its link is gone".to_owned())),
            }
        }
        let present: Vec<_> = names.iter().filter(|name| !name.is_empty()).cloned().collect();
        for spec in handlers {
            let why = match spec.read(&present) {
                Ok(placed) if captures(&placed) => CAPTURE.to_owned(),
                Ok(HandlerPlacement::Packets(attach)) => {
                    this.packets.push((spec, attach));
                    continue;
                }
                Ok(HandlerPlacement::Messages(attach)) => {
                    this.messages.push((spec, attach));
                    continue;
                }
                Err(findings) => findings.first().map_or_else(String::new, |it| it.message.clone()),
            };
            this.dropped.push((described(&spec), why));
        }
        this
    }

    /// Logs what goes on, and what does not.
    pub(crate) fn log(&self, log: &EventSink) {
        let (routes, handlers) = (self.routes.len(), self.packets.len() + self.messages.len());
        if routes + handlers > 0 {
            let text = format!(
                "what was set by command goes on with the data plane: {routes} routes, {handlers} \
                 handlers"
            );
            log.log(LogEvent::new(LogLevel::Info, GATEWAY, "by-command-kept", text));
        }
        for (what, why) in &self.dropped {
            log.log(dropped(what, why));
        }
    }
}

/// A handler as an event names it.
pub(crate) fn described(spec: &HandlerSpec) -> String {
    let side = spec.side.as_deref().map_or_else(String::new, |side| format!(" {side}"));
    format!("handler {} at {}{side}", spec.handler, spec.at)
}

/// The event of what was set by command and does not go on.
pub(crate) fn dropped(what: &str, why: &str) -> LogEvent {
    let text = format!("set by command, and gone with the last control plane: {what}: {why}");
    LogEvent::new(LogLevel::Warning, GATEWAY, "by-command-dropped", text).with("what", what)
}

fn captures(placed: &HandlerPlacement) -> bool {
    match placed {
        HandlerPlacement::Packets(attach) => matches!(attach.handler, Handler::Capture { .. }),
        HandlerPlacement::Messages(attach) => {
            matches!(attach.handler, MessageHandler::Capture { .. })
        }
    }
}
