//! Statements about the session and the peers that it stores.

use super::body::Body;
use super::build::Exchange;
use super::scope::{SessionState, Ty};
use super::trail;
use crate::codes;
use crate::ir::{Instruction, Operand, PeersId, RegisterType, RoleId, Terminator};
use crate::syntax::ast::{Expression, ExpressionKind, Name, Statement};
use gatewright_diagnostic::{Diagnostic, Span};

impl Body<'_, '_> {
    /// Whether a session is open here; if not, reports it.
    pub(super) fn session_is_here(&mut self, name: &Name) -> bool {
        let Some(session) = &self.env.session else {
            self.context.error(&codes::NO_SESSION, name.span, "this gateway declares no session");
            return false;
        };
        if !session.is_seen(self.purpose.server) {
            let message = "the session belongs to another role";
            self.context.error(&codes::NO_SESSION, name.span, message);
            return false;
        }
        if self.flow.session != SessionState::Open {
            let message = format!("no session is open on every path to `session.{}`", name.text);
            self.context.error(&codes::OUTSIDE_SESSION, name.span, message);
            return false;
        }
        true
    }

    /// The session variable of this name, if it stores peers.
    pub(super) fn peers_named(&self, name: &Name) -> Option<PeersId> {
        self.env.session.as_ref()?.peers_named(&name.text)
    }

    fn peers_of(&mut self, name: &Name) -> Option<PeersId> {
        let peers = self.peers_named(name);
        if peers.is_none() {
            let session = self.env.session.as_ref();
            let known: Vec<&str> = session.map_or(Vec::new(), |session| {
                session.peers.iter().map(|peers| peers.name.as_str()).collect()
            });
            if known.is_empty() {
                let message = format!("`session.{}` stores no peers", name.text);
                self.context.error(&codes::WRONG_TYPE, name.span, message);
            } else {
                self.context.unknown("session variable of peers", name, known);
            }
            return None;
        }
        if self.session_is_here(name) { peers } else { None }
    }

    /// Whether a variable can store the requester of this handler; if not, reports it.
    fn requester_fits(&mut self, peers: PeersId, span: Span) -> Option<()> {
        let of = self.env.session.as_ref()?.peers.get(peers.index())?;
        let name = |role: RoleId| self.env.roles.get(role.index()).map(|role| role.name.as_str());
        if self.purpose.server != Some(of.role) {
            let own = self.purpose.server.and_then(name);
            let here = own.map_or("there is no requester here".to_owned(), |own| {
                format!("here the requester is one of `{own}`")
            });
            let message =
                format!("`{}` stores peers of `{}`; {here}", of.name, name(of.role).unwrap_or(""));
            self.context.error(&codes::WRONG_TYPE, span, message);
            return None;
        }
        let kept = of.kept.first().map(|(view, _)| *view);
        if kept.is_some() && kept != self.purpose.request {
            let message =
                "the protocol keeps fields of another kind of request (`sending … after`)";
            self.context.error(&codes::WRONG_TYPE, span, message);
            return None;
        }
        Some(())
    }

    /// `append requester to session.LIST else …`
    pub(super) fn append_requester(
        &mut self,
        peers: PeersId,
        (value, list): (&Expression, &Name),
        otherwise: Option<&Statement>,
        span: Span,
    ) -> Option<()> {
        self.requester_alone(value, list, peers, true)?;
        let (done, full) = (self.new_block(span), self.new_block(span));
        self.end(Terminator::Store { peers, done, full }, span);
        self.otherwise(full, otherwise, span, "the list may be full", true);
        self.go_on_in(done);
        Some(())
    }

    /// `session.NAME = requester`
    pub(super) fn assign_requester(
        &mut self,
        peers: PeersId,
        (value, name): (&Expression, &Name),
        span: Span,
    ) -> Option<()> {
        self.requester_alone(value, name, peers, false)?;
        let done = self.new_block(span);
        self.end(Terminator::Store { peers, done, full: done }, span);
        self.go_on_in(done);
        Some(())
    }

    fn requester_alone(
        &mut self,
        value: &Expression,
        name: &Name,
        peers: PeersId,
        list: bool,
    ) -> Option<()> {
        let requester = matches!(&value.kind, ExpressionKind::Path(path)
            if path.module.is_none() && path.name.text == "requester");
        let is_list = self.env.session.as_ref()?.peers.get(peers.index())?.list;
        if !requester || is_list != list {
            let how = if is_list {
                format!("append requester to session.{} else …", name.text)
            } else {
                format!("session.{} = requester", name.text)
            };
            let message = format!("`session.{}` stores peers", name.text);
            let diagnostic = Diagnostic::error(&codes::WRONG_TYPE, value.span, message)
                .help(format!("write `{how}`"));
            self.context.report(diagnostic);
            return None;
        }
        if !self.session_is_here(name) {
            return None;
        }
        self.requester_fits(peers, value.span)
    }

    /// `remove requester from session.NAME`
    pub(super) fn part(&mut self, name: &Name, span: Span) -> Option<()> {
        let peers = self.peers_of(name)?;
        self.requester_fits(peers, span)?;
        self.push(Instruction::Part { peers }, span);
        Some(())
    }

