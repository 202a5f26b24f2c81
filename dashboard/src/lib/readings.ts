import type { Instances } from './document';
import { moment } from './time';

/** Readings of a container as a curve. */
export interface Curve {
  times: number[];
  /** Null where no reading came for long. */
  values: (number | null)[];
  unit: string;
}

/** The curve of those instances whose value is a number; null if there is none. */
export function curve(instances: Instances['instances']): Curve | null {
  const points: [time: number, value: number | null][] = [];
  let unit = '';
  for (const instance of instances) {
    const content = parsed(instance.content);
    const value = Number(content.value ?? NaN);
    const time = moment(String(content.received ?? instance.created)) / 1000;
    if (content.value === '' || !Number.isFinite(value) || !Number.isFinite(time)) continue;
    // UCUM: what is in braces is a remark.
    if (typeof content.unit === 'string')
      unit = content.unit.replace('Cel', '°C').replace(/[{}]/g, '');
    points.push([time, value]);
  }
  if (points.length === 0) return null;
  points.sort((a, b) => a[0] - b[0]);
  const shown = withGaps(points);
  return { times: shown.map((point) => point[0]), values: shown.map((point) => point[1]), unit };
}

/** So many usual intervals without a reading are a gap. */
const GAP_INTERVALS = 4;

/** Seconds up to which nothing is a gap: readings that come in groups have none inside. */
const GAP_SECONDS_MIN = 10;

/** The points, with one without a value in each gap. */
function withGaps(points: [number, number | null][]): [number, number | null][] {
  const intervals = points.slice(1).map(([time], index) => time - points[index][0]);
  const usual = [...intervals].sort((a, b) => a - b)[Math.floor((intervals.length - 1) / 2)] ?? 0;
  const most = Math.max(GAP_SECONDS_MIN, GAP_INTERVALS * usual);
  return points.flatMap((point, index) =>
    index > 0 && intervals[index - 1] > most
      ? [[(points[index - 1][0] + point[0]) / 2, null], point]
      : [point],
  );
}

function parsed(content: unknown): Record<string, unknown> {
  if (typeof content === 'number') return { value: content };
  if (typeof content === 'string') {
    try {
      return parsed(JSON.parse(content));
    } catch {
      return { value: content };
    }
  }
  return (content ?? {}) as Record<string, unknown>;
}
