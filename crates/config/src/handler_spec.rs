//! A handler and its parameters, as a command specifies them.
//!
//! Handlers have one vocabulary: the keys of `[[attach]]`. A command writes them as TOML of its
//! own, which the reader of descriptions reads. So a handler has the same limits, defaults and
//! findings in a description and in a command.

use crate::messages::{self, AttachMessages};
use crate::model::Attach;
use crate::sections;
use crate::shape::{self, Findings};
use crate::view::View;
use crate::{codes, rules, tables};
use gatewright_diagnostic::{Diagnostic, SourceId, has_errors};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::str::FromStr;
use toml::de::DeTable;

/// A handler to attach, with the keys of `[[attach]]`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct HandlerSpec {
    /// `count`, `capture`, `drop`, `filter`, `mirror` or `rate-limit`.
    pub handler: String,
    /// The position: `ether:ipv4`, `gateway:NAME/HANDLER`.
    pub at: String,
    /// `receive` or `transmit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side: Option<String>,
    /// `before`, `instead`, `after` or `tap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Restricts it to packets of this link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// `rate-limit`: packets per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// `rate-limit`: size of a burst after a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// `mirror`: the link that sends the copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// `capture`: the pcapng file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// `filter`: `accept` or `drop`, for packets that no rule matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// `drop`: conditions on packets or messages.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub matching: Option<MatchSpec>,
    /// `filter`: the rules, of which the first that matches decides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleSpec>,
}

/// A rule of a filter, with the keys of `rules`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
// Conditions have keys of their own, so unknown ones are found when the rule is read.
#[serde(default)]
pub struct RuleSpec {
    /// `accept` or `drop`.
    pub verdict: String,
    /// Conditions: `source`, `not_protocol`, … with their values.
    #[serde(flatten)]
    pub conditions: BTreeMap<String, Vec<String>>,
}

impl FromStr for RuleSpec {
    type Err = String;

    /// Parses `VERDICT KEY=VALUE,… …`, such as `drop protocol=tcp destination_port=23,2323`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let verdict = words.next().ok_or("a rule begins with accept or drop")?.to_owned();
        let condition = |word: &str| {
            let (key, values) = word
                .split_once('=')
                .ok_or_else(|| format!("{word}: a condition is KEY=VALUE or KEY=VALUE,VALUE"))?;
            Ok((key.to_owned(), values.split(',').map(str::to_owned).collect()))
        };
        let conditions = words.map(condition).collect::<Result<_, String>>()?;
        Ok(Self { verdict, conditions })
    }
}

/// Conditions on packets or messages, with the keys of `match`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct MatchSpec {
    /// Source network, `ADDRESS/LENGTH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Destination network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// IP protocol, by name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Destination port of UDP or TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// For messages: required fields, `NAME=VALUE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

/// A handler with its position, by the kind of position.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HandlerPlacement {
    /// At a position of the packet graph.
    Packets(Attach),
    /// At the messages of a gateway program.
    Messages(AttachMessages),
}

impl HandlerSpec {
    /// Reads the handler, for a gateway with these links.
    ///
    /// # Errors
    ///
    /// Every finding that refuses it, as for a description; their positions refer to
    /// [`Self::text`].
    pub fn read(&self, links: &[String]) -> Result<HandlerPlacement, Vec<Diagnostic>> {
        self.read_with_warnings(links).map(|(placement, _)| placement)
    }

