//! The messages of the example gateways, run by the machine that runs programs.

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::compile;
use gatewright_lang::ir::MessageId;
use gatewright_translate::{Layouts, Parser, View};
use std::sync::{Arc, OnceLock};

/// The examples that describe messages.
const EXAMPLES: [(&str, &str); 5] = [
    ("coap.gate", include_str!("../../../examples/gateways/coap.gate")),
    ("http.gate", include_str!("../../../examples/gateways/http.gate")),
    ("modbus.gate", include_str!("../../../examples/gateways/modbus.gate")),
    ("mqtt.gate", include_str!("../../../examples/gateways/mqtt.gate")),
    ("smtp.gate", include_str!("../../../examples/gateways/smtp.gate")),
];

static LAYOUTS: OnceLock<Option<Arc<Layouts>>> = OnceLock::new();

/// A message of each example, cut where the first octet says: the outcome is that of the whole.
pub fn layouts(octets: &[u8]) {
    let Some((cut, wire)) = octets.split_first() else { return };
    let layouts = LAYOUTS.get_or_init(laid_out).as_ref();
    assert!(layouts.is_some(), "the examples compile");
    let Some(layouts) = layouts else { return };
    let cut = usize::from(*cut).min(wire.len());
    for message in 0..layouts.program().messages.len() {
        let message = MessageId::new(message);
        assert_eq!(read(layouts, message, wire, cut), read(layouts, message, wire, 0));
    }
}

fn laid_out() -> Option<Arc<Layouts>> {
    let uses = EXAMPLES.map(|(name, _)| format!("use \"{name}\"\n")).concat();
    let mut sources = Sources::of("all.gate", uses + "gateway all { }\n");
    let load = |_: &str, wanted: &str| {
        let found = EXAMPLES.iter().find(|(name, _)| *name == wanted)?;
        Some((found.0.to_owned(), found.1.to_owned()))
    };
    let program = compile(&mut sources, SourceId::default(), load).program.map(Arc::new)?;
    Some(Arc::new(Layouts::of(&program)))
}

/// The view, the stream and the octets used; `None` if the message is malformed or only written.
fn read(
    layouts: &Arc<Layouts>,
    message: MessageId,
    wire: &[u8],
    cut: usize,
) -> Option<(View, Vec<u8>, usize)> {
    let mut parser = Parser::new(Arc::clone(layouts), message).ok()?;
    let mut stream = Vec::new();
    let used = parser.read(wire.get(..cut)?, cut == wire.len(), &mut stream).ok()?.consumed;
    let more = parser.read(wire.get(used..)?, true, &mut stream).ok()?;
    assert!(more.complete, "what is not malformed is complete at its end");
    Some((parser.into_view(), stream, used + more.consumed))
}
