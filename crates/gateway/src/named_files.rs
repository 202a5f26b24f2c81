//! Files that a description names, as `check` finds them: loaded as by a start, without one.

use crate::credentials_folder;
use gatewright_config::{Config, codes, place_of};
use gatewright_diagnostic::{Diagnostic, Source, SourceId, Span};
use gatewright_lsr::{MeshError, MeshPart};

/// Findings about the files of the mesh's keys and members that a start cannot use.
pub fn unusable_mesh_files(config: &Config, source: &Source) -> Vec<Diagnostic> {
    let refused = config.mesh.as_ref().and_then(|mesh| MeshPart::check_files(mesh).err());
    let refused = refused.map(|error| match error {
        MeshError::Keys { key, file, why } => {
            unusable_file_at(source, &format!("[mesh] {key}"), &format!("{file}: {why}"))
        }
        error => unusable_file_at(source, "[mesh]", &error.to_string()),
    });
    refused.into_iter().collect()
}

/// The finding about a file that the description in `source` names at `key`, as `[cse.tls] key`, and
/// that a start cannot use because of `why`.
pub fn unusable_file_at(source: &Source, key: &str, why: &str) -> Diagnostic {
    let span = place_of(SourceId::default(), source.text(), key);
    unusable_file(source, span, key, why)
}

/// As [`unusable_file_at`], for a key at `span`.
///
/// A credential that only the service manager hands over is a warning outside its service.
pub fn unusable_file(source: &Source, span: Span, key: &str, why: &str) -> Diagnostic {
    let message = format!("{key}: {why}");
    if credentials_folder().is_none() && is_credential(source.text(), span) {
        let help = "the service manager hands it over (`LoadCredential=`) while the service runs, and \
                    so it cannot be checked here: without one, the file `credentials/NAME` beside \
                    the description is loaded";
        return Diagnostic::warning(&codes::UNUSABLE_FILE, span, message).help(help);
    }
    let help = "the gateway does not start without it: put a file there that its user can read, or name \
                another; a relative path begins at the description's folder";
    Diagnostic::error(&codes::UNUSABLE_FILE, span, message).help(help)
}

/// Whether the value of the key at `span` is a credential.
fn is_credential(text: &str, span: Span) -> bool {
    let from = text.get(span.start..).unwrap_or_default();
    let behind = text.get(span.end..).unwrap_or_default();
    let end = behind.find(['\n', ',', '}', ']']).unwrap_or(behind.len());
    let value = from.get(..span.end.saturating_sub(span.start) + end).unwrap_or_default();
    value.contains("credential:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_known_by_its_own_value() {
        let text = "tls = { certificate = \"web.pem\", key = \"credential:web.key\" }\n\
                    key_file = \"credential:mesh\"\n# credential:none";
        let at = |word: &str| {
            let start = text.find(word).unwrap();
            let end = start + word.len();
            is_credential(text, Span { start, end, ..place_of(SourceId::default(), text, "") })
        };
        assert_eq!([at("certificate"), at("key"), at("key_file")], [false, true, true]);
    }
}
