//! Lowers messages to be built: views filled hole by hole, templates, `sending` rules.

use super::body::Body;
use super::guard::known;
use super::layout::held;
use super::scope::{Local, Ty, Value};
use super::value::columns_fit;
use super::{Constant, Context};
use crate::codes;
use crate::ir::{
    Build, Check, Emit, Fold, Guard, Hole, Message, MessageId, Operand, PeersId, RoleId, Slot,
    SlotId, SlotType, Source,
};
use crate::syntax::ast::{
    self, Call, Expression, ExpressionKind, MessageModule, Parameter, Path, SendingValue, Template,
    TemplateBody, ValueType,
};
use gatewright_diagnostic::{Diagnostic, Span};

/// The exchange in which a message goes out; it decides which rule fills its private holes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Exchange {
    /// An answer to the request of a server role.
    Answer(RoleId),
    /// A request over a client role.
    Request(RoleId),
    /// A message to a peer that a session variable stores.
    Tell(RoleId, PeersId),
}

impl Exchange {
    pub(super) fn role(self) -> RoleId {
        match self {
            Self::Answer(role) | Self::Request(role) | Self::Tell(role, _) => role,
        }
    }
}

enum Resolved<'a> {
    View(MessageId),
    Template(&'a MessageModule, &'a Template),
}

impl<'a> Context<'a> {
    /// Checks the templates that fill a view, whether they are used or not.
    pub(super) fn templates(&mut self) {
        for module in self.world.modules.values().copied() {
            let env = super::env::Env::of_module(module);
            for template in &module.templates {
                if let TemplateBody::Build(call) = &template.body {
                    self.template_alone(&env, template, call);
                }
            }
        }
    }

    fn template_alone(
        &mut self,
        env: &super::env::Env<'a>,
        template: &'a Template,
        call: &'a Call,
    ) {
        let purpose = super::body::BodyPurpose {
            server: None,
            request: None,
            opening: None,
            answers: ast::Answers::Never,
        };
        let mut body = Body::new(self, env, purpose, call.span);
        for hole in &template.holes {
            let Some(ty) = body.context.value_type(&hole.ty) else { continue };
            let span = hole.name.span;
            let register = body.register_for(&hole.name.text, &ty, span);
            // Lists and streams are in no register; what stands for them is thrown away.
            let operand = register.map_or(Operand::Fresh, Operand::Register);
            body.bind(&hole.name, Value { operand, ty, optional: false, span });
        }
        body.inlining.push(&template.name.text);
        let built = body.call(call, Exchange::Answer(RoleId::new(0)));
        let scope = std::mem::take(&mut body.scope);
        if built.is_some() {
            body.unused_holes(&scope);
        }
    }

    /// Lowers the templates that are plain text.
    pub(super) fn text_templates(&mut self) {
        for module in self.world.modules.values().copied() {
            for template in &module.templates {
                if let TemplateBody::Text { view, pieces, span } = &template.body {
                    self.text_template(module, template, view, pieces, *span);
                }
            }
        }
    }

    fn text_template(
        &mut self,
        module: &'a MessageModule,
        template: &'a Template,
        view: &ast::Name,
        pieces: &[ast::TextPiece],
        span: Span,
    ) {
        let Some(written) = self.ids.get(&(module.name.text.as_str(), view.text.as_str())) else {
            let known = module.views.iter().map(|view| view.name.text.as_str());
            self.unknown("view", view, known);
            return;
        };
        let written = *written;
        let mut slots = Vec::new();
        for hole in &template.holes {
            let Some(ty) = self.value_type(&hole.ty).and_then(|ty| ty.slot()) else { continue };
            let name = hole.name.text.clone();
            slots.push(Slot {
                name,
                span: hole.name.span,
                ty,
                fold: Fold::Keep,
                optional: false,
                private: false,
                scratch: false,
            });
        }
        let mut emit = Vec::new();
        for piece in pieces {
            match piece {
                ast::TextPiece::Octets(octets) => emit.push(Emit::Literal(self.literal(octets))),
                ast::TextPiece::Hole(hole) => emit.extend(self.text_hole(hole, &slots)),
            }
        }
        let message = Message {
            name: format!("{}.{}", module.name.text, template.name.text),
            span,
            octets_max: slots.iter().map(|slot| held(&slot.ty)).sum(),
            slots,
            parser: Vec::new(),
            emit,
            locals: 0,
            datagram: self.message(written).is_some_and(|view| view.datagram),
            window_max: 0,
        };
        let name = template.name.text.as_str();
        self.add_message(&module.name.text, name, message, Vec::new(), Some(written));
    }

