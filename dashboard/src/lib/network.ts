import type { NetworkRoute } from './document';

/** The fields of a form that are filled in, without blanks around them. */
export function filled(fields: Iterable<[string, FormDataEntryValue]>): Record<string, string> {
  const texts = [...fields].map(([name, value]) => [name, String(value).trim()]);
  return Object.fromEntries(texts.filter(([, text]) => text));
}

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
