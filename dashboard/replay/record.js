// Makes a recording of what a gateway said:
//   node replay/record.js FOLDER NAME
// FOLDER has what `gatewright … --json` printed, with some seconds between the first and the second:
// status1.json, status2.json, and, if the gateway has it, events.json, mesh1.json, mesh2.json,
// trace.json, resources.jsonl (a line {"a":path,"r":resource} for each), gateway.toml.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Names of resource types (TS-0004 §6.3.4.2.1). */
const TYPES = {
  1: 'accessControlPolicy',
  2: 'AE',
  3: 'container',
  4: 'contentInstance',
  5: 'CSEBase',
  23: 'subscription',
};
const [folder, name] = process.argv.slice(2);
const read = (file) =>
  existsSync(join(folder, file)) ? JSON.parse(readFileSync(join(folder, file), 'utf8')) : undefined;
const status = [read('status1.json'), read('status2.json')];
const time = ({ uptime }) => uptime.secs + uptime.nanos / 1e9;
const mesh = read('mesh1.json') && [read('mesh1.json'), read('mesh2.json')];
const recording = {
  seconds: time(status[1]) - time(status[0]),
  status,
  events: read('events.json')?.events ?? [],
  graph: status[1].links.length ? [graph(status[0]), graph(status[1])] : undefined,
  mesh,
  trace: read('trace.json'),
  ...resources(),
  config: configuration(),
};
const file = fileURLToPath(new URL(`recordings/${name}.json`, import.meta.url));
writeFileSync(file, JSON.stringify(recording) + '\n');

/** The edges with their senders, as the standard assembly joins its layers (crates/stack/src/suite.rs). */
function graph({ layers, ways }) {
  const index = (layer, link) =>
    layers.findIndex((one) => one.layer === layer && (link === undefined || one.link === link));
  const named = (layer, link) => (index(layer, link) >= 0 ? index(layer, link) : index(layer));
  const family = (at) => (at.includes('ipv6') ? 'ipv6' : 'ipv4');
  const from = (way) => {
    const [kind, value] = way.at.split(':');
    if (kind === 'frame') return way.to_device ? index('ethernet', way.link) : null;
    if (kind === 'ether')
      return way.side === 'receive' ? index('ethernet', way.link) : index(value);
    if (kind === 'unresolved')
      return way.layer === 'ethernet' ? index(value === 'ipv4' ? 'arp' : 'ndp') : undefined;
    if (kind === 'ip') return value === 'icmpv6' ? index('ipv6') : index('ipv4');
    if (kind === 'icmpv6') return index('icmpv6');
    if (kind === 'icmp') return index('icmpv4');
    if (kind === 'udp') return index('udp');
    if (kind === 'error') return index(family(way.at));
    return undefined;
  };
  const senders = {
    'local:ipv4': ['igmp', 'icmpv4', 'udp', 'dhcp'],
    'local:ipv6': ['ndp', 'mld', 'icmpv6', 'udp'],
  };
  const met = {};
  const edges = ways.flatMap((way) => {
    const local = senders[way.at]?.[(met[way.at] = (met[way.at] ?? -1) + 1)];
    const sender = local ? index(local) : from(way);
    if (sender === undefined || sender === -1) return [];
    const to = way.to_device ? 'device' : named(way.layer, way.link);
    return [{ from: sender, to, at: way.at, side: way.side, link: way.link, packets: way.packets }];
  });
  return { layers: layers.map(({ layer, link }) => ({ layer, link })), edges };
}

/** Resources, instances and devices from what a CSE said. */
function resources() {
  if (!existsSync(join(folder, 'resources.jsonl'))) return {};
  const lines = readFileSync(join(folder, 'resources.jsonl'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  const all = lines.map(({ a, r }) => ({
    at: a,
    type: TYPES[Object.values(r)[0].ty] ?? '?',
    body: Object.values(r)[0],
  }));
  const parent = (at) => at.split('/').slice(0, -1).join('/');
  const isInstance = (one) => one.type === 'contentInstance';
  const below = (at) => all.filter((one) => parent(one.at) === at);
  const [found, instances] = [{}, {}];
  for (const one of all.filter((one) => !isInstance(one))) {
    const children = below(one.at).filter((child) => !isInstance(child));
    const node = (child) => ({
      name: child.body.rn,
      address: child.at,
      type: child.type,
      instances: child.body.cni ?? null,
    });
    found[one.at] = {
      at: one.at,
      name: one.body.rn,
      type: one.type,
      attributes: one.body,
      children: children.map(node),
      cut: false,
    };
    if (one.type === 'container') {
      instances[one.at] = {
        instances: below(one.at).map(({ body }) => ({
          name: body.rn,
          created: body.ct,
          content: body.con,
        })),
      };
    }
  }
  found['-'] = found[all[0].at];
  const measured = (ae) =>
    below(ae.at).filter(
      (child) =>
        child.type === 'container' && !['commands', 'results', 'about'].includes(child.body.rn),
    );
  const devices = all
    .filter((one) => one.type === 'AE')
    .map((ae) => ({
      name: ae.body.rn,
      address: ae.at,
      kind: ae.body.apn,
      state: 'associated',
      last: measured(ae)
        .map(({ body }) => body.lt)
        .sort()
        .at(-1),
      containers: measured(ae).map(({ body }) => body.rn),
    }));
  return { resources: found, instances, devices: { devices, outbox: null } };
}

function configuration() {
  const file = join(folder, 'gateway.toml');
  if (!existsSync(file)) return undefined;
  return {
    file: '/etc/gatewright/gateway.toml',
    text: readFileSync(file, 'utf8'),
    differences: [],
    findings: [],
    etag: '"1"',
  };
}
