// Serves the page and the API from a recording of a gateway, for development and for tests:
//   node replay/server.js [RECORDING | --api URL] [--port N] [--dev] [--token]
// With --api the API is that of a running gateway.
// A recording has two documents of each kind, some seconds apart. What moved between them goes on
// moving at the same rate.
import { createServer, request as ask } from 'node:http';
import { readFile } from 'node:fs/promises';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { advance, difference } from './moving.js';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const PAGE = process.env.GATEWRIGHT_PAGE ?? join(HERE, '../../crates/web/page');
const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
};
export const POLICY =
  "default-src 'self'; img-src 'self' data:; style-src 'self'; script-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/** What a gateway sends with a report, which is a foreign page. */
export const REPORT_FIELDS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy':
    "sandbox allow-downloads; default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'cross-origin-opener-policy': 'unsafe-none',
};

/** Paths of changes as the control socket takes them. */
const CHANGES = [
  'handlers/attach',
  'handlers/detach',
  'link',
  'routes/add',
  'routes/remove',
  'neighbours/add',
  'neighbours/remove',
  'neighbours/flush',
  'log/level',
];

function json(response, code, value) {
  response.writeHead(code, { 'content-type': 'application/json' });
  response.end(JSON.stringify(value));
}

/** A recorded gateway. */
class Replay {
  constructor(recording, role) {
    this.recording = recording;
    this.role = role;
    this.granted = role;
    this.began = Date.now();
    this.streams = new Set();
  }

  now(kind) {
    const share = (Date.now() - this.began) / 1000 / (this.recording.seconds ?? 10);
    return advance(this.recording[kind], share);
  }

  /** Answers with a document, or that there is none. */
  tell(response, value, missing) {
    if (value === undefined) json(response, 404, { error: missing });
    else json(response, 200, value);
  }

  async session(request, response) {
    if (request.method === 'POST') {
      const { token } = JSON.parse(await body(request));
      const error = 'the token is not known: `gatewright web token list` has the valid ones';
      if (token !== 'secret') return json(response, 401, { error });
      this.granted = 'admin';
    } else if (request.method === 'DELETE') this.granted = this.role;
    return json(response, 200, { role: this.granted });
  }

