//! Translates handlers: each block to calls of the runtime.

use super::build::{OperandKind, Scope, index};
use crate::code::{Expr, HandlerCode, Machine, ReadStep, RecordType, Stmt};
use crate::names::Names;
use gatewright_lang::ir::{
    Arithmetic, Block, Build, Handler, HandlerKind, Instruction, Operand, Partial, Pattern,
    PeersId, Program, RegisterId, RoleId, Terminator, Test, TextPiece,
};

pub(crate) fn code(
    program: &Program,
    records: &[RecordType],
    machine: &mut Machine,
    handler: &Handler,
    name: &str,
) -> HandlerCode {
    let mut given = Names::default();
    let of = handler.registers.iter().enumerate();
    let values: Vec<String> = of
        .map(|(at, register)| match register.name.as_str() {
            "" => given.give(&format!("value_{at}")),
            name => given.give(name),
        })
        .collect();
    let scope = Scope { program, records, handler: Some((handler, &values)) };
    let own = match handler.kind {
        HandlerKind::Request { role, .. } | HandlerKind::Opening { role } => role,
        HandlerKind::Every { .. } => RoleId::new(0),
    };
    let mut walk = HandlerWalk { scope, machine, own };
    let blocks = handler.blocks.iter().map(|block| walk.block(block)).collect();
    HandlerCode { name: name.to_owned(), values, blocks }
}

struct HandlerWalk<'w> {
    scope: Scope<'w>,
    machine: &'w mut Machine,
    /// The role of its request.
    own: RoleId,
}

fn t() -> Expr {
    Expr::local("t")
}

fn task(function: &'static str, arguments: Vec<Expr>) -> Expr {
    Expr::Call(function, std::iter::once(t()).chain(arguments).collect())
}

const FAILS: Expr = Expr::Constant("FAILS");

