// Makes a recording of what a gateway said:
//   node replay/record.js FOLDER NAME
// FOLDER has what `gatewright … --json` printed, with some seconds between the first and the second:
// status1.json, status2.json, and, if the gateway has it, events.json, mesh1.json, mesh2.json,
// trace.json, conversation.json, history.json, routes.json, neighbours.json, reports.json, resources.jsonl (a line {"a":path,"r":resource} for each), gateway.toml.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Short names of resource types (TS-0004 §8.2.4), as the API has them. */
const TYPES = { 1: 'acp', 2: 'ae', 3: 'cnt', 4: 'cin', 5: 'cb', 23: 'sub' };

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
  history: read('history.json'),
  routes: read('routes.json'),
  neighbours: read('neighbours.json'),
  reports: read('reports.json'),
  conversation: read('conversation.json'),
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
  const lines = readFileSync(join(folder, 'resources.jsonl'), 'utf8').trim().split('\n');
  const all = lines.map((line) => {
    const { a, r } = JSON.parse(line);
    const [body] = Object.values(r);
    return { at: a, type: TYPES[body.ty] ?? 'unknown', body };
  });
  const below = (at, type) =>
    all.filter(
      (one) => one.at.slice(0, one.at.lastIndexOf('/')) === at && (!type || one.type === type),
    );
  const [found, instances] = [{}, {}];
  for (const { at, type, body } of all.filter((one) => one.type !== 'cin')) {
    const children = below(at).filter((child) => child.type !== 'cin');
    const node = (child) => ({ name: child.body.rn, address: child.at, type: child.type });
    const own = {
      at,
      name: body.rn,
      type,
      attributes: body,
      children: children.map(node),
      cut: false,
    };
    found[at] = own;
    if (type === 'cb') found['-'] = { ...own, at: '-' };
    if (type !== 'cnt') continue;
    const reading = ({ body }) => ({ name: body.rn, created: rfc3339(body.ct), content: body.con });
    instances[at] = { instances: below(at, 'cin').map(reading) };
  }
  const devices = all
    .filter((one) => one.type === 'ae')
    .map(({ at, body }) => ({
      name: body.rn,
      address: at,
      kind: body.apn,
      labels: body.lbl,
      changed: rfc3339(body.lt),
      containers: below(at, 'cnt').map((one) => one.body.rn),
    }));
  return { resources: found, instances, devices: { devices, cut: false, outbox: { waiting: 0 } } };
}

/** A time of oneM2M (`20260101T120000,123456`) in the form of RFC 3339. */
function rfc3339(time) {
  return time.replace(/^(....)(..)(..)T(..)(..)(..),(.*)$/, '$1-$2-$3T$4:$5:$6.$7Z');
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
