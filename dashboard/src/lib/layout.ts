import {
  forceLink,
  forceManyBody,
  forceX,
  forceY,
  type Force,
  type SimulationNodeDatum,
} from 'd3-force';
import type { Topology, TopologyLink, TopologyNode } from './topology';

/** A node at its place. */
export interface Placed extends SimulationNodeDatum {
  id: string;
  of: TopologyNode;
  x: number;
  y: number;
  pinned: boolean;
}

export interface Joined {
  source: Placed;
  target: Placed;
  of: TopologyLink;
}

/** Milliseconds of a frame that the layout may take, and how it cools (d3-force's terms). */
const STEP_MS = 8;
const DECAY = 0.035;

/** Pixels between two columns at the start, and of the whole. */
const ACROSS = 80;
const HEIGHT = 1400;
const ALPHA_MIN = 0.003;

type Places = Record<string, [x: number, y: number, pinned: 0 | 1]>;

/** Nodes whose places are remembered for one gateway. */
const REMEMBERED_MAX = 4000;

/** A layout that stands still once it has settled: who comes later finds a place among the others. */
export class Layout {
  nodes: Placed[] = [];
  links: Joined[] = [];
  moving = false;
  #known = new Map<string, Placed>();
  #forces: Force<Placed, never>[];
  #alpha = 0;
  #frame = 0;
  #moved: () => void;
  #links = forceLink<Placed, { source: Placed; target: Placed }>().distance(70);
  #key: string;
  #places: Places;

