//! The dissector for Wireshark, generated from the page of the protocol.

mod place;

pub(crate) use place::repository;

use gatewright_diagram::{
    Expression, Field, FieldKind, FieldRole, Layout, Operator, fenced, read_art,
};
use std::fmt::Write;

/// The diagrams of the page: heading, short name, and the type of the message if it is one.
const MESSAGES: [(&str, &str, &[u8]); 20] = [
    ("Common header", "head", &[]),
    ("Neighbour", "node", &[]),
    ("Label", "label", &[]),
    ("Record", "hop", &[]),
    ("I'M ALIVE", "alive", &[1]),
    ("ROUTE REQUEST", "request", &[2]),
    ("ROUTE REPLY", "reply", &[3]),
    ("BROADCAST", "broadcast", &[4]),
    ("PATH ACKNOWLEDGEMENT", "acknowledgement", &[5]),
    ("PATH ERROR", "path_end", &[6, 7]),
    ("LINK BACK", "link_back", &[12]),
    ("BYPASS REQUEST", "bypass_request", &[15]),
    ("PORT HELLO", "port_hello", &[13]),
    ("OLSR", "olsr", &[14]),
    ("LABEL UNKNOWN", "unknown", &[8, 16]),
    ("LIVENESS", "liveness", &[9]),
    ("CHALLENGE", "challenge", &[10, 11]),
    ("Authentication", "authentication", &[]),
    ("Signature", "signature", &[]),
    ("ECHO", "echo", &[]),
];

/// The entries of each list: the list's layout and name, and the entry's layout.
const LISTS: [(&str, &str, &str); 7] = [
    ("alive", "neighbour_list", "node"),
    ("alive", "label_list", "label"),
    ("request", "listed_nodes", "node"),
    ("request", "record", "hop"),
    ("reply", "record", "node"),
    ("link_back", "record", "node"),
    ("port_hello", "station_list", "node"),
];

/// The dissector as Lua text.
pub(crate) fn dissector() -> String {
    let page = std::fs::read_to_string(repository("docs/mesh-protocol.md")).unwrap();
    let mut fields = String::new();
    let mut layouts = String::new();
    for (heading, name, _) in MESSAGES {
        let art = fenced(&page, heading).unwrap_or_else(|| panic!("no diagram below {heading}"));
        let layout =
            read_art(name, art).unwrap_or_else(|findings| panic!("{heading}: {findings:?}"));
        write_layout(&layout, &mut fields, &mut layouts);
    }
    let mut types = String::new();
    for (heading, name, numbers) in MESSAGES {
        for number in numbers {
            let heading = match number {
                7 => "PATH TEAR",
                11 => "CHALLENGE REPLY",
                16 => "BYPASS TEAR",
                _ => heading,
            };
            writeln!(types, "  [{number}] = {{ layouts.{name}, \"{heading}\" }},").unwrap();
        }
    }
    TEMPLATE.replace("@FIELDS@", &fields).replace("@LAYOUTS@", &layouts).replace("@TYPES@", &types)
}

/// Whether a value is shown in hexadecimal: identities, labels and numbers without a unit.
fn is_hexadecimal(field: &Field) -> bool {
    matches!(&field.kind, FieldKind::Newtype(name) if name == "NodeId")
}

fn write_layout(layout: &Layout, fields: &mut String, layouts: &mut String) {
    let name = &layout.name;
    writeln!(layouts, "layouts.{name} = {{ octets = {}, fields = {{", layout.octets()).unwrap();
    for field in layout.fields.iter().filter(|field| field.role != FieldRole::Reserved) {
        let key = format!("{name}_{}", field.name);
        let (kind, base) = match (field.width, is_hexadecimal(field)) {
            (1, _) => ("bool", "base.NONE"),
            (33.., true) => ("uint64", "base.HEX"),
            (33.., false) => ("uint64", "base.DEC"),
            (_, true) => ("uint32", "base.HEX"),
            (_, false) => ("uint32", "base.DEC"),
        };
        let shown = field.name.replace('_', " ");
        writeln!(
            fields,
            "f.{key} = ProtoField.{kind}(\"gwmesh.{name}.{}\", \"{shown}\", {base})",
            field.name
        )
        .unwrap();
        writeln!(
            layouts,
            "  {{ field = f.{key}, offset = {}, width = {} }},",
            field.offset, field.width
        )
        .unwrap();
    }
    layouts.push_str("}, parts = {\n");
    for part in &layout.variable {
        let entry = LISTS.iter().find(|(of, list, _)| of == name && *list == part.name);
        let entry = entry.map_or("nil".to_owned(), |(_, _, entry)| format!("layouts.{entry}"));
        let length = part.length.as_ref().map_or("nil".to_owned(), |length| {
            format!("function(at) return {} end", expression(layout, length))
        });
        writeln!(layouts, "  {{ name = \"{}\", entry = {entry}, length = {length} }},", part.name)
            .unwrap();
    }
    layouts.push_str("} }\n");
}

