//! Parses values and conditions.

use super::super::ast::{
    Argument, Arm, Call, Comparison, Condition, ConditionKind, Expression, ExpressionKind, Pattern,
    PatternKind,
};
use super::super::token::TokenKind;
use super::{CHAIN_MAX, NESTING_MAX, Parser};
use crate::codes;
use core::mem;

/// Words that follow a value: the word before them is a value, and not the `item` of a list.
const BEHIND: [&str; 7] = ["to", "at", "within", "else", "is", "split", "by"];

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Option<Expression> {
        self.nested(|parser| if parser.word() == "when" { parser.when() } else { parser.sum() })
    }

    fn nested<T>(&mut self, rule: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.nesting >= NESTING_MAX {
            let span = self.peek().span;
            self.error(&codes::TOO_DEEP, span, format!("more than {NESTING_MAX} nest here"));
            return None;
        }
        self.nesting += 1;
        let result = rule(self);
        self.nesting -= 1;
        result
    }

    /// A chain of operators, the tree of which is as deep as it has operators.
    fn chain<T>(&mut self, rule: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let around = mem::take(&mut self.chained);
        let result = rule(self);
        self.chained = self.chained.max(around);
        result
    }

    /// Counts one more operator of a chain, which was parsed with both of its operands.
    fn linked(&mut self, start: usize) -> Option<()> {
        if self.chained >= CHAIN_MAX {
            let span = self.since(start);
            let text = format!("more than {CHAIN_MAX} operators follow each other here");
            self.error(&codes::TOO_DEEP, span, text);
            self.help("split it: give a part of it a name with `let`, or nest `if`");
            return None;
        }
        self.chained += 1;
        Some(())
    }

    fn kinded(&self, start: usize, kind: ExpressionKind) -> Expression {
        Expression { kind, span: self.since(start) }
    }

    fn sum(&mut self) -> Option<Expression> {
        self.chain(Self::sum_chain)
    }

    fn sum_chain(&mut self) -> Option<Expression> {
        let start = self.at;
        let mut left = self.product()?;
        while let TokenKind::Mark(operator @ ('+' | '-')) = self.peek().kind {
            if self.is_negative_on_its_line() {
                break;
            }
            if self.is_counted_up() {
                return None;
            }
            self.bump();
            let right = Box::new(self.product()?);
            self.linked(start)?;
            let left_side = Box::new(left);
            left = self.kinded(start, ExpressionKind::Binary { operator, left: left_side, right });
        }
        Some(left)
    }

    fn product(&mut self) -> Option<Expression> {
        self.chain(Self::product_chain)
    }

    fn product_chain(&mut self) -> Option<Expression> {
        let start = self.at;
        let mut left = self.postfix()?;
        loop {
            let operator = match self.peek().kind {
                TokenKind::Mark(operator @ ('*' | '/')) => operator,
                TokenKind::Word if matches!(self.word(), "mod" | "%") => '%',
                _ => return Some(left),
            };
            self.bump();
            let right = Box::new(self.postfix()?);
            self.linked(start)?;
            let left_side = Box::new(left);
            left = self.kinded(start, ExpressionKind::Binary { operator, left: left_side, right });
        }
    }

    fn postfix(&mut self) -> Option<Expression> {
        self.chain(Self::postfix_chain)
    }

    fn postfix_chain(&mut self) -> Option<Expression> {
        let start = self.at;
        let mut value = self.nested(Self::primary)?;
        loop {
            let of = Box::new(value);
            let kind = if self.eat_word("after") {
                let prefix = self.plain_text("the text it follows")?;
                ExpressionKind::After { of, prefix }
            } else if self.eat_word("before") {
                let delimiter = self.plain_text("the text before which it ends")?;
                ExpressionKind::Before { of, delimiter }
            } else if self.eat_word("past") {
                let delimiter = self.plain_text("the text after which it begins")?;
                ExpressionKind::Past { of, delimiter }
            } else {
                return Some(*of);
            };
            self.linked(start)?;
            value = self.kinded(start, kind);
        }
    }

    fn primary(&mut self) -> Option<Expression> {
        let start = self.at;
        let kind = match self.peek().kind {
            _ if self.is_number_at(0) => {
                ExpressionKind::Number(self.signed_number("a number")?.value)
            }
            // Of anything but a number, the sign is a subtraction.
            TokenKind::Mark('-') => {
                self.bump();
                let (zero, right) = (ExpressionKind::Number(0), self.nested(Self::primary)?);
                let left = Box::new(Expression { kind: zero, span: right.span });
                ExpressionKind::Binary { operator: '-', left, right: Box::new(right) }
            }
            TokenKind::Hex => ExpressionKind::Octets(self.hex()?.value),
            TokenKind::Text => ExpressionKind::Text(self.pieces()?),
            TokenKind::Mark('(') => {
                self.bump();
                let value = self.expression()?;
                let kind = if self.eat_word("else") {
                    let otherwise = Box::new(self.expression()?);
                    ExpressionKind::Else { value: Box::new(value), otherwise }
                } else {
                    value.kind
                };
                self.expect_mark(')')?;
                kind
            }
            TokenKind::Word => self.word_expression()?,
            _ => {
                self.unexpected("a value");
                return None;
            }
        };
        Some(self.kinded(start, kind))
    }

    fn word_expression(&mut self) -> Option<ExpressionKind> {
        let next = self.peek_at(1).kind;
        let operator = !matches!(next, TokenKind::Mark('.' | '('));
        match self.word() {
            "item" if operator && next != TokenKind::End && !BEHIND.contains(&self.word_at(1)) => {
                self.bump();
                let index = Box::new(self.postfix()?);
                self.expect_word("of")?;
                Some(ExpressionKind::Item { index, of: Box::new(self.postfix()?) })
            }
            "decimal" if self.word_at(1) == "of" => {
                self.at += 2;
                let of = Box::new(self.postfix()?);
                Some(ExpressionKind::Decimal { of, high: self.at_most(&[])? })
            }
            "hex" if self.word_at(1) == "of" => {
                self.at += 2;
                Some(ExpressionKind::Hex(Box::new(self.postfix()?)))
            }
            "lower" | "upper" if self.word_at(1) == "of" => {
                let upper = self.word() == "upper";
                self.at += 2;
                Some(ExpressionKind::Case { of: Box::new(self.postfix()?), upper })
            }
            "size" if self.word_at(1) == "of" => {
                self.at += 2;
                Some(ExpressionKind::Size(Box::new(self.postfix()?)))
            }
            "join"
                if self.word_at(2) == "by"
                    || self.word_at(4) == "by" && self.word_at(1) != "is" =>
            {
                self.bump();
                let of = Box::new(self.postfix()?);
                self.expect_word("by")?;
                let separator = self.plain_text("a separating text")?;
                let max = self.at_most(&["octets", "octet"])?;
                Some(ExpressionKind::Join { of, separator, max })
            }
            "first" if next == TokenKind::Number => {
                self.bump();
                let octets = self.number("how many octets")?;
                if !self.eat_word("octet") {
                    self.expect_word("octets")?;
                }
                self.expect_word("of")?;
                Some(ExpressionKind::First { octets, of: Box::new(self.postfix()?) })
            }
            _ => {
                let start = self.at;
                let path = self.path("a value")?;
                if self.is_mark('(') {
                    let arguments = self.arguments()?;
                    let span = self.since(start);
                    return Some(ExpressionKind::Call(Call { path, arguments, span }));
                }
                Some(ExpressionKind::Path(path))
            }
        }
    }

    /// `NAME(VALUE, NAME: VALUE, …)`
    pub(super) fn call(&mut self) -> Option<Call> {
        let start = self.at;
        let path = self.path("a view or a template")?;
        let arguments = self.arguments()?;
        Some(Call { path, arguments, span: self.since(start) })
    }

    fn arguments(&mut self) -> Option<Vec<Argument>> {
        self.expect_mark('(')?;
        let mut arguments = Vec::new();
        while !self.eat_mark(')') {
            let named =
                self.peek().kind == TokenKind::Word && self.peek_at(1).kind == TokenKind::Mark(':');
            let name = if named { Some(self.name("a hole")?) } else { None };
            if named {
                self.bump();
            }
            arguments.push(Argument { name, value: self.expression()? });
            if !self.eat_mark(',') && !self.is_mark(')') {
                self.unexpected("`,` or `)`");
                return None;
            }
        }
        Some(arguments)
    }

    /// `when VALUE { PATTERN -> VALUE … otherwise -> VALUE }`
    fn when(&mut self) -> Option<Expression> {
        let start = self.at;
        self.bump();
        let on = Box::new(self.postfix()?);
        let arms = self.block(|parser| {
            let start = parser.at;
            let patterns =
                if parser.eat_word("otherwise") { Vec::new() } else { parser.patterns()? };
            parser.expect_arrow()?;
            let value = parser.expression()?;
            Some(Arm { patterns, value, span: parser.since(start) })
        })?;
        Some(self.kinded(start, ExpressionKind::When { on, arms }))
    }

    // -- Conditions.

    pub(super) fn condition(&mut self) -> Option<Condition> {
        self.nested(Self::disjunction)
    }

    fn disjunction(&mut self) -> Option<Condition> {
        self.chain(Self::disjunction_chain)
    }

    fn disjunction_chain(&mut self) -> Option<Condition> {
        let start = self.at;
        let mut left = self.conjunction()?;
        while self.eat_word("or") || self.eat_word("||") {
            let right = self.conjunction()?;
            self.linked(start)?;
            let kind = ConditionKind::Or(Box::new(left), Box::new(right));
            left = Condition { kind, span: self.since(start) };
        }
        Some(left)
    }

    fn conjunction(&mut self) -> Option<Condition> {
        self.chain(Self::conjunction_chain)
    }

    fn conjunction_chain(&mut self) -> Option<Condition> {
        let start = self.at;
        let mut left = self.negation()?;
        while self.eat_word("and") || self.eat_word("&&") {
            let right = self.negation()?;
            self.linked(start)?;
            let kind = ConditionKind::And(Box::new(left), Box::new(right));
            left = Condition { kind, span: self.since(start) };
        }
        Some(left)
    }

    fn negation(&mut self) -> Option<Condition> {
        let start = self.at;
        if self.word() == "not" && self.word_at(1) != "is" {
            self.bump();
            let inner = self.nested(Self::negation)?;
            let kind = ConditionKind::Not(Box::new(inner));
            return Some(Condition { kind, span: self.since(start) });
        }
        if self.is_mark('(') && self.parenthesised_condition() {
            self.bump();
            let inner = self.condition()?;
            self.expect_mark(')')?;
            return Some(inner);
        }
        self.comparison()
    }

    /// Whether the parenthesis that opens here holds a condition rather than a value.
    fn parenthesised_condition(&self) -> bool {
        let mut depth = 0_u32;
        for ahead in 0.. {
            match self.peek_at(ahead).kind {
                TokenKind::Mark('(') => depth += 1,
                TokenKind::Mark(')') => depth = depth.saturating_sub(1),
                TokenKind::Mark('<' | '>' | '=') | TokenKind::AtMost | TokenKind::AtLeast
                    if depth == 1 =>
                {
                    return true;
                }
                TokenKind::Word if depth == 1 && self.word_at(ahead) == "is" => return true,
                TokenKind::End | TokenKind::Mark('{' | '}') => return false,
                _ => {}
            }
            if depth == 0 {
                return false;
            }
        }
        false
    }

    fn comparison(&mut self) -> Option<Condition> {
        let start = self.at;
        let value = self.sum()?;
        if self.eat_word("is") {
            let not = self.eat_word("not");
            let patterns = self.patterns()?;
            let kind = ConditionKind::Is { value, patterns, not };
            return Some(Condition { kind, span: self.since(start) });
        }
        self.is_compared_twice();
        let operator = match self.peek().kind {
            TokenKind::Mark('=') => Comparison::Equal,
            TokenKind::Mark('<') => Comparison::Less,
            TokenKind::Mark('>') => Comparison::Greater,
            TokenKind::AtMost => Comparison::AtMost,
            TokenKind::AtLeast => Comparison::AtLeast,
            _ => {
                let span = value.span;
                self.error(&codes::NO_TRUTH, span, "a value alone is neither true nor false");
                self.help(
                    "ask with `is`, as in `x is present`, `x is \"a\" or \"b\"`, `x is 200..299`",
                );
                return None;
            }
        };
        self.bump();
        let right = self.sum()?;
        let kind = ConditionKind::Compare { operator, left: value, right };
        Some(Condition { kind, span: self.since(start) })
    }

    /// `PATTERN or PATTERN …`
    pub(super) fn patterns(&mut self) -> Option<Vec<Pattern>> {
        let mut patterns = vec![self.pattern()?];
        while self.word() == "or" && self.is_pattern_at(1) {
            self.bump();
            patterns.push(self.pattern()?);
        }
        Some(patterns)
    }

    fn is_pattern_at(&self, ahead: usize) -> bool {
        match self.peek_at(ahead).kind {
            TokenKind::Text | TokenKind::Hex => true,
            TokenKind::Number | TokenKind::Mark('-') => self.is_number_at(ahead),
            TokenKind::Word => {
                let next = self.peek_at(ahead + 1).kind;
                let operator = matches!(
                    next,
                    TokenKind::Mark('.' | '=' | '<' | '>' | '+' | '-' | '*' | '/' | '(')
                        | TokenKind::AtMost
                        | TokenKind::AtLeast
                );
                !operator
                    && !matches!(
                        self.word_at(ahead),
                        "not" | "item" | "decimal" | "size" | "first" | "hex"
                    )
                    && !matches!(
                        self.word_at(ahead + 1),
                        "is" | "after" | "before" | "past" | "mod"
                    )
            }
            _ => false,
        }
    }

    fn pattern(&mut self) -> Option<Pattern> {
        let start = self.at;
        let kind = match self.peek().kind {
            _ if self.is_number_at(0) => {
                let low = self.signed_number("a number")?.value;
                let mut high = low;
                if self.peek().kind == TokenKind::Range {
                    self.bump();
                    high = self.signed_number("the greatest value")?.value;
                }
                if high < low {
                    let span = self.since(start);
                    self.error(&codes::EMPTY_RANGE, span, format!("no number is in {low}..{high}"));
                    return None;
                }
                PatternKind::Range(low, high)
            }
            TokenKind::Text | TokenKind::Hex => {
                PatternKind::Octets(self.plain_text("a text")?.value)
            }
            TokenKind::Word => match self.word() {
                "present" => self.stepped_pattern(PatternKind::Present),
                "absent" => self.stepped_pattern(PatternKind::Absent),
                "empty" => self.stepped_pattern(PatternKind::Empty),
                _ => PatternKind::Name(self.name("a constant")?),
            },
            _ => {
                self.unexpected(
                    "a pattern: a number, `200..299`, a text, `present`, `absent`, `empty`",
                );
                return None;
            }
        };
        Some(Pattern { kind, span: self.since(start) })
    }

    fn stepped_pattern(&mut self, kind: PatternKind) -> PatternKind {
        self.bump();
        kind
    }
}
