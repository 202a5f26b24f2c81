//! Lowers the session of a gateway: its key, its variables, the peers that it stores.

use super::env::{Env, RoleInfo, SessionInfo};
use super::{Context, twice};
use crate::codes;
use crate::ir::{MessageId, Peers, PeersId, RoleId, Session, SessionKey, Slot, SlotId, SlotType};
use crate::syntax::ast::{self, Gateway, ListElement, Name, SendingValue, SessionBy, ValueType};
use gatewright_diagnostic::{Diagnostic, Span};

/// Help for a keyed session without an idle time.
const IDLE_NEEDED: &str = "write `, idle TIME`";

impl SessionInfo {
    /// Whether handlers of a role (`None`: periodic handlers) see it.
    pub(super) fn is_seen(&self, role: Option<RoleId>) -> bool {
        self.role.is_none() || self.role == role
    }

    /// The variable with this name that stores peers.
    pub(super) fn peers_named(&self, name: &str) -> Option<PeersId> {
        self.peers.iter().position(|peers| peers.name == name).map(PeersId::new)
    }
}

impl<'a> Context<'a> {
    pub(super) fn session_info(
        &mut self,
        gateway: &'a Gateway,
        env: &Env<'a>,
    ) -> Option<SessionInfo> {
        let session = gateway.session.as_ref()?;
        let (named, keyed, value_max) = match &session.key {
            SessionBy::Connection(role) => (Some(role), false, None),
            SessionBy::Fields(_, role) => (Some(role), true, None),
            SessionBy::Value(each) => {
                let each = self.limit(*each);
                if each.is_none() {
                    let message = "the value that finds a session needs a limit";
                    let help = "write `by value, each at most N octets`";
                    let diagnostic = Diagnostic::error(&codes::NO_LIMIT, session.span, message);
                    self.report(diagnostic.help(help));
                }
                (None, true, Some(each.unwrap_or(1)))
            }
        };
        let role = match named {
            Some(name) => Some(self.session_role(name, keyed, env)?),
            None => None,
        };
        let mut info = SessionInfo { role, keyed, value_max, slots: Vec::new(), peers: Vec::new() };
        for variable in &session.variables {
            let slots = info.slots.iter().map(|slot| (&slot.name, slot.span));
            let peers = info.peers.iter().map(|peers| (&peers.name, peers.span));
            let other = slots.chain(peers).find(|(name, _)| **name == variable.name.text);
            if let Some(span) = other.map(|(_, span)| span) {
                let diagnostic = twice(&variable.name, span);
                self.report(diagnostic);
            }
            self.variable(variable, keyed, env, &mut info);
        }
        Some(info)
    }

    fn session_role(&mut self, name: &Name, keyed: bool, env: &Env<'a>) -> Option<RoleId> {
        let found = env.roles.iter().position(|role| role.name == name.text);
        let Some(index) = found else {
            let known = env.roles.iter().map(|role| role.name.as_str());
            self.unknown("role", name, known);
            return None;
        };
        let client = env.roles.get(index).is_some_and(|role| role.client);
        let udp = env.roles.get(index).is_some_and(|role| role.protocol.udp);
        if client || (udp && !keyed) {
            let message =
                "a session belongs to a server's connections, or to a key of its requests";
            self.error(&codes::NO_SESSION, name.span, message);
        }
        Some(RoleId::new(index))
    }

    fn variable(
        &mut self,
        variable: &'a ast::Parameter,
        keyed: bool,
        env: &Env<'a>,
        info: &mut SessionInfo,
    ) {
        let (name, span) = (variable.name.text.clone(), variable.name.span);
        let stored = match &variable.ty {
            ValueType::Peer(role) => Some((role, Some(1), false)),
            ValueType::List { element: ListElement::Peer(role), max, span, .. } => {
                let max = self.limit(*max);
                if max.is_none() {
                    let message = "a list of peers needs a limit";
                    let diagnostic = Diagnostic::error(&codes::NO_LIMIT, *span, message);
                    self.report(diagnostic.help("write `, at most N peers`"));
                }
                Some((role, max, true))
            }
            _ => None,
        };
        if let Some((role, max, list)) = stored {
            if !keyed {
                let message = "peers are stored in a session that is found by a key, which does \
                               not end with one of them";
                self.error(&codes::NO_SESSION, span, message);
            }
            let Some((role, info_of)) = self.peer_role(role, env) else { return };
            let (kept, mark) = self.kept(info_of);
            let max = max.unwrap_or(1);
            info.peers.push(Peers { name, span, role, max, list, kept, mark });
            return;
        }
        let ty = self.value_type(&variable.ty).and_then(|ty| ty.slot());
        let Some(ty) = ty.filter(|ty| *ty != SlotType::Stream) else {
            let message = "a session holds numbers, fragments, lists and peers";
            self.error(&codes::WRONG_TYPE, span, message);
            return;
        };
        let fold = crate::ir::Fold::Keep;
        let (optional, private, scratch) = (true, false, false);
        info.slots.push(Slot { name, span, ty, fold, optional, private, scratch });
    }

