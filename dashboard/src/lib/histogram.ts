import type { Times } from './document';

export type Buckets = Times['buckets'];

/** Counts of `later` that `earlier` does not have. A restart begins anew. */
export function since(earlier: Buckets, later: Buckets): Buckets {
  const before = new Map(earlier);
  const grown: Buckets = [];
  for (const [largest, count] of later) {
    const more = count - (before.get(largest) ?? 0);
    if (more < 0) return later;
    if (more > 0) grown.push([largest, more]);
  }
  return grown;
}

/** The least bound that holds the share `part` (0 to 1) of the values; null without values. */
export function quantile(buckets: Buckets, part: number): number | null {
  const count = buckets.reduce((sum, bucket) => sum + bucket[1], 0);
  if (count === 0) return null;
  let left = Math.max(1, Math.ceil(count * part));
  for (const [largest, own] of buckets) {
    left -= own;
    if (left <= 0) return largest;
  }
  return null;
}
