//! Lowers `test` blocks to transcripts.

use super::env::Env;
use super::scope::Ty;
use super::{Constant, Context};
use crate::codes;
use crate::ir::{
    Expect, MessageId, Operand, ParameterId, ParameterValue, RoleId, SlotId, Step, StepAction,
    TestCase,
};
use crate::syntax::ast::{self, Call, ExpressionKind, Literal, Name, StepKind};

impl<'a> Context<'a> {
    pub(super) fn test(&mut self, test: &ast::Test, env: &Env<'a>) -> TestCase {
        let steps = test.steps.iter().filter_map(|step| self.step(step, env)).collect();
        let fresh = test.steps.iter().filter_map(|step| self.fresh_number(step, env)).collect();
        let parameters = test.steps.iter().filter_map(|step| self.test_parameter(step, env));
        let parameters = parameters.collect();
        TestCase { name: test.name.clone(), span: test.span, steps, fresh, parameters }
    }

    /// `parameter NAME = VALUE`
    fn test_parameter(
        &mut self,
        step: &ast::Step,
        env: &Env<'a>,
    ) -> Option<(ParameterId, ParameterValue)> {
        let StepKind::Parameter(name, value) = &step.kind else { return None };
        let found = env.parameters.iter().enumerate().find(|(_, of)| of.name == name.text);
        let Some((at, parameter)) = found else {
            self.unknown("parameter", name, env.parameters.iter().map(|of| of.name.as_str()));
            return None;
        };
        Some((ParameterId::new(at), self.parameter_constant(parameter.bounds, value)?))
    }

    /// `ROLE fresh NUMBER`
    fn fresh_number(&mut self, step: &ast::Step, env: &Env<'a>) -> Option<(RoleId, u32)> {
        let StepKind::Fresh(name, number) = &step.kind else { return None };
        let role = self.test_role(name, env)?;
        let Ok(value) = u32::try_from(number.value) else {
            let message = format!("{} is no number of 32 bits, as fresh ones are", number.value);
            self.error(&codes::BAD_NUMBER, number.span, message);
            return None;
        };
        Some((role, value))
    }

    fn step(&mut self, step: &ast::Step, env: &Env<'a>) -> Option<Step> {
        let action = match &step.kind {
            StepKind::Sends(name, octets) => {
                StepAction::Sends { role: self.test_role(name, env)?, octets: octets.value.clone() }
            }
            StepKind::SeesOctets(name, octets) => StepAction::Sees {
                role: self.test_role(name, env)?,
                expect: Expect::Octets(octets.value.clone()),
            },
            StepKind::SeesClose(name) => {
                StepAction::Sees { role: self.test_role(name, env)?, expect: Expect::Closed }
            }
            StepKind::SeesMessage(name, call) => {
                let role = self.test_role(name, env)?;
                StepAction::Sees { role, expect: self.expected(role, call, env)? }
            }
            StepKind::Closes(name) => StepAction::Closes { role: self.test_role(name, env)? },
            StepKind::Pass(time) => StepAction::Pass(time.value),
            StepKind::Fresh(..) | StepKind::Parameter(..) => return None,
        };
        Some(Step { action, span: step.span })
    }

    fn test_role(&mut self, name: &Name, env: &Env<'a>) -> Option<RoleId> {
        let found = env.roles.iter().position(|role| role.name == name.text);
        if found.is_none() {
            self.unknown("role", name, env.roles.iter().map(|role| role.name.as_str()));
        }
        found.map(RoleId::new)
    }

    /// `VIEW(FIELD: VALUE, …)`: an expected message with values for the named fields.
    fn expected(&mut self, role: RoleId, call: &Call, env: &Env<'a>) -> Option<Expect> {
        let module = env.roles.get(role.index())?.module;
        let name = &call.path.name;
        let found = self.ids.get(&(module.name.text.as_str(), name.text.as_str())).copied();
        let view = found.filter(|id| self.views.get(id.index()) == Some(id));
        let Some(view) = view else {
            let known: Vec<&str> =
                module.views.iter().map(|view| view.name.text.as_str()).collect();
            self.unknown("view", name, known);
            return None;
        };
        let mut values = Vec::new();
        for argument in &call.arguments {
            let Some(field) = &argument.name else {
                let message = "say which field, as in `reply(code: 250)`";
                self.error(&codes::UNKNOWN_HOLE, argument.value.span, message);
                continue;
            };
            values.extend(self.expected_field(view, field, &argument.value, module));
        }
        Some(Expect::Message { view, values })
    }

    fn expected_field(
        &mut self,
        view: MessageId,
        field: &Name,
        value: &ast::Expression,
        module: &'a ast::MessageModule,
    ) -> Option<(SlotId, Operand)> {
        let slots = &self.message(view)?.slots;
        let found = slots.iter().position(|slot| slot.name == field.text && !slot.scratch);
        let Some(index) = found else {
            let known: Vec<String> = slots.iter().map(|slot| slot.name.clone()).collect();
            self.unknown("field", field, known.iter().map(String::as_str));
            return None;
        };
        let ty = Ty::of(&slots.get(index)?.ty);
        let constant = match &value.kind {
            ExpressionKind::Number(number) => Some(Constant::Int(*number)),
            ExpressionKind::Octets(octets) => Some(Constant::Octets(self.literal(octets))),
            ExpressionKind::Text(pieces) => match pieces.as_slice() {
                [] => Some(Constant::Octets(self.literal(b""))),
                [ast::TextPiece::Octets(octets)] => Some(Constant::Octets(self.literal(octets))),
                _ => None,
            },
            ExpressionKind::Path(path) if path.module.is_none() => {
                self.constant(module, &Literal::Name(path.name.clone()))
            }
            _ => None,
        };
        let operand = match (constant, &ty) {
            (Some(Constant::Int(value)), Ty::Int { .. }) => Operand::Int(value),
            (Some(Constant::Octets(literal)), Ty::Octets { .. }) => Operand::Literal(literal),
            _ => {
                let message =
                    format!("`{}` is {}, and this is no constant of it", field.text, ty.name());
                self.error(&codes::WRONG_TYPE, value.span, message);
                return None;
            }
        };
        Some((SlotId::new(index), operand))
    }
}
