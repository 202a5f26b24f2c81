//! Combines drawn fields and annotations into a valid [`Layout`].

use crate::{
    annotation::{Annotation, FieldName, Says},
    art::Drawn,
    codes,
    layout::{Field, FieldKind, FieldRole, Layout, NUMBER_BITS_MAX, Variable},
    names::{self, Naming},
};
use gatewright_diagnostic::{Diagnostic, Span, nearest};
use std::collections::HashSet;

/// Maximum number of fields of one header.
const FIELDS_MAX: usize = 512;

/// Maximum octets of the fixed part: an IP packet holds no more.
const OCTETS_MAX: u32 = 65_535;

/// Maximum bits of a constant field: every language has such numbers.
const CONSTANT_BITS_MAX: u32 = 64;

/// Maximum bits of a field from which a length is computed.
const LENGTH_BITS_MAX: u32 = 32;

/// A drawn field that has no position yet.
#[derive(Clone, Debug)]
pub(crate) struct UnplacedField {
    pub(crate) naming: Naming,
    pub(crate) width: u32,
    pub(crate) says: Option<Says>,
    pub(crate) span: Span,
}

/// The parts of a drawing, with continued parts joined and adjacent constant bits merged.
pub(crate) fn parts(drawn: &[Drawn]) -> Result<Vec<UnplacedField>, Diagnostic> {
    let mut parts: Vec<UnplacedField> = Vec::new();
    for drawn in drawn {
        let mut naming = names::read(drawn);
        naming.variable |= drawn.variable;
        let mut width = drawn.width;
        if let Some(octets) = naming.bracketed.filter(|_| !naming.variable) {
            let bits = octets.saturating_mul(8);
            if drawn.full_row {
                width = bits;
            } else if bits != width && octets != width {
                let message = format!("`({octets})` stands in a field of {width} bits");
                return Err(Diagnostic::error(&codes::WRONG_WIDTH, drawn.span, message)
                    .help("a number in brackets is the width in octets"));
            }
        }
        // `|  Group Identifier  |` at the end of one row and again at the start of the next.
        let repeated = |last: &Naming| {
            let named = !naming.name.is_empty() && naming.name == last.name;
            let plain = naming.constant.is_none() && last.constant.is_none();
            drawn.starts_row && named && plain && !names::is_reserved(&last.name)
        };
        let constant_only = |naming: &Naming| naming.name.is_empty() && !naming.variable;
        match parts.last_mut() {
            Some(last) if naming.continued || repeated(&last.naming) && !naming.variable => {
                last.width = last.width.saturating_add(width);
            }
            // `...` in one row and in the next: the same open part.
            Some(last) if last.naming.variable && naming.variable && naming.name.is_empty() => {}
            Some(UnplacedField { naming: last, width: bits, .. })
                if constant_only(&naming)
                    && constant_only(last)
                    && bits.saturating_add(width) <= 128 =>
            {
                let (high, low) = (last.constant.unwrap_or(0), naming.constant.unwrap_or(0));
                if last.constant.is_none() || naming.constant.is_none() {
                    return Err(no_name(drawn.span));
                }
                last.constant = Some(high.checked_shl(width).unwrap_or(0) | low);
                *bits += width;
            }
            _ => parts.push(UnplacedField { naming, width, says: None, span: drawn.span }),
        }
    }
    name_patterns(&mut parts)?;
    // RFC 791 draws `|  Options  |  Padding  |`: an example of a length that varies.
    let padded = parts.iter().zip(parts.iter().skip(1)).position(|(options, padding)| {
        options.naming.name == "options" && padding.naming.name == "padding"
    });
    if let Some(options) = padded.and_then(|at| parts.get_mut(at)) {
        options.naming.variable = true;
    }
    Ok(parts)
}

fn no_name(span: Span) -> Diagnostic {
    Diagnostic::error(&codes::NO_NAME, span, "nothing names this field")
        .help("write its name, `Reserved`, or its constant bits into it")
}

