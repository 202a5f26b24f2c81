/** Numbers and times in words, short and of constant width where they change. */

import { moment } from './time';

const PREFIXES: [least: number, prefix: string][] = [
  [1e12, 'T'],
  [1e9, 'G'],
  [1e6, 'M'],
  [1e3, 'k'],
];

/** At most four digits and a prefix. */
export function scaled(value: number, unit = ''): string {
  const found = PREFIXES.find(([least]) => value >= least);
  const [number, prefix] = found ? [value / found[0], found[1]] : [value, ''];
  const digits = number === 0 || number >= 100 || (!prefix && Number.isInteger(number)) ? 0 : 1;
  const tail = prefix + unit;
  return number.toFixed(digits) + (tail ? ' ' + tail : '');
}

/** A count with separated thousands. */
export const whole = (value: number): string => value.toLocaleString('en-GB').replaceAll(',', ' ');

/** Nanoseconds with a fitting unit. */
export function delay(ns: number | null | undefined): string {
  if (ns === null || ns === undefined) return '–';
  const [value, unit] =
    ns < 1e3
      ? [ns, 'ns']
      : ns < 1e6
        ? [ns / 1e3, 'µs']
        : ns < 1e9
          ? [ns / 1e6, 'ms']
          : [ns / 1e9, 's'];
  return `${value.toFixed(value < 100 && unit !== 'ns' ? 1 : 0)} ${unit}`;
}

/** Seconds as the two largest units. */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s / 60) % 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s / 3600) % 24)} h`;
}

/** The time of day of a moment, with seconds. */
export function clock(at: string | number): string {
  const date = new Date(moment(at));
  return Number.isNaN(date.getTime()) ? String(at) : date.toLocaleTimeString('en-GB');
}

/** A moment with its day, unless that is today. */
export function when(at: string | number): string {
  const date = new Date(moment(at));
  if (Number.isNaN(date.getTime())) return String(at);
  const day =
    date.toDateString() === new Date().toDateString() ? '' : date.toLocaleDateString('en-CA') + ' ';
  return day + date.toLocaleTimeString('en-GB');
}

/** The name of a resource type (TS-0004 §8.2.4). */
export const typeName = (short: string): string => TYPES[short] ?? short;

const TYPES: Record<string, string> = {
  acp: 'access control policy',
  ae: 'application entity',
  cb: 'CSE base',
  cnt: 'container',
  csr: 'remote CSE',
  fcnt: 'flex container',
  grp: 'group',
  sub: 'subscription',
  ts: 'time series',
};

/** A name of the gateway's reports as words. */
export const words = (name: string): string => name.replaceAll('_', ' ').replaceAll('-', ' ');
