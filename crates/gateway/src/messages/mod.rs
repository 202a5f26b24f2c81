//! Handlers at messages of gateway programs.
//!
//! Programs attach and detach them, with ids from the same sequence as the packet graph's handlers.
//! Captured messages are written here.

mod frame;
mod recorder;
mod trace;

pub use recorder::{MessageRecord, MessageRecords};
pub use trace::{ConversationAnswer, ConversationStepAnswer, MessageTraceRequest, PeerAction};

use crate::{
    RunError, assembly::GatewayPrograms, by_command::described, by_command::dropped, difference,
    links::Links, recorder::EarlierCapture,
};
use gatewright_config::{AttachMessages, Config, HandlerSpec, MessageHandler};
use gatewright_part::{Change, EventSink, Part, Staged, Unable};
use gatewright_stack::{AttachmentId, Side};
use recorder::MessageRecorder;
use serde::Serialize;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Reads the counters of a handler at messages.
pub type MessageCounting = Box<dyn Fn() -> MessageCounts + Send + Sync>;

/// Counters of a handler at messages.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct MessageCounts {
    /// Messages seen.
    pub messages: u64,
    /// Their octets.
    pub octets: u64,
    /// Requests refused.
    pub refused: u64,
    /// Pieces of messages that could not be written in time.
    pub missed: u64,
}

/// A running handler at messages.
#[derive(Clone)]
pub(crate) struct AttachedMessages {
    /// Its id, by which it is detached.
    pub(crate) id: AttachmentId,
    /// Its action and position.
    pub(crate) attach: AttachMessages,
    counting: Arc<MessageCounting>,
    /// Ends when its last owner is dropped.
    _recorder: Option<Arc<MessageRecorder>>,
    /// Whether it is in the description; else it was attached since.
    described: bool,
    /// As a command has described it, if one has.
    pub(crate) spec: Option<HandlerSpec>,
}

impl fmt::Debug for AttachedMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttachedMessages")
            .field("id", &self.id)
            .field("attach", &self.attach)
            .finish_non_exhaustive()
    }
}

impl AttachedMessages {
    /// Its counters.
    pub(crate) fn counts(&self) -> MessageCounts {
        (self.counting)()
    }

    /// Its position, as `status` shows it.
    pub(crate) fn place(&self) -> String {
        let side = match self.attach.side {
            Side::Receive => "receive",
            Side::Transmit => "transmit",
        };
        format!("{} {side}", self.attach.at.value)
    }
}

/// Handlers attached to the programs of a gateway.
#[derive(Clone)]
pub(crate) struct Messages {
    links: Links,
    programs: Arc<dyn GatewayPrograms>,
    attached: Arc<Mutex<Vec<AttachedMessages>>>,
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages").field("attached", &self.attached()).finish_non_exhaustive()
    }
}

impl Messages {
    /// Attaches the handlers of `config` to `programs`.
    pub(crate) fn start(
        links: &Links,
        programs: &Arc<dyn GatewayPrograms>,
        config: &Config,
    ) -> Result<Self, RunError> {
        let (links, programs) = (links.clone(), Arc::clone(programs));
        let this = Self { links, programs, attached: Arc::default() };
        for attach in &config.message_attachments {
            this.attach_as(attach, None)?;
        }
        Ok(this)
    }

    /// Attaches a handler by command.
    pub(crate) fn attach(
        &self,
        attach: &AttachMessages,
        spec: &HandlerSpec,
    ) -> Result<AttachmentId, RunError> {
        self.attach_as(attach, Some(spec.clone()))
    }