/// Names constant bits without a name `pattern`, and open text without one `data`.
fn name_patterns(parts: &mut [UnplacedField]) -> Result<(), Diagnostic> {
    let mut patterns = 0;
    for part in parts {
        if !part.naming.name.is_empty() {
            continue;
        }
        part.naming.name = if part.naming.variable {
            "data".to_owned()
        } else if part.naming.constant.is_some() {
            patterns += 1;
            if patterns == 1 { "pattern".to_owned() } else { format!("pattern_{patterns}") }
        } else {
            return Err(no_name(part.span));
        };
    }
    Ok(())
}

/// Annotations beside a document of several diagrams: each holds for those that have its field.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    annotations: Vec<Annotation>,
    used: Vec<bool>,
}

impl Beside {
    pub(crate) fn of(annotations: Vec<Annotation>) -> Self {
        let used = vec![false; annotations.len()];
        Self { annotations, used }
    }

    /// The annotations that apply to one of `parts`, by its own name or a given one.
    pub(crate) fn fitting(&mut self, parts: &[UnplacedField]) -> Vec<Annotation> {
        let mut names: Vec<String> = parts.iter().map(|part| part.naming.name.clone()).collect();
        let mut fitting = Vec::new();
        for (annotation, used) in self.annotations.iter().zip(&mut self.used) {
            let fits = match annotation {
                Annotation::Trailer => true,
                Annotation::Field { target: FieldName::Name(name), .. } => names.contains(name),
                Annotation::Field { target: FieldName::Written(written), .. } => {
                    parts.iter().any(|part| part.naming.written == *written)
                }
            };
            if fits {
                *used = true;
                fitting.push(annotation.clone());
                if let Annotation::Field { rename: Some(name), .. } = annotation {
                    names.push(name.clone());
                }
            }
        }
        fitting
    }

    /// A finding for each annotation whose field is in no diagram.
    pub(crate) fn unused(&self) -> impl Iterator<Item = Diagnostic> {
        let unused = self.annotations.iter().zip(&self.used).filter(|(_, used)| !**used);
        unused.filter_map(|(annotation, _)| match annotation {
            Annotation::Field {
                target: FieldName::Name(name) | FieldName::Written(name),
                span,
                ..
            } => {
                let message = format!("no diagram that was read has a field `{name}`");
                Some(Diagnostic::error(&codes::UNKNOWN_FIELD, *span, message))
            }
            Annotation::Trailer => None,
        })
    }
}

/// Places the parts as the annotations say.
pub(crate) fn layout(
    name: &str,
    mut parts: Vec<UnplacedField>,
    annotations: Vec<Annotation>,
) -> Result<Layout, Vec<Diagnostic>> {
    let mut findings = Vec::new();
    let mut layout =
        Layout { name: name.to_owned(), trailer: false, fields: Vec::new(), variable: Vec::new() };
    for annotation in annotations {
        match annotation {
            Annotation::Trailer => layout.trailer = true,
            Annotation::Field { target, rename, says, span } => {
                if let Err(finding) = annotate(&mut parts, &target, rename, says, span) {
                    findings.push(finding);
                }
            }
        }
    }
    for part in &parts {
        findings.extend(place(&mut layout, part));
    }
    if findings.is_empty() {
        findings.extend(whole(&layout, &parts));
    }
    if findings.is_empty() { Ok(layout) } else { Err(findings) }
}

fn annotate(
    parts: &mut [UnplacedField],
    target: &FieldName,
    rename: Option<String>,
    says: Option<Says>,
    span: Span,
) -> Result<(), Diagnostic> {
    let names: Vec<String> = parts.iter().map(|part| part.naming.name.clone()).collect();
    let part = parts.iter_mut().find(|part| match target {
        FieldName::Name(name) => part.naming.name == *name,
        FieldName::Written(written) => part.naming.written == *written,
    });
    let Some(part) = part else {
        let (FieldName::Name(name) | FieldName::Written(name)) = target;
        let message = format!("the diagram has no field `{name}`");
        let unknown = Diagnostic::error(&codes::UNKNOWN_FIELD, span, message);
        let near = nearest(&names::identifier(name), names.iter().map(String::as_str));
        return Err(match near {
            Some(near) => unknown.help(format!("did you mean `{near}`?")),
            None => unknown.help(format!("its fields are {}", names.join(", "))),
        });
    };
    if let Some(name) = rename {
        part.naming.name = name;
    }
    if says.is_some() {
        part.says = says;
    }
    Ok(())
}

