import type { NetworkRoute } from './document';

/** Where a route leads, in words. */
export function way({ kind, via, link, next_hops }: NetworkRoute): string {
  const by = (via: string | null, link: string | null) =>
    [via, link && `by ${link}`].filter(Boolean).join(' ');
  if (next_hops.length)
    return next_hops
      .map((hop) => by(hop.via, hop.link) + (hop.left_out ? ', left out' : ''))
      .join('; ');
  return via ? by(via, link) : by(kind, link);
}
