//! Reads a gateway's description: from TOML to a typed [`Config`], or to all its errors.
//!
//! This is the only crate that parses TOML. It opens no file: the caller passes the text, and gets
//! findings that point into it. It reports all findings at once: of the syntax, of single values,
//! and of values that do not fit together.
//!
//! ```
//! use gatewright_config::parse;
//! use gatewright_diagnostic::{SourceId, Sources};
//!
//! let sources = Sources::of("gateway.toml", "[link.lan]\naddresses = [\"192.0.2.1/24\"]\n");
//! let parsed = parse(SourceId::default(), sources.get(SourceId::default()).text());
//! assert_eq!(parsed.config.map(|config| config.links.len()), Some(1));
//! assert!(parsed.diagnostics.is_empty());
//! ```
#![forbid(unsafe_code)]

mod advice;
mod agents;
mod balance;
pub mod codes;
mod devices;
mod difference;
mod experiment;
mod filter;
mod form;
mod handler_spec;
mod home_assistant;
mod host;
mod listen;
mod located;
mod log;
mod mesh;
mod messages;
mod model;
mod position;
mod redact;
mod reload;
mod rules;
mod schema;
mod sections;
mod shape;
mod syntax;
mod tables;
mod templates;
mod values;
mod view;

pub use agents::{AgentAddress, AgentExperiment, AgentSession, parse_agent_experiment};
pub use balance::{Balance, BalancedFlow, BalancedRelay, ProxyTarget, TcpProxy};
pub use codes::CODES;
pub use difference::{KeyDifference, WrittenValues, differences, differences_of};
pub use experiment::{
    Arrivals, Centre, Experiment, LinkShape, NodeShape, RelayKind, Vary, parse_experiment,
};
pub use handler_spec::{HandlerPlacement, HandlerSpec, MatchSpec, RuleSpec};
pub use log::{Log, LogFormat, LogLevel};
pub use messages::{AttachMessages, MessageHandler, MessageMatch};
pub use model::{
    Advertise, Attach, Config, Control, Cse, CseAlarms, CseTls, Delivery, Device, DeviceMap,
    DeviceView, Devices, DevicesTls, Handler, HomeAssistant, HostPart, Link, Listen, Located,
    Match, Merge, Mesh, MeshProfile, MeshRouting, MeshTunnel, Mode, PeerBounds, PlaneMode, Program,
    Registrar, ReplayPace, Route, SegmentImpairment, Series, SilentAfter, StaticNeighbour,
    SystemIdField, UDP_CLIENTS_MAX, UdpGateway, VirtualTag, WORKERS_MAX, Web, WebTls,
};
pub use position::MessagePosition;
pub use redact::{RedactedDescription, redacted, without_values};
pub use reload::{fixed_keys, fixed_keys_of, is_fixed, place_of};
pub use schema::schema;
pub use templates::{TEMPLATES, Template};
pub use values::{DEVICE_KINDS, Prefix};

use gatewright_diagnostic::{Diagnostic, SourceId, has_errors};
use shape::Findings;
use toml::de::DeTable;
use view::View;

/// Maximum octets of a description; a longer one is refused unread.
pub const TEXT_LEN_MAX: usize = 1 << 20;

/// Result of reading a description.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The description, if no finding refuses it.
    pub config: Option<Config>,
    /// What could be read of a description that is refused, if it is TOML; tables with errors are not
    /// as their author meant them.
    pub draft: Option<Config>,
    /// The programs that it names, also if it is refused: what is wrong with their texts is so in
    /// any description.
    pub programs: Vec<Program>,
    /// All findings in the order of the text; warnings alone do not refuse a description.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads a whole description; `source` is its id in the caller's
/// [`Sources`](gatewright_diagnostic::Sources).
pub fn parse(source: SourceId, text: &str) -> Parsed {
    let mut findings = Findings { source, list: Vec::new() };
    if text.len() > TEXT_LEN_MAX {
        let message = format!("a description of more than {TEXT_LEN_MAX} octets");
        let finding = Diagnostic::error(&codes::TOO_MANY, findings.span(0..0), message);
        findings.add(finding.help("make it several gateways, or leave comments out"));
        return Parsed {
            config: None,
            draft: None,
            programs: Vec::new(),
            diagnostics: findings.list,
        };
    }
    let (document, errors) = DeTable::parse_recoverable(text);
    let broken: Vec<usize> = errors.iter().map(|error| line(text, start(error))).collect();
    shape::check_table(document.get_ref(), 0..0, &tables::ROOT, &mut findings);
    let root = View::new(document.get_ref(), source, 0..0);
    let mut config = sections::config(root);
    config.written = WrittenValues::of(document.get_ref());
    rules::virtual_links::derive(&mut config);
    host::derive(&mut config);
    if errors.is_empty() {
        rules::check(&mut config, root, &mut findings);
    }
    // What stands on a line that is not TOML was guessed by the parser: no findings about it.
    // Neither about what it could not take in, which may be all of a table.
    let follows = [&codes::UNKNOWN_TABLE, &codes::MISSING_KEY];
    findings.list.retain(|finding| {
        let guessed = broken.contains(&line(text, finding.primary.span.start));
        !guessed && (errors.is_empty() || !follows.contains(&finding.code))
    });
    syntax::add(&errors, text, document.get_ref(), &mut findings);
    findings.list.iter_mut().for_each(advice::add);
    findings.list.sort_by_key(|finding| (finding.primary.span.start, finding.code.number));
    let programs = config.programs.clone();
    let is_refused = has_errors(&findings.list);
    let (config, draft) = if is_refused { (None, Some(config)) } else { (Some(config), None) };
    let draft = draft.filter(|_| errors.is_empty());
    Parsed { config, draft, programs, diagnostics: findings.list }
}

fn start(error: &toml::de::Error) -> usize {
    error.span().map_or(0, |span| span.start)
}

/// Number of lines that end before `offset`.
fn line(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|&octet| octet == b'\n').count()
}