    fn text_hole(&mut self, hole: &Expression, slots: &[Slot]) -> Option<Emit> {
        let ExpressionKind::Path(Path { module: None, name }) = &hole.kind else {
            let message = "a hole of a template is one of its names";
            self.error(&codes::UNKNOWN_HOLE, hole.span, message);
            return None;
        };
        let Some(index) = slots.iter().position(|slot| slot.name == name.text) else {
            self.unknown("hole", name, slots.iter().map(|slot| slot.name.as_str()));
            return None;
        };
        let from = Source::Slot(SlotId::new(index));
        match slots.get(index)?.ty {
            SlotType::Int { .. } => Some(Emit::Digits { from, radix: 10, width: 1, max: 19 }),
            SlotType::Octets { max } => {
                let check = Check {
                    class: None,
                    one_of: None,
                    without: None,
                    one_line: true,
                    not_first: None,
                    min: 0,
                    max,
                };
                Some(Emit::Octets { from, check })
            }
            _ => {
                let message = "a text contains only numbers and octets";
                self.error(&codes::WRONG_TYPE, hole.span, message);
                None
            }
        }
    }

    /// The type of a hole, a session variable or a parameter; `None` for a view.
    pub(super) fn value_type(&mut self, ty: &ValueType) -> Option<Ty> {
        match ty {
            ValueType::Int { low, high } => {
                if low.value > high.value {
                    let message = format!("no number is in {}..{}", low.value, high.value);
                    self.error(&codes::EMPTY_RANGE, low.span.to(high.span), message);
                }
                Some(Ty::Int { low: low.value, high: high.value })
            }
            ValueType::Fragment { max, span } => {
                Some(Ty::Octets { max: self.limit_or_report(*max, *span, "a fragment", "octets") })
            }
            ValueType::List { element, max, each, span } => {
                let max = self.limit_or_report(*max, *span, "a list", "elements");
                let column = match element {
                    ast::ListElement::Int { low, high } => {
                        crate::ir::ColumnType::Int { low: low.value, high: high.value }
                    }
                    ast::ListElement::Peer(name) => {
                        let message = "only a session stores peers";
                        self.error(&codes::WRONG_TYPE, name.span, message);
                        return None;
                    }
                    ast::ListElement::Fragment => {
                        let what = "each fragment of a list";
                        let max = self.limit_or_report(*each, *span, what, "octets");
                        crate::ir::ColumnType::Octets { max }
                    }
                };
                Some(Ty::List { columns: vec![(String::new(), column)], max })
            }
            ValueType::Stream => Some(Ty::Stream),
            // Where peers are stored is the session's own.
            ValueType::View(_) | ValueType::Peer(_) => None,
        }
    }

    fn limit_or_report(
        &mut self,
        max: Option<ast::Number>,
        span: Span,
        what: &str,
        unit: &str,
    ) -> u32 {
        if let Some(max) = self.limit(max) {
            return max;
        }
        let each = if what.starts_with("each") { "each " } else { "" };
        let help = format!("write `, {each}at most N {unit}`");
        self.report(
            Diagnostic::error(&codes::NO_LIMIT, span, format!("{what} needs a limit")).help(help),
        );
        1
    }
}

