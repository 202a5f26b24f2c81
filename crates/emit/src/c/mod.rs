//! Printer for C11.

mod gateway;
mod print;
mod text;

use crate::code::{Places, RecordType};
use crate::names::Names;
use crate::{SourceFile, Unwritable, walk};
use gatewright_lang::ir::{ColumnType, Message, ParseOp, Program, Slot, SlotType};
use print::Printer;
use std::fmt::Write;
use text::number;

/// The runtime to compile the generated text with, file by file.
pub const RUNTIME: [(&str, &str); 25] = [
    ("gw_message.h", include_str!("../../../../runtime/c/gw_message.h")),
    ("gw_read.h", include_str!("../../../../runtime/c/gw_read.h")),
    ("gw_whole.h", include_str!("../../../../runtime/c/gw_whole.h")),
    ("memory.c", include_str!("../../../../runtime/c/memory.c")),
    ("view.c", include_str!("../../../../runtime/c/view.c")),
    ("check.c", include_str!("../../../../runtime/c/check.c")),
    ("read.c", include_str!("../../../../runtime/c/read.c")),
    ("stream.c", include_str!("../../../../runtime/c/stream.c")),
    ("write.c", include_str!("../../../../runtime/c/write.c")),
    ("gw_machine.h", include_str!("../../../../runtime/c/gw_machine.h")),
    ("inside.h", include_str!("../../../../runtime/c/inside.h")),
    ("slab.c", include_str!("../../../../runtime/c/slab.c")),
    ("machine.c", include_str!("../../../../runtime/c/machine.c")),
    ("connection.c", include_str!("../../../../runtime/c/connection.c")),
    ("pump.c", include_str!("../../../../runtime/c/pump.c")),
    ("reading.c", include_str!("../../../../runtime/c/reading.c")),
    ("answer.c", include_str!("../../../../runtime/c/answer.c")),
    ("build.c", include_str!("../../../../runtime/c/build.c")),
    ("task.c", include_str!("../../../../runtime/c/task.c")),
    ("exchange.c", include_str!("../../../../runtime/c/exchange.c")),
    ("session.c", include_str!("../../../../runtime/c/session.c")),
    ("peers.c", include_str!("../../../../runtime/c/peers.c")),
    ("reach.c", include_str!("../../../../runtime/c/reach.c")),
    ("datagram.c", include_str!("../../../../runtime/c/datagram.c")),
    ("values.c", include_str!("../../../../runtime/c/values.c")),
];

/// The files that add sockets to the runtime: an event loop over epoll or libuv, names, and `main`.
pub const IO: [(&str, &str); 9] = [
    ("sockets.h", include_str!("../../../../runtime/c/sockets.h")),
    ("sockets.c", include_str!("../../../../runtime/c/sockets.c")),
    ("resolver.c", include_str!("../../../../runtime/c/resolver.c")),
    ("report.c", include_str!("../../../../runtime/c/report.c")),
    ("loop.h", include_str!("../../../../runtime/c/loop.h")),
    ("loop.c", include_str!("../../../../runtime/c/loop.c")),
    ("epoll.c", include_str!("../../../../runtime/c/epoll.c")),
    ("uv.c", include_str!("../../../../runtime/c/uv.c")),
    ("main.c", include_str!("../../../../runtime/c/main.c")),
];

/// Generates the program as C11: `messages.h` with a structure for each view, `messages.c` with
/// their readers and writers, `gateway.c` with its roles and handlers, and a `Makefile`. They need
/// the [`C_RUNTIME`](crate::C_RUNTIME) beside them.
///
/// # Errors
///
/// The program is beyond a limit of the runtime.
pub fn c(program: &Program, places: Places<'_>) -> Result<Vec<SourceFile>, Unwritable> {
    let records = walk::records(program)?;
    let pairs: Vec<(&Message, &RecordType)> = program.messages.iter().zip(&records).collect();
    let machine = walk::machine(program, &records);
    let gateway = gateway::source(program, &machine, places);
    Ok(vec![
        SourceFile { name: "messages.h".to_owned(), text: header(program, &pairs) },
        SourceFile { name: "messages.c".to_owned(), text: source(program, &pairs, places) },
        SourceFile { name: "gateway.c".to_owned(), text: gateway },
        SourceFile { name: "Makefile".to_owned(), text: makefile(program) },
    ])
}