/// A length as a Lua expression over the fixed part `at`.
fn expression(layout: &Layout, length: &Expression) -> String {
    match length {
        Expression::Number(number) => number.to_string(),
        Expression::Field(name) => {
            let field = layout.fields.iter().find(|field| field.name == *name).unwrap();
            format!("at:bitfield({}, {})", field.offset, field.width)
        }
        Expression::Binary(left, operator, right) => {
            let operator = match operator {
                Operator::Add => "+",
                Operator::Subtract => "-",
                Operator::Multiply => "*",
            };
            format!("({} {operator} {})", expression(layout, left), expression(layout, right))
        }
    }
}

/// What the generated tables are put into. LIVENESS and OLSR messages are left to Wireshark's own
/// dissectors.
const TEMPLATE: &str = r#"-- Dissector for the mesh protocol. Generated from docs/mesh-protocol.md by
-- crates/mesh/tests/page.rs; changes are overwritten.
local mesh = Proto("gwmesh", "Gatewright Mesh")
local f = mesh.fields
local layouts = {}

@FIELDS@f.payload = ProtoField.bytes("gwmesh.payload", "payload")

@LAYOUTS@
local types = {
@TYPES@}

local truncated = ProtoExpert.new("gwmesh.truncated", "message too short", expert.group.MALFORMED,
  expert.severity.ERROR)
mesh.experts = { truncated }

local function show(layout, buffer, at, tree)
  if at + layout.octets > buffer:len() then
    tree:add_proto_expert_info(truncated)
    return nil
  end
  local fixed = buffer(at, layout.octets)
  for _, field in ipairs(layout.fields) do
    local first = math.floor(field.offset / 8)
    local last = math.floor((field.offset + field.width - 1) / 8)
    local range = buffer(at + first, last - first + 1)
    tree:add(field.field, range, fixed:bitfield(field.offset, field.width))
  end
  at = at + layout.octets
  for _, part in ipairs(layout.parts) do
    local length = part.length and part.length(fixed) or buffer:len() - at
    if at + length > buffer:len() then
      tree:add_proto_expert_info(truncated)
      return nil
    end
    if part.entry then
      for entry = at, at + length - 1, part.entry.octets do
        local branch = tree:add(mesh, buffer(entry, part.entry.octets), part.name)
        show(part.entry, buffer, entry, branch)
      end
    elseif length > 0 then
      tree:add(f.payload, buffer(at, length))
    end
    at = at + length
  end
  return at
end

function mesh.dissector(buffer, pinfo, root)
  pinfo.cols.protocol = "GWMESH"
  local tree = root:add(mesh, buffer())
  local at = show(layouts.head, buffer, 0, tree)
  if not at then return end
  local length = buffer(2, 2):uint()
  if at + length > buffer:len() then
    tree:add_proto_expert_info(truncated)
    return
  end
  local known = types[buffer(1, 1):uint()]
  if not known then return end
  local layout, name = known[1], known[2]
  pinfo.cols.info = name
  local body = buffer(at, length):tvb()
  show(layout, body, 0, tree:add(mesh, buffer(at, length), name))
  -- Padding begins with 0, which is no algorithm and no scope.
  local trailer = at + length
  if trailer < buffer:len() and buffer(trailer, 1):uint() == 16 then
    local branch = tree:add(mesh, buffer(trailer), "Signature of the origin")
    trailer = show(layouts.signature, buffer, trailer, branch) or buffer:len()
  end
  if trailer < buffer:len() and buffer(trailer, 1):uint() ~= 0 then
    local branch = tree:add(mesh, buffer(trailer), "Authentication")
    local algorithm = buffer(trailer, 1):uint()
    if algorithm == 3 and trailer + layouts.authentication.octets < buffer:len() then
      show(layouts.signature, buffer, trailer + layouts.authentication.octets, branch)
    end
    show(layouts.authentication, buffer, trailer, branch)
  end
  if layout == layouts.liveness then
    DissectorTable.get("udp.port"):get_dissector(3784):call(body, pinfo, root)
  elseif layout == layouts.olsr then
    -- It reads addresses of the family that the packet's source has.
    local source = pinfo.src
    pinfo.src = Address.ip("0.0.0.0")
    DissectorTable.get("udp.port"):get_dissector(698):call(body, pinfo, root)
    pinfo.src = source
  end
end

DissectorTable.get("ethertype"):add(0x88b5, mesh)

-- In the associated channel of a path (RFC 5586): the octets after its header.
local echo = Proto("gwmesh_echo", "Gatewright Mesh Echo")
function echo.dissector(buffer, pinfo, root)
  if buffer:len() == 0 or buffer(0, 1):uint() == 0 then return end
  pinfo.cols.protocol = "GWMESH"
  pinfo.cols.info = "ECHO"
  show(layouts.echo, buffer, 0, root:add(mesh, buffer(), "ECHO"))
end
DissectorTable.get("pwach.channel_type"):add(0x7ff8, echo)
"#;