    /// As [`Self::read`], and the findings that warn of what is accepted.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn read_with_warnings(
        &self,
        links: &[String],
    ) -> Result<(HandlerPlacement, Vec<Diagnostic>), Vec<Diagnostic>> {
        let (text, source) = (self.text(), SourceId::default());
        let mut findings = Findings { source, list: Vec::new() };
        let (document, errors) = DeTable::parse_recoverable(&text);
        for error in errors {
            let range = error.span().unwrap_or(0..0);
            let finding = Diagnostic::error(&codes::SYNTAX, findings.span(range), error.message());
            findings.add(finding);
        }
        shape::check_table(document.get_ref(), 0..0, &tables::ATTACH, &mut findings);
        let table = View::new(document.get_ref(), source, 0..0);
        rules::attachments::check_table(table, &mut findings);
        let attachment = if messages::is_meant(table) {
            sections::attach_messages(table).map(HandlerPlacement::Messages)
        } else {
            sections::attach(table)
                .inspect(|attach| {
                    rules::attachments::check_one(attach, table, links, &mut findings);
                })
                .map(HandlerPlacement::Packets)
        };
        match attachment {
            Some(attachment) if !has_errors(&findings.list) => Ok((attachment, findings.list)),
            _ => Err(findings.list),
        }
    }

    /// The keys and values as TOML.
    pub fn text(&self) -> String {
        // Texts, numbers and lists of texts can all be written.
        toml::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use gatewright_diagnostic::Severity;
    use proptest::prelude::*;

    /// A valid word, or an invalid one.
    fn word(known: &'static [&'static str]) -> impl Strategy<Value = Option<String>> {
        let fitting = prop::sample::select(known).prop_map(str::to_owned);
        prop_oneof![
            2 => Just(None),
            6 => fitting.prop_map(Some),
            1 => any::<String>().prop_map(Some),
        ]
    }

    fn matching() -> impl Strategy<Value = Option<MatchSpec>> {
        let fields = prop::collection::vec(
            prop::sample::select(&["length=5", "method=GET", "no value"][..])
                .prop_map(str::to_owned),
            0..3,
        );
        let networks = &["192.0.2.0/24", "2001:db8::/32", "192.0.2.1/24", "nowhere"];
        let matching = (
            word(networks),
            word(networks),
            word(&["udp", "tcp", "icmp", "17", "300"]),
            prop::option::of(any::<u16>()),
            fields,
        );
        prop::option::of(matching.prop_map(|(source, destination, protocol, port, fields)| {
            MatchSpec { source, destination, protocol, port, fields }
        }))
    }

    fn rules() -> impl Strategy<Value = Vec<RuleSpec>> {
        let rule = prop::sample::select(
            &[
                "accept protocol=udp destination_port=5683,1024-2047",
                "drop not_source=192.0.2.0/24,2001:db8::/32 protocol=tcp,6",
                "drop source=2001:db8::/32",
                "accept source=192.0.2.0/24 not_source=192.0.2.0/28",
                "accept source_port=5-4",
                "reject",
                "drop colour=red",
            ][..],
        );
        prop::collection::vec(rule.prop_map(|text| text.parse().unwrap()), 0..3)
    }

    prop_compose! {
        fn spec()(
            handler in word(tables::HANDLERS),
            at in word(&["ether:ipv4", "frame", "udp:5683", "gateway:desk/post", "gateway:", "tcp:80"]),
            side in word(tables::SIDES),
            place in word(tables::PLACES),
            link in word(&["lan", "wan", "dmz"]),
            to in word(&["lan", "wan", "dmz"]),
            file in word(&["a.pcapng"]),
            rate in prop::option::of(prop_oneof![0..200_u32, any::<u32>()]),
            burst in prop::option::of(prop_oneof![0..200_u32, any::<u32>()]),
            matching in matching(),
            default in word(tables::VERDICTS),
            rules in rules(),
        ) -> HandlerSpec {
            let [handler, at] = [handler, at].map(Option::unwrap_or_default);
            HandlerSpec {
                handler, at, side, place, link, rate, burst, to, file, default, matching, rules,
            }
        }
    }

    proptest! {
        /// Over all parameters, a description and a command either both accept a handler, with the
        /// same result, or not.
        #[test]
        fn a_described_handler_and_an_attached_one_are_the_same(spec in spec()) {
            let links = ["lan".to_owned(), "wan".to_owned()];
            let text = spec.text()
                .replace("[match]", "[attach.match]")
                .replace("[[rules]]", "[[attach.rules]]");
            let links_text = "[link.lan]\n[link.wan]\n";
            let described = parse(SourceId::default(), &format!("{links_text}[[attach]]\n{text}"));
            let told = |findings: &[Diagnostic]| {
                let mut told: Vec<_> = findings
                    .iter()
                    .filter(|finding| finding.severity == Severity::Error)
                    .map(|finding| (finding.code.number, finding.message.clone()))
                    .collect();
                told.sort();
                told
            };
            match spec.read(&links) {
                Err(findings) => {
                    prop_assert!(described.config.is_none(), "{text}");
                    prop_assert_eq!(told(&findings), told(&described.diagnostics), "{}", text);
                }
                Ok(attached) => {
                    let config = described.config;
                    prop_assert!(config.is_some(), "{}: {:?}", text, described.diagnostics);
                    let config = config.unwrap();
                    let packets = config.attachments.into_iter().map(HandlerPlacement::Packets);
                    let messages = config.message_attachments.into_iter().map(HandlerPlacement::Messages);
                    let [described] = packets.chain(messages).collect::<Vec<_>>().try_into().unwrap();
                    prop_assert_eq!(without_places(&described), without_places(&attached));
                }
            }
        }
    }

    /// The control socket carries rules as JSON.
    #[test]
    fn rules_are_the_same_behind_the_control_socket() {
        let rule: RuleSpec = "drop protocol=tcp destination_port=23,2323".parse().unwrap();
        let text = serde_json::to_string(&rule).unwrap();
        assert_eq!(serde_json::from_str::<RuleSpec>(&text).unwrap(), rule);
    }

    /// The same without positions in a text.
    fn without_places(placement: &HandlerPlacement) -> String {
        let text = format!("{placement:?}");
        let mut pieces = text.split("span: Span {");
        let first = pieces.next().unwrap_or_default().to_owned();
        pieces.fold(first, |whole, piece| whole + piece.split_once('}').map_or("", |it| it.1))
    }

    #[test]
    fn spare_links_are_not_named() {
        let spec = HandlerSpec {
            handler: "count".to_owned(),
            at: "ip:tcp".to_owned(),
            link: Some("v99".to_owned()),
            ..HandlerSpec::default()
        };
        let links = ["left", "right", "", ""].map(str::to_owned);
        let findings = spec.read(&links).unwrap_err();
        assert_eq!(findings.first().unwrap().help.as_deref(), Some("there are: left, right"));
    }
}
