//! Generates names that are valid in every generated language.

use std::collections::BTreeSet;

/// Keywords of C and Java, and names that the runtimes or the printers use.
const TAKEN: [&str; 91] = [
    "abstract",
    "escapes",
    "handlers",
    "roles",
    "session",
    "alignas",
    "alignof",
    "asm",
    "assert",
    "auto",
    "bool",
    "boolean",
    "break",
    "byte",
    "case",
    "catch",
    "char",
    "class",
    "const",
    "continue",
    "default",
    "do",
    "double",
    "else",
    "enum",
    "errno",
    "exports",
    "extends",
    "extern",
    "false",
    "final",
    "finally",
    "float",
    "for",
    "goto",
    "if",
    "implements",
    "import",
    "inline",
    "instanceof",
    "int",
    "interface",
    "linux",
    "long",
    "main",
    "module",
    "native",
    "new",
    "noreturn",
    "null",
    "operator",
    "package",
    "permits",
    "private",
    "protected",
    "public",
    "record",
    "register",
    "restrict",
    "return",
    "sealed",
    "short",
    "signed",
    "sizeof",
    "static",
    "stderr",
    "stdin",
    "stdout",
    "strictfp",
    "struct",
    "super",
    "switch",
    "synchronized",
    "this",
    "throw",
    "throws",
    "transient",
    "true",
    "try",
    "turn",
    "typedef",
    "union",
    "unix",
    "unsigned",
    "var",
    "view",
    "void",
    "volatile",
    "while",
    "with",
    "yield",
];

/// Assigns names, each once.
#[derive(Debug, Default)]
pub(crate) struct Names {
    given: BTreeSet<String>,
}

impl Names {
    /// A name like `wanted`, with letters, digits and `_` only.
    pub(crate) fn give(&mut self, wanted: &str) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        let mut name: String = wanted.chars().map(plain).collect();
        if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
            name.insert(0, 'n');
        }
        while TAKEN.contains(&name.as_str())
            || name.starts_with("gw_")
            || !self.given.insert(name.clone())
        {
            name.push('_');
        }
        name
    }
}