/// Pollers of the event loop: the `Makefile` selects one of them.
const POLLERS: [&str; 2] = ["epoll", "uv"];

/// A `Makefile` that builds the program beside its runtime. It lists the files, so that files left
/// by an earlier build are not included.
fn makefile(program: &Program) -> String {
    let name = Names::default().give(&program.name);
    let files = |ending: &'static str| {
        let all = RUNTIME.iter().chain(&IO);
        all.filter_map(move |(name, _)| name.strip_suffix(ending))
    };
    let objects = files(".c").filter(|name| !POLLERS.contains(name));
    let objects = ["gateway", "messages"].into_iter().chain(objects);
    let objects: Vec<String> = objects.map(|name| format!("    {name}.o \\\n")).collect();
    let headers: Vec<String> = files(".h").map(|name| format!(" {name}.h")).collect();
    let (objects, headers) = (objects.concat(), headers.concat());
    format!(
        "# Gateway {name}; written by gatewright. `make` builds it, `./{name} -h` tells its use.\n\
         CFLAGS ?= -O2 -g1\n\
         CFLAGS += -std=c11 -Wall -Wextra -pthread\n\
         MAKEFLAGS += --jobs=$(shell nproc)\n\
         # What it waits with: epoll, or uv for libuv. `make clean` goes before a change.\n\
         LOOP ?= epoll\n\
         LDLIBS += $(patsubst %,-l%,$(filter uv,$(LOOP)))\n\
         objects = \\\n{objects}    $(LOOP).o\n\
         \n\
         {name}: $(objects)\n\
         \t$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(objects) $(LDLIBS)\n\
         \n\
         $(objects): messages.h{headers}\n\
         \n\
         .PHONY: clean\n\
         clean:\n\
         \trm -f {name} $(objects)\n"
    )
}

fn header(program: &Program, records: &[(&Message, &RecordType)]) -> String {
    let mut out = Printer::new(program, "messages.h", &|_| None);
    out.line(&format!("/* The views of gateway {}; written by gatewright. */", program.name));
    out.line("#ifndef MESSAGES_H");
    out.line("#define MESSAGES_H");
    out.line("");
    out.line("#include \"gw_message.h\"");
    for (message, record) in records {
        out.line("");
        out.line(&format!("/* {} */", message.name));
        out.open(&format!("struct {} {{", record.name));
        out.line("struct gw_view view;");
        for (slot, name) in message.slots.iter().zip(&record.slots) {
            out.line(&format!("struct gw_slot {name}; /* {} */", about(slot)));
        }
        out.close("};");
    }
    out.line("");
    out.line("/* Every message, in the order of the structures above. */");
    out.line(&format!("extern const struct gw_message gw_messages[{}];", records.len().max(1)));
    out.line("extern const unsigned gw_messages_count;");
    out.line("");
    out.line("#endif");
    out.finish()
}

/// Description of a slot's type, in words.
fn about(slot: &Slot) -> String {
    let mut about = match &slot.ty {
        SlotType::Int { low, high } => format!("{low} to {high}"),
        SlotType::Octets { max } => format!("at most {max} octets"),
        SlotType::List { max, .. } => format!("at most {max} rows"),
        SlotType::Stream => "passes by".to_owned(),
    };
    for (is, word) in
        [(slot.optional, "optional"), (slot.private, "private"), (slot.scratch, "scratch")]
    {
        if is {
            about.push_str(", ");
            about.push_str(word);
        }
    }
    about
}

