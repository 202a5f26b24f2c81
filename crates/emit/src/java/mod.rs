//! Printer for Java 17.

mod gateway;
mod print;
mod text;

use crate::code::{Places, RecordType};
use crate::names::Names;
use crate::{SourceFile, Unwritable, walk};
use gatewright_lang::ir::{ColumnType, ExtendCase, Message, Program, Slot, SlotType};
use print::Printer;
use std::fmt::Write;
use text::{Texts, camel, class, comment, number, quoted};

/// A class of the runtime, by its path.
macro_rules! class_file {
    ($name:literal) => {
        (
            concat!("gatewright/runtime/", $name, ".java"),
            include_str!(concat!("../../../../runtime/java/gatewright/runtime/", $name, ".java")),
        )
    };
}

/// The runtime to compile the generated text with, file by file.
pub const RUNTIME: [(&str, &str); 73] = [
    class_file!("Answer"),
    class_file!("Answers"),
    class_file!("Bounds"),
    class_file!("Build"),
    class_file!("Cell"),
    class_file!("Check"),
    class_file!("Common"),
    class_file!("Conn"),
    class_file!("Connections"),
    class_file!("Convert"),
    class_file!("Count"),
    class_file!("Datagrams"),
    class_file!("Escape"),
    class_file!("Exchange"),
    class_file!("Exchanges"),
    class_file!("Field"),
    class_file!("Fold"),
    class_file!("Framing"),
    class_file!("Goal"),
    class_file!("Handled"),
    class_file!("Handler"),
    class_file!("Ids"),
    class_file!("Incoming"),
    class_file!("Key"),
    class_file!("Kind"),
    class_file!("Letter"),
    class_file!("Loop"),
    class_file!("LostServers"),
    class_file!("Machine"),
    class_file!("Main"),
    class_file!("Message"),
    class_file!("Names"),
    class_file!("Numbers"),
    class_file!("OctetClass"),
    class_file!("Octets"),
    class_file!("Order"),
    class_file!("Output"),
    class_file!("PeerSeen"),
    class_file!("Peers"),
    class_file!("PeersKind"),
    class_file!("Pool"),
    class_file!("Program"),
    class_file!("Pump"),
    class_file!("Queue"),
    class_file!("Reach"),
    class_file!("Reader"),
    class_file!("Reading"),
    class_file!("Reason"),
    class_file!("RequestKind"),
    class_file!("Resolver"),
    class_file!("Role"),
    class_file!("RoleState"),
    class_file!("Session"),
    class_file!("SessionKind"),
    class_file!("Sessions"),
    class_file!("Signals"),
    class_file!("Slab"),
    class_file!("Slot"),
    class_file!("Sockets"),
    class_file!("Stop"),
    class_file!("StreamReader"),
    class_file!("StreamWriter"),
    class_file!("Target"),
    class_file!("Task"),
    class_file!("Tasks"),
    class_file!("Text"),
    class_file!("Time"),
    class_file!("Timer"),
    class_file!("Timers"),
    class_file!("TooLong"),
    class_file!("Turn"),
    class_file!("View"),
    class_file!("Writer"),
];

/// Generates the program as Java: a package of its name, and a `Makefile`.
///
/// The package contains `Messages` with readers and writers, `Gateway` with roles and handlers, and
/// `Texts` with the octets that both use. They need the [`JAVA_RUNTIME`](crate::JAVA_RUNTIME) beside
/// them.
///
/// # Errors
///
/// The program is beyond a limit of the runtime.
pub fn java(program: &Program, places: Places<'_>) -> Result<Vec<SourceFile>, Unwritable> {
    let records = walk::records(program)?;
    let machine = walk::machine(program, &records);
    let package = java_package(program);
    let mut texts = Texts::default();
    let messages = messages(program, &records, places, &mut texts);
    let gateway = gateway::source(program, (&records, &machine), places, &mut texts);
    let file = |name: &str, text| SourceFile { name: format!("{package}/{name}.java"), text };
    Ok(vec![
        file("Messages", messages),
        file("Gateway", gateway),
        file("Texts", constants(program, &texts)),
        SourceFile { name: "Makefile".to_owned(), text: makefile(&package) },
    ])
}

/// The package of a program's classes.
pub fn java_package(program: &Program) -> String {
    Names::default().give(&program.name)
}

/// A `Makefile` that builds the program beside its runtime. It lists the files, so that files left
/// by an earlier build are not included.
fn makefile(package: &str) -> String {
    let own = ["Messages", "Gateway", "Texts"].map(|name| format!("{package}/{name}.java"));
    let runtime = RUNTIME.iter().map(|(name, _)| (*name).to_owned());
    let sources: Vec<String> = own.into_iter().chain(runtime).collect();
    let sources = sources.join(" \\\n    ");
    format!(
        "# Gateway {package}; written by gatewright. `make` builds it, `java -jar {package}.jar -h`\n\
         # tells its use.\n\
         JAVAC ?= javac\n\
         JAVACFLAGS ?= -Xlint:all\n\
         JAR ?= jar\n\
         sources = {sources}\n\
         \n\
         {package}.jar: $(sources)\n\
         \trm -rf classes\n\
         \t$(JAVAC) --release 17 $(JAVACFLAGS) -d classes $(sources)\n\
         \t$(JAR) --create --file $@ --main-class {package}.Gateway -C classes .\n\
         \n\
         .PHONY: clean\n\
         clean:\n\
         \trm -rf {package}.jar classes\n"
    )
}

fn begin(out: &mut Printer<'_>, program: &Program, about: &str) {
    out.line(&format!("// {about} gateway {}; written by gatewright.", comment(&program.name)));
    out.line(&format!("package {};", java_package(program)));
    out.line("");
}