impl<'a> Body<'_, 'a> {
    /// A message from an expression: a call, or the name of a view that is passed on.
    pub(super) fn message_of(
        &mut self,
        expression: &Expression,
        exchange: Exchange,
    ) -> Option<Build> {
        match &expression.kind {
            ExpressionKind::Call(call) => self.call(call, exchange),
            ExpressionKind::Path(path) => {
                let value = self.path_value(path, expression.span)?;
                let (Ty::View(view), Operand::Register(register)) = (&value.ty, value.operand)
                else {
                    let message = format!("this is {}, not a message", value.ty.name());
                    self.wrong_type(&value.ty, expression.span, message);
                    return None;
                };
                self.pass_on(*view, register, exchange, expression.span)
            }
            _ => {
                let message = "this is no message";
                self.context.error(&codes::WRONG_TYPE, expression.span, message);
                None
            }
        }
    }

    /// A view that is passed on unchanged, except that its private holes are filled again.
    fn pass_on(
        &mut self,
        view: MessageId,
        register: crate::ir::RegisterId,
        exchange: Exchange,
        span: Span,
    ) -> Option<Build> {
        let message = self.context.message(view)?;
        let slots: Vec<(SlotId, bool)> = (message.slots.iter().enumerate())
            .filter(|(_, slot)| !slot.scratch)
            .map(|(index, slot)| (SlotId::new(index), slot.private))
            .collect();
        let all: Vec<SlotId> = slots.iter().map(|(slot, _)| *slot).collect();
        self.settle(register, &all, span);
        let copy = |slot| Hole { slot, value: Operand::Slot { view: register, slot } };
        let mut holes: Vec<Hole> =
            (slots.iter()).filter(|(_, private)| !private).map(|(slot, _)| copy(*slot)).collect();
        self.fill_private(view, exchange, &mut holes)?;
        for (slot, private) in slots {
            if private && !holes.iter().any(|hole| hole.slot == slot) {
                holes.push(copy(slot));
            }
        }
        Some(Build { message: view, holes, span })
    }

    pub(super) fn call(&mut self, call: &Call, exchange: Exchange) -> Option<Build> {
        match self.resolve(&call.path)? {
            Resolved::View(view) => self.fill(view, call, exchange),
            Resolved::Template(module, template) => self.expand(module, template, call, exchange),
        }
    }

    fn resolve(&mut self, path: &Path) -> Option<Resolved<'a>> {
        let name = path.name.text.as_str();
        let wanted = path.module.as_ref().map(|module| module.text.as_str());
        let mut found = Vec::new();
        for module in self.modules.clone() {
            if wanted.is_some_and(|wanted| wanted != module.name.text) {
                continue;
            }
            let module_name = module.name.text.as_str();
            if let Some((id, view)) = self.view_or_text(module_name, name) {
                found.push((module_name, Resolved::View(if view == id { view } else { id })));
            } else if let Some((module, template)) = self.context.template(module_name, name) {
                found.push((module_name, Resolved::Template(module, template)));
            }
        }
        if found.len() > 1 {
            let names: Vec<&str> = found.iter().map(|(module, _)| *module).collect();
            let message = format!("`{name}` is in `{}`", names.join("` and in `"));
            let help = format!("write `{}.{name}`", names.first().unwrap_or(&"module"));
            let diagnostic = Diagnostic::error(&codes::AMBIGUOUS, path.span(), message).help(help);
            self.context.report(diagnostic);
            return None;
        }
        if found.is_empty() {
            let modules = self.modules.clone();
            let known: Vec<&str> = (modules.iter())
                .flat_map(|module| {
                    let views = module.views.iter().map(|view| view.name.text.as_str());
                    views.chain(module.templates.iter().map(|of| of.name.text.as_str()))
                })
                .collect();
            self.context.unknown("view or template", &path.name, known);
        }
        found.pop().map(|(_, resolved)| resolved)
    }

    fn view_or_text(&self, module: &str, name: &str) -> Option<(MessageId, MessageId)> {
        let (_, id) = (self.context.ids.iter()).find(|(key, _)| **key == (module, name))?;
        Some((*id, *self.context.views.get(id.index())?))
    }

    /// The view that a path names, for `receive` and definitions.
    pub(super) fn view_of(&mut self, path: &Path) -> Option<MessageId> {
        match self.resolve(path)? {
            Resolved::View(id) if self.context.views.get(id.index()) == Some(&id) => Some(id),
            _ => {
                let message = format!("`{}` is a template, not a view", path.name.text);
                self.context.error(&codes::WRONG_TYPE, path.span(), message);
                None
            }
        }
    }

    // -- Views.

    fn fill(&mut self, message: MessageId, call: &Call, exchange: Exchange) -> Option<Build> {
        let slots = self.context.message(message)?.slots.clone();
        let defaults = self.context.defaults.get(message.index()).cloned().unwrap_or_default();
        let has_default = |slot: &SlotId| defaults.iter().any(|(of, _)| of == slot);
        let mut order = (0..slots.len()).map(SlotId::new).filter(|id| {
            let open = |slot: &Slot| !slot.scratch && !slot.private;
            slots.get(id.index()).is_some_and(open) && !has_default(id)
        });
        let mut holes: Vec<Hole> = Vec::new();
        let mut fine = true;
        for argument in &call.arguments {
            let slot = match &argument.name {
                Some(name) => self.named_hole(name, &slots),
                None => order.next().or_else(|| {
                    let text = "there are more values than holes";
                    self.context.error(&codes::UNKNOWN_HOLE, argument.value.span, text);
                    None
                }),
            };
            let filled = slot
                .and_then(|slot| self.fill_hole(slot, slots.get(slot.index())?, &argument.value));
            let Some(hole) = filled else {
                fine = false;
                continue;
            };
            if holes.iter().any(|other| other.slot == hole.slot) {
                let text = "this hole is filled twice";
                self.context.error(&codes::SAID_TWICE, argument.value.span, text);
            }
            holes.push(hole);
        }
        fine &= self.fill_private(message, exchange, &mut holes).is_some();
        for (slot, value) in defaults {
            // The serializer writes the default of a slot that may be absent.
            let own = slots.get(slot.index()).is_some_and(|slot| !slot.scratch && !slot.optional);
            if own && !holes.iter().any(|hole| hole.slot == slot) {
                let value = match value {
                    Constant::Int(value) => Operand::Int(value),
                    Constant::Octets(literal) => Operand::Literal(literal),
                };
                holes.push(Hole { slot, value });
            }
        }
        if fine {
            self.all_filled(message, &slots, &holes, call);
        }
        fine.then_some(Build { message, holes, span: call.span })
    }

    fn named_hole(&mut self, name: &ast::Name, slots: &[Slot]) -> Option<SlotId> {
        let found = slots.iter().position(|slot| slot.name == name.text && !slot.scratch);
        if let Some(slot) = found.and_then(|index| slots.get(index))
            && slot.private
        {
            let message = format!("`{}` is private: the protocol fills it", name.text);
            self.context.error(&codes::PRIVATE_HOLE, name.span, message);
            return None;
        }
        if found.is_none() {
            let scratch = slots.iter().any(|slot| slot.name == name.text);
            if scratch {
                let message = format!("`{}` measures another field and is computed", name.text);
                self.context.error(&codes::UNKNOWN_HOLE, name.span, message);
                return None;
            }
            let known = slots.iter().filter(|slot| !slot.scratch && !slot.private);
            let message = format!("there is no hole `{}`", name.text);
            let mut diagnostic = Diagnostic::error(&codes::UNKNOWN_HOLE, name.span, message);
            let names = known.map(|slot| slot.name.as_str());
            if let Some(near) = gatewright_diagnostic::nearest(&name.text, names) {
                diagnostic = diagnostic.fix(name.span, near, &format!("write `{near}`"));
            }
            self.context.report(diagnostic);
        }
        found.map(SlotId::new)
    }

    fn fill_hole(&mut self, id: SlotId, slot: &Slot, expression: &Expression) -> Option<Hole> {
        let value = self.value(expression)?;
        let value = if slot.optional { value } else { self.require(value)? };
        self.fits(&value, &Ty::of(&slot.ty), &slot.name)
            .then_some(Hole { slot: id, value: value.operand })
    }

    /// Whether a value fits a place; if not, reports it.
    pub(super) fn fits(&mut self, value: &Value, place: &Ty, name: &str) -> bool {
        let span = value.span;
        match (&value.ty, place) {
            (Ty::Int { low, high }, Ty::Int { low: least, high: most }) => {
                if low >= least && high <= most {
                    return true;
                }
                let message =
                    format!("the value is in {low}..{high}, and `{name}` holds {least}..{most}");
                self.context.error(&codes::OUT_OF_RANGE, span, message);
            }
            (Ty::Octets { max }, Ty::Octets { max: room }) => {
                if max <= room {
                    return true;
                }
                let message =
                    format!("the value has up to {max} octets, and `{name}` holds {room}");
                let help = format!(
                    "write `first {room} octets of` before it to cut it, or declare `{name}` with \
                     `at most {max} octets`"
                );
                let diagnostic = Diagnostic::error(&codes::TOO_LONG, span, message).help(help);
                self.context.report(diagnostic);
            }
            (Ty::List { columns, max }, Ty::List { columns: into, max: room }) => {
                if max <= room && columns_fit(columns, into) {
                    return true;
                }
                let message = format!("the list can be longer, or its elements, than `{name}`");
                let help = format!(
                    "declare `{name}` with `at most {max}`, and its elements with the list's limits"
                );
                let diagnostic = Diagnostic::error(&codes::TOO_LONG, span, message).help(help);
                self.context.report(diagnostic);
            }
            // Octets pass as a stream of themselves.
            (Ty::Stream | Ty::Octets { .. }, Ty::Stream) | (Ty::Unknown, _) => return true,
            (Ty::View(one), Ty::View(other)) if one == other => return true,
            (from, into) => {
                let message = format!("this is {}, and `{name}` is {}", from.name(), into.name());
                let diagnostic = Diagnostic::error(&codes::WRONG_TYPE, span, message);
                self.context.report(match converted(from, into) {
                    Some(help) => diagnostic.help(help),
                    None => diagnostic,
                });
            }
        }
        false
    }

    /// Fills the private holes by the protocol's `sending` rule; `None` if the rule is wrong.
    fn fill_private(
        &mut self,
        message: MessageId,
        exchange: Exchange,
        holes: &mut Vec<Hole>,
    ) -> Option<()> {
        // A module alone does not know which protocol will speak it.
        let Some(role) = self.env.roles.get(exchange.role().index()) else { return Some(()) };
        let (protocol, module) = (role.protocol, role.module);
        let name_of = |id: MessageId| {
            self.context.ids.iter().find(|(_, of)| **of == id).map(|((_, name), _)| *name)
        };
        let view = name_of(message);
        let request = match exchange {
            Exchange::Answer(_) => self.purpose.request,
            Exchange::Request(_) | Exchange::Tell(..) => None,
        };
        let told = matches!(exchange, Exchange::Tell(..));
        let request_name = request.and_then(name_of);
        let rule = protocol.sending.iter().find(|rule| {
            Some(rule.view.text.as_str()) == view
                && rule.after == told
                && (told || rule.to.as_ref().map(|to| to.text.as_str()) == request_name)
        });
        let Some(rule) = rule else { return Some(()) };
        let needed = self.context.needed.get(message.index()).cloned().unwrap_or_default();
        for (field, value) in &rule.assigns {
            let slot = self.private_slot(message, field)?;
            // Where the layout is known to leave the field out, nothing fills it.
            let out =
                |(guard, of): &(Guard, SlotId)| *of == slot && known(guard, holes) == Some(false);
            if needed.iter().any(out) {
                continue;
            }
            // What is not private can be filled by the gateway instead.
            if holes.iter().any(|hole| hole.slot == slot) {
                continue;
            }
            let value = match value {
                SendingValue::Fresh => Some(Operand::Fresh),
                SendingValue::Request(name) if told => self.kept_operand(rule, name, exchange),
                SendingValue::Request(name) => {
                    let slot = request.and_then(|request| self.slot_named(request, name));
                    slot.map(Operand::Request)
                }
                SendingValue::Literal(literal) => {
                    self.context.constant(module, literal).map(|value| match value {
                        Constant::Int(value) => Operand::Int(value),
                        Constant::Octets(literal) => Operand::Literal(literal),
                    })
                }
            };
            holes.push(Hole { slot, value: value? });
        }
        Some(())
    }

    /// A value kept from the request of a stored peer.
    fn kept_operand(
        &self,
        rule: &ast::Sending,
        name: &ast::Name,
        exchange: Exchange,
    ) -> Option<Operand> {
        let Exchange::Tell(role, peers) = exchange else { return None };
        let module = self.env.roles.get(role.index())?.module.name.text.as_str();
        let request = rule.to.as_ref()?.text.as_str();
        let view = *self.context.ids.get(&(module, request))?;
        let slots = &self.context.message(view)?.slots;
        let slot = SlotId::new(slots.iter().position(|slot| slot.name == name.text)?);
        let kept = &self.env.session.as_ref()?.peers.get(peers.index())?.kept;
        let at = kept.iter().position(|kept| *kept == (view, slot))?;
        u32::try_from(at).ok().map(Operand::Kept)
    }

    fn private_slot(&mut self, message: MessageId, field: &ast::Name) -> Option<SlotId> {
        self.slot_named(message, field)
    }

    fn slot_named(&mut self, message: MessageId, name: &ast::Name) -> Option<SlotId> {
        let slots = &self.context.message(message)?.slots;
        let found = slots.iter().position(|slot| slot.name == name.text && !slot.scratch);
        if found.is_none() {
            let known: Vec<String> = slots.iter().map(|slot| slot.name.clone()).collect();
            self.context.unknown("field", name, known.iter().map(String::as_str));
        }
        found.map(SlotId::new)
    }

    fn all_filled(&mut self, message: MessageId, slots: &[Slot], holes: &[Hole], call: &Call) {
        let needed = self.context.needed.get(message.index()).cloned().unwrap_or_default();
        let needs = |index: usize| {
            let of = |(guard, slot): &(Guard, SlotId)| {
                slot.index() == index && known(guard, holes) == Some(true)
            };
            needed.iter().any(of)
        };
        let missing: Vec<String> = (slots.iter().enumerate())
            .filter(|(index, slot)| !slot.scratch && (!slot.optional || needs(*index)))
            .filter(|(_, slot)| !slot.private || !self.env.roles.is_empty())
            // A list that nobody fills is empty.
            .filter(|(_, slot)| !matches!(slot.ty, SlotType::List { .. }))
            .filter(|(index, _)| !holes.iter().any(|hole| hole.slot.index() == *index))
            .map(|(_, slot)| format!("`{}`", slot.name))
            .collect();
        if !missing.is_empty() {
            let message = format!("{} is not filled", missing.join(", "));
            self.context.error(&codes::HOLE_UNFILLED, call.span, message);
        }
    }

    // -- Templates.

    fn expand(
        &mut self,
        module: &'a MessageModule,
        template: &'a Template,
        call: &Call,
        exchange: Exchange,
    ) -> Option<Build> {
        let TemplateBody::Build(inner) = &template.body else { return None };
        if self.inlining.contains(&template.name.text.as_str()) {
            let message = format!("`{}` uses itself", template.name.text);
            self.context.error(&codes::RECURSION, call.span, message);
            return None;
        }
        let scope = self.parameters(&template.holes, call)?;
        self.inlining.push(&template.name.text);
        let outer_scope = std::mem::replace(&mut self.scope, scope);
        let outer_modules = std::mem::replace(&mut self.modules, vec![module]);
        let before = self.context.found.len();
        let build = self.call(inner, exchange);
        self.modules = outer_modules;
        self.scope = outer_scope;
        self.inlining.pop();
        self.once_per_place(before);
        build.map(|build| Build { span: call.span, ..build })
    }

    fn unused_holes(&mut self, scope: &[Local]) {
        for local in scope.iter().filter(|local| !local.used) {
            let message = format!("the hole `{}` is never used", local.name.text);
            self.context.report(Diagnostic::warning(&codes::UNUSED, local.name.span, message));
        }
    }

    /// Reports a wrong template once, not at each use.
    pub(super) fn once_per_place(&mut self, before: usize) {
        let new = self.context.found.split_off(before.min(self.context.found.len()));
        for diagnostic in new {
            if !self.context.found.contains(&diagnostic) {
                self.context.found.push(diagnostic);
            }
        }
    }

    /// The values of a call, by the names of what is called.
    pub(super) fn parameters(
        &mut self,
        parameters: &[Parameter],
        call: &Call,
    ) -> Option<Vec<Local>> {
        let mut scope: Vec<Local> = Vec::new();
        let mut order = parameters.iter();
        let mut fine = true;
        for argument in &call.arguments {
            let parameter = match &argument.name {
                Some(name) => parameters.iter().find(|of| of.name.text == name.text),
                None => order.next(),
            };
            let Some(parameter) = parameter else {
                let span = argument.name.as_ref().map_or(argument.value.span, |name| name.span);
                self.context.error(&codes::UNKNOWN_HOLE, span, "there is no such hole");
                fine = false;
                continue;
            };
            let Some(value) = self.argument(parameter, &argument.value) else {
                fine = false;
                continue;
            };
            scope.push(Local { name: parameter.name.clone(), value, used: false });
        }
        let missing: Vec<String> = (parameters.iter())
            .filter(|of| !scope.iter().any(|local| local.name.text == of.name.text))
            .map(|of| format!("`{}`", of.name.text))
            .collect();
        if fine && !missing.is_empty() {
            let message = format!("{} is not filled", missing.join(", "));
            self.context.error(&codes::HOLE_UNFILLED, call.span, message);
            fine = false;
        }
        fine.then_some(scope)
    }

    fn argument(&mut self, parameter: &Parameter, expression: &Expression) -> Option<Value> {
        let value = self.set_value(expression)?;
        let ty = match &parameter.ty {
            ValueType::View(path) => Ty::View(self.view_of(path)?),
            ty => self.context.value_type(ty)?,
        };
        self.fits(&value, &ty, &parameter.name.text).then_some(value)
    }
}

/// How a value of one type is converted to another, for a help line.
pub(super) const fn converted(from: &Ty, into: &Ty) -> Option<&'static str> {
    match (from, into) {
        (Ty::Octets { .. }, Ty::Int { .. }) => {
            Some("digits are read as a number by `decimal of VALUE at most N else …`")
        }
        (Ty::Int { .. }, Ty::Octets { .. } | Ty::Stream) => {
            Some("a text with a hole has a number's digits: `\"{VALUE}\"`")
        }
        (Ty::List { .. }, Ty::Octets { .. }) => Some(
            "take one element, `item 1 of LIST else …`, or all: `join LIST by \", \" at most N octets else …`",
        ),
        _ => None,
    }
}
