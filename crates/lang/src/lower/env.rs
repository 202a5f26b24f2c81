//! What the handlers of a gateway see: its roles, modules, parameters and session.

use crate::ir::{MessageId, Parameter, ParameterId, Peers, PeersId, RoleId, Slot, SlotId};
use crate::syntax::ast::{self, Definition, Gateway, MessageModule, Protocol, Start};
use gatewright_diagnostic::Span;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Environment of all handlers of a gateway.
pub(super) struct Env<'a> {
    /// `None` while the templates of modules are checked.
    pub(super) gateway: Option<&'a Gateway>,
    pub(super) roles: Vec<RoleInfo<'a>>,
    pub(super) modules: Vec<&'a MessageModule>,
    pub(super) parameters: Vec<Parameter>,
    named: RefCell<BTreeSet<ParameterId>>,
    pub(super) session: Option<SessionInfo>,
    read: RefCell<BTreeSet<SlotId>>,
    told: RefCell<BTreeSet<PeersId>>,
    used: RefCell<BTreeSet<String>>,
}

/// A role, before its handlers are lowered.
pub(super) struct RoleInfo<'a> {
    pub(super) name: String,
    pub(super) span: Span,
    pub(super) client: bool,
    pub(super) address: &'a ast::Octets,
    pub(super) protocol: &'a Protocol,
    pub(super) module: &'a MessageModule,
    pub(super) response: Option<MessageId>,
    pub(super) sync: bool,
}

/// The session, before its bounds are known.
pub(super) struct SessionInfo {
    /// The role that it belongs to; `None` for a session found by a value.
    pub(super) role: Option<RoleId>,
    pub(super) keyed: bool,
    /// Maximum octets of the value that finds it.
    pub(super) value_max: Option<u32>,
    pub(super) slots: Vec<Slot>,
    pub(super) peers: Vec<Peers>,
}

impl<'a> Env<'a> {
    /// Whether a session is open throughout the handlers of a role.
    pub(super) fn connection_session(&self, role: Option<RoleId>) -> bool {
        (self.session.as_ref()).is_some_and(|session| !session.keyed && session.role == role)
    }

    /// Whether a dispatch of the role leads to a handler. A server's always does, because it must
    /// answer; a client's does only if the gateway has `on ROLE.NAME`.
    pub(super) fn handles(&self, role: RoleId, name: &ast::Name) -> bool {
        let Some(role) = self.roles.get(role.index()) else { return false };
        !role.client || self.asked(&role.name).any(|handled| handled == name.text)
    }

    /// Whether the gateway handles requests from the server of a client role.
    pub(super) fn is_asked(&self, role: &RoleInfo<'a>) -> bool {
        self.asked(&role.name).next().is_some()
    }

    /// The names in every `on ROLE.NAME` of a role.
    fn asked(&self, role: &str) -> impl Iterator<Item = &'a str> {
        let handlers = self.gateway.into_iter().flat_map(|gateway| &gateway.handlers);
        let names = handlers.flat_map(|handler| match &handler.starts {
            Start::Request { names, .. } => names.as_slice(),
            Start::Every(_) => &[],
        });
        names
            .filter(move |(of, _)| of.as_ref().is_some_and(|of| of.text == role))
            .map(|(_, name)| name.text.as_str())
    }

    pub(super) fn handlers(&self) -> impl Iterator<Item = &'a ast::Handler> {
        self.gateway.into_iter().flat_map(|gateway| &gateway.handlers)
    }

    /// The environment of a gateway's handlers, with the module of each role once; without its
    /// session.
    pub(super) fn of_gateway(
        gateway: &'a Gateway,
        roles: Vec<RoleInfo<'a>>,
        parameters: Vec<Parameter>,
    ) -> Self {
        let mut modules: Vec<&MessageModule> = Vec::new();
        for role in &roles {
            if !modules.iter().any(|module| module.name.text == role.module.name.text) {
                modules.push(role.module);
            }
        }
        Self {
            gateway: Some(gateway),
            roles,
            modules,
            parameters,
            named: RefCell::default(),
            session: None,
            read: RefCell::default(),
            told: RefCell::default(),
            used: RefCell::default(),
        }
    }

    /// An environment without a gateway, for declarations of a module alone.
    pub(super) fn of_module(module: &'a MessageModule) -> Self {
        Self {
            gateway: None,
            roles: Vec::new(),
            modules: vec![module],
            parameters: Vec::new(),
            named: RefCell::default(),
            session: None,
            read: RefCell::default(),
            told: RefCell::default(),
            used: RefCell::default(),
        }
    }

    pub(super) fn definitions(&self) -> impl Iterator<Item = &'a Definition> {
        self.gateway.into_iter().flat_map(|gateway| &gateway.definitions)
    }

    pub(super) fn read_session(&self, slot: SlotId) {
        self.read.borrow_mut().insert(slot);
    }

    /// Whether a session variable is read in some handler.
    pub(super) fn is_read(&self, slot: SlotId) -> bool {
        self.read.borrow().contains(&slot)
    }

    pub(super) fn tell_peers(&self, peers: PeersId) {
        self.told.borrow_mut().insert(peers);
    }

    /// Whether any message is sent to the peers in a session variable.
    pub(super) fn is_told(&self, peers: PeersId) -> bool {
        self.told.borrow().contains(&peers)
    }

    pub(super) fn name_parameter(&self, parameter: ParameterId) {
        self.named.borrow_mut().insert(parameter);
    }

    /// Whether the parameter is used.
    pub(super) fn is_named(&self, parameter: ParameterId) -> bool {
        self.named.borrow().contains(&parameter)
    }

    /// Whether a handler or a definition uses this definition.
    pub(super) fn uses(&self, name: &str) -> bool {
        self.used.borrow().contains(name)
    }

    pub(super) fn use_definition(&self, name: &str) {
        self.used.borrow_mut().insert(name.to_owned());
    }
}