/// The constant octets.
fn constants(program: &Program, texts: &Texts) -> String {
    let mut none = Texts::default();
    let mut out = Printer::new(program, &[], &|_| None, &mut none);
    begin(&mut out, program, "The constant octets of");
    out.line("import gatewright.runtime.Text;");
    out.line("");
    out.open("final class Texts {");
    for (name, octets) in texts.all() {
        out.line(&format!("static final Text {name} = Text.of({});", quoted(&octets)));
    }
    out.line("");
    out.line("private Texts() { }");
    out.close("}");
    out.finish()
}

fn messages(
    program: &Program,
    records: &[RecordType],
    places: Places<'_>,
    texts: &mut Texts,
) -> String {
    let mut out = Printer::new(program, records, places, texts);
    begin(&mut out, program, "The messages of");
    out.line("import gatewright.runtime.*;");
    out.line("");
    out.line(&format!("/** What gateway {} reads and writes. */", comment(&program.name)));
    out.open("public final class Messages {");
    out.line("private Messages() { }");
    for (message, record) in program.messages.iter().zip(records) {
        out.line("");
        view(&mut out, program, message, record);
    }
    out.line("");
    out.line("/** Every message, in the order of the classes above. */");
    out.open("public static final Message[] ALL = {");
    for at in 0..records.len() {
        let message = out.message(at);
        out.line(&format!("{message},"));
    }
    out.close("};");
    escapes(&mut out);
    out.close("}");
    out.finish()
}

fn escapes(out: &mut Printer<'_>) {
    for (at, list) in out.escapes().into_iter().enumerate() {
        let one = |case: &ExtendCase| {
            format!("new Escape({}, {}, {})", number(case.value), case.octets, number(case.add))
        };
        let list: Vec<String> = list.iter().map(one).collect();
        out.line("");
        out.line(&format!("static final Escape[] ESCAPES_{at} = {{{}}};", list.join(", ")));
    }
}

/// The class of a message's views.
fn view(out: &mut Printer<'_>, program: &Program, message: &Message, record: &RecordType) {
    let name = class(&record.name);
    out.line(&format!("/** {} */", comment(&message.name)));
    out.open(&format!("static final class {name} extends View {{"));
    let mut flags = String::new();
    for (is, flag) in [(message.datagram, ".datagram()"), (message.is_lines(), ".lines()")] {
        if is {
            flags.push_str(flag);
        }
    }
    if !record.read.is_empty() {
        let _ = write!(flags, ".window({})", number(message.window().into()));
    }
    if let Some(steps) = walk::too_long(program, message) {
        let steps: String = steps.iter().map(u8::to_string).collect();
        let _ = write!(flags, ".tooLong(\"{steps}\")");
    }
    let fields: Vec<String> = message.slots.iter().map(field).collect();
    description(out, &message.name, &name, (&fields, &flags));
    slots(out, &name, &record.slots);
    out.line("");
    out.line("/** One that a handler has. */");
    out.open(&format!("static {name} in(Slot slot) {{"));
    out.line(&format!("return ({name}) slot.message();"));
    out.close("}");
    out.line("");
    out.line("/** One that is being built. */");
    out.open(&format!("static {name} in(Build build) {{"));
    out.line(&format!("return ({name}) build.view();"));
    out.close("}");
    if !record.read.is_empty() {
        out.line("");
        out.reader(record);
    }
    out.line("");
    out.writer(record, message.span);
    out.close("}");
}

/// The constant that describes a view.
fn description(
    out: &mut Printer<'_>,
    called: &str,
    class: &str,
    (fields, flags): (&[String], &str),
) {
    let begin = format!("static final Message MESSAGE = new Message({called:?}, {class}::new");
    if fields.is_empty() {
        out.line(&format!("{begin}){flags};"));
        return;
    }
    out.open(&format!("{begin},"));
    for (at, field) in fields.iter().enumerate() {
        let end = if at + 1 == fields.len() { format!("){flags};") } else { ",".to_owned() };
        out.line(&format!("{field}{end}"));
    }
    out.indent_less();
}

/// The slots of a view as fields, and its constructor.
fn slots(out: &mut Printer<'_>, class: &str, names: &[String]) {
    out.line("");
    for (at, name) in names.iter().enumerate() {
        out.line(&format!("final Slot {} = slot({at});", camel(name)));
    }
    if !names.is_empty() {
        out.line("");
    }
    out.open(&format!("{class}() {{"));
    out.line("super(MESSAGE);");
    out.close("}");
}

/// A slot's description.
fn field(slot: &Slot) -> String {
    let name = format!("{:?}", slot.name);
    let mut field = match &slot.ty {
        SlotType::Int { low, high } => {
            format!("Field.number({name}, {}, {})", number(*low), number(*high))
        }
        SlotType::Octets { max } => format!("Field.octets({name}, {})", number((*max).into())),
        SlotType::Stream => format!("Field.stream({name})"),
        SlotType::List { columns, max } => {
            let columns: Vec<String> = columns.iter().map(|(_, column)| bounds(column)).collect();
            let (max, columns) = (number((*max).into()), columns.join(", "));
            format!("Field.list({name}, {max}, {columns})")
        }
    };
    if !matches!(slot.ty, SlotType::List { .. }) && !slot.optional && !slot.scratch {
        field.push_str(".always()");
    }
    if slot.scratch {
        field.push_str(".unseen()");
    }
    field
}

fn bounds(ty: &ColumnType) -> String {
    match ty {
        ColumnType::Int { low, high } => {
            format!("Bounds.number({}, {})", number(*low), number(*high))
        }
        ColumnType::Octets { max } => format!("Bounds.octets({})", number((*max).into())),
    }
}
