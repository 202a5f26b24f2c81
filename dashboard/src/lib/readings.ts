import type { Instances } from './document';
import { moment } from './time';

/** Readings of a container as a curve. */
export interface Curve {
  times: number[];
  values: number[];
  unit: string;
}

/** The curve of those instances whose value is a number; null if there is none. */
export function curve(instances: Instances['instances']): Curve | null {
  const points: [time: number, value: number][] = [];
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
  return { times: points.map((point) => point[0]), values: points.map((point) => point[1]), unit };
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
