-- Dissector for the mesh protocol. Generated from docs/mesh-protocol.md by
-- crates/mesh/tests/page.rs; changes are overwritten.
local mesh = Proto("gwmesh", "Gatewright Mesh")
local f = mesh.fields
local layouts = {}

f.head_version = ProtoField.uint32("gwmesh.head.version", "version", base.DEC)
f.head_profile = ProtoField.uint32("gwmesh.head.profile", "profile", base.DEC)
f.head_kind = ProtoField.uint32("gwmesh.head.kind", "kind", base.DEC)
f.head_length = ProtoField.uint32("gwmesh.head.length", "length", base.DEC)
f.head_sender = ProtoField.uint64("gwmesh.head.sender", "sender", base.HEX)
f.head_epoch = ProtoField.uint32("gwmesh.head.epoch", "epoch", base.DEC)
f.head_sequence = ProtoField.uint32("gwmesh.head.sequence", "sequence", base.DEC)
f.node_node = ProtoField.uint64("gwmesh.node.node", "node", base.HEX)
f.label_label = ProtoField.uint32("gwmesh.label.label", "label", base.DEC)
f.label_octets_received = ProtoField.uint32("gwmesh.label.octets_received", "octets received", base.DEC)
f.hop_relay = ProtoField.uint64("gwmesh.hop.relay", "relay", base.HEX)
f.hop_cost = ProtoField.uint32("gwmesh.hop.cost", "cost", base.DEC)
f.hop_delay = ProtoField.uint32("gwmesh.hop.delay", "delay", base.DEC)
f.alive_interval = ProtoField.uint32("gwmesh.alive.interval", "interval", base.DEC)
f.alive_full = ProtoField.bool("gwmesh.alive.full", "full", base.NONE)
f.alive_more = ProtoField.bool("gwmesh.alive.more", "more", base.NONE)
f.alive_part = ProtoField.uint32("gwmesh.alive.part", "part", base.DEC)
f.alive_wants_list = ProtoField.bool("gwmesh.alive.wants_list", "wants list", base.NONE)
f.alive_delay_base = ProtoField.uint32("gwmesh.alive.delay_base", "delay base", base.DEC)
f.alive_neighbours = ProtoField.uint32("gwmesh.alive.neighbours", "neighbours", base.DEC)
f.alive_labels = ProtoField.uint32("gwmesh.alive.labels", "labels", base.DEC)
f.alive_octet_delay = ProtoField.uint32("gwmesh.alive.octet_delay", "octet delay", base.DEC)
f.alive_delay_p99 = ProtoField.uint32("gwmesh.alive.delay_p99", "delay p99", base.DEC)
f.alive_load = ProtoField.uint32("gwmesh.alive.load", "load", base.DEC)
f.request_origin = ProtoField.uint64("gwmesh.request.origin", "origin", base.HEX)
f.request_target = ProtoField.uint64("gwmesh.request.target", "target", base.HEX)
f.request_origin_epoch = ProtoField.uint32("gwmesh.request.origin_epoch", "origin epoch", base.DEC)
f.request_request = ProtoField.uint32("gwmesh.request.request", "request", base.DEC)
f.request_frame_limit = ProtoField.uint32("gwmesh.request.frame_limit", "frame limit", base.DEC)
f.request_background = ProtoField.bool("gwmesh.request.background", "background", base.NONE)
f.request_routed = ProtoField.bool("gwmesh.request.routed", "routed", base.NONE)
f.request_relays = ProtoField.uint32("gwmesh.request.relays", "relays", base.DEC)
f.request_avoids = ProtoField.bool("gwmesh.request.avoids", "avoids", base.NONE)
f.request_class = ProtoField.uint32("gwmesh.request.class", "class", base.DEC)
f.request_paths = ProtoField.uint32("gwmesh.request.paths", "paths", base.DEC)
f.request_hops_left = ProtoField.uint32("gwmesh.request.hops_left", "hops left", base.DEC)
f.request_listed = ProtoField.uint32("gwmesh.request.listed", "listed", base.DEC)
f.request_hops = ProtoField.uint32("gwmesh.request.hops", "hops", base.DEC)
f.reply_origin = ProtoField.uint64("gwmesh.reply.origin", "origin", base.HEX)
f.reply_target = ProtoField.uint64("gwmesh.reply.target", "target", base.HEX)
f.reply_request = ProtoField.uint32("gwmesh.reply.request", "request", base.DEC)
f.reply_path = ProtoField.uint32("gwmesh.reply.path", "path", base.DEC)
f.reply_label = ProtoField.uint32("gwmesh.reply.label", "label", base.DEC)
f.reply_class = ProtoField.uint32("gwmesh.reply.class", "class", base.DEC)
f.reply_frame_limit = ProtoField.uint32("gwmesh.reply.frame_limit", "frame limit", base.DEC)
f.reply_hops = ProtoField.uint32("gwmesh.reply.hops", "hops", base.DEC)
f.reply_position = ProtoField.uint32("gwmesh.reply.position", "position", base.DEC)
f.reply_cost = ProtoField.uint32("gwmesh.reply.cost", "cost", base.DEC)
f.reply_delay = ProtoField.uint32("gwmesh.reply.delay", "delay", base.DEC)
f.reply_station = ProtoField.uint64("gwmesh.reply.station", "station", base.HEX)
f.broadcast_origin = ProtoField.uint64("gwmesh.broadcast.origin", "origin", base.HEX)
f.broadcast_origin_epoch = ProtoField.uint32("gwmesh.broadcast.origin_epoch", "origin epoch", base.DEC)
f.broadcast_number = ProtoField.uint32("gwmesh.broadcast.number", "number", base.DEC)
f.broadcast_hops_left = ProtoField.uint32("gwmesh.broadcast.hops_left", "hops left", base.DEC)
f.broadcast_parts = ProtoField.uint32("gwmesh.broadcast.parts", "parts", base.DEC)
f.broadcast_part = ProtoField.uint32("gwmesh.broadcast.part", "part", base.DEC)
f.broadcast_stations = ProtoField.bool("gwmesh.broadcast.stations", "stations", base.NONE)
f.acknowledgement_acknowledged = ProtoField.uint32("gwmesh.acknowledgement.acknowledged", "acknowledged", base.DEC)
f.acknowledgement_label = ProtoField.uint32("gwmesh.acknowledgement.label", "label", base.DEC)
f.path_end_origin = ProtoField.uint64("gwmesh.path_end.origin", "origin", base.HEX)
f.path_end_target = ProtoField.uint64("gwmesh.path_end.target", "target", base.HEX)
f.path_end_path = ProtoField.uint32("gwmesh.path_end.path", "path", base.DEC)
f.path_end_reporter = ProtoField.uint64("gwmesh.path_end.reporter", "reporter", base.HEX)
f.path_end_reason = ProtoField.uint32("gwmesh.path_end.reason", "reason", base.DEC)
f.link_back_origin = ProtoField.uint64("gwmesh.link_back.origin", "origin", base.HEX)
f.link_back_target = ProtoField.uint64("gwmesh.link_back.target", "target", base.HEX)
f.link_back_path = ProtoField.uint32("gwmesh.link_back.path", "path", base.DEC)
f.link_back_reporter = ProtoField.uint64("gwmesh.link_back.reporter", "reporter", base.HEX)
f.link_back_hops = ProtoField.uint32("gwmesh.link_back.hops", "hops", base.DEC)
f.link_back_position = ProtoField.uint32("gwmesh.link_back.position", "position", base.DEC)
f.bypass_request_neighbour = ProtoField.uint64("gwmesh.bypass_request.neighbour", "neighbour", base.HEX)
f.bypass_request_neighbour_epoch = ProtoField.uint32("gwmesh.bypass_request.neighbour_epoch", "neighbour epoch", base.DEC)
f.bypass_request_label = ProtoField.uint32("gwmesh.bypass_request.label", "label", base.DEC)
f.bypass_request_frame_limit = ProtoField.uint32("gwmesh.bypass_request.frame_limit", "frame limit", base.DEC)
f.port_hello_port = ProtoField.uint32("gwmesh.port_hello.port", "port", base.DEC)
f.port_hello_interval = ProtoField.uint32("gwmesh.port_hello.interval", "interval", base.DEC)
f.port_hello_forwards = ProtoField.bool("gwmesh.port_hello.forwards", "forwards", base.NONE)
f.port_hello_ready = ProtoField.bool("gwmesh.port_hello.ready", "ready", base.NONE)
f.port_hello_stations = ProtoField.uint32("gwmesh.port_hello.stations", "stations", base.DEC)
f.olsr_packet_length = ProtoField.uint32("gwmesh.olsr.packet_length", "packet length", base.DEC)
f.olsr_packet_sequence = ProtoField.uint32("gwmesh.olsr.packet_sequence", "packet sequence", base.DEC)
f.unknown_label = ProtoField.uint32("gwmesh.unknown.label", "label", base.DEC)
f.liveness_vers = ProtoField.uint32("gwmesh.liveness.vers", "vers", base.DEC)
f.liveness_diagnostic = ProtoField.uint32("gwmesh.liveness.diagnostic", "diagnostic", base.DEC)
f.liveness_state = ProtoField.uint32("gwmesh.liveness.state", "state", base.DEC)
f.liveness_poll = ProtoField.bool("gwmesh.liveness.poll", "poll", base.NONE)
f.liveness_final = ProtoField.bool("gwmesh.liveness.final", "final", base.NONE)
f.liveness_control_plane_independent = ProtoField.bool("gwmesh.liveness.control_plane_independent", "control plane independent", base.NONE)
f.liveness_authentication = ProtoField.bool("gwmesh.liveness.authentication", "authentication", base.NONE)
f.liveness_demand = ProtoField.bool("gwmesh.liveness.demand", "demand", base.NONE)
f.liveness_multipoint = ProtoField.bool("gwmesh.liveness.multipoint", "multipoint", base.NONE)
f.liveness_detect_mult = ProtoField.uint32("gwmesh.liveness.detect_mult", "detect mult", base.DEC)
f.liveness_length = ProtoField.uint32("gwmesh.liveness.length", "length", base.DEC)
f.liveness_my_discriminator = ProtoField.uint32("gwmesh.liveness.my_discriminator", "my discriminator", base.DEC)
f.liveness_your_discriminator = ProtoField.uint32("gwmesh.liveness.your_discriminator", "your discriminator", base.DEC)
f.liveness_desired_min_tx_interval = ProtoField.uint32("gwmesh.liveness.desired_min_tx_interval", "desired min tx interval", base.DEC)
f.liveness_required_min_rx_interval = ProtoField.uint32("gwmesh.liveness.required_min_rx_interval", "required min rx interval", base.DEC)
f.liveness_required_min_echo_rx_interval = ProtoField.uint32("gwmesh.liveness.required_min_echo_rx_interval", "required min echo rx interval", base.DEC)
f.challenge_nonce = ProtoField.uint64("gwmesh.challenge.nonce", "nonce", base.DEC)
f.authentication_algorithm = ProtoField.uint32("gwmesh.authentication.algorithm", "algorithm", base.DEC)
f.authentication_unicast = ProtoField.bool("gwmesh.authentication.unicast", "unicast", base.NONE)
f.authentication_index = ProtoField.uint64("gwmesh.authentication.index", "index", base.DEC)
f.authentication_counter = ProtoField.uint32("gwmesh.authentication.counter", "counter", base.DEC)
f.signature_scope = ProtoField.uint32("gwmesh.signature.scope", "scope", base.DEC)
f.echo_version = ProtoField.uint32("gwmesh.echo.version", "version", base.DEC)
f.echo_kind = ProtoField.uint32("gwmesh.echo.kind", "kind", base.DEC)
f.echo_ttl = ProtoField.uint32("gwmesh.echo.ttl", "ttl", base.DEC)
f.echo_hops = ProtoField.uint32("gwmesh.echo.hops", "hops", base.DEC)
f.echo_origin = ProtoField.uint64("gwmesh.echo.origin", "origin", base.HEX)
f.echo_responder = ProtoField.uint64("gwmesh.echo.responder", "responder", base.HEX)
f.echo_number = ProtoField.uint32("gwmesh.echo.number", "number", base.DEC)
f.echo_label = ProtoField.uint32("gwmesh.echo.label", "label", base.DEC)
f.payload = ProtoField.bytes("gwmesh.payload", "payload")