/// Places one part after the others; returns a finding if it does not fit there.
fn place(layout: &mut Layout, part: &UnplacedField) -> Option<Diagnostic> {
    let name = part.naming.name.clone();
    let behind_rest = layout.variable.last().is_some_and(|last| last.length.is_none());
    match &part.says {
        Some(Says::Length(length)) => {
            layout.variable.push(Variable { name, length: Some(length.clone()) });
            return None;
        }
        Some(Says::Rest) => {
            layout.variable.push(Variable { name, length: None });
            return None;
        }
        _ if part.naming.variable => {
            layout.variable.push(Variable { name, length: None });
            return None;
        }
        // `|   Options   |  Padding  |` (RFC 791): the length counts the padding in.
        _ if !layout.variable.is_empty() && name == "padding" => return None,
        _ if !layout.variable.is_empty() => {
            let before = layout.variable.last().map_or("", |last| last.name.as_str());
            let message = format!("`{name}` stands behind `{before}`, whose length varies");
            let help =
                if behind_rest { "give the part before it a length" } else { "add it to the rest" };
            return Some(
                Diagnostic::error(&codes::AFTER_VARIABLE, part.span, message)
                    .help(format!("{help}, or write `{name}: rest`")),
            );
        }
        _ => {}
    }
    if layout.fields.len() >= FIELDS_MAX || part.width > OCTETS_MAX * 8 - layout.bits() {
        let message = format!("more than {FIELDS_MAX} fields or {OCTETS_MAX} octets");
        return Some(Diagnostic::error(&codes::TOO_LARGE, part.span, message));
    }
    let field = field(part, name, layout.bits());
    let misfit = misfit(&field);
    let clash = (layout.fields.iter()).any(|other| {
        other.name == field.name
            && field.role != FieldRole::Reserved
            && other.role != FieldRole::Reserved
    });
    layout.fields.push(field);
    let finding = if let Some(message) = misfit {
        Diagnostic::error(&codes::WRONG_WIDTH, part.span, message)
    } else if clash {
        let message = format!("a second field called `{}`", part.naming.name);
        Diagnostic::error(&codes::SAME_NAME, part.span, message)
            .help("rename one by `where \"NAME AS DRAWN\" as other_name`")
    } else {
        return None;
    };
    Some(finding)
}

fn field(part: &UnplacedField, name: String, offset: u32) -> Field {
    let role = match (&part.says, part.naming.constant) {
        (Some(Says::Constant(value)), _) => FieldRole::Constant(*value),
        (Some(Says::Reserved), _) => FieldRole::Reserved,
        (Some(Says::Checksum), _) => FieldRole::Checksum,
        (None, Some(value)) => FieldRole::Constant(value),
        (None, None) if names::is_reserved(&name) => FieldRole::Reserved,
        _ => FieldRole::Value,
    };
    let kind = match &part.says {
        Some(Says::Octets) => FieldKind::Octets,
        Some(Says::Type(name)) => match name.as_str() {
            "Ipv4Addr" => FieldKind::Ipv4,
            "Ipv6Addr" => FieldKind::Ipv6,
            "MacAddress" => FieldKind::Mac,
            "number" => FieldKind::Number,
            _ => FieldKind::Newtype(name.clone()),
        },
        _ => natural_kind(offset, part.width, role),
    };
    Field { name, offset, width: part.width, role, kind }
}

/// Numbers as far as machines have them; octet-aligned fields of other widths are octets.
pub(crate) fn natural_kind(offset: u32, width: u32, role: FieldRole) -> FieldKind {
    let number =
        width <= 32 || width == 64 || width == 128 || matches!(role, FieldRole::Constant(_));
    let octets = offset.is_multiple_of(8) && width.is_multiple_of(8);
    if !number && octets { FieldKind::Octets } else { FieldKind::Number }
}

