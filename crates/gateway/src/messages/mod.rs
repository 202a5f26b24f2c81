//! Handlers at messages of gateway programs.
//!
//! The planes do not run programs: whoever does ([`ProgramHandlers`]) is asked to attach and to
//! detach, by ids of the same row as those of the packet graph's handlers. What a capture there
//! gives away is written here.

mod frame;
mod recorder;

pub use recorder::{MessageRecord, MessageRecords};

use crate::{Configured, RunError};
use gatewright_config::{AttachMessages, Config, MessageHandler, Side};
use gatewright_stack::AttachmentId;
use recorder::MessageRecorder;
use serde::Serialize;
use std::fmt;
use std::sync::{Arc, Weak};

/// Whoever runs the programs of a description.
pub trait ProgramHandlers: Send + Sync {
    /// Tells whether something could be attached.
    ///
    /// # Errors
    ///
    /// Those of [`attach`](Self::attach).
    fn check(&self, attach: &AttachMessages) -> Result<(), String>;

    /// Attaches something to handlers of a program. A capture gives what it sees to `records`.
    ///
    /// # Errors
    ///
    /// Why it cannot stand there, in words for the operator: names that there are, for one that
    /// there is not.
    fn attach(
        &self,
        id: u32,
        attach: &AttachMessages,
        records: Option<MessageRecords>,
    ) -> Result<Counting, String>;

    /// Detaches what has this id; nothing is given to its records any more.
    fn detach(&self, id: u32);
}

/// Asks what a handler at messages has counted.
pub type Counting = Box<dyn Fn() -> MessageCounts + Send + Sync>;

/// What a handler at messages has counted.
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

/// A handler at messages, as it runs.
#[derive(Clone)]
pub struct AttachedMessages {
    /// Its id, by which it is detached.
    pub id: AttachmentId,
    /// What it does and where it stands.
    pub attach: AttachMessages,
    counting: Arc<Counting>,
    /// Ends with the last who knows it.
    _recorder: Option<Arc<MessageRecorder>>,
    /// Whether the description says it; else it was attached since.
    described: bool,
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
    /// What it has counted.
    pub fn counts(&self) -> MessageCounts {
        (self.counting)()
    }

    /// Where it stands, as `status` says it.
    pub fn place(&self) -> String {
        let side = match self.attach.side {
            Side::Receive => "receive",
            Side::Transmit => "transmit",
        };
        format!("{} {side}", self.attach.at.value)
    }
}

/// The programs of a gateway, and what is attached to them.
#[derive(Default)]
pub(crate) struct Messages {
    /// Whoever runs them ends them, too.
    programs: Option<Weak<dyn ProgramHandlers>>,
    attached: Vec<AttachedMessages>,
}

impl Drop for Messages {
    /// Recorders end when nobody can give them anything any more.
    fn drop(&mut self) {
        let programs = self.programs.as_ref().and_then(Weak::upgrade);
        for one in self.attached.drain(..) {
            if let Some(programs) = &programs {
                programs.detach(one.id.0);
            }
        }
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages").field("attached", &self.attached).finish_non_exhaustive()
    }
}

impl Configured {
    /// Says who runs the programs, and attaches to them what the description says.
    ///
    /// # Errors
    ///
    /// [`RunError`] for what cannot stand where it is to stand.
    pub fn set_programs(&mut self, programs: &Arc<dyn ProgramHandlers>) -> Result<(), RunError> {
        self.messages.programs = Some(Arc::downgrade(programs));
        let described = self.config.message_attachments.clone();
        for attach in &described {
            self.attach_messages_as(attach, true)?;
        }
        Ok(())
    }

    /// Attaches a handler at messages.
    ///
    /// # Errors
    ///
    /// [`RunError`] if it cannot stand there, or its file cannot be written.
    pub fn attach_messages(&mut self, attach: &AttachMessages) -> Result<AttachmentId, RunError> {
        self.attach_messages_as(attach, false)
    }

    fn attach_messages_as(
        &mut self,
        attach: &AttachMessages,
        described: bool,
    ) -> Result<AttachmentId, RunError> {
        let refused = |why: String| RunError::Messages { at: attach.at.value.to_string(), why };
        let programs = self.messages.programs.as_ref().and_then(Weak::upgrade);
        let programs = programs.ok_or_else(|| refused("no program runs here".to_owned()))?;
        // Before a file is made: one that is there already goes.
        programs.check(attach).map_err(refused)?;
        let id = self.planes.take_id();
        let (records, recorder) = match &attach.handler {
            MessageHandler::Capture { file } => {
                let started = MessageRecorder::start(file, &attach.at.value.to_string());
                let (records, recorder) = started
                    .map_err(|source| RunError::File { file: file.value.clone(), source })?;
                (Some(records), Some(Arc::new(recorder)))
            }
            _ => (None, None),
        };
        let counting = Arc::new(programs.attach(id.0, attach, records).map_err(refused)?);
        let attach = attach.clone();
        self.messages.attached.push(AttachedMessages {
            id,
            attach,
            counting,
            _recorder: recorder,
            described,
        });
        Ok(id)
    }

    /// Detaches a handler at messages; whether there was one of this id.
    pub(crate) fn detach_messages(&mut self, id: AttachmentId) -> bool {
        let Some(at) = self.messages.attached.iter().position(|one| one.id == id) else {
            return false;
        };
        if let Some(programs) = self.messages.programs.as_ref().and_then(Weak::upgrade) {
            programs.detach(id.0);
        }
        // Its recorder writes what waits and ends.
        drop(self.messages.attached.remove(at));
        true
    }

    /// The handlers at messages.
    pub fn attached_messages(&self) -> &[AttachedMessages] {
        &self.messages.attached
    }

    /// Attaches what another description adds; all of it or nothing.
    pub(crate) fn attach_new_messages(
        &mut self,
        old: &Config,
        new: &Config,
    ) -> Result<Vec<AttachmentId>, RunError> {
        let come = new.message_attachments.iter();
        let come: Vec<_> = come.filter(|one| !old.message_attachments.contains(one)).collect();
        let mut attached = Vec::new();
        for attach in come {
            match self.attach_messages_as(attach, true) {
                Ok(id) => attached.push(id),
                Err(error) => {
                    self.detach_all(&attached);
                    return Err(error);
                }
            }
        }
        Ok(attached)
    }

    /// Detaches what another description leaves out.
    pub(crate) fn detach_old_messages(&mut self, new: &Config) {
        let goes = |one: &&AttachedMessages| {
            one.described && !new.message_attachments.contains(&one.attach)
        };
        let gone: Vec<_> = self.messages.attached.iter().filter(goes).map(|one| one.id).collect();
        self.detach_all(&gone);
    }

    /// Detaches handlers at messages that are there.
    pub(crate) fn detach_all(&mut self, gone: &[AttachmentId]) {
        for id in gone {
            self.detach_messages(*id);
        }
    }
}
