import type { Link, Pair, Status } from './document';
import { since, type Buckets } from './histogram';

/** What passed between two statuses, a second. */
export interface Rates {
  /** Milliseconds since 1970 at the later one. */
  at: number;
  received: number;
  sent: number;
  receivedBits: number;
  sentBits: number;
  dropped: number;
  links: Map<string, LinkRates>;
  drops: Drop[];
  /** By the name of the flow. */
  flows: Map<string, number>;
  workers: number[];
}

export interface LinkRates {
  received: number;
  receivedBits: number;
  sent: number;
  sentBits: number;
}

export interface Drop {
  by: string;
  reason: string;
  rate: number;
  total: number;
}

export const seconds = (status: Status): number => status.uptime.secs + status.uptime.nanos / 1e9;

export const count = (pairs: Pair[] | undefined, name: string): number =>
  pairs?.find((pair) => pair[0] === name)?.[1] ?? 0;

/** Packets and octets of a link, those that its driver forwards alone included. */
function totals(link: Link): LinkRates {
  const driver = link.in_driver ?? [];
  const forwarded = driver.filter((row) => row.outcome === 'forwarded');
  const sum = (of: 'packets' | 'octets') => forwarded.reduce((total, row) => total + row[of], 0);
  return {
    received: count(link.counters, 'received') + sum('packets'),
    receivedBits: (count(link.counters, 'received_octets') + sum('octets')) * 8,
    sent: count(link.counters, 'sent'),
    sentBits: count(link.counters, 'sent_octets') * 8,
  };
}

/** What passes a gateway at one place: packets, messages, requests, reports. */
export interface Flow {
  name: string;
  count: number;
  /** Nanoseconds; null where they are not measured. */
  p50: number | null;
  p99: number | null;
  largest: number;
  buckets: Buckets;
}

/** All that passes: through graph, relays and programs, and to the services. */
export function flows(status: Status): Flow[] {
  const found: Flow[] = status.sojourn.map((of) => ({
    ...of,
    name: [of.mode, of.relay, of.handler].filter(Boolean).join(' · '),
  }));
  for (const part of status.parts) {
    const reports = part.histograms?.find((one) => one.name === 'report_ns');
    if (reports) found.push({ ...reports, name: 'reports of devices' });
    const requests = count(part.counters, 'requests');
    // The page's own are not the gateway's work.
    if (requests && part.name !== 'web') {
      const name = `requests to ${part.name}`;
      found.push({ name, count: requests, p50: null, p99: null, largest: 0, buckets: [] });
    }
  }
  return found.filter((flow) => flow.count > 0);
}

/** Drops with who dropped; those of layers of the same name and link are apart. */
export function dropTotals(status: Status): Drop[] {
  const name = (index: number | null) => status.links.find((link) => link.link === index)?.name;
  const drops: Drop[] = [];
  const add = (by: string, pairs: Pair[]) => {
    for (const [reason, total] of pairs) if (total > 0) drops.push({ by, reason, rate: 0, total });
  };
  for (const layer of status.layers) {
    const link = layer.link === null ? undefined : name(layer.link);
    add(link ? `${layer.layer} ${link}` : layer.layer, layer.drops);
  }
  add('no layer', status.unclaimed);
  for (const link of status.links) {
    add(
      `link ${link.name}`,
      link.counters.filter(([name]) => !NO_DROP.has(name)),
    );
  }
  for (const relay of status.udp_gateways) add(`udp gateway ${relay.name}`, [['lost', relay.lost]]);
  return drops;
}

/** Counters of a link that count no drop, as `gatewright top` has them. */
const NO_DROP = new Set([
  'received',
  'received_octets',
  'sent',
  'sent_octets',
  'partial_checksums',
  'checksums_completed',
  'super_frames',
  'super_frames_sent',
]);

export function rates(before: Status, now: Status, at: number): Rates | null {
  const time = seconds(now) - seconds(before);
  if (time <= 0.01) return null;
  const rate = (earlier: number, later: number) => Math.max(0, later - earlier) / time;
  const links = new Map<string, LinkRates>();
  const sum: LinkRates = { received: 0, receivedBits: 0, sent: 0, sentBits: 0 };
  for (const link of now.links) {
    const old = before.links.find((other) => other.name === link.name);
    const [earlier, later] = [totals(old ?? link), totals(link)];
    const of = { ...later };
    for (const key of Object.keys(of) as (keyof LinkRates)[]) {
      of[key] = rate(earlier[key], later[key]);
      sum[key] += of[key];
    }
    links.set(link.name, of);
  }
  const old = new Map(dropTotals(before).map((drop) => [drop.by + drop.reason, drop.total]));
  const drops = dropTotals(now).map((drop) => ({
    ...drop,
    rate: rate(old.get(drop.by + drop.reason) ?? 0, drop.total),
  }));
  const passed = new Map(flows(before).map((flow) => [flow.name, flow.count]));
  const passes = flows(now).map((flow): [string, number] => [
    flow.name,
    rate(passed.get(flow.name) ?? 0, flow.count),
  ]);
  return {
    at,
    ...sum,
    dropped: drops.reduce((total, drop) => total + drop.rate, 0),
    links,
    drops,
    flows: new Map(passes),
    workers: now.workers.map((worker, index) =>
      rate(before.workers[index]?.received ?? worker.received, worker.received),
    ),
  };
}

/** How long packets and requests stayed between two statuses, all together. */
export function stay(before: Status, now: Status): Buckets {
  const sums = new Map<number, number>();
  const earlier = new Map(flows(before).map((flow) => [flow.name, flow.buckets]));
  for (const { name, buckets } of flows(now)) {
    for (const [largest, more] of since(earlier.get(name) ?? [], buckets)) {
      sums.set(largest, (sums.get(largest) ?? 0) + more);
    }
  }
  return [...sums].sort((a, b) => a[0] - b[0]);
}
