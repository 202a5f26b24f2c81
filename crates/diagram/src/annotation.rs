//! Annotations after the word `where`: constants, types, lengths and names that art cannot express.

use crate::{
    codes,
    expression::{Expression, Operator},
    names::number,
};
use gatewright_diagnostic::{Diagnostic, SourceId, Span};

/// Maximum nesting of brackets in a length.
const DEPTH_MAX: usize = 16;

/// One item of the list.
#[derive(Clone, Debug)]
pub(crate) enum Annotation {
    /// The header is at the end of the packet.
    Trailer,
    /// An annotation of one field.
    Field { target: FieldName, rename: Option<String>, says: Option<Says>, span: Span },
}

/// The field of an annotation.
#[derive(Clone, Debug)]
pub(crate) enum FieldName {
    /// By its `snake_case` name.
    Name(String),
    /// As drawn.
    Written(String),
}

/// Content of a field's annotation.
#[derive(Clone, Debug)]
pub(crate) enum Says {
    /// `= 4`
    Constant(u128),
    /// `: reserved`
    Reserved,
    /// `: checksum`
    Checksum,
    /// `: octets`
    Octets,
    /// `: rest`
    Rest,
    /// `: [ihl * 4 - 20]`
    Length(Expression),
    /// `: Ipv4Addr`
    Type(String),
}

impl Says {
    /// The annotation for a word after `:`, or for a `type` in a field list.
    pub(crate) fn of(word: &str) -> Self {
        match word {
            "reserved" => Self::Reserved,
            "checksum" => Self::Checksum,
            "octets" => Self::Octets,
            "rest" => Self::Rest,
            name => Self::Type(name.to_owned()),
        }
    }
}

/// Finds the octet at which `where` begins, if it occurs.
pub(crate) fn find(text: &str) -> Option<usize> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        if trimmed.strip_prefix("where").is_some_and(|rest| rest.starts_with(char::is_whitespace)) {
            return Some(at + line.len() - trimmed.len());
        }
        at += line.len();
    }
    None
}

/// Reads the list with the word `where` before it; `start` is the position where `text` begins.
pub(crate) fn read(text: &str, start: Span) -> Result<Vec<Annotation>, Diagnostic> {
    let mut reader = AnnotationReader { tokens: tokens(text, start)?, at: 0 };
    reader.expect_word("where")?;
    reader.list()
}

/// Reads the list alone, as it is given beside a document.
pub(crate) fn read_beside(text: &str, source: SourceId) -> Result<Vec<Annotation>, Diagnostic> {
    AnnotationReader { tokens: tokens(text, Span::new(source, 0, 0))?, at: 0 }.list()
}

/// Reads a length alone, as a field list gives it.
pub(crate) fn length(text: &str, start: Span) -> Result<Expression, Diagnostic> {
    let mut reader = AnnotationReader { tokens: tokens(text, start)?, at: 0 };
    let length = reader.sum(0)?;
    if reader.is_at_end() { Ok(length) } else { Err(reader.unexpected("the end of the length")) }
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum AnnotationToken {
    Word(String),
    Quoted(String),
    Number(u128),
    Sign(char),
    End,
}

fn tokens(text: &str, start: Span) -> Result<Vec<(AnnotationToken, Span)>, Diagnostic> {
    let place =
        |from: usize, to: usize| Span::new(start.source, start.start + from, start.start + to);
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let at = text.len() - rest.len();
        let Some(first) = rest.chars().next() else { break };
        let length = if first == '"' {
            rest.get(1..).and_then(|rest| rest.find('"')).map_or(rest.len(), |length| length + 2)
        } else {
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '#';
            rest.find(|c| !word(c)).unwrap_or(rest.len()).max(first.len_utf8())
        };
        let (taken, after) = rest.split_at(length);
        let span = place(at, at + length);
        let token = if first == '"' {
            let words = taken.trim_matches('"').split_whitespace().collect::<Vec<_>>();
            AnnotationToken::Quoted(words.join(" "))
        } else if first.is_ascii_digit() {
            let Some(value) = number(taken) else {
                return Err(bad(span, format!("`{taken}` is not a number")));
            };
            AnnotationToken::Number(value)
        } else if first.is_ascii_alphabetic() || first == '_' {
            AnnotationToken::Word(taken.trim_start_matches("r#").to_owned())
        } else {
            AnnotationToken::Sign(first)
        };
        tokens.push((token, span));
        rest = after;
    }
    tokens.push((AnnotationToken::End, place(text.len(), text.len())));
    Ok(tokens)
}

fn bad(span: Span, message: impl Into<String>) -> Diagnostic {
    Diagnostic::error(&codes::BAD_ANNOTATION, span, message)
        .help("an example: `where version = 4, source: Ipv4Addr, options: [ihl * 4 - 20]`")
}

struct AnnotationReader {
    tokens: Vec<(AnnotationToken, Span)>,
    at: usize,
}

impl AnnotationReader {
    /// The token to read; the list always ends in [`AnnotationToken::End`], where reading stays.
    fn peek(&self) -> (&AnnotationToken, Span) {
        match self.tokens.get(self.at).or(self.tokens.last()) {
            Some((token, span)) => (token, *span),
            None => (&AnnotationToken::End, Span::default()),
        }
    }