    /// The role of peers that can be stored: one that can receive unsolicited messages.
    fn peer_role<'e>(
        &mut self,
        name: &Name,
        env: &'e Env<'a>,
    ) -> Option<(RoleId, &'e RoleInfo<'a>)> {
        let found = env.roles.iter().position(|role| role.name == name.text);
        let Some((index, role)) = found.and_then(|index| Some((index, env.roles.get(index)?)))
        else {
            let known = env.roles.iter().map(|role| role.name.as_str());
            self.unknown("role", name, known);
            return None;
        };
        let wrong = if role.client {
            "is a client: who asks is a server's peer"
        } else if role.sync {
            "is synchronous: nothing is said there unasked"
        } else {
            return Some((RoleId::new(index), role));
        };
        let message = format!("`{}` {wrong}", name.text);
        self.error(&codes::WRONG_PLACE, name.span, message);
        None
    }

    /// Values that the `sending … after …` rules of a protocol keep of a request, and the field by
    /// which a later request refers to the message sent.
    #[expect(clippy::type_complexity, reason = "two lists of the same thing")]
    fn kept(
        &mut self,
        role: &RoleInfo<'a>,
    ) -> (Vec<(MessageId, SlotId)>, Option<(MessageId, SlotId)>) {
        let (mut kept, mut mark) = (Vec::new(), None);
        for rule in role.protocol.sending.iter().filter(|rule| rule.after) {
            let module = role.module.name.text.as_str();
            let request = rule.to.as_ref().map_or("", |name| name.text.as_str());
            let Some(view) = self.ids.get(&(module, request)).copied() else {
                let known = role.module.views.iter().map(|view| view.name.text.as_str());
                if let Some(name) = &rule.to {
                    self.unknown("view", name, known);
                }
                continue;
            };
            for (field, value) in &rule.assigns {
                let named = match value {
                    SendingValue::Request(name) => name,
                    SendingValue::Fresh => field,
                    SendingValue::Literal(_) => continue,
                };
                let slots = self.message(view).map(|view| view.slots.as_slice());
                let of = |slot: &Slot| slot.name == named.text && !slot.scratch;
                let slot = slots.and_then(|slots| slots.iter().position(of)).map(SlotId::new);
                match (value, slot) {
                    (SendingValue::Fresh, slot) => mark = slot.map(|slot| (view, slot)).or(mark),
                    (_, Some(slot)) if !kept.contains(&(view, slot)) => kept.push((view, slot)),
                    (_, Some(_)) => {}
                    (_, None) => {
                        let known: Vec<String> = slots
                            .unwrap_or_default()
                            .iter()
                            .map(|slot| slot.name.clone())
                            .collect();
                        self.unknown("field", named, known.iter().map(String::as_str));
                    }
                }
            }
        }
        (kept, mark)
    }

    pub(super) fn session(&mut self, gateway: &'a Gateway, env: &Env<'a>) -> Option<Session> {
        let (session, info) = (gateway.session.as_ref()?, env.session.as_ref()?);
        self.unread_variables(env, info);
        let role = info.role.unwrap_or(RoleId::new(0));
        let of = info.role.and_then(|role| env.roles.get(role.index()));
        let key = match (&session.key, of) {
            (SessionBy::Connection(_), Some(role)) => {
                return Some(Session {
                    span: session.span,
                    role: info.role?,
                    key: SessionKey::Connection,
                    slots: info.slots.clone(),
                    peers: Vec::new(),
                    sessions_max: self.limit(role.protocol.connections).unwrap_or(1),
                    idle: role.protocol.idle.map(|idle| idle.value).unwrap_or_default(),
                });
            }
            (SessionBy::Fields(fields, _), Some(role)) => self.session_fields(fields, role)?,
            _ => SessionKey::Value { max: info.value_max? },
        };
        let max = self.limit(session.max);
        let idle = session.idle.map(|idle| idle.value);
        if max.is_none() || idle.is_none() {
            let help = if max.is_none() { "write `, at most N`" } else { IDLE_NEEDED };
            let message = "sessions need a greatest number and an idle time";
            let diagnostic = Diagnostic::error(&codes::NO_LIMIT, session.span, message).help(help);
            self.report(diagnostic);
        }
        Some(Session {
            span: session.span,
            role,
            key,
            slots: info.slots.clone(),
            peers: info.peers.clone(),
            sessions_max: max?,
            idle: idle?,
        })
    }

    fn session_fields(&mut self, fields: &[Name], role: &RoleInfo<'a>) -> Option<SessionKey> {
        let mut keys = Vec::new();
        for request in &role.protocol.requests {
            let view = self.ids.get(&(&role.module.name.text, &request.view.text)).copied()?;
            for key in fields {
                let slots = &self.message(view)?.slots;
                let Some(index) = slots.iter().position(|slot| slot.name == key.text) else {
                    let known: Vec<String> = slots.iter().map(|slot| slot.name.clone()).collect();
                    self.unknown("field", key, known.iter().map(String::as_str));
                    continue;
                };
                keys.push((view, SlotId::new(index)));
            }
        }
        Some(SessionKey::Slots(keys))
    }

    fn unread_variables(&mut self, env: &Env<'a>, info: &SessionInfo) {
        for (index, slot) in info.slots.iter().enumerate() {
            if !env.is_read(SlotId::new(index)) {
                self.unread(slot.span, format!("nobody reads `session.{}`", slot.name));
            }
        }
        for (index, peers) in info.peers.iter().enumerate() {
            if !env.is_told(PeersId::new(index)) {
                self.unread(peers.span, format!("nothing is sent to `session.{}`", peers.name));
            }
        }
    }

    fn unread(&mut self, span: Span, message: String) {
        self.report(Diagnostic::warning(&codes::UNUSED, span, message));
    }
}
