//! Settings that a description may contain and this version cannot run yet.

use gatewright_config::{Config, Device, codes};
use gatewright_diagnostic::{Diagnostic, Span};

/// All findings in `config` that [`Gateway`](crate::Gateway) would refuse as not in this version,
/// each at its place; none means that it can run.
pub fn not_in_this_version(config: &Config) -> Vec<Diagnostic> {
    let finding = |(span, what)| {
        Diagnostic::error(&codes::NOT_YET, span, format!("{what} is not in this version"))
    };
    asked(config).into_iter().map(finding).collect()
}

/// The settings that are not supported, in the order of the text.
pub(crate) fn asked(config: &Config) -> Vec<(Span, String)> {
    let mut asked: Vec<(Span, String)> = Vec::new();
    for link in &config.links {
        let name = &link.name.value;
        let runs = matches!(
            link.device,
            Device::Interface { .. } | Device::Tap { .. } | Device::Vlan { .. }
        );
        if !runs {
            asked.push((link.name.span, format!("the mode of link `{name}`")));
        }
    }
    asked.sort_by_key(|(span, _)| span.start);
    asked
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_config::{TEMPLATES, parse};
    use gatewright_diagnostic::SourceId;

    fn told(text: &str) -> Vec<String> {
        let config = parse(SourceId::default(), text).config.unwrap();
        not_in_this_version(&config).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn what_cannot_be_run_is_told_in_the_order_of_the_text() {
        let text = "[link.lan]\n[link.old]\nmode = \"pcapng\"\nfile = \"x\"\n\
                    [control]\nmetrics = \"127.0.0.1:9464\"\n[[program]]\nfile = \"x.gate\"\n\
                    [link.older]\nmode = \"pcapng\"\nfile = \"y\"\n";
        let ends = ["the mode of link `old`", "the mode of link `older`"];
        assert_eq!(told(text), ends.map(|what| format!("{what} is not in this version")));
    }

    #[test]
    fn every_template_can_be_run() {
        for template in TEMPLATES {
            assert_eq!(told(template.text), [""; 0], "{}", template.name);
        }
    }
}