    /// Goes on with what was set by command under the control plane before: attaches its handlers at
    /// messages, after those of the description.
    pub(crate) fn go_on(&self, log: &EventSink) {
        let kept = self.links.kept_by_command();
        kept.log(log);
        for (spec, attach) in &kept.messages {
            if let Err(error) = self.attach(attach, spec) {
                log.log(dropped(&described(spec), &error.to_string()));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<AttachedMessages>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attach_as(
        &self,
        attach: &AttachMessages,
        spec: Option<HandlerSpec>,
    ) -> Result<AttachmentId, RunError> {
        let refused = |why: String| RunError::Messages { at: attach.at.value.to_string(), why };
        let programs = &self.programs;
        // Before a file is made: one that is there already goes.
        programs.check(attach).map_err(refused)?;
        let id = self.links.planes().take_id();
        let (records, recorder) = match &attach.handler {
            MessageHandler::Capture { file } => {
                let earlier = match spec {
                    Some(_) => EarlierCapture::Replaced,
                    None => EarlierCapture::Kept,
                };
                let started =
                    MessageRecorder::start((file.as_str(), earlier), &attach.at.value.to_string());
                let (records, recorder) = started
                    .map_err(|source| RunError::File { file: file.value.clone(), source })?;
                (Some(records), Some(Arc::new(recorder)))
            }
            _ => (None, None),
        };
        let counting = Arc::new(programs.attach(id.0, attach, records).map_err(refused)?);
        let (attach, described) = (attach.clone(), spec.is_none());
        self.lock().push(AttachedMessages {
            id,
            attach,
            counting,
            _recorder: recorder,
            described,
            spec,
        });
        Ok(id)
    }

    /// Detaches a handler; returns whether the id was known.
    pub(crate) fn detach(&self, id: AttachmentId) -> bool {
        let mut attached = self.lock();
        let Some(at) = attached.iter().position(|one| one.id == id) else { return false };
        let gone = attached.remove(at);
        drop(attached);
        self.programs.detach(id.0);
        // Its recorder writes what waits and ends.
        drop(gone);
        true
    }

    /// Records the next conversation that a request means, and waits for it while `is_wanted`.
    pub(crate) fn trace(
        &self,
        request: &MessageTraceRequest,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<ConversationAnswer, String> {
        self.programs.trace(request, is_wanted)
    }

    /// The handlers at messages.
    pub(crate) fn attached(&self) -> Vec<AttachedMessages> {
        self.lock().clone()
    }

    fn detach_all(&self, gone: &[AttachmentId]) {
        for id in gone {
            self.detach(*id);
        }
    }
}

impl Part for Messages {
    fn name(&self) -> &'static str {
        "messages"
    }

    fn differences(&self, old: &Config, new: &Config) -> Vec<Change> {
        difference::messages(old, new)
    }

    fn stage(&self, old: &Config, new: &Config) -> Result<Box<dyn Staged>, Unable> {
        let come = new.message_attachments.iter();
        let come = come.filter(|one| !old.message_attachments.contains(one));
        let mut staged = Box::new(StagedMessages {
            messages: self.clone(),
            come: Vec::new(),
            wanted: new.message_attachments.clone(),
        });
        for attach in come {
            match self.attach_as(attach, None) {
                Ok(id) => staged.come.push(id),
                Err(error) => {
                    staged.undo();
                    return Err(error.into());
                }
            }
        }
        Ok(staged)
    }

    /// Recorders end when no sender is left.
    fn stop(&self) {
        let all: Vec<_> = self.lock().iter().map(|one| one.id).collect();
        self.detach_all(&all);
    }
}

/// Handlers that a new description adds.
struct StagedMessages {
    messages: Messages,
    come: Vec<AttachmentId>,
    wanted: Vec<AttachMessages>,
}

impl Staged for StagedMessages {
    /// Detaches the handlers that the description omits.
    fn commit(self: Box<Self>) -> Result<Vec<Change>, Unable> {
        let goes = |one: &&AttachedMessages| one.described && !self.wanted.contains(&one.attach);
        let gone: Vec<_> = self.messages.lock().iter().filter(goes).map(|one| one.id).collect();
        self.messages.detach_all(&gone);
        Ok(Vec::new())
    }

    fn undo(self: Box<Self>) {
        self.messages.detach_all(&self.come);
    }
}