/// The error in a field's width, position or constant.
fn misfit(field: &Field) -> Option<String> {
    let Field { name, offset, width, role, kind } = field;
    let octets = offset % 8 == 0 && width % 8 == 0;
    let needs = |bits: u32, what: &str| {
        (*width != bits || !octets).then(|| {
            format!("`{name}` has {width} bits at bit {offset}; {what} has {bits} on whole octets")
        })
    };
    if *width == 0 {
        return Some(format!("`{name}` has no bits"));
    }
    if matches!(role, FieldRole::Constant(_)) && *width > CONSTANT_BITS_MAX {
        return Some(format!(
            "the constant `{name}` has {width} bits, {CONSTANT_BITS_MAX} at most"
        ));
    }
    if let FieldRole::Constant(value) = role
        && *width < NUMBER_BITS_MAX
        && value >> width != 0
    {
        return Some(format!("the constant {value} does not fit the {width} bits of `{name}`"));
    }
    if *role == FieldRole::Checksum && (*width != 16 || offset % 16 != 0) {
        return Some(format!(
            "`{name}` has {width} bits; the Internet checksum has 16 on whole words"
        ));
    }
    match kind {
        FieldKind::Ipv4 => needs(32, "an IPv4 address"),
        FieldKind::Ipv6 => needs(128, "an IPv6 address"),
        FieldKind::Mac => needs(48, "a MAC address"),
        FieldKind::Octets => {
            (!octets).then(|| format!("`{name}` does not begin and end at octets"))
        }
        FieldKind::Number | FieldKind::Newtype(_) if *role == FieldRole::Reserved => None,
        FieldKind::Number | FieldKind::Newtype(_) => {
            let touched = (offset % 8 + width).div_ceil(8) * 8;
            (touched > NUMBER_BITS_MAX)
                .then(|| format!("`{name}` of {width} bits is more than one number holds"))
        }
    }
}

/// The error in the header as a whole.
fn whole(layout: &Layout, parts: &[UnplacedField]) -> Option<Diagnostic> {
    let span = match (parts.first(), parts.last()) {
        (Some(first), Some(last)) => first.span.to(last.span),
        _ => Span::default(),
    };
    let last_fixed =
        parts.get(layout.fields.len().saturating_sub(1)).map_or(span, |part| part.span);
    if layout.fields.is_empty() {
        let message = "the header has no fixed fields";
        return Some(Diagnostic::error(&codes::NO_DIAGRAM, span, message));
    }
    if !layout.bits().is_multiple_of(8) {
        let bits = layout.bits();
        let message =
            format!("the fixed fields have {bits} bits, {} short of an octet", 8 - bits % 8);
        return Some(Diagnostic::error(&codes::NOT_OCTETS, last_fixed, message));
    }
    let mut seen = HashSet::new();
    for variable in &layout.variable {
        let span = (parts.iter().find(|part| part.naming.name == variable.name))
            .map_or(span, |part| part.span);
        let taken =
            layout.fields.iter().any(|f| f.name == variable.name && f.role != FieldRole::Reserved);
        if taken || !seen.insert(&variable.name) {
            let message = format!("a second field called `{}`", variable.name);
            return Some(Diagnostic::error(&codes::SAME_NAME, span, message));
        }
        for name in variable.length.iter().flat_map(|length| length.fields()) {
            let field = layout.fields.iter().find(|field| field.name == name);
            let Some(field) = field.filter(|field| field.role != FieldRole::Reserved) else {
                let message = format!("the length of `{}` needs a field `{name}`", variable.name);
                return Some(Diagnostic::error(&codes::UNKNOWN_FIELD, span, message));
            };
            let number = matches!(field.kind, FieldKind::Number | FieldKind::Newtype(_));
            if !number || field.width > LENGTH_BITS_MAX || field.width == 1 {
                let message = format!("`{name}` is not a number of 2 to 32 bits: no length");
                return Some(Diagnostic::error(&codes::WRONG_WIDTH, span, message));
            }
        }
    }
    None
}
