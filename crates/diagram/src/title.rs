//! Converts titles of sections and figures to type names.

/// `3.1.  Internet Header Format` to `InternetHeader`.
pub(crate) fn type_name(title: &str) -> String {
    let plain = title.split(['(', ':', ';', ',']).next().unwrap_or_default();
    let mut words: Vec<&str> =
        plain.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    for noise in ["format", "message"] {
        if words.len() > 1 && words.last().is_some_and(|last| last.eq_ignore_ascii_case(noise)) {
            words.pop();
        }
    }
    let mut name = String::new();
    for word in words {
        let (first, rest) = word.split_at_checked(1).unwrap_or((word, ""));
        name.push_str(&first.to_ascii_uppercase());
        name.push_str(&rest.to_ascii_lowercase());
    }
    if name.starts_with(|c: char| c.is_ascii_uppercase()) { name } else { format!("Header{name}") }
}

/// Whether the section `number` with this title is the requested one, or is inside it.
pub(crate) fn is_in(wanted: &str, number: &str, title: &str) -> bool {
    let wanted = wanted.trim().trim_end_matches('.');
    let inside =
        number.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    (inside && !wanted.is_empty()) || title.eq_ignore_ascii_case(wanted)
}