    fn next(&mut self) -> (AnnotationToken, Span) {
        let (token, span) = self.peek();
        let next = (token.clone(), span);
        self.at += 1;
        next
    }

    fn is_at_end(&self) -> bool {
        *self.peek().0 == AnnotationToken::End
    }

    fn takes(&mut self, sign: char) -> bool {
        let takes = *self.peek().0 == AnnotationToken::Sign(sign);
        self.at += usize::from(takes);
        takes
    }

    fn unexpected(&self, wanted: &str) -> Diagnostic {
        let (token, span) = self.peek();
        let found = match token {
            AnnotationToken::Word(word) => format!("`{word}`"),
            AnnotationToken::Quoted(text) => format!("\"{text}\""),
            AnnotationToken::Number(number) => format!("`{number}`"),
            AnnotationToken::Sign(sign) => format!("`{sign}`"),
            AnnotationToken::End => "the end".to_owned(),
        };
        bad(span, format!("expected {wanted}, found {found}"))
    }

    fn expect_sign(&mut self, sign: char) -> Result<(), Diagnostic> {
        if self.takes(sign) { Ok(()) } else { Err(self.unexpected(&format!("`{sign}`"))) }
    }

    fn expect_word(&mut self, wanted: &str) -> Result<(), Diagnostic> {
        if self.word("a word")? == wanted {
            return Ok(());
        }
        self.at -= 1;
        Err(self.unexpected(&format!("`{wanted}`")))
    }

    fn word(&mut self, wanted: &str) -> Result<String, Diagnostic> {
        match self.peek().0.clone() {
            AnnotationToken::Word(word) => {
                self.at += 1;
                Ok(word)
            }
            _ => Err(self.unexpected(wanted)),
        }
    }

    fn list(mut self) -> Result<Vec<Annotation>, Diagnostic> {
        let mut annotations = Vec::new();
        while !self.is_at_end() {
            annotations.push(self.annotation()?);
            if !self.is_at_end() {
                self.expect_sign(',')?;
            }
        }
        Ok(annotations)
    }

    fn annotation(&mut self) -> Result<Annotation, Diagnostic> {
        let (_, start) = self.peek();
        let target = match self.peek().0.clone() {
            AnnotationToken::Quoted(written) => {
                self.at += 1;
                FieldName::Written(written)
            }
            _ => FieldName::Name(self.word("the name of a field")?),
        };
        if matches!(&target, FieldName::Name(name) if name == "trailer")
            && matches!(self.peek().0, AnnotationToken::End | AnnotationToken::Sign(','))
        {
            return Ok(Annotation::Trailer);
        }
        let rename = if *self.peek().0 == AnnotationToken::Word("as".to_owned()) {
            self.at += 1;
            Some(self.word("the new name")?)
        } else {
            None
        };
        let says = self.says()?;
        if rename.is_none() && says.is_none() {
            return Err(self.unexpected("`as`, `=` or `:`"));
        }
        Ok(Annotation::Field { target, rename, says, span: start })
    }

    fn says(&mut self) -> Result<Option<Says>, Diagnostic> {
        if self.takes('=') {
            return if let (AnnotationToken::Number(value), _) = self.next() {
                Ok(Some(Says::Constant(value)))
            } else {
                self.at -= 1;
                Err(self.unexpected("a number"))
            };
        }
        if !self.takes(':') {
            return Ok(None);
        }
        if self.takes('[') {
            let length = self.sum(0)?;
            self.expect_sign(']')?;
            return Ok(Some(Says::Length(length)));
        }
        Ok(Some(Says::of(&self.word("a type or `[length]`")?)))
    }

    fn sum(&mut self, depth: usize) -> Result<Expression, Diagnostic> {
        let mut left = self.product(depth)?;
        loop {
            let operator = match self.peek().0 {
                AnnotationToken::Sign('+') => Operator::Add,
                AnnotationToken::Sign('-') => Operator::Subtract,
                _ => return Ok(left),
            };
            self.at += 1;
            let right = self.product(depth)?;
            left = Expression::Binary(Box::new(left), operator, Box::new(right));
        }
    }

    fn product(&mut self, depth: usize) -> Result<Expression, Diagnostic> {
        let mut left = self.operand(depth)?;
        while self.takes('*') {
            let right = self.operand(depth)?;
            left = Expression::Binary(Box::new(left), Operator::Multiply, Box::new(right));
        }
        Ok(left)
    }

    fn operand(&mut self, depth: usize) -> Result<Expression, Diagnostic> {
        if depth > DEPTH_MAX {
            return Err(self.unexpected(&format!("at most {DEPTH_MAX} nested brackets")));
        }
        match self.next() {
            (AnnotationToken::Word(name), _) => Ok(Expression::Field(name)),
            (AnnotationToken::Number(value), span) => (u32::try_from(value)
                .map(Expression::Number))
            .map_err(|_| bad(span, format!("`{value}` is more octets than any packet has"))),
            (AnnotationToken::Sign('('), _) => {
                let inner = self.sum(depth + 1)?;
                self.expect_sign(')')?;
                Ok(inner)
            }
            _ => {
                self.at -= 1;
                Err(self.unexpected("a number or the name of a field"))
            }
        }
    }
}
