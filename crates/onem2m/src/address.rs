//! Target addresses (TS-0001 §9.3.1): absolute, SP-relative or CSE-relative, structured or
//! unstructured.

/// A parsed target address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Address<'text> {
    /// On this CSE: the path below it, structured (`cse-in/ae`) or an identifier (`cnt17/la`).
    Here(&'text str),
    /// On another CSE of this service provider.
    There {
        /// The CSE-ID with its leading slash (`/id-in`).
        cse: &'text str,
        /// The path below that CSE.
        path: &'text str,
    },
    /// At another service provider (`//provider/...`).
    Elsewhere,
}

impl<'text> Address<'text> {
    /// Parses `to` as seen from the CSE `cse` (with its slash) of provider `provider` (with its two
    /// slashes).
    pub fn parse(to: &'text str, cse: &str, provider: &str) -> Self {
        if to.starts_with("//") {
            return match to.strip_prefix(provider) {
                Some(rest) if rest.starts_with('/') => Self::sp_relative(rest, cse),
                _ => Self::Elsewhere,
            };
        }
        if to.starts_with('/') {
            return Self::sp_relative(to, cse);
        }
        Self::Here(to)
    }

    fn sp_relative(to: &'text str, own: &str) -> Self {
        let cse = cse_of(to);
        let path = to.strip_prefix(cse).unwrap_or_default();
        let path = path.strip_prefix('/').unwrap_or(path);
        if cse == own { Self::Here(path) } else { Self::There { cse, path } }
    }
}

/// The CSE of a remote entity, since a CSE can name any number of entities: `/id-mn` of
/// `/id-mn/Cx`.
pub(crate) fn node_of(from: &str) -> &str {
    let rest = from.strip_prefix('/').and_then(|rest| rest.split_once('/'));
    rest.and_then(|(_, entity)| from.strip_suffix(entity))
        .map_or(from, |node| node.trim_end_matches('/'))
}

/// The CSE-ID that an SP-relative identifier begins with: `/id-mn` of `/id-mn/Cx`.
pub(crate) fn cse_of(id: &str) -> &str {
    let end = id.get(1..).and_then(|rest| rest.find('/')).map_or(id.len(), |at| at + 1);
    id.get(..end).unwrap_or(id)
}

/// Whether `name` may name a resource: unreserved characters of URIs (RFC 3986 §2.3), no name
/// of a virtual resource, and not empty.
pub fn is_name(name: &str) -> bool {
    let unreserved = |octet: u8| octet.is_ascii_alphanumeric() || b"-._~".contains(&octet);
    !name.is_empty()
        && name.bytes().all(unreserved)
        && !matches!(name, "." | ".." | "-" | "la" | "ol" | "fopt" | "pcu")
}

/// Whether `id` may be an AE-ID stem (TS-0001 §7.2): `C` or `S`, and at least one character more.
pub fn is_ae_stem(id: &str) -> bool {
    id.len() > 1 && id.starts_with(['C', 'S']) && id.bytes().all(is_unreserved)
}

/// Whether `id` may be a CSE-ID without its `/` (TS-0001 §7.2). It is a step of addresses, and so
/// not one that they leave out (RFC 3986 §5.2.4).
pub fn is_cse_stem(id: &str) -> bool {
    !id.is_empty() && !matches!(id, "." | "..") && id.bytes().all(is_unreserved)
}

/// Whether a URI has this octet as itself (RFC 3986 §2.3).
fn is_unreserved(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"-._~".contains(&octet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_scopes() {
        let cases = [
            ("cse-in/ae", Address::Here("cse-in/ae")),
            ("/id-in/cse-in/ae", Address::Here("cse-in/ae")),
            ("/id-in", Address::Here("")),
            ("/id-mn/cnt1/la", Address::There { cse: "/id-mn", path: "cnt1/la" }),
            ("/id-mn", Address::There { cse: "/id-mn", path: "" }),
            ("//sp.example/id-in/x", Address::Here("x")),
            ("//sp.example/id-mn/x", Address::There { cse: "/id-mn", path: "x" }),
            ("//other/id-in/x", Address::Elsewhere),
            ("//sp.example.net/id-in/x", Address::Elsewhere),
            ("/", Address::There { cse: "/", path: "" }),
        ];
        for (to, expected) in cases {
            assert_eq!(Address::parse(to, "/id-in", "//sp.example"), expected, "{to}");
        }
    }

    #[test]
    fn names() {
        for good in ["a", "cnt_1", "A-b.c~d"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "a/b", "la", "ol", "fopt", "a b", "é", ".."] {
            assert!(!is_name(bad), "{bad}");
        }
        for (stem, entity, cse) in [
            ("q", false, true),
            ("C", false, true),
            ("Cx", true, true),
            ("S1", true, true),
            ("id-mn", false, true),
            ("", false, false),
            ("..", false, false),
            ("C/", false, false),
        ] {
            assert_eq!((is_ae_stem(stem), is_cse_stem(stem)), (entity, cse), "{stem}");
        }
    }
}
