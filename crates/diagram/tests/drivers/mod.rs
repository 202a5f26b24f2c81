//! Programs around generated accessors: each reads `LAYOUT HEADER REST.` in hexadecimal a line, and
//! tells the fields, the header emitted anew from its plain values, and the variable lengths.

#![allow(clippy::format_push_string, reason = "a program is written line by line")]

use gatewright_diagram::{Field, FieldKind, FieldRole, Layout};

fn readable(layout: &Layout) -> impl Iterator<Item = &Field> {
    layout.fields.iter().filter(|field| field.role != FieldRole::Reserved)
}

fn lengths(layout: &Layout) -> impl Iterator<Item = &str> {
    let with_length = layout.variable.iter().filter(|variable| variable.length.is_some());
    with_length.map(|variable| variable.name.as_str())
}

/// As the field is told: a number, its own octets, or 16 octets.
enum Told {
    Number,
    Octets(u32),
    Wide,
}

fn told(field: &Field) -> Told {
    let octets = field.offset.is_multiple_of(8) && field.width.is_multiple_of(8);
    if field.kind == FieldKind::Number && field.width <= 64 {
        Told::Number
    } else if octets {
        Told::Octets(field.width / 8)
    } else {
        Told::Wide
    }
}

/// The name of the getter: the field's, with `_` where the language needs the word itself.
fn word(name: &str, reserved: &[&str]) -> String {
    if reserved.contains(&name) { format!("{name}_") } else { name.to_owned() }
}