layouts.head = { octets = 20, fields = {
  { field = f.head_version, offset = 0, width = 4 },
  { field = f.head_profile, offset = 4, width = 4 },
  { field = f.head_kind, offset = 8, width = 8 },
  { field = f.head_length, offset = 16, width = 16 },
  { field = f.head_sender, offset = 32, width = 64 },
  { field = f.head_epoch, offset = 96, width = 32 },
  { field = f.head_sequence, offset = 128, width = 32 },
}, parts = {
} }
layouts.node = { octets = 8, fields = {
  { field = f.node_node, offset = 0, width = 64 },
}, parts = {
} }
layouts.label = { octets = 8, fields = {
  { field = f.label_label, offset = 0, width = 20 },
  { field = f.label_octets_received, offset = 32, width = 32 },
}, parts = {
} }
layouts.hop = { octets = 12, fields = {
  { field = f.hop_relay, offset = 0, width = 64 },
  { field = f.hop_cost, offset = 64, width = 16 },
  { field = f.hop_delay, offset = 80, width = 16 },
}, parts = {
} }
layouts.alive = { octets = 16, fields = {
  { field = f.alive_interval, offset = 0, width = 16 },
  { field = f.alive_full, offset = 16, width = 1 },
  { field = f.alive_more, offset = 17, width = 1 },
  { field = f.alive_part, offset = 18, width = 6 },
  { field = f.alive_wants_list, offset = 24, width = 1 },
  { field = f.alive_delay_base, offset = 32, width = 16 },
  { field = f.alive_neighbours, offset = 48, width = 8 },
  { field = f.alive_labels, offset = 56, width = 8 },
  { field = f.alive_octet_delay, offset = 64, width = 16 },
  { field = f.alive_delay_p99, offset = 80, width = 16 },
  { field = f.alive_load, offset = 96, width = 16 },
}, parts = {
  { name = "neighbour_list", entry = layouts.node, length = function(at) return (at:bitfield(48, 8) * 8) end },
  { name = "label_list", entry = layouts.label, length = function(at) return (at:bitfield(56, 8) * 8) end },
} }
layouts.request = { octets = 32, fields = {
  { field = f.request_origin, offset = 0, width = 64 },
  { field = f.request_target, offset = 64, width = 64 },
  { field = f.request_origin_epoch, offset = 128, width = 32 },
  { field = f.request_request, offset = 160, width = 32 },
  { field = f.request_frame_limit, offset = 192, width = 16 },
  { field = f.request_background, offset = 208, width = 1 },
  { field = f.request_routed, offset = 209, width = 1 },
  { field = f.request_relays, offset = 210, width = 2 },
  { field = f.request_avoids, offset = 212, width = 1 },
  { field = f.request_class, offset = 216, width = 8 },
  { field = f.request_paths, offset = 224, width = 8 },
  { field = f.request_hops_left, offset = 232, width = 8 },
  { field = f.request_listed, offset = 240, width = 8 },
  { field = f.request_hops, offset = 248, width = 8 },
}, parts = {
  { name = "listed_nodes", entry = layouts.node, length = function(at) return (at:bitfield(240, 8) * 8) end },
  { name = "record", entry = layouts.hop, length = function(at) return (at:bitfield(248, 8) * 12) end },
} }
layouts.reply = { octets = 44, fields = {
  { field = f.reply_origin, offset = 0, width = 64 },
  { field = f.reply_target, offset = 64, width = 64 },
  { field = f.reply_request, offset = 128, width = 32 },
  { field = f.reply_path, offset = 160, width = 32 },
  { field = f.reply_label, offset = 192, width = 20 },
  { field = f.reply_class, offset = 216, width = 8 },
  { field = f.reply_frame_limit, offset = 224, width = 16 },
  { field = f.reply_hops, offset = 240, width = 8 },
  { field = f.reply_position, offset = 248, width = 8 },
  { field = f.reply_cost, offset = 256, width = 16 },
  { field = f.reply_delay, offset = 272, width = 16 },
  { field = f.reply_station, offset = 288, width = 64 },
}, parts = {
  { name = "record", entry = layouts.node, length = function(at) return (at:bitfield(240, 8) * 8) end },
} }
layouts.broadcast = { octets = 20, fields = {
  { field = f.broadcast_origin, offset = 0, width = 64 },
  { field = f.broadcast_origin_epoch, offset = 64, width = 32 },
  { field = f.broadcast_number, offset = 96, width = 32 },
  { field = f.broadcast_hops_left, offset = 128, width = 8 },
  { field = f.broadcast_parts, offset = 136, width = 4 },
  { field = f.broadcast_part, offset = 140, width = 4 },
  { field = f.broadcast_stations, offset = 144, width = 1 },
}, parts = {
  { name = "payload", entry = nil, length = nil },
} }
layouts.acknowledgement = { octets = 8, fields = {
  { field = f.acknowledgement_acknowledged, offset = 0, width = 32 },
  { field = f.acknowledgement_label, offset = 32, width = 20 },
}, parts = {
} }
layouts.path_end = { octets = 32, fields = {
  { field = f.path_end_origin, offset = 0, width = 64 },
  { field = f.path_end_target, offset = 64, width = 64 },
  { field = f.path_end_path, offset = 128, width = 32 },
  { field = f.path_end_reporter, offset = 160, width = 64 },
  { field = f.path_end_reason, offset = 224, width = 8 },
}, parts = {
} }
layouts.link_back = { octets = 32, fields = {
  { field = f.link_back_origin, offset = 0, width = 64 },
  { field = f.link_back_target, offset = 64, width = 64 },
  { field = f.link_back_path, offset = 128, width = 32 },
  { field = f.link_back_reporter, offset = 160, width = 64 },
  { field = f.link_back_hops, offset = 224, width = 8 },
  { field = f.link_back_position, offset = 232, width = 8 },
}, parts = {
  { name = "record", entry = layouts.node, length = function(at) return (at:bitfield(224, 8) * 8) end },
} }
layouts.bypass_request = { octets = 20, fields = {
  { field = f.bypass_request_neighbour, offset = 0, width = 64 },
  { field = f.bypass_request_neighbour_epoch, offset = 64, width = 32 },
  { field = f.bypass_request_label, offset = 96, width = 20 },
  { field = f.bypass_request_frame_limit, offset = 128, width = 16 },
}, parts = {
} }
layouts.port_hello = { octets = 8, fields = {
  { field = f.port_hello_port, offset = 0, width = 16 },
  { field = f.port_hello_interval, offset = 16, width = 16 },
  { field = f.port_hello_forwards, offset = 32, width = 1 },
  { field = f.port_hello_ready, offset = 33, width = 1 },
  { field = f.port_hello_stations, offset = 56, width = 8 },
}, parts = {
  { name = "station_list", entry = layouts.node, length = function(at) return (at:bitfield(56, 8) * 8) end },
} }
layouts.olsr = { octets = 4, fields = {
  { field = f.olsr_packet_length, offset = 0, width = 16 },
  { field = f.olsr_packet_sequence, offset = 16, width = 16 },
}, parts = {
  { name = "messages", entry = nil, length = nil },
} }
layouts.unknown = { octets = 4, fields = {
  { field = f.unknown_label, offset = 0, width = 20 },
}, parts = {
} }
layouts.liveness = { octets = 24, fields = {
  { field = f.liveness_vers, offset = 0, width = 3 },
  { field = f.liveness_diagnostic, offset = 3, width = 5 },
  { field = f.liveness_state, offset = 8, width = 2 },
  { field = f.liveness_poll, offset = 10, width = 1 },
  { field = f.liveness_final, offset = 11, width = 1 },
  { field = f.liveness_control_plane_independent, offset = 12, width = 1 },
  { field = f.liveness_authentication, offset = 13, width = 1 },
  { field = f.liveness_demand, offset = 14, width = 1 },
  { field = f.liveness_multipoint, offset = 15, width = 1 },
  { field = f.liveness_detect_mult, offset = 16, width = 8 },
  { field = f.liveness_length, offset = 24, width = 8 },
  { field = f.liveness_my_discriminator, offset = 32, width = 32 },
  { field = f.liveness_your_discriminator, offset = 64, width = 32 },
  { field = f.liveness_desired_min_tx_interval, offset = 96, width = 32 },
  { field = f.liveness_required_min_rx_interval, offset = 128, width = 32 },
  { field = f.liveness_required_min_echo_rx_interval, offset = 160, width = 32 },
}, parts = {
} }
layouts.challenge = { octets = 8, fields = {
  { field = f.challenge_nonce, offset = 0, width = 64 },
}, parts = {
} }
layouts.authentication = { octets = 16, fields = {
  { field = f.authentication_algorithm, offset = 0, width = 8 },
  { field = f.authentication_unicast, offset = 8, width = 1 },
  { field = f.authentication_index, offset = 32, width = 64 },
  { field = f.authentication_counter, offset = 96, width = 32 },
}, parts = {
  { name = "proof", entry = nil, length = nil },
} }
layouts.signature = { octets = 4, fields = {
  { field = f.signature_scope, offset = 0, width = 8 },
}, parts = {
  { name = "public_key", entry = nil, length = function(at) return 32 end },
  { name = "certificate", entry = nil, length = function(at) return 64 end },
  { name = "signature", entry = nil, length = function(at) return 64 end },
} }
layouts.echo = { octets = 28, fields = {
  { field = f.echo_version, offset = 0, width = 4 },
  { field = f.echo_kind, offset = 4, width = 4 },
  { field = f.echo_ttl, offset = 8, width = 8 },
  { field = f.echo_hops, offset = 16, width = 8 },
  { field = f.echo_origin, offset = 32, width = 64 },
  { field = f.echo_responder, offset = 96, width = 64 },
  { field = f.echo_number, offset = 160, width = 32 },
  { field = f.echo_label, offset = 192, width = 20 },
}, parts = {
} }

local types = {
  [1] = { layouts.alive, "I'M ALIVE" },
  [2] = { layouts.request, "ROUTE REQUEST" },
  [3] = { layouts.reply, "ROUTE REPLY" },
  [4] = { layouts.broadcast, "BROADCAST" },
  [5] = { layouts.acknowledgement, "PATH ACKNOWLEDGEMENT" },
  [6] = { layouts.path_end, "PATH ERROR" },
  [7] = { layouts.path_end, "PATH TEAR" },
  [12] = { layouts.link_back, "LINK BACK" },
  [15] = { layouts.bypass_request, "BYPASS REQUEST" },
  [13] = { layouts.port_hello, "PORT HELLO" },
  [14] = { layouts.olsr, "OLSR" },
  [8] = { layouts.unknown, "LABEL UNKNOWN" },
  [16] = { layouts.unknown, "BYPASS TEAR" },
  [9] = { layouts.liveness, "LIVENESS" },
  [10] = { layouts.challenge, "CHALLENGE" },
  [11] = { layouts.challenge, "CHALLENGE REPLY" },
}

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
