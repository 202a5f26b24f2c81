//! Components that a program may leave out of its gateways.
//!
//! Links, handlers, proxies, mesh, control socket and metrics page are in every gateway. Devices,
//! service entity and gateway programs are in crates of their own, which a program names here if it
//! links them. Without one, a description with its tables is refused by their names.

use crate::{
    Gateway, Links,
    messages::{ConversationAnswer, MessageCounting, MessageRecords, MessageTraceRequest},
};
use gatewright_config::{AttachMessages, Config};
use gatewright_part::{
    Change, ComponentError, EventSink, Part, ServiceParts, Staged, Unable, Unchanged,
};
use gatewright_stack::Sockets;
use gatewright_tables::EntityWriters;
use std::{fmt, sync::Arc};

/// Starts devices and service entity of a description; devices whose packets arrive by the gateway's
/// links use the sockets of its own stack and the AE table.
pub type StartServices =
    fn(&Config, Option<(Sockets, EntityWriters)>) -> Result<ServiceParts, ComponentError>;

/// Starts the gateway programs of a description, with the seed of their randomness and the entrance
/// of the event log.
pub type StartPrograms =
    fn(&Links, &Config, u64, EventSink) -> Result<Arc<dyn GatewayPrograms>, ComponentError>;

/// The components of a program; the default has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Assembly {
    /// Devices and service entity: `[devices]`, `[cse]`.
    pub services: Option<StartServices>,
    /// Gateway programs: `[[program]]`.
    pub programs: Option<StartPrograms>,
    /// Whether the program adds the web interface as a part: `[web]`.
    pub web: bool,
}

impl Assembly {
    /// Tables of a description that this assembly does not run.
    pub fn lacks(&self, config: &Config) -> impl Iterator<Item = &'static str> + use<> {
        let lacks = [
            (self.services.is_none() && config.devices.is_some(), "[devices]"),
            (self.services.is_none() && config.cse.is_some(), "[cse]"),
            (self.programs.is_none() && !config.programs.is_empty(), "[[program]]"),
            (!self.web && config.web.is_some(), "[web]"),
        ];
        lacks.into_iter().filter_map(|(lacks, table)| lacks.then_some(table))
    }

    /// Starts devices and service entity, if they are in it.
    pub(crate) fn start_services(
        &self,
        config: &Config,
        own_stack: Option<(Sockets, EntityWriters)>,
    ) -> Result<ServiceParts, ComponentError> {
        self.services.map_or_else(|| Ok(ServiceParts::default()), |start| start(config, own_stack))
    }

    /// Starts gateway programs, if they are in it.
    pub(crate) fn start_programs(
        &self,
        links: &Links,
        config: &Config,
        seed: u64,
        log: EventSink,
    ) -> Result<Arc<dyn GatewayPrograms>, ComponentError> {
        self.programs.map_or_else(|| Ok(no_programs()), |start| start(links, config, seed, log))
    }
}

/// A part that a program adds to a gateway, and that serves it once it runs.
pub trait ServedPart: Part {
    /// Serves `gateway` as its description `config` says; returns where, if it is served at all.
    ///
    /// # Errors
    ///
    /// [`ComponentError`] names the key.
    fn serve(
        &self,
        gateway: &Arc<Gateway>,
        config: &Config,
    ) -> Result<Option<String>, ComponentError>;

    /// Ends it with its connections; a second call does nothing.
    fn end(&self);
}

/// Running gateway programs, as a part that takes handlers at messages.
pub trait GatewayPrograms: Part + fmt::Debug {
    /// The address of each role, and notes for the operator.
    fn notes(&self) -> Vec<String>;

    /// Checks whether something could be attached.
    ///
    /// # Errors
    ///
    /// In words, with the existing names in place of an unknown one.
    fn check(&self, attach: &AttachMessages) -> Result<(), String>;

    /// Attaches something to handlers of a program, under an id. A capture sends its messages to
    /// `records`.
    ///
    /// # Errors
    ///
    /// As [`Self::check`].
    fn attach(
        &self,
        id: u32,
        attach: &AttachMessages,
        records: Option<MessageRecords>,
    ) -> Result<MessageCounting, String>;

    /// Detaches the attachment of this id; its records receive no further messages.
    fn detach(&self, id: u32);

    /// Records the next conversation that a request means, and waits for it while `is_wanted`, which is
    /// asked now and then.
    ///
    /// # Errors
    ///
    /// In words, if there can be no such conversation.
    fn trace(
        &self,
        request: &MessageTraceRequest,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<ConversationAnswer, String>;
}

/// The programs of an assembly without them.
fn no_programs() -> Arc<dyn GatewayPrograms> {
    Arc::new(NoPrograms)
}

#[derive(Debug)]
struct NoPrograms;

/// Why nothing is at messages.
const NO_PROGRAM: &str = "no program runs here";

impl Part for NoPrograms {
    fn name(&self) -> &'static str {
        "programs"
    }

    fn differences(&self, _: &Config, _: &Config) -> Vec<Change> {
        Vec::new()
    }

    fn stage(&self, _: &Config, _: &Config) -> Result<Box<dyn Staged>, Unable> {
        Ok(Box::new(Unchanged))
    }
}

impl GatewayPrograms for NoPrograms {
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn check(&self, _: &AttachMessages) -> Result<(), String> {
        Err(NO_PROGRAM.to_owned())
    }

    fn attach(
        &self,
        _: u32,
        _: &AttachMessages,
        _: Option<MessageRecords>,
    ) -> Result<MessageCounting, String> {
        Err(NO_PROGRAM.to_owned())
    }

    fn detach(&self, _: u32) {}

    fn trace(
        &self,
        _: &MessageTraceRequest,
        _: &dyn Fn() -> bool,
    ) -> Result<ConversationAnswer, String> {
        Err(NO_PROGRAM.to_owned())
    }
}
