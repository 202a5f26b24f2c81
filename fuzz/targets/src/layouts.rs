//! The messages of the example gateways, run by the machine that runs programs.

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::compile;
use gatewright_lang::ir::{MessageId, Program};
use gatewright_translate::{Parser, View};
use std::sync::{Arc, OnceLock};

/// The examples that describe messages.
const EXAMPLES: [(&str, &str); 5] = [
    ("coap.gate", include_str!("../../../examples/gateways/coap.gate")),
    ("http.gate", include_str!("../../../examples/gateways/http.gate")),
    ("modbus.gate", include_str!("../../../examples/gateways/modbus.gate")),
    ("mqtt.gate", include_str!("../../../examples/gateways/mqtt.gate")),
    ("smtp.gate", include_str!("../../../examples/gateways/smtp.gate")),
];

static PROGRAM: OnceLock<Option<Arc<Program>>> = OnceLock::new();

/// A message of each example, cut where the first octet says: the outcome is that of the whole.
pub fn layouts(octets: &[u8]) {
    let Some((cut, wire)) = octets.split_first() else { return };
    let program = PROGRAM.get_or_init(program).as_ref();
    assert!(program.is_some(), "the examples compile");
    let Some(program) = program else { return };
    let cut = usize::from(*cut).min(wire.len());
    for message in 0..program.messages.len() {
        let message = MessageId::new(message);
        assert_eq!(read(program, message, wire, cut), read(program, message, wire, 0));
    }
}

fn program() -> Option<Arc<Program>> {
    let uses = EXAMPLES.map(|(name, _)| format!("use \"{name}\"\n")).concat();
    let mut sources = Sources::of("all.gate", uses + "gateway all { }\n");
    let load = |_: &str, wanted: &str| {
        let found = EXAMPLES.iter().find(|(name, _)| *name == wanted)?;
        Some((found.0.to_owned(), found.1.to_owned()))
    };
    compile(&mut sources, SourceId::default(), load).program.map(Arc::new)
}

/// The view, the stream and the octets used; `None` if the message is malformed or only written.
fn read(
    program: &Arc<Program>,
    message: MessageId,
    wire: &[u8],
    cut: usize,
) -> Option<(View, Vec<u8>, usize)> {
    let mut parser = Parser::new(Arc::clone(program), message).ok()?;
    let mut stream = Vec::new();
    let used = parser.read(wire.get(..cut)?, cut == wire.len(), &mut stream).ok()?.consumed;
    let more = parser.read(wire.get(used..)?, true, &mut stream).ok()?;
    assert!(more.complete, "what is not malformed is complete at its end");
    Some((parser.into_view(), stream, used + more.consumed))
}