  stream(response) {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
    let [last, id] = [this.now('status'), 0];
    const send = (event, data) =>
      response.write(`id: ${(id += 1)}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
    send('snapshot', { status: last, events: this.recording.events ?? [], now_ms: Date.now() });
    const timer = setInterval(() => {
      const next = this.now('status');
      send('delta', difference(last, next) ?? {});
      last = next;
    }, 1000);
    this.streams.add(response);
    response.on('close', () => {
      clearInterval(timer);
      this.streams.delete(response);
    });
  }

  resources(response, query) {
    const at = query.get('at') ?? '-';
    const { resources, instances } = this.recording;
    if (!query.has('latest')) {
      const found = resources?.[at];
      const own = { by: 'role', role: this.granted, as: '/id-mn' };
      const granted = query.has('as') ? this.recording.granted?.[query.get('as')] : own;
      return this.tell(response, found && { ...found, granted }, `there is no ${at}`);
    }
    if (this.granted !== 'viewer')
      return this.tell(response, instances?.[at], `${at} holds nothing`);
    return json(response, 403, { error: 'readings are shown to operators' });
  }

  async trace(request, response) {
    const { position } = JSON.parse(await body(request));
    const { trace: packet, conversation } = this.recording;
    const none = { steps: [], took_ns: 0, gaps: [] };
    const trace = JSON.stringify((position ? conversation : packet) ?? none);
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(`event: trace\ndata: ${trace}\n\nevent: end\ndata: {}\n\n`);
  }

  /** The packet that was traced, as it passes each place. */
  async tap(request, response) {
    const { side } = JSON.parse(await body(request));
    const steps = this.recording.trace?.steps ?? [];
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const [index, { octets, len }] of steps.entries()) {
      const packet = { at_us: 1000 * index, side, link: null, len, octets: octets.slice(0, 256) };
      response.write(`event: packet\ndata: ${JSON.stringify(packet)}\n\n`);
    }
    response.end(`event: end\ndata: {"packets":${steps.length},"missed":0}\n\n`);
  }

  /** Takes any change but one to or at `nowhere`. */
  async change(request, response) {
    const asked = JSON.parse(await body(request));
    const error = 'nowhere is no network: 192.0.2.0/24, default';
    if (asked.at === 'nowhere') json(response, 400, { error: 'nowhere is no position' });
    else if (asked.to === 'nowhere') json(response, 400, { error });
    else json(response, 200, asked);
  }

  /** A page of a list, as the gateway answers it. */
  rows(response, name, query) {
    const all = this.recording[name]?.[name];
    const offset = Number(query.get('offset') ?? 0);
    const page = all?.slice(offset, offset + Number(query.get('limit') ?? 500));
    const document = all && { [name]: page, total: all.length };
    this.tell(response, document, 'this gateway has no links');
  }

  /** Answers a request of the API; returns whether it is one. */
  answer(request, response, { pathname, searchParams }) {
    const { recording } = this;
    const answers = {
      '/api/v1/session': () => this.session(request, response),
      '/api/v1/status': () => json(response, 200, this.now('status')),
      '/api/v1/stream': () => this.stream(response),
      '/api/v1/graph': () => this.tell(response, this.now('graph'), 'this gateway has no links'),
      '/api/v1/mesh': () => this.tell(response, this.now('mesh'), 'this gateway has no [mesh]'),
      '/api/v1/mesh/trace': async () => {
        const { node } = JSON.parse(await body(request));
        this.tell(response, recording.meshTrace && { node, ...recording.meshTrace }, 'no mesh');
      },
      '/api/v1/devices': () => this.tell(response, recording.devices, 'there are no [devices]'),
      '/api/v1/resources': () => this.resources(response, searchParams),
      '/api/v1/config': () => this.tell(response, recording.config, 'there is no file'),
      '/api/v1/config/history': () =>
        this.tell(response, recording.history, 'this gateway keeps no descriptions'),
      '/api/v1/config/differences': () =>
        json(response, 200, { changes: recording.config.differences }),
      '/api/v1/config/rollback': () =>
        json(response, 200, { changes: recording.config.differences }),
      '/api/v1/reload': () => json(response, 200, { changes: recording.config.differences }),
      '/api/v1/trace': () => this.trace(request, response),
      '/api/v1/tap': () => this.tap(request, response),
      '/api/v1/routes': () => this.rows(response, 'routes', searchParams),
      '/api/v1/neighbours': () => this.rows(response, 'neighbours', searchParams),
      ...Object.fromEntries(
        CHANGES.map((path) => [`/api/v1/${path}`, () => this.change(request, response)]),
      ),
      '/api/v1/lab/reports': () =>
        this.tell(response, recording.reports, 'this gateway shows no reports'),
      '/api/v1/lab/report': () => {
        response.writeHead(200, REPORT_FIELDS);
        response.end(recording.report ?? '<!doctype html><title>A report</title><h1>A report</h1>');
      },
    };
    const answer = answers[pathname];
    if (!answer) return false;
    if (this.granted || pathname === '/api/v1/session') answer();
    else json(response, 401, { error: 'a token is needed' });
    return true;
  }
}

/** Passes a request on to a running gateway. */
function pass(from, response, api) {
  const { method, url } = from;
  const headers = { ...from.headers, host: new URL(api).host };
  if (headers.origin) headers.origin = new URL(api).origin;
  const to = ask(new URL(url, api), { method, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  to.on('error', () => response.destroy());
  response.on('close', () => to.destroy());
  from.pipe(to);
}

/** Serves a recording, or the gateway at `api`; `role` is that of everybody, or null where a token is needed (`secret`). */
export async function serve(recording, { port = 0, role = 'admin', vite = null, api = null } = {}) {
  const replay = new Replay(recording, role);
  const server = createServer((request, response) => {
    const url = new URL(request.url, 'http://localhost');
    if (api && url.pathname.startsWith('/api/')) return pass(request, response, api);
    if (replay.answer(request, response, url)) return undefined;
    return vite ? vite.middlewares(request, response) : file(url.pathname, response);
  });
  await new Promise((listening) => server.listen(port, '127.0.0.1', listening));
  return {
    url: `http://127.0.0.1:${server.address().port}/`,
    /** Ends all streams, as a gateway does that ends. */
    drop: () => replay.streams.forEach((response) => response.destroy()),
    close: () => new Promise((closed) => (server.closeAllConnections(), server.close(closed))),
  };
}

async function body(request) {
  let text = '';
  for await (const chunk of request) text += chunk;
  return text;
}

async function file(path, response) {
  const name = normalize(path === '/' ? '/index.html' : path);
  try {
    const octets = await readFile(join(PAGE, name));
    response.writeHead(200, {
      'content-type': TYPES[extname(name)] ?? 'application/octet-stream',
      'content-security-policy': POLICY,
    });
    response.end(octets);
  } catch {
    response.writeHead(404, { 'content-type': 'text/plain' });
    response.end('there is no such file');
  }
}

export async function recorded(name) {
  return JSON.parse(await readFile(join(HERE, 'recordings', `${name}.json`), 'utf8'));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const words = process.argv.slice(2);
  const option = (name) => {
    const at = words.indexOf(name);
    return at < 0 ? undefined : words[at + 1];
  };
  const name =
    words.find(
      (word, index) => !word.startsWith('--') && !['--port', '--api'].includes(words[index - 1]),
    ) ?? 'router';
  let vite = null;
  if (words.includes('--dev')) {
    const { createServer: dev } = await import('vite');
    vite = await dev({ root: join(HERE, '..'), server: { middlewareMode: true } });
  }
  const { url } = await serve(await recorded(name), {
    port: Number(option('--port') ?? 8788),
    role: words.includes('--token') ? null : 'admin',
    vite,
    api: option('--api') ?? null,
  });
  console.log(`${name} at ${url}`);
}
