//! A message of a running program, traced: the conversation in which it came, as a test repeats it.

use crate::programs::{Programs, RecordedProgram};
use gatewright_config::MessagePosition;
use gatewright_gateway::{
    ConversationAnswer, ConversationStepAnswer, MessageTraceRequest, PeerAction, hexadecimal,
    patience,
};
use gatewright_lang::ir::{ParameterValue, Program, RoleId};
use gatewright_runner::{Conversation, ConversationGap, PeerEvent};
use std::path;

/// Records one conversation, while `is_wanted`.
pub(super) fn trace(
    programs: &Programs,
    request: &MessageTraceRequest,
    is_wanted: &dyn Fn() -> bool,
) -> Result<ConversationAnswer, String> {
    let Some(MessagePosition { program, handler }) = MessagePosition::parse(&request.at) else {
        return Err(format!("`{}` is no position gateway:NAME/HANDLER", request.at));
    };
    let patience = patience(request.seconds)?;
    let (recording, of) = programs.record(&program, &handler)?;
    let conversation = recording.conversation(patience, is_wanted);
    Ok(conversation.map(|conversation| told(of, &conversation)).unwrap_or_default())
}

fn told(of: RecordedProgram, conversation: &Conversation) -> ConversationAnswer {
    let RecordedProgram { mut texts, program } = of;
    // Whoever reads the answer may be in another folder.
    for (file, _) in &mut texts {
        if let Ok(whole) = path::absolute(&*file) {
            *file = whole.to_string_lossy().into_owned();
        }
    }
    let role = |id: RoleId| program.role(id).map(|role| role.name.clone()).unwrap_or_default();
    let first = conversation.steps.first().map(|step| step.at).unwrap_or_default();
    let steps = conversation.steps.iter().map(|step| {
        let (does, octets) = match &step.event {
            PeerEvent::Sends(octets) => (PeerAction::Sends, octets.as_slice()),
            PeerEvent::Sees(octets) => (PeerAction::Sees, octets.as_slice()),
            PeerEvent::Closes => (PeerAction::Closes, &[][..]),
            PeerEvent::SeesClose => (PeerAction::SeesClose, &[][..]),
        };
        let at_us = u64::try_from(step.at.saturating_sub(first).as_micros()).unwrap_or(u64::MAX);
        ConversationStepAnswer { at_us, role: role(step.role), does, octets: hexadecimal(octets) }
    });
    let handler = conversation.handler.and_then(|id| program.handler(id));
    ConversationAnswer {
        texts,
        handler: handler.map(|handler| handler.name.clone()).unwrap_or_default(),
        steps: steps.collect(),
        fresh: conversation.fresh.iter().map(|(id, number)| (role(*id), *number)).collect(),
        parameters: parameters(&program),
        gaps: conversation.gaps.iter().map(|gap| words(*gap, role)).collect(),
    }
}

/// The values of a program's parameters.
fn parameters(program: &Program) -> Vec<(String, String)> {
    let value = |value: &ParameterValue| match value {
        ParameterValue::Int(value) => hexadecimal(value.to_string().as_bytes()),
        ParameterValue::Octets(octets) => hexadecimal(octets),
    };
    let set = program.parameters.iter();
    set.filter_map(|of| Some((of.name.clone(), value(of.value.as_ref()?)))).collect()
}

fn words(gap: ConversationGap, role: impl Fn(RoleId) -> String) -> String {
    match gap {
        ConversationGap::OpenBefore(id) => format!(
            "a connection of `{}` was open before, so the test lacks what opened it",
            role(id)
        ),
        ConversationGap::Unreached(id) => {
            format!("the server of `{}` could not be reached, as no peer of a test is", role(id))
        }
        ConversationGap::SessionBefore => {
            "a session had begun before, so the test lacks its beginning".to_owned()
        }
        ConversationGap::Told => "other peers were told, which a test does not have".to_owned(),
        ConversationGap::TooLong => "it is too long; its end is left out".to_owned(),
        ConversationGap::Unfinished => {
            "its handler had not ended when the time was over".to_owned()
        }
        _ => "it is incomplete".to_owned(),
    }
}
