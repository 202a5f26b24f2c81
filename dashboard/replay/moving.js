// Documents that go on as they went between two of them.

/** A document after `share` of the time between the two of `pair`; one alone stands still. */
export function advance(pair, share) {
  if (!Array.isArray(pair)) return pair;
  const [first, second] = pair;
  // Rates of a real gateway are never quite even.
  return between(first, second, share + 0.06 * Math.sin(share * 9) + 0.02 * Math.sin(share * 41));
}

function between(first, second, share) {
  if (typeof second === 'number') {
    if (typeof first !== 'number' || first === second) return second;
    const value = first + (second - first) * share;
    return Number.isInteger(second) ? Math.max(0, Math.floor(value)) : value;
  }
  if (Array.isArray(second)) {
    // Buckets of histograms: [largest, count]. A bucket that was not there began with nothing.
    if (
      Array.isArray(first) &&
      second.every((one) => Array.isArray(one) && one.length === 2 && typeof one[0] === 'number')
    ) {
      const before = new Map(first);
      return second.map(([largest, count]) => [
        largest,
        between(before.get(largest) ?? 0, count, share),
      ]);
    }
    return second.map((value, index) =>
      Array.isArray(first) && index < first.length ? between(first[index], value, share) : value,
    );
  }
  if (second !== null && typeof second === 'object') {
    if (first === null || typeof first !== 'object') return second;
    // A time of two members.
    if ('secs' in second && 'nanos' in second) {
      const time = (of) => of.secs + of.nanos / 1e9;
      const value = time(first) + (time(second) - time(first)) * share;
      return { secs: Math.floor(value), nanos: Math.floor((value % 1) * 1e9) };
    }
    return Object.fromEntries(
      Object.entries(second).map(([name, value]) => [
        name,
        STILL.has(name) ? value : between(first[name], value, share),
      ]),
    );
  }
  return second;
}

/** Numbers that count nothing. */
const STILL = new Set([
  'link',
  'mtu',
  'control',
  'data',
  'type',
  'ip_version',
  'id',
  'worker',
  'queue',
  'label',
  'p50',
  'p99',
  'largest',
  'classes',
]);

/** The merge patch (RFC 7396) from one document to another; undefined if they are the same. */
export function difference(before, after) {
  if (before === after) return undefined;
  const plain = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
  if (!plain(before) || !plain(after))
    return JSON.stringify(before) === JSON.stringify(after) ? undefined : after;
  const patch = {};
  for (const name of Object.keys(before)) if (!(name in after)) patch[name] = null;
  for (const [name, value] of Object.entries(after)) {
    const changed = difference(before[name], value);
    if (changed !== undefined) patch[name] = changed;
  }
  return Object.keys(patch).length ? patch : undefined;
}
