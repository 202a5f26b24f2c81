import type { Graph, Measured } from './document';

/** A layer, or a device, at its place in the drawing. */
export interface Box {
  key: string;
  name: string;
  link: number | null;
  /** Index in the graph's layers; -1 for a device. */
  layer: number;
  x: number;
  y: number;
}

/** All edges between two boxes, of both directions. */
export interface Line {
  key: string;
  from: Box;
  to: Box;
  edges: number[];
}

export interface Drawing {
  boxes: Box[];
  lines: Line[];
  width: number;
  height: number;
}

export const BOX = { width: 118, height: 46, across: 78, down: 20 };

/** The mean nanoseconds of a packet that was measured between two looks; null if none was. */
export function mean(before?: Measured | null, now?: Measured | null): number | null {
  if (!now) return null;
  // A measurement that began anew meanwhile has fewer.
  const since = before && before.packets <= now.packets && before.ns <= now.ns ? before : null;
  const packets = now.packets - (since?.packets ?? 0);
  return packets > 0 ? (now.ns - (since?.ns ?? 0)) / packets : null;
}

/** The mean times of all places of a kind; of a place that no packet passed meanwhile, that of before. */
export const means = (
  before: { measured?: Measured | null }[] | undefined,
  now: { measured?: Measured | null }[] | undefined,
  known: (number | null)[],
): (number | null)[] =>
  (now ?? []).map(
    ({ measured }, index) => mean(before?.[index]?.measured, measured) ?? known[index] ?? null,
  );

/** Columns by the way up from the devices; within a column near those that send to it. */
export function draw(graph: Graph): Drawing {
  const boxes = boxesOf(graph);
  const [lines, up] = linesOf(graph, boxes);
  const depth = depths(boxes, lines, up);
  const columns: Box[][] = [];
  for (const one of boxes) (columns[depth.get(one) ?? 0] ??= []).push(one);
  const filled = columns.filter(Boolean);
  const most = Math.max(...filled.map((column) => column.length));
  const height = most * (BOX.height + BOX.down);
  filled.forEach((column, index) => {
    if (index > 0) {
      const middle = (one: Box) => {
        const before = near(one, lines).filter(
          (end) => (depth.get(end) ?? 0) < (depth.get(one) ?? 0),
        );
        return before.length ? before.reduce((sum, end) => sum + end.y, 0) / before.length : height;
      };
      const order = new Map(column.map((one) => [one, middle(one)]));
      column.sort((a, b) => (order.get(a) ?? 0) - (order.get(b) ?? 0));
    }
    const room = height / column.length;
    column.forEach((one, row) => {
      one.x = index * (BOX.width + BOX.across);
      one.y = room * (row + 0.5) - BOX.height / 2;
    });
  });
  return { boxes, lines, width: filled.length * (BOX.width + BOX.across) - BOX.across, height };
}

/** The boxes at the other ends of a box's lines. */
const near = (box: Box, lines: Line[]): Box[] =>
  lines.flatMap(({ from, to }) => (from === box ? [to] : to === box ? [from] : []));

/** Devices, then layers. */
function boxesOf(graph: Graph): Box[] {
  const ends = graph.edges.filter((edge) => edge.from === null || edge.to === 'device');
  const box = (key: string, name: string, link: number | null, layer: number): Box => ({
    key,
    name,
    link,
    layer,
    x: 0,
    y: 0,
  });
  return [
    ...[...new Set(ends.map((edge) => edge.link))].map((link) =>
      box(`d${link}`, 'device', link, -1),
    ),
    ...graph.layers.map(({ layer, link }, index) => box(`l${index}`, layer, link, index)),
  ];
}

/** Lines, and the pairs of boxes of which the second receives from the first. */
function linesOf(graph: Graph, boxes: Box[]): [Line[], [Box, Box][]] {
  const box = (end: number | 'device' | null, link: number | null) =>
    boxes.find((one) =>
      end === null || end === 'device' ? one.layer < 0 && one.link === link : one.layer === end,
    );
  const lines = new Map<string, Line>();
  const up: [Box, Box][] = [];
  graph.edges.forEach((edge, index) => {
    if (edge.to === null) return;
    const [from, to] = [box(edge.from, edge.link), box(edge.to, edge.link)];
    if (!from || !to || from === to) return;
    if (edge.side === 'receive' && !edge.at.startsWith('error')) up.push([from, to]);
    const key = [from.key, to.key].sort().join(' ');
    const line = lines.get(key);
    if (line) line.edges.push(index);
    else lines.set(key, { key, from, to, edges: [index] });
  });
  return [[...lines.values()], up];
}

/** The column of each box: the longest way up; bounded, as handlers may lead a packet in a circle. */
function depths(boxes: Box[], lines: Line[], up: [Box, Box][]): Map<Box, number> {
  const depth = new Map(boxes.map((one) => [one, one.layer < 0 ? 0 : 1]));
  for (let moved = true, round = 0; moved && round < boxes.length; round += 1) {
    moved = false;
    for (const [from, to] of up) {
      const least = (depth.get(from) ?? 0) + 1;
      if (least > (depth.get(to) ?? 0) && least < COLUMNS_MAX) {
        depth.set(to, least);
        moved = true;
      }
    }
  }
  // Layers that only send stand behind those to which they do.
  for (const one of boxes) {
    if (one.layer >= 0 && !up.some(([, to]) => to === one)) {
      depth.set(one, Math.max(0, ...near(one, lines).map((end) => depth.get(end) ?? 0)) + 1);
    }
  }
  return depth;
}

const COLUMNS_MAX = 12;