impl HandlerWalk<'_> {
    fn block(&mut self, block: &Block) -> ReadStep {
        let mut body = Vec::new();
        for statement in &block.statements {
            body.push(Stmt::At(statement.span));
            body.extend(self.operation(&statement.operation));
        }
        body.push(Stmt::At(block.span));
        body.extend(self.terminator(&block.terminator));
        let span = block.statements.first().map_or(block.span, |statement| statement.span);
        ReadStep { span, body }
    }

    fn register(&self, id: RegisterId) -> Expr {
        self.scope.register(id)
    }

    fn operation(&self, operation: &Instruction) -> Vec<Stmt> {
        let call = match operation {
            Instruction::Set { into, value } => self.set(*into, *value),
            Instruction::Compute { into, operator, left, right } => {
                let function = match operator {
                    Arithmetic::Add => "add",
                    Arithmetic::Subtract => "subtract",
                    Arithmetic::Multiply => "multiply",
                    Arithmetic::Divide => "divide",
                    Arithmetic::Modulo => "modulo",
                };
                let sides = vec![self.scope.number(*left), self.scope.number(*right)];
                Expr::Call("compute", vec![self.register(*into), Expr::Call(function, sides)])
            }
            Instruction::Format { into, pieces } => return self.format(*into, pieces),
            Instruction::First { into, of, octets } => {
                let of = vec![self.scope.text(*of), Expr::number(*octets)];
                task("set_text", vec![self.register(*into), Expr::Call("first", of)])
            }
            Instruction::Hex { into, of } => {
                task("hex", vec![self.register(*into), self.scope.text(*of)])
            }
            Instruction::Fold { into, of, fold } => {
                let folded = super::read::folded(*fold);
                task("folded", vec![self.register(*into), self.scope.text(*of), folded])
            }
            Instruction::Size { into, of } => {
                let size = match (self.scope.kind(*of), self.scope.slot(*of)) {
                    (OperandKind::List, Some(list)) => Expr::Call("rows", vec![list]),
                    _ => Expr::Call("size", vec![self.scope.text(*of)]),
                };
                Expr::Call("compute", vec![self.register(*into), size])
            }
            Instruction::SetSession { slot, value } => self.scope.by_kind(
                ["assign", "assign_number", "assign_text"],
                vec![t(), index(slot.index())],
                *value,
            ),
            Instruction::Empty { into } => Expr::Call("clear", vec![self.register(*into)]),
            Instruction::ClearSession { slot } => task("forget", vec![index(slot.index())]),
            Instruction::EndSession => task("end_session", vec![]),
            Instruction::Provisional(build) => {
                let mut body = self.scope.build(build, self.own, FAILS);
                body.push(Stmt::Ensure(task("provisional", vec![]), FAILS));
                return body;
            }
            Instruction::Part { peers } => task("part", vec![index(peers.index())]),
            Instruction::ForgetRequester => task("forget_requester", vec![]),
            Instruction::ClearPeers { peers } => task("clear_peers", vec![index(peers.index())]),
            Instruction::Tell { peers, cursor, message } => {
                return self.tell(*peers, *cursor, message);
            }
            Instruction::Release { role } => task("release", vec![index(role.index())]),
            Instruction::Hangup { role } => task("hang_up", vec![index(role.index())]),
        };
        vec![Stmt::Do(call)]
    }

    fn set(&self, into: RegisterId, value: Operand) -> Expr {
        match value {
            Operand::Int(_) | Operand::Peers(_) => {
                Expr::Call("set_number", vec![self.register(into), self.scope.number(value)])
            }
            _ => self.scope.by_kind(
                ["set", "set_number", "set_text"],
                vec![t(), self.register(into)],
                value,
            ),
        }
    }

    fn format(&self, into: RegisterId, pieces: &[TextPiece]) -> Vec<Stmt> {
        let piece = |piece: &TextPiece| {
            Stmt::Do(match piece {
                TextPiece::Literal(literal) => task("piece", vec![Expr::Text(*literal)]),
                TextPiece::Octets(of) => task("piece", vec![self.scope.text(*of)]),
                TextPiece::Decimal(of) => task("piece_number", vec![self.scope.number(*of)]),
            })
        };
        let mut body: Vec<Stmt> = pieces.iter().map(piece).collect();
        body.push(Stmt::Do(task("formatted", vec![self.register(into)])));
        body
    }

    fn terminator(&mut self, terminator: &Terminator) -> Vec<Stmt> {
        match terminator {
            Terminator::Jump(then) => vec![Stmt::Block(then.index())],
            Terminator::Branch { test, then, otherwise } => {
                vec![either(self.test(test), then.index(), otherwise.index())]
            }
            Terminator::Try { partial, into, present, absent } => {
                self.attempt(*partial, *into, present.index(), absent.index())
            }
            Terminator::Append { list, value, done, full } => {
                let (functions, list) = match list {
                    Operand::Session(slot) => {
                        (["add_to", "add_number_to", "add_text_to"], index(slot.index()))
                    }
                    list => (
                        ["push", "push_number", "push_text"],
                        self.scope.slot(*list).unwrap_or(Expr::NoSlot),
                    ),
                };
                let add = self.scope.by_kind(functions, vec![t(), list], *value);
                vec![either(add, done.index(), full.index())]
            }
            Terminator::Next { list, cursor, into, body, done } => {
                let list = self.scope.slot(*list).unwrap_or(Expr::NoSlot);
                let into = into.iter().map(|into| self.register(*into)).collect();
                let next = vec![list, self.register(*cursor), Expr::Targets(into)];
                vec![either(task("next", next), body.index(), done.index())]
            }
            Terminator::Await { view, slots, then } => {
                let list: Vec<usize> = slots.iter().map(|slot| slot.index()).collect();
                let count = list.len();
                let list = self.machine.list(list);
                let arguments = vec![self.register(*view), Expr::Indices(list, count)];
                vec![Stmt::Await(task("settled", arguments), then.index())]
            }
            Terminator::NextPart { of, separator, cursor, into, body, done } => {
                let whole = vec![self.scope.text(*of), Expr::Text(*separator)];
                let into = [self.register(*cursor), self.register(*into)];
                let next = whole.into_iter().chain(into).collect();
                vec![either(task("next_part", next), body.index(), done.index())]
            }
            Terminator::Store { peers, done, full } => {
                let store = task("store", vec![index(peers.index())]);
                vec![either(store, done.index(), full.index())]
            }
            Terminator::EachPeer { peers, cursor, body, done } => {
                let next = vec![index(peers.index()), self.register(*cursor)];
                vec![either(task("next_peer", next), body.index(), done.index())]
            }
            Terminator::StartSession { key, then, full } => {
                let start = self.session(["start_session", "start_session_as"], *key);
                vec![either(start, then.index(), full.index())]
            }
            Terminator::ResumeSession { key, then, none } => {
                let resume = self.session(["resume_session", "resume_session_as"], *key);
                vec![either(resume, then.index(), none.index())]
            }
            Terminator::Close => vec![Stmt::Leave(Expr::Constant("CLOSES"))],
            Terminator::Done => vec![Stmt::Leave(Expr::Constant("OPENED"))],
            Terminator::Fail => vec![Stmt::Leave(FAILS)],
            _ => self.suspension(terminator),
        }
    }

    fn session(&self, functions: [&'static str; 2], key: Option<Operand>) -> Expr {
        let [by_fields, by_value] = functions;
        match key {
            None => task(by_fields, vec![]),
            Some(key) => task(by_value, vec![self.scope.text(key)]),
        }
    }

    /// Builds a message for a stored peer and sends it.
    fn tell(&self, peers: PeersId, cursor: RegisterId, message: &Build) -> Vec<Stmt> {
        let program = self.scope.program;
        let about = program.session.as_ref().and_then(|session| session.peers(peers));
        let Some(about) = about else { return vec![Stmt::Leave(FAILS)] };
        let mut body = self.scope.build(message, about.role, FAILS);
        let name = |view, slot| Some(program.message(view)?.slot(slot)?.name.as_str());
        let mark = about.mark.and_then(|(view, slot)| name(view, slot));
        let marked = message.holes.iter().find(|hole| {
            hole.value == Operand::Fresh
                && mark.is_some()
                && name(message.message, hole.slot) == mark
        });
        let built = marked.and_then(|hole| self.scope.built(message.message, hole.slot));
        body.extend(built.map(|built| Stmt::Do(task("marked", vec![built]))));
        let told = vec![index(peers.index()), self.register(cursor)];
        body.push(Stmt::Ensure(task("tell", told), FAILS));
        body
    }

    fn suspension(&self, terminator: &Terminator) -> Vec<Stmt> {
        match terminator {
            Terminator::Send { role, address, message, response, within, then, failed } => {
                let mut body = self.outgoing(message, *role, *address);
                let into = response.map_or(Expr::NoSlot, |(_, into)| self.register(into));
                let role = index(role.index());
                let edges = [index(then.index()), index(failed.index())];
                let arguments = [role, Expr::Time(*within), into].into_iter().chain(edges);
                body.push(Stmt::Leave(task("send", arguments.collect())));
                body
            }
            Terminator::Gather { role, address, message, response, within, max, body, done } => {
                let mut code = self.outgoing(message, *role, *address);
                let into = self.register(response.1);
                let role = index(role.index());
                let edges = [index(body.index()), index(done.index())];
                let arguments = [role, Expr::Time(*within), Expr::number(*max), into];
                let arguments = arguments.into_iter().chain(edges).collect();
                code.push(Stmt::Leave(task("gather", arguments)));
                code
            }
            Terminator::NextResponse { .. } => {
                vec![Stmt::Leave(task("next_response", vec![]))]
            }
            Terminator::Receive { view, into, within, then, failed } => {
                let view = Expr::Message(view.index());
                let edges = [index(then.index()), index(failed.index())];
                let arguments = [view, Expr::Time(*within), self.register(*into)];
                let arguments = arguments.into_iter().chain(edges).collect();
                vec![Stmt::Leave(task("receive", arguments))]
            }
            Terminator::Sleep { period, then } => {
                let arguments = vec![Expr::Time(*period), index(then.index())];
                vec![Stmt::Leave(task("sleep", arguments))]
            }
            Terminator::Return { message, close } => {
                let build = message.as_ref().map(|of| self.scope.build(of, self.own, FAILS));
                let answers = Expr::Bool(message.is_some());
                let mut body = build.unwrap_or_default();
                body.push(Stmt::Leave(task("return", vec![answers, Expr::Bool(*close)])));
                body
            }
            _ => vec![Stmt::Leave(FAILS)],
        }
    }

    fn outgoing(&self, message: &Build, role: RoleId, address: Option<Operand>) -> Vec<Stmt> {
        let mut body = self.scope.build(message, role, FAILS);
        if let Some(address) = address {
            body.push(Stmt::Do(task("address", vec![self.scope.text(address)])));
        }
        body
    }

    fn attempt(
        &self,
        partial: Partial,
        into: RegisterId,
        present: usize,
        absent: usize,
    ) -> Vec<Stmt> {
        let into_slot = self.register(into);
        let call = match partial {
            Partial::Value(of) => match self.scope.slot(of) {
                Some(slot) if self.scope.kind(of) != OperandKind::List => {
                    task("try", vec![into_slot, slot])
                }
                Some(_) => Expr::Bool(true),
                None => {
                    return vec![Stmt::Do(self.set(into, of)), Stmt::Block(present)];
                }
            },
            Partial::After { of, prefix } => {
                task("after", vec![into_slot, self.scope.text(of), Expr::Text(prefix)])
            }
            Partial::Before { of, delimiter } => {
                task("before", vec![into_slot, self.scope.text(of), Expr::Text(delimiter)])
            }
            Partial::Past { of, delimiter } => {
                task("past", vec![into_slot, self.scope.text(of), Expr::Text(delimiter)])
            }
            Partial::Item { of, index: at, column } => {
                let list = self.scope.slot(of).unwrap_or(Expr::NoSlot);
                let at = self.scope.number(at);
                task("item", vec![into_slot, list, at, Expr::number(column)])
            }
            Partial::Join { of, separator, max } => {
                let list = self.scope.slot(of).unwrap_or(Expr::NoSlot);
                let arguments = vec![into_slot, list, Expr::Text(separator), Expr::number(max)];
                task("joined", arguments)
            }
            Partial::Decimal { of, high } => {
                let arguments = vec![into_slot, self.scope.text(of), Expr::Int(high)];
                Expr::Call("decimal_of", arguments)
            }
        };
        // An absent value has no text: what follows from it is absent, too.
        let whole = match partial {
            Partial::After { of, .. } | Partial::Before { of, .. } | Partial::Past { of, .. } => {
                self.present(of)
            }
            _ => Expr::Bool(true),
        };
        let call = match whole {
            Expr::Bool(true) => call,
            whole => Expr::All(vec![whole, call]),
        };
        vec![either(call, present, absent)]
    }

    fn present(&self, value: Operand) -> Expr {
        match self.scope.slot(value) {
            Some(_) if self.scope.kind(value) == OperandKind::List => Expr::Bool(true),
            Some(slot) => Expr::Call("is_set", vec![slot]),
            None => Expr::Bool(value != Operand::Fresh),
        }
    }

    fn test(&self, test: &Test) -> Expr {
        match test {
            Test::Is { value, patterns } => {
                Expr::any(patterns.iter().map(|pattern| self.matches(*value, *pattern)).collect())
            }
            Test::Present(value) => self.present(*value),
            Test::Equal(one, other) => self.compared("equal", *one, *other),
            Test::Less(one, other) => self.compared("less", *one, *other),
            Test::All(tests) => Expr::all(tests.iter().map(|test| self.test(test)).collect()),
            Test::Any(tests) => Expr::any(tests.iter().map(|test| self.test(test)).collect()),
            Test::Not(test) => Expr::negated(self.test(test)),
        }
    }

    fn compared(&self, function: &'static str, one: Operand, other: Operand) -> Expr {
        let kinds = (self.scope.kind(one), self.scope.kind(other));
        let holds = match kinds {
            (OperandKind::Number, OperandKind::Number) => {
                Expr::Call(function, vec![self.scope.number(one), self.scope.number(other)])
            }
            (OperandKind::Octets, OperandKind::Octets) if function == "equal" => {
                Expr::Call("same", vec![self.scope.text(one), self.scope.text(other)])
            }
            _ => return Expr::Bool(false),
        };
        let there = [self.present(one), self.present(other)];
        let there = there.into_iter().filter(|part| !matches!(part, Expr::Bool(true)));
        Expr::all(there.chain([holds]).collect())
    }

    fn matches(&self, value: Operand, pattern: Pattern) -> Expr {
        let kind = self.scope.kind(value);
        match (kind, pattern, self.scope.slot(value)) {
            (OperandKind::Number, Pattern::Int { low, high }, Some(slot)) => {
                Expr::Call("is_within", vec![slot, Expr::Int(low), Expr::Int(high)])
            }
            (OperandKind::Number, Pattern::Int { low, high }, None) => {
                let value = self.scope.number(value);
                Expr::Call("between", vec![value, Expr::Int(low), Expr::Int(high)])
            }
            (OperandKind::Octets, Pattern::Octets(literal), Some(slot)) => {
                Expr::Call("is", vec![slot, Expr::Text(literal)])
            }
            (OperandKind::Octets, Pattern::Octets(literal), None) => {
                Expr::Call("same", vec![self.scope.text(value), Expr::Text(literal)])
            }
            (OperandKind::Octets, Pattern::Empty, Some(slot)) => Expr::Call("is_empty", vec![slot]),
            (OperandKind::Octets, Pattern::Empty, None) => {
                Expr::Call("same", vec![self.scope.text(value), Expr::Constant("NO_TEXT")])
            }
            (OperandKind::List, Pattern::Empty, Some(slot)) => Expr::Call("has_none", vec![slot]),
            _ => Expr::Bool(false),
        }
    }
}

fn either(test: Expr, then: usize, otherwise: usize) -> Stmt {
    Stmt::If(test, vec![Stmt::Block(then)], vec![Stmt::Block(otherwise)])
}
