import { ask, change } from './api';
import type { LogEntry, Mesh, Role, Snapshot, Status } from './document';
import { quantile, type Buckets } from './histogram';
import { merge } from './merge';
import { rates, stay, type Rates } from './rates';

/** Samples that are kept: ten minutes at one a second. */
export const SAMPLES_MAX = 600;

/** Events that are kept. */
const EVENTS_MAX = 500;

/** Samples over which the delays of the moment are taken. */
const STAY_WINDOW = 5;

/** One second of a gateway. */
export interface Sample {
  at: number;
  rates: Rates;
  p50: number | null;
  p99: number | null;
}

export type Connection = 'connecting' | 'live' | 'lost' | 'refused';

/** Whether a gateway shows reports of the delay lab. */
export const hasReports = (status: Status | null): boolean =>
  !!status?.parts.some(({ name, words }) => name === 'web' && words.some(([it]) => it === 'reports'));

/** The gateway as this page knows it. */
class Gateway {
  connection = $state.raw<Connection>('connecting');
  /** Since when nothing has come, in milliseconds since 1970. */
  lostAt = $state.raw(0);
  status = $state.raw<Status | null>(null);
  events = $state.raw<LogEntry[]>([]);
  missed = $state.raw(0);
  role = $state.raw<Role | null>(null);
  mesh = $state.raw<Mesh | null>(null);
  /** What this gateway answers below `/api/v1/`, of what only some have. */
  answers = $state.raw<ReadonlySet<string>>(new Set());
  /** Grows with each sample; reading it follows `samples`, which is changed in place. */
  tick = $state.raw(0);
  samples: Sample[] = [];
  /** The mesh as it was, the oldest first. */
  past = $state.raw<{ at: number; mesh: Mesh }[]>([]);

  #previous: Status | null = null;
  #stays: Buckets[] = [];
  #source: EventSource | null = null;
  #timers: number[] = [];
  #meshTag = '';

  /** The latest sample. */
  get now(): Sample | undefined {
    void this.tick;
    return this.samples[this.samples.length - 1];
  }

  /** Whether the caller may make changes and look at packets. */
  get operates(): boolean {
    return this.role === 'operator' || this.role === 'admin';
  }

  async start(): Promise<void> {
    this.stop();
    this.connection = 'connecting';
    try {
      this.role = (await ask<{ role: Role | null }>('/api/v1/session')).role;
      if (this.role === null) {
        this.connection = 'refused';
        return;
      }
    } catch {
      // No gateway for the moment: the stream tells when there is one.
    }
    this.#open();
    this.#every(2000, () => this.#lookMesh());
  }

  stop(): void {
    this.#source?.close();
    this.#source = null;
    for (const timer of this.#timers) clearInterval(timer);
    this.#timers = [];
  }

  async signIn(token: string): Promise<void> {
    const session = await change<{ role: Role }>('session', { token });
    await this.start();
    this.role = session.role;
  }

  async signOut(): Promise<void> {
    await ask('/api/v1/session', { method: 'DELETE' });
    await this.start();
  }

  #every(milliseconds: number, look: () => unknown): void {
    look();
    this.#timers.push(setInterval(() => document.hidden || look(), milliseconds));
  }

  #open(): void {
    const source = new EventSource('/api/v1/stream');
    this.#source = source;
    const on = (name: string, take: (data: unknown) => void) =>
      source.addEventListener(name, (message) => {
        this.connection = 'live';
        take(JSON.parse((message as MessageEvent<string>).data));
      });
    on('snapshot', (data) => this.#snapshot(data as Snapshot));
    on('delta', (patch) => this.#take(merge(this.status, patch) as Status, Date.now()));
    on('event', (data) => this.#log([data as LogEntry]));
    on('missed', (data) => (this.missed += (data as { missed?: number }).missed ?? 1));
    source.onerror = () => {
      if (this.connection !== 'lost') this.lostAt = Date.now();
      this.connection = 'lost';
      // The browser gives up after an answer that is no stream.
      if (source.readyState === EventSource.CLOSED) {
        const timer = setTimeout(() => this.start(), 3000);
        this.#timers.push(timer);
      }
    };
  }

  #snapshot(snapshot: Snapshot): void {
    // A restarted gateway counts anew.
    const uptime = this.#previous?.uptime.secs ?? 0;
    if (snapshot.status.uptime.secs < uptime) {
      this.#previous = null;
      this.events = [];
    }
    this.#take(snapshot.status, Date.now());
    this.#log(snapshot.events);
    if (!this.answers.size) this.#find(snapshot.status);
  }

  /** Finds what there is of the API, for a gateway that has its subject. */
  async #find(status: Status): Promise<void> {
    const has = (name: string) => status.parts.some((part) => part.name === name);
    const wanted = [
      ...(has('devices') ? ['devices'] : []),
      ...(has('cse') ? ['resources'] : []),
      ...(status.links.length ? ['graph', 'routes'] : []),
    ];
    const found = await Promise.all(
      wanted.map(async (name) => {
        const answer = await fetch(`/api/v1/${name}`, { method: 'HEAD' }).catch(() => null);
        return answer && answer.status !== 404 ? [name] : [];
      }),
    );
    this.answers = new Set(found.flat());
  }

  #take(status: Status, at: number): void {
    if (!status?.links) return;
    const previous = this.#previous;
    if (previous) {
      const found = rates(previous, status, at);
      if (!found) {
        this.status = status;
        return;
      }
      this.#stays.push(stay(previous, status));
      if (this.#stays.length > STAY_WINDOW) this.#stays.shift();
      const sums = new Map<number, number>();
      for (const buckets of this.#stays) {
        for (const [largest, count] of buckets) sums.set(largest, (sums.get(largest) ?? 0) + count);
      }
      const all = [...sums].sort((a, b) => a[0] - b[0]);
      this.samples.push({ at, rates: found, p50: quantile(all, 0.5), p99: quantile(all, 0.99) });
      if (this.samples.length > SAMPLES_MAX) this.samples.shift();
    }
    this.#previous = status;
    this.status = status;
    this.tick += 1;
  }

  #log(entries: LogEntry[]): void {
    const last = this.events[0]?.sequence ?? 0;
    const fresh = entries
      .filter((entry) => entry.sequence > last)
      .sort((a, b) => b.sequence - a.sequence);
    if (fresh.length) this.events = [...fresh, ...this.events].slice(0, EVENTS_MAX);
  }

  async #lookMesh(): Promise<void> {
    if (!this.status?.parts.some((part) => part.name === 'mesh')) return;
    try {
      const headers: HeadersInit = this.#meshTag ? { 'if-none-match': this.#meshTag } : {};
      const answer = await fetch('/api/v1/mesh', { headers });
      if (answer.status === 304) return;
      if (!answer.ok) {
        this.mesh = null;
        return;
      }
      this.#meshTag = answer.headers.get('etag') ?? '';
      const mesh = (await answer.json()) as Mesh;
      this.mesh = mesh;
      const now = Date.now();
      const kept = this.past.filter(({ at }) => at > now - SAMPLES_MAX * 1000);
      this.past = [...kept, { at: now, mesh }];
    } catch {
      // The stream tells that the gateway is gone.
    }
  }
}

export const gateway = new Gateway();