pub(crate) fn rust_driver(layouts: &[Layout]) -> String {
    let mut out = String::from(
        "fn octets(text: &str) -> Vec<u8> {
            (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
        }
        fn hex(octets: &[u8]) -> String { octets.iter().map(|o| format!(\"{o:02x}\")).collect() }
        fn main() {
            for line in std::io::stdin().lines() {
                let line = line.unwrap();
                let parts: Vec<&str> = line.trim_end_matches('.').split(' ').collect();
                let (header, rest) = (octets(parts[1]), octets(parts[2]));
                let _ = &rest;
                let mut told: Vec<String> = Vec::new();
                match parts[0].parse::<usize>().unwrap() {\n",
    );
    for (index, layout) in layouts.iter().enumerate() {
        let name = &layout.name;
        let split = if layout.trailer { "split_trailer" } else { "split" };
        out.push_str(&format!("{index} => {{ use l{index}::{name} as View;\n"));
        out.push_str("assert!(View::");
        out.push_str(&format!("{split}(&header[1..]).is_err());\n"));
        out.push_str(&format!(
            "let (view, left) = View::{split}(&header).unwrap(); assert!(left.is_empty());\n"
        ));
        for field in readable(layout) {
            let getter = word(&field.name, &["type", "match", "split", "fields", "static"]);
            let value = match (told(field), &field.kind) {
                (Told::Number, _) if field.width == 1 => {
                    format!("format!(\"{{:x}}\", view.{getter}() as u8)")
                }
                (Told::Number, _) => format!("format!(\"{{:x}}\", view.{getter}())"),
                (_, FieldKind::Number) => {
                    let digits = if let Told::Octets(count) = told(field) { count * 2 } else { 32 };
                    format!("format!(\"{{:0{digits}x}}\", view.{getter}())")
                }
                (_, FieldKind::Octets) => format!("hex(&view.{getter}())"),
                (_, FieldKind::Mac) => format!("hex(&view.{getter}().0)"),
                _ => format!("hex(&view.{getter}().octets())"),
            };
            out.push_str(&format!("told.push({value});\n"));
        }
        out.push_str("told.push(hex(&view.fields().emit()));\n");
        for variable in lengths(layout) {
            let getter = word(variable, &["static"]);
            out.push_str(&format!(
                "told.push(view.{getter}(&rest).map_or(\"-\".to_owned(), |(part, left)| {{
                    assert_eq!(part.len() + left.len(), rest.len()); part.len().to_string() }}));\n"
            ));
        }
        out.push_str("}\n");
    }
    out.push_str("_ => unreachable!() } println!(\"{}\", told.join(\" \")); } }\n");
    out
}

const C_HEAD: &str = "#include <stdio.h>
#include <stdlib.h>
#include \"headers.h\"

static void hex(const uint8_t *octets, size_t count)
{
    size_t i;
    for (i = 0; i < count; i++)
        printf(\"%02x\", octets[i]);
    putchar(' ');
}

static size_t octets(const char **text, uint8_t *into)
{
    size_t count = 0;
    char pair[3] = {0, 0, 0};
    while (**text != ' ' && **text != '.') {
        pair[0] = (*text)[0];
        pair[1] = (*text)[1];
        into[count++] = (uint8_t)strtoul(pair, NULL, 16);
        *text += 2;
    }
    *text += 1;
    return count;
}

int main(void)
{
    static char line[100000];
    static uint8_t buffer[40000], rest[200], emitted[40000];
    while (fgets(line, sizeof line, stdin)) {
        char *end;
        unsigned long index = strtoul(line, &end, 10);
        const char *text = end + 1;
        size_t count = octets(&text, buffer), rest_count = octets(&text, rest);
        (void)rest_count;
        switch (index) {
";

pub(crate) fn c_driver(layouts: &[Layout]) -> String {
    let mut out = String::from(C_HEAD);
    for (index, layout) in layouts.iter().enumerate() {
        let prefix = snake(&layout.name);
        out.push_str(&format!(
            "case {index}: {{
                const uint8_t *from = buffer, *header; size_t few = count - 1, all = count;
                if ({prefix}_split(&from, &few) != NULL || few != count - 1) return 1;
                header = {prefix}_split(&from, &all);
                if (header != buffer || all != 0) return 2;\n"
        ));
        for field in readable(layout) {
            let name = word(&field.name, &["split"]);
            out.push_str(&match told(field) {
                Told::Number => {
                    format!("printf(\"%llx \", (unsigned long long){prefix}_{name}(header));\n")
                }
                Told::Octets(count) => format!("hex({prefix}_{name}(header), {count});\n"),
                Told::Wide => format!(
                    "{{ uint8_t value[16]; {prefix}_{name}(header, value); hex(value, 16); }}\n"
                ),
            });
        }
        let plain = readable(layout).any(|field| !matches!(field.role, FieldRole::Constant(_)));
        out.push_str("memset(emitted, 0xff, sizeof emitted);\n");
        out.push_str(&if plain {
            format!(
                "{{ struct {prefix}_fields fields; {prefix}_read(&fields, header); \
                 {prefix}_emit(emitted, &fields); }}\n"
            )
        } else {
            format!("{prefix}_emit(emitted);\n")
        });
        out.push_str("hex(emitted, count);\n");
        for variable in lengths(layout) {
            out.push_str(&format!(
                "{{ const uint8_t *at = rest; size_t left = rest_count, length;
                if ({prefix}_{variable}(header, &at, &left, &length) == rest) {{
                    if (left + length != rest_count || at != rest + length) return 3;
                    printf(\"%lu \", (unsigned long)length);
                }} else printf(\"- \"); }}\n"
            ));
        }
        out.push_str("break; }\n");
    }
    out.push_str("default: return 4; } putchar(10); } return 0; }\n");
    out
}

fn snake(name: &str) -> String {
    if name == "AwkwardNames" { "awkward_names".to_owned() } else { name.to_lowercase() }
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap().to_owned();
    for word in words {
        camel.push_str(&word[..1].to_uppercase());
        camel.push_str(&word[1..]);
    }
    camel
}

const JAVA_HEAD: &str = "import java.io.*;
import java.nio.*;
import java.util.*;

final class Main {
    static byte[] octets(String text) {
        byte[] octets = new byte[text.length() / 2];
        for (int i = 0; i < octets.length; i++) {
            octets[i] = (byte) Integer.parseInt(text.substring(2 * i, 2 * i + 2), 16);
        }
        return octets;
    }

    static String hex(byte[] octets) {
        return HexFormat.of().formatHex(octets);
    }

    interface Part { ByteBuffer of(ByteBuffer rest); }

    static String length(byte[] rest, Part part) {
        try {
            return Integer.toString(part.of(ByteBuffer.wrap(rest)).remaining());
        } catch (BufferUnderflowException | ArithmeticException error) {
            return \"-\";
        }
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader reader = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out));
        String line;
        while ((line = reader.readLine()) != null) {
            String[] parts = line.substring(0, line.length() - 1).split(\" \", -1);
            byte[] header = octets(parts[1]);
            byte[] rest = octets(parts[2]);
            List<String> told = switch (Integer.parseInt(parts[0])) {\n";

pub(crate) fn java_driver(layouts: &[Layout]) -> String {
    const RESERVED: [&str; 7] = ["class", "int", "default", "split", "fields", "static", "long"];
    let mut out = String::from(JAVA_HEAD);
    for index in 0..layouts.len() {
        out.push_str(&format!("case {index} -> case{index}(header, rest);\n"));
    }
    out.push_str(
        "default -> throw new IllegalStateException();
            };
            out.println(String.join(\" \", told));
        }
        out.flush();
    }\n",
    );
    for (index, layout) in layouts.iter().enumerate() {
        let name = &layout.name;
        out.push_str(&format!(
            "static List<String> case{index}(byte[] header, byte[] rest) {{
                List<String> told = new ArrayList<>();
                {name} view = {name}.split(ByteBuffer.wrap(header).order(ByteOrder.LITTLE_ENDIAN));\n"
        ));
        for field in readable(layout) {
            let getter = word(&camel(&field.name), &RESERVED);
            out.push_str(&match told(field) {
                Told::Number if field.width == 1 => {
                    format!("told.add(view.{getter}() ? \"1\" : \"0\");\n")
                }
                Told::Number => format!("told.add(Long.toHexString(view.{getter}()));\n"),
                _ => format!("told.add(hex(view.{getter}()));\n"),
            });
        }
        out.push_str("told.add(hex(view.fields().emit()));\n");
        for variable in lengths(layout) {
            let getter = word(&camel(variable), &RESERVED);
            out.push_str(&format!("told.add(length(rest, view::{getter}));\n"));
        }
        out.push_str("return told;\n}\n");
    }
    out.push_str("}\n");
    out
}