fn source(program: &Program, records: &[(&Message, &RecordType)], places: Places<'_>) -> String {
    let mut out = Printer::new(program, "messages.c", places);
    out.line(&format!("/* The messages of gateway {}; written by gatewright. */", program.name));
    out.line("#include \"messages.h\"");
    out.line("");
    let steps = records.iter().flat_map(|(message, _)| &message.parser);
    for step in steps {
        if let ParseOp::Extend { cases, .. } = &step.op {
            out.name_escapes(cases);
        }
    }
    for (message, record) in records {
        fields(&mut out, message, record);
        if let Some(steps) = walk::too_long(program, message) {
            let steps: Vec<String> = steps.iter().map(u8::to_string).collect();
            let steps = steps.join(", ");
            out.line(&format!("static const uint8_t {}_too_long[] = {{{steps}}};", record.name));
            out.line("");
        }
        out.reader(record);
        out.whole(record);
        out.writer(record, message.span);
    }
    for (message, record) in records {
        blank(&mut out, message, record);
    }
    out.open(&format!("const struct gw_message gw_messages[{}] = {{", records.len().max(1)));
    for (message, record) in records {
        let name = &record.name;
        let fields =
            if message.slots.is_empty() { "NULL".into() } else { format!("{name}_fields") };
        let too_long = match walk::too_long(program, message) {
            Some(_) => format!("{name}_too_long"),
            None => "NULL".to_owned(),
        };
        let read = if record.read.is_empty() { "NULL".into() } else { format!("{name}_read") };
        let whole = if record.whole.is_none() { "NULL".into() } else { format!("{name}_whole") };
        out.line(&format!(
            "{{.name = {:?}, .size = sizeof(struct {name}), .count = {}, .fields = {fields}, \
             .blank = &{name}_blank.view, \
             .datagram = {}, .lines = {}, .window_max = {}, .too_long = {too_long}, .read = {read}, .whole = {whole}, .write = {name}_write}},",
            message.name,
            message.slots.len(),
            message.datagram,
            message.is_lines(),
            message.window(),
        ));
    }
    if records.is_empty() {
        out.line("{.name = NULL},");
    }
    out.close("};");
    out.line(&format!("const unsigned gw_messages_count = {};", records.len()));
    out.finish()
}

fn fields(out: &mut Printer<'_>, message: &Message, record: &RecordType) {
    slot_fields(out, &record.name, &message.slots, &record.slots);
}

/// A view with no slot set, of which each new one is a copy.
fn blank(out: &mut Printer<'_>, message: &Message, record: &RecordType) {
    let name = &record.name;
    out.open(&format!("static const struct {name} {name}_blank = {{"));
    out.line(".view = {.holders = 1},");
    for (index, slot) in record.slots.iter().enumerate().take(message.slots.len()) {
        out.line(&format!(".{slot} = {{.field = &{name}_fields[{index}]}},"));
    }
    out.close("};");
    out.line("");
}

/// The descriptions of slots.
fn slot_fields(out: &mut Printer<'_>, name: &str, slots: &[Slot], names: &[String]) {
    for (slot, called) in slots.iter().zip(names) {
        if let SlotType::List { columns, .. } = &slot.ty {
            out.open(&format!("static const struct gw_bounds {name}_{called}_columns[] = {{"));
            for (_, column) in columns {
                out.line(&format!("{},", column_bounds(column)));
            }
            out.close("};");
        }
    }
    if slots.is_empty() {
        return;
    }
    out.open(&format!("static const struct gw_field {name}_fields[] = {{"));
    for (slot, called) in slots.iter().zip(names) {
        let mut line = format!("{{.name = {:?}, .bounds = {}", slot.name, slot_bounds(&slot.ty));
        if let SlotType::List { columns, .. } = &slot.ty {
            let count = columns.len();
            let _ = write!(line, ", .columns = {count}, .column = {name}_{called}_columns");
        } else if !slot.optional && !slot.scratch {
            line.push_str(", .mandatory = true");
        }
        if slot.scratch {
            line.push_str(", .scratch = true");
        }
        out.line(&(line + "},"));
    }
    out.close("};");
    out.line("");
}

fn slot_bounds(ty: &SlotType) -> String {
    match ty {
        SlotType::Int { low, high } => int_bounds(*low, *high),
        SlotType::Octets { max } => format!("{{.kind = GW_OCTETS, .max = {max}}}"),
        SlotType::List { max, .. } => format!("{{.kind = GW_LIST, .max = {max}}}"),
        SlotType::Stream => "{.kind = GW_STREAM}".to_owned(),
    }
}

fn column_bounds(ty: &ColumnType) -> String {
    match ty {
        ColumnType::Int { low, high } => int_bounds(*low, *high),
        ColumnType::Octets { max } => format!("{{.kind = GW_OCTETS, .max = {max}}}"),
    }
}

fn int_bounds(low: i64, high: i64) -> String {
    format!("{{.kind = GW_INT, .low = {}, .high = {}}}", number(low), number(high))
}
