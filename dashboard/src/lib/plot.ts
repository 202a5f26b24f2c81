/** Scales, marks of axes and paths of curves. */

export type Range = [low: number, high: number];

/** Seconds between two marks of a time axis. */
export const TIME_STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 604_800,
];

/** A linear scale, to a tenth of a pixel. */
export const scale =
  ([low, high]: Range, [from, to]: Range) =>
  (value: number): number =>
    Math.round((from + ((value - low) / (high - low)) * (to - from)) * 10) / 10;

/** The range of an axis that shows all values, with some room. */
export function spread(values: (number | null)[], zero: boolean): Range {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values)
    if (value !== null) [low, high] = [Math.min(low, value), Math.max(high, value)];
  if (zero) return [0, high > 0 ? high * 1.15 : 1];
  if (low > high) return [0, 1];
  const room = (high - low || Math.abs(high) || 1) * 0.15;
  return [low - room, high + room];
}

/** Marks at round values, at most so many distances apart; `among` has the distances if not any will do. */
export function steps([low, high]: Range, most: number, among?: number[]): number[] {
  const least = (high - low) / most;
  const ten = 10 ** Math.floor(Math.log10(least));
  const all = among ?? [1, 2, 5, 10].map((times) => times * ten);
  const step = all.find((one) => one >= least) ?? Math.ceil(least / all[all.length - 1]) * all[all.length - 1];
  const found = [];
  for (let index = Math.ceil(low / step); index * step <= high && found.length <= most; index += 1)
    found.push(+(index * step).toPrecision(12));
  return found;
}

/** Marks at round values that read differently, at most so many distances apart. */
export function marksOf(range: Range, most: number, text: (value: number) => string): number[] {
  for (let fewer = most; fewer > 1; fewer -= 1) {
    const found = steps(range, fewer);
    if (new Set(found.map(text)).size === found.length) return found;
  }
  return steps(range, 1);
}

/**
 * The path of a curve, with gaps where there is no value. With `down` each piece is closed at this
 * height; below zero it is a point for each value.
 */
export function path(
  times: number[],
  values: (number | null)[] | undefined,
  x: (time: number) => number,
  y: (value: number) => number,
  down?: number,
): string {
  let text = '';
  let last: number | null = null;
  let alone = false;
  const close = () => {
    if (last !== null && down !== undefined && down >= 0) text += `V${down}Z`;
    // A value between two gaps is a point.
    else if (last !== null && alone && down === undefined) text += 'h0';
    last = null;
  };
  times.forEach((time, index) => {
    const value = values?.[index];
    if (value === null || value === undefined) return close();
    const [left, top] = [x(time), y(value)];
    if (down === -1) text += `M${left} ${top}h0`;
    else if (last === null) text += down === undefined ? `M${left} ${top}` : `M${left} ${down}V${top}`;
    else text += `L${left} ${top}`;
    alone = last === null;
    last = left;
  });
  close();
  return text;
}