  constructor(self: string, moved: () => void) {
    this.#key = 'gatewright-places ' + self;
    this.#places = read(this.#key);
    this.#moved = moved;
    this.#forces = [
      forceManyBody<Placed>().strength(-150).distanceMax(420).theta(1.1),
      this.#links,
      forceX<Placed>().strength(0.035),
      forceY<Placed>().strength(0.05),
    ] as Force<Placed, never>[];
  }

  /** Takes a topology; known nodes keep their places. */
  update(topology: Topology): void {
    const fresh: Placed[] = [];
    const before = this.#known;
    const first = before.size === 0;
    this.#known = new Map();
    for (const of of topology.nodes) {
      const known = before.get(of.id);
      if (known) {
        known.of = of;
        this.#known.set(of.id, known);
        continue;
      }
      const [x, y, pinned] = this.#places[of.id] ?? [0, 0, 0];
      const placed: Placed = { id: of.id, of, x, y, pinned: pinned === 1 };
      if (this.#places[of.id]) hold(placed);
      else fresh.push(placed);
      this.#known.set(of.id, placed);
    }
    this.nodes = [...this.#known.values()];
    this.links = topology.links.flatMap((of) => {
      const [source, target] = [this.#known.get(of.source), this.#known.get(of.target)];
      return source && target ? [{ source, target, of }] : [];
    });
    if (fresh.length === 0) return;
    // The others stand.
    if (!first) for (const node of this.nodes) if (!fresh.includes(node)) hold(node);
    this.#begin(topology.self, fresh);
    this.#run(first ? 1 : 0.5);
  }

  /**
   * Columns from this node on, by the number of links to it; within a column near those before.
   * Few links cross at the start, and the same nodes begin at the same places.
   */
  #begin(self: string, fresh: Placed[]): void {
    const near = new Map<string, Placed[]>(this.nodes.map((node) => [node.id, []]));
    for (const { source, target } of this.links) {
      near.get(source.id)?.push(target);
      near.get(target.id)?.push(source);
    }
    const anew = new Set(fresh);
    const met = new Set<Placed>();
    let column = this.nodes.filter((node) => node.id === self);
    for (let depth = 0; column.length; depth += 1) {
      const height = Math.min(ACROSS, HEIGHT / column.length);
      column.forEach((node, index) => {
        const before = (near.get(node.id) ?? []).find(
          (other) => met.has(other) && !anew.has(other),
        );
        if (anew.has(node)) {
          node.x = before ? before.x + 10 : depth * ACROSS;
          node.y = (before?.y ?? 0) + (index - (column.length - 1) / 2) * (before ? 10 : height);
        }
      });
      column.forEach((node) => met.add(node));
      const next = new Map<Placed, number[]>();
      for (const node of column) {
        for (const other of near.get(node.id) ?? []) {
          if (!met.has(other)) next.set(other, [...(next.get(other) ?? []), node.y]);
        }
      }
      const mean = (ys: number[]) => ys.reduce((sum, y) => sum + y, 0) / ys.length;
      const order = [...next].map(([node, ys]): [Placed, number] => [node, mean(ys)]);
      order.sort((a, b) => a[1] - b[1] || (a[0].id < b[0].id ? -1 : 1));
      column = order.map(([node]) => node);
      // Nodes without a way to this one come last.
      if (!column.length) column = this.nodes.filter((node) => !met.has(node));
    }
  }

  #run(alpha: number): void {
    this.moving = true;
    this.#alpha = alpha;
    this.nodes.forEach((node, index) => {
      node.index = index;
      node.vx = node.vy = 0;
    });
    // Forces draw only where two nodes are at one place.
    let seed = 1;
    const draw = () => (seed = (seed * 16_807) % 2_147_483_647) / 2_147_483_647;
    for (const force of this.#forces) force.initialize?.(this.nodes, draw);
    this.#links.links(this.links.map(({ source, target }) => ({ source, target })));
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => this.#step());
  }

  /** As much of d3's simulation as fits into a frame. */
  #step(): void {
    const until = performance.now() + STEP_MS;
    do {
      this.#alpha *= 1 - DECAY;
      for (const force of this.#forces) force(this.#alpha);
      for (const node of this.nodes) {
        node.vx = (node.vx ?? 0) * 0.6;
        node.vy = (node.vy ?? 0) * 0.6;
        if (node.fx === undefined || node.fx === null) node.x += node.vx;
        else [node.x, node.vx] = [node.fx, 0];
        if (node.fy === undefined || node.fy === null) node.y += node.vy;
        else [node.y, node.vy] = [node.fy, 0];
      }
    } while (this.#alpha > ALPHA_MIN && performance.now() < until);
    if (this.#alpha > ALPHA_MIN) this.#frame = requestAnimationFrame(() => this.#step());
    else this.#settle();
    this.#moved();
  }

  #settle(): void {
    this.moving = false;
    for (const node of this.nodes) hold(node);
    this.#remember();
  }

  /** Puts a node somewhere, for good. */
  pin(node: Placed, x: number, y: number): void {
    node.pinned = true;
    node.x = x;
    node.y = y;
    hold(node);
  }

  dropped(): void {
    this.#remember();
  }

  /** Forgets pins and places, and begins anew. */
  release(topology: Topology): void {
    this.#places = {};
    this.#known.clear();
    this.update(topology);
  }

  get pins(): number {
    return this.nodes.filter((node) => node.pinned).length;
  }

  stop(): void {
    cancelAnimationFrame(this.#frame);
  }

  #remember(): void {
    for (const node of this.nodes)
      this.#places[node.id] = [Math.round(node.x), Math.round(node.y), node.pinned ? 1 : 0];
    const kept = Object.entries(this.#places).slice(-REMEMBERED_MAX);
    try {
      localStorage.setItem(this.#key, JSON.stringify(Object.fromEntries(kept)));
    } catch {
      // A browser that remembers nothing.
    }
  }
}

function hold(node: Placed): void {
  [node.fx, node.fy] = [node.x, node.y];
}

function read(key: string): Places {
  try {
    const places: unknown = JSON.parse(localStorage.getItem(key) ?? '{}');
    return places && typeof places === 'object' ? (places as Places) : {};
  } catch {
    return {};
  }
}
