/** Documents of the API, as far as the page reads them. Members that a gateway does not have are missing. */

export type Pair = [name: string, value: number];

export interface Times {
  count: number;
  sum: number;
  largest: number;
  p50: number | null;
  p99: number | null;
  buckets: [largest: number, count: number][];
}

export interface Link {
  link: number;
  name: string;
  device: string;
  mode: string;
  why: string;
  up: boolean;
  state: string;
  mtu: number;
  mac: string | null;
  addresses: string[];
  queues: { queue: number; worker: number }[];
  counters: Pair[];
  forwarding: string;
  in_driver: { outcome: string; packets: number; octets: number }[];
}

export interface Way {
  at: string;
  side: string;
  link: number | null;
  layer: string | null;
  to_device: boolean;
  packets: number;
}

export interface Sojourn extends Times {
  mode: string;
  relay?: string;
  handler?: string;
}

export interface Part {
  name: string;
  words: [string, string][];
  gauges: Pair[];
  counters: Pair[];
  alarms?: { name: string; raised: number }[];
  histograms?: (Times & { name: string })[];
  handlers?: {
    program: string;
    handler: string;
    started: number;
    finished: number;
    failed: number;
  }[];
}

/** The nodes of a mesh path that were asked in turn. */
export interface MeshTrace {
  node: string;
  reached: boolean;
  hops: { hop: number; node?: string; label?: number; rtt_us?: number; error?: string }[];
}

/** The delay of a hop, as somebody outside of the gateway measures it. */
export interface Hop {
  name: string;
  median_ms: number | null;
  budget_ms: number;
}

export interface Status {
  hops?: Hop[];
  planes: {
    mode: string;
    control: number;
    data: number | null;
    running: boolean;
    adopted: boolean;
    version: string;
  };
  uptime: { secs: number; nanos: number };
  links: Link[];
  /** Links that do not forward, in a gateway with links in several networks. */
  not_forwarding?: string[];
  layers: { layer: string; link: number | null; drops: Pair[] }[];
  ways: Way[];
  unclaimed: Pair[];
  icmp: {
    ip_version: number;
    type: number | null;
    message: string;
    received: number;
    sent: number;
    rate_limited: number;
  }[];
  handlers: { id: number; at: string; taken: number }[];
  kernel: {
    routes: number;
    forwarded: number;
    neighbours: number;
    renewed: number;
    overruns: number;
    withdrawn: boolean;
  } | null;
  sojourn: Sojourn[];
  workers: { worker: number; received: number; taken: number; given: number }[];
  next_hops: {
    link: string;
    via: string | null;
    packets: number;
    octets: number;
    in_graph: number;
  }[];
  attached: {
    id: number;
    handler: string;
    at: string;
    packets: number | null;
    octets: number | null;
    missed: number | null;
    messages?: number;
    refused?: number;
  }[];
  udp_gateways: { name: string; received: number; sent: number; returned: number; lost: number }[];
  parts: Part[];
  delays?: RelayDelay[];
  events: { part: string; kind: string; level: Level; events: number; suppressed: number }[];
}

export type Level = 'error' | 'warning' | 'info' | 'debug';

export interface LogEntry {
  sequence: number;
  time: string;
  level: Level;
  part: string;
  kind: string;
  fields: Record<string, string>;
  text: string;
}

export interface Snapshot {
  status: Status;
  events: LogEntry[];
  now_ms: number;
}

export type Role = 'viewer' | 'operator' | 'admin';

export interface MeshPath {
  classes: number[];
  role: 'primary' | 'backup';
  carries: boolean;
  path: string;
  link: string;
  next: string;
  label: number;
  relays: string[];
  frame_limit: number;
}

export interface Mesh {
  node: string;
  interface: string;
  profile: string;
  trust: string;
  uptime_s: number;
  links: { link: string; state: string; mac: string | null; mtu: number | null; frames: Pair[] }[];
  neighbours: { node: string; link: string; up: boolean; since_s: number }[];
  destinations: { node: string; paths: MeshPath[] }[];
  labels: number;
  counters: Pair[];
}

export interface Device {
  name: string;
  address: string;
  kind: string | null;
  labels: string[];
  changed: string | null;
  containers: string[];
  /** Null for an application entity that is no device's, as the next two are. */
  associated: boolean | null;
  silent: boolean | null;
  last_heard: string | null;
}

export interface Devices {
  devices: Device[];
  cut: boolean;
  outbox: { waiting: number } | null;
}

export interface Resource {
  at: string;
  name: string;
  type: string;
  attributes?: Record<string, unknown> | null;
  children: { name: string; address: string; type: string }[];
  cut?: boolean;
  granted?: Granted | null;
}

/** Why somebody may retrieve a resource. */
export interface Granted {
  by: string;
  as: string;
  role?: string;
  at?: string;
  policy?: string;
  rule?: number;
  originators?: string[];
  operations?: string[];
}

export interface Instances {
  instances: { name: string; created: string; content: unknown }[];
}

/** Packets that were measured at one place since somebody looks, and nanoseconds for all of them. */
export interface Measured {
  packets: number;
  ns: number;
}

export interface Graph {
  layers: { layer: string; link: number | null; measured?: Measured | null }[];
  edges: {
    from: number | null;
    to: number | 'device' | null;
    at: string;
    side: string;
    link: number | null;
    packets: number;
    measured?: Measured | null;
  }[];
  attached?: { id: number; measured?: Measured | null }[];
}

export interface Trace {
  took_ns: number;
  steps: {
    at: string;
    side: string;
    to: string;
    handlers: number[];
    took_ns: number;
    len: number;
    octets: string;
    notes: string[];
    changed: string[];
    outcome: string;
  }[];
}

export interface Configuration {
  file: string | null;
  text: string;
  running?: string;
  differences: Difference[];
  findings: {
    severity: string;
    code: string;
    message: string;
    line?: number;
    column?: number;
    text?: string;
  }[];
  etag?: string;
}

/** The descriptions that were taken, the oldest first. */
export interface DescriptionHistory {
  kept: { number: number; time: string; cause: string; octets: number; in_force: boolean }[];
  etag: string;
}

export interface Difference {
  what: string;
  how: string;
}

/** A message of a program: the conversation in which it came, as a test. */
export interface Conversation {
  handler: string;
  steps: { at_us: number; role: string; does: string; octets: string }[];
  gaps: string[];
  test?: {
    name: string;
    file: string;
    text: string;
    passed: boolean;
    steps: {
      what: string;
      who: string;
      text: string;
      place: { file: string; line: number } | null;
    }[];
  };
}

/** The delay model of a relay or program. */
export interface RelayDelay {
  mode: string;
  relay?: string;
  handler?: string;
  seconds: number;
  samples: number;
  rate: number;
  a_us: number;
  c_ns: number | null;
  load: number;
  predicted_p99_us: number | null;
  measured_p99_us: number;
  drifts: boolean;
}

/** A route in force. */
export interface NetworkRoute {
  to: string;
  kind: string;
  via: string | null;
  link: string | null;
  next_hops: { via: string | null; link: string; weight: number; left_out: boolean }[];
  origin: string;
}

/** A neighbour on a link. */
export interface Neighbour {
  link: string;
  address: string;
  mac: string | null;
  state: string;
}

/** Reports of the delay lab, the newest first. */
export interface LabReports {
  reports: { name: string; title: string; octets: number; written_ms: number }[];
  left_out: number;
  problem: string | null;
}