    /// `forget requester`
    pub(super) fn forget_requester(&mut self, span: Span) -> Option<()> {
        let stored = (self.env.session.iter())
            .flat_map(|session| &session.peers)
            .any(|peers| Some(peers.role) == self.purpose.server);
        if !stored {
            let message = "no session variable stores the requester of this handler";
            self.context.error(&codes::WRONG_PLACE, span, message);
            return None;
        }
        self.push(Instruction::ForgetRequester, span);
        Some(())
    }

    /// `send MESSAGE to session.NAME`
    pub(super) fn tell(&mut self, message: &Expression, to: &Name, span: Span) -> Option<()> {
        let peers = self.peers_of(to)?;
        self.env.tell_peers(peers);
        let role = self.env.session.as_ref()?.peers.get(peers.index())?.role;
        self.forbid_edge();
        let build = self.message_of(message, Exchange::Tell(role, peers));
        self.take_edge();
        let build = build?;
        self.speaks(role, &build, message.span)?;
        let stream = build.holes.iter().any(|hole| {
            let slot = self.context.message(build.message).and_then(|of| of.slot(hole.slot));
            slot.is_some_and(|slot| slot.ty == crate::ir::SlotType::Stream)
        });
        if stream {
            let message = "a stream passes once, and cannot be sent to several peers";
            self.context.error(&codes::WRONG_PLACE, span, message);
            return None;
        }
        let high = i64::from(u32::MAX);
        let cursor = self.register("", span, RegisterType::Int { low: 0, high });
        self.push(Instruction::Set { into: cursor, value: Operand::Int(0) }, span);
        let (head, each, done) = (self.new_block(span), self.new_block(span), self.new_block(span));
        self.end(Terminator::Jump(head), span);
        self.go_on_in(head);
        self.end(Terminator::EachPeer { peers, cursor, body: each, done }, span);
        self.go_on_in(each);
        self.push(Instruction::Tell { peers, cursor, message: build }, span);
        self.end(Terminator::Jump(head), span);
        self.go_on_in(done);
        Some(())
    }

    // -- Sessions that are found by a key.

    pub(super) fn open_session(
        &mut self,
        start: bool,
        named: Option<&Expression>,
        otherwise: Option<&Statement>,
        span: Span,
    ) -> Option<()> {
        if !self.has_keyed_session(span) {
            return None;
        }
        let key = self.session_key(named, span)?;
        let (then, without) = (self.new_block(span), self.new_block(span));
        let (terminator, why) = if start {
            let terminator = Terminator::StartSession { key, then, full: without };
            (terminator, "every session may be taken")
        } else {
            let terminator = Terminator::ResumeSession { key, then, none: without };
            (terminator, "there may be no such session")
        };
        self.end(terminator, span);
        // Whatever was known was known of the session before.
        self.forget_session(span, trail::OTHER_SESSION);
        self.otherwise(without, otherwise, span, why, true);
        self.go_on_in(then);
        self.flow.session = SessionState::Open;
        Some(())
    }

    /// `as VALUE`, if the session is found by a value.
    #[expect(clippy::option_option, reason = "wrong, none wanted, and given are three things")]
    fn session_key(&mut self, named: Option<&Expression>, span: Span) -> Option<Option<Operand>> {
        let max = self.env.session.as_ref()?.value_max;
        match (max, named) {
            (None, None) => Some(None),
            (Some(max), Some(value)) => {
                self.forbid_edge();
                let value = self.set_value(value);
                self.take_edge();
                let value = value?;
                let fits = self.fits(&value, &Ty::Octets { max }, "the session's value");
                fits.then_some(Some(value.operand))
            }
            (Some(_), None) => {
                let message = "which session?";
                let diagnostic = Diagnostic::error(&codes::NO_SESSION, span, message)
                    .help("write `start session as VALUE` or `resume session as VALUE`");
                self.context.report(diagnostic);
                None
            }
            (None, Some(value)) => {
                let message = "this session is found by fields of the request, not by a value";
                self.context.error(&codes::NO_SESSION, value.span, message);
                None
            }
        }
    }

    fn has_keyed_session(&mut self, span: Span) -> bool {
        let keyed = (self.env.session.as_ref())
            .is_some_and(|session| session.keyed && session.is_seen(self.purpose.server));
        if !keyed {
            let message =
                "only a session `by` a field of this role's requests is started and ended";
            self.context.error(&codes::NO_SESSION, span, message);
        } else if self.purpose.opening.is_some() {
            let message = "an opening makes a connection, and has no session";
            self.context.error(&codes::WRONG_PLACE, span, message);
            return false;
        }
        keyed
    }

    pub(super) fn end_session(&mut self, span: Span) -> Option<()> {
        if !self.has_keyed_session(span) {
            return None;
        }
        if self.flow.session != SessionState::Open {
            let message = "no session is open on every path that comes here";
            self.context.error(&codes::OUTSIDE_SESSION, span, message);
        }
        self.push(Instruction::EndSession, span);
        self.flow.session = SessionState::NotOpen;
        self.forget_session(span, trail::OTHER_SESSION);
        Some(())
    }
}
